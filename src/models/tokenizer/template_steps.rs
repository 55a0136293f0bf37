//! Whether texts begin and end with tokens that are added to them, as the step behind the model says.
//!
//! llama.cpp's converter reads only simple templates (`gguf-py`, `SpecialVocab`); the same conditions are here, in the same
//! order, since its flags and the tokens that it renames depend on it.

use serde_json::{Map, Value as Json};

use super::json_steps::kind;

/// The flags and names that the steps lead to.
#[derive(Debug)]
pub(super) struct AddedEnds<'c> {
    /// `tokenizer_config.json`.
    config: &'c Map<String, Json>,
    /// The tokens to which the steps give a role, by keys of the configuration.
    names: Map<String, Json>,
    /// The roles that are looked up; the steps add some.
    pub(super) roles: Vec<&'static str>,
    /// Flags by role, in the order in which they were set.
    pub(super) flags: Vec<(&'static str, bool)>,
    bos: Json,
    cls: Json,
    eos: Json,
    sep: Json,
}

/// Whether Python takes a value for true.
fn is_true(value: &Json) -> bool {
    match value {
        Json::Null => false,
        Json::Bool(flag) => *flag,
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::String(text) => !text.is_empty(),
        Json::Array(list) => !list.is_empty(),
        Json::Object(map) => !map.is_empty(),
    }
}

/// The token that a part of a template is, or null.
fn token(part: Option<&Json>) -> Json {
    let token = part.and_then(|part| part.get("SpecialToken")?.get("id"));
    token.filter(|id| is_true(id)).cloned().unwrap_or_default()
}

fn sequence(part: Option<&Json>) -> Option<&str> {
    part?.get("Sequence")?.get("id")?.as_str()
}

impl<'c> AddedEnds<'c> {
    pub(super) fn new(config: &'c Map<String, Json>, roles: &[&'static str]) -> Self {
        let get = |key: &str| config.get(key).cloned().unwrap_or_default();
        let (bos, cls) = (get("bos_token"), get("cls_token"));
        let (eos, sep) = (get("eos_token"), get("sep_token"));
        Self {
            config,
            names: Map::new(),
            roles: roles.to_vec(),
            flags: Vec::new(),
            bos,
            cls,
            eos,
            sep,
        }
    }

    /// An empty configuration is as good as none.
    fn has_config(&self) -> bool {
        !self.config.is_empty()
    }

    /// A value of the configuration, as the steps have changed it.
    pub(super) fn configured(&self, key: &str) -> Option<&Json> {
        self.names.get(key).or_else(|| self.config.get(key))
    }

    fn name(&mut self, key: &str, token: &Json) {
        self.names.insert(key.to_owned(), token.clone());
    }

    pub(super) fn set(&mut self, role: &'static str, flag: bool) {
        match self.flags.iter_mut().find(|(known, _)| *known == role) {
            Some((_, earlier)) => *earlier = flag,
            None => self.flags.push((role, flag)),
        }
    }

    pub(super) fn flag(&self, role: &str) -> Option<bool> {
        let found = self.flags.iter().find(|(known, _)| *known == role);
        found.map(|(_, flag)| *flag)
    }

    /// Reads the step behind the model.
    pub(super) fn read(&mut self, post_processor: &Json) {
        // BERT's names for the first and the last token
        if !is_true(&self.bos) && is_true(&self.cls) && self.has_config() {
            self.bos = self.cls.clone();
            self.name("bos_token", &self.bos.clone());
        }
        if !is_true(&self.eos) && is_true(&self.sep) && self.has_config() {
            self.eos = self.sep.clone();
            self.name("eos_token", &self.eos.clone());
        }
        let one = std::slice::from_ref(post_processor);
        let steps = match post_processor.get("processors") {
            Some(Json::Array(steps)) => steps,
            _ => one,
        };
        for step in steps {
            match kind(step) {
                "ByteLevel" => {
                    for role in ["bos", "eos"] {
                        if self.flag(role).is_none() {
                            self.set(role, false);
                        }
                    }
                }
                "RobertaProcessing" => self.read_roberta(step),
                "TemplateProcessing" => self.read_template(step),
                _ => {}
            }
        }
    }

    fn read_roberta(&mut self, step: &Json) {
        for role in ["bos", "eos", "sep"] {
            self.set(role, true);
        }
        let named = |key: &str, default: &Json| match step.get(key) {
            Some(Json::Array(pair)) => pair.first().cloned().unwrap_or_default(),
            _ => default.clone(),
        };
        if !is_true(&self.cls) && self.has_config() {
            self.cls = named("cls", &self.bos);
            self.name("cls_token", &self.cls.clone());
        }
        if !is_true(&self.sep) && self.has_config() {
            self.sep = named("sep", &self.eos);
            self.name("sep_token", &self.sep.clone());
        }
    }

    fn read_template(&mut self, step: &Json) {
        let list = |key: &str| step.get(key).and_then(Json::as_array);
        let single = list("single").map_or(&[][..], Vec::as_slice);
        let (mut first, mut last) = (Json::Null, Json::Null);
        if single.len() > 1 {
            first = token(single.first());
            if is_true(&first) {
                self.read_first(&first);
            }
            last = token(single.last());
            if is_true(&last) {
                self.read_last(&last);
            }
        }
        let pair = list("pair").map_or(&[][..], Vec::as_slice);
        self.read_pair(pair, &first, &last);
    }

    fn read_first(&mut self, first: &Json) {
        if !self.has_config() {
            self.bos = first.clone();
        } else if *first != self.bos && *first != self.cls {
            if !is_true(&self.bos) {
                self.bos = first.clone();
                self.name("bos_token", first);
            }
            if !is_true(&self.cls) {
                self.cls = first.clone();
                self.name("cls_token", first);
            }
        }
        self.set("bos", *first == self.bos || *first == self.cls);
    }

    fn read_last(&mut self, last: &Json) {
        if !self.has_config() {
            self.eos = last.clone();
        } else if *last != self.eos {
            // the one that the configuration names ends a turn or a message
            let other = ["eot", "eom"]
                .into_iter()
                .find(|role| !self.roles.contains(role));
            if let Some(role) = other {
                self.roles.push(role);
                self.name(&[role, "_token"].concat(), &self.eos.clone());
            }
            self.eos = last.clone();
            self.name("eos_token", last);
        }
        self.set("eos", *last == self.eos);
    }

    /// Two texts, and the tokens between them.
    fn read_pair(&mut self, pair: &[Json], first: &Json, last: &Json) {
        let mut pair = pair;
        if is_true(first) && token(pair.first()) == *first {
            pair = &pair[1..];
        }
        if is_true(last) && token(pair.last()) == *last {
            pair = &pair[..pair.len() - 1];
        }
        let ends = (sequence(pair.first()), sequence(pair.last()));
        let between = match ends {
            (Some("A"), Some("B")) => &pair[1..pair.len() - 1],
            _ => return,
        };
        if between.is_empty() {
            return;
        }
        let divides = |part: Option<&Json>| {
            let token = token(part);
            is_true(&token) && (token == self.sep || token == self.eos)
        };
        let alone = divides(between.first()) && !is_true(last);
        let add = alone || (between.len() == 2 && divides(between.last()));
        self.set("sep", add);
        if add && !is_true(&self.sep) && self.has_config() {
            self.name("sep_token", &self.eos.clone());
        }
    }
}
