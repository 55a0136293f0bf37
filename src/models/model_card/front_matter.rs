//! The YAML at the beginning of a model card, between two lines `---`.
//!
//! The converter reads it with PyYAML, which is YAML 1.1. A port of libyaml, which has the same rules, makes events of it; here they become
//! values. Nothing is expanded: an alias is the value of its anchor, not a copy.
//!
//! Source: gguf-py `metadata.py` (`load_model_card`: which lines, and what is replaced in them).

use std::collections::HashMap;
use std::rc::Rc;

use libyaml_safer::{Event, EventData, Parser, ScalarStyle};

use super::card_value::{CardMap, CardValue};
use super::plain_scalar::PlainScalars;
use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::quote::quote;

const WHAT: &str = "the front matter of the model card";

/// Lists and maps in each other, whatever the limits: dropping them recurses. Python's own limit is of this size.
const DEPTH: usize = 128;

/// The map at the beginning of a model card. Empty for a card without one.
///
/// # Errors
/// If it is not YAML, has what PyYAML refuses, or is larger or deeper than the limits.
pub(super) fn read(card: &str, budget: &Budget) -> Result<CardMap> {
    // the text that is parsed, and each copy that a replacement makes
    let _copies = budget.temporary(6 * card.len() as u64, WHAT)?;
    let Some(yaml) = front_matter(card) else {
        return Ok(CardMap::default());
    };
    if yaml.contains('\u{feff}') {
        let what = "the front matter has a byte order mark between its words";
        return Err(Error::unsupported(what));
    }
    // version 0.3.0 of the parser panics there
    if has_tag_before_comma(&yaml) {
        let what = "the front matter has an `!` at the beginning of a word with a comma: quote the text around it";
        return Err(Error::unsupported(what));
    }
    match CardBuilder::new(budget).read(&yaml)? {
        CardValue::Map(map) => Ok(map),
        // the converter says that this is no map, and goes on without
        _ => Ok(CardMap::default()),
    }
}

/// The lines between the first line `---` and the next, as the converter gives them to PyYAML; `None` if the first line is another.
fn front_matter(card: &str) -> Option<String> {
    let mut lines = Lines(card);
    if lines.next()? != "---" {
        return None;
    }
    let mut yaml = String::with_capacity(card.len() + 1);
    for line in lines.take_while(|line| *line != "---") {
        yaml.push_str(line);
        yaml.push('\n');
    }
    // the converter's own remedies: Norway in a list of languages, and tabs
    let yaml = yaml.replace("- no\n", "- \"no\"\n");
    Some(yaml.replace('\t', "  "))
}

/// The lines of a text as `str.splitlines` makes them.
struct Lines<'t>(&'t str);

impl<'t> Iterator for Lines<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        if self.0.is_empty() {
            return None;
        }
        let is_end = |c: char| {
            matches!(
                c,
                '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                    ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
            )
        };
        let Some((at, end)) = self.0.char_indices().find(|(_, c)| is_end(*c)) else {
            return Some(std::mem::take(&mut self.0));
        };
        let (line, rest) = (&self.0[..at], &self.0[at..]);
        self.0 = rest.strip_prefix("\r\n").unwrap_or(&rest[end.len_utf8()..]);
        Some(line)
    }
}

/// Whether a word may be a tag with a comma behind it, at which the parser panics in a list in brackets. It may be prose as well: only the
/// parser knows which.
fn has_tag_before_comma(yaml: &str) -> bool {
    let (mut is_tag, mut is_verbatim) = (false, false);
    let mut before = ' ';
    for c in yaml.chars() {
        match c {
            '!' if !before.is_alphanumeric() => is_tag = true,
            '<' if is_tag && before == '!' => is_verbatim = true,
            ',' if is_tag => return true,
            '[' | ']' | '{' | '}' if !is_verbatim => is_tag = false,
            _ if c.is_whitespace() => (is_tag, is_verbatim) = (false, false),
            _ => {}
        }
        before = c;
    }
    false
}

/// A list or map that has begun.
struct OpenValue {
    value: CardValue,
    anchor: Option<String>,
    /// The key that the next value of a map has. `Some(None)`: one that is no text.
    key: Option<Option<String>>,
}

struct CardBuilder<'b> {
    budget: &'b Budget,
    scalars: PlainScalars,
    open: Vec<OpenValue>,
    anchors: HashMap<String, Rc<CardValue>>,
    /// The value of the document.
    root: Option<Rc<CardValue>>,
}

impl<'b> CardBuilder<'b> {
    fn new(budget: &'b Budget) -> Self {
        Self {
            budget,
            scalars: PlainScalars::new(),
            open: Vec::new(),
            anchors: HashMap::new(),
            root: None,
        }
    }

    /// The value of a text with one document, or with none.
    fn read(mut self, yaml: &str) -> Result<CardValue> {
        let mut parser = Parser::new();
        let mut rest = yaml.as_bytes();
        parser.set_input_string(&mut rest);
        let mut documents = 0;
        loop {
            self.budget.steps(1, WHAT)?;
            let Event {
                data, start_mark, ..
            } = parser
                .parse()
                .map_err(|e| Error::malformed(format!("the front matter is not YAML: {e}")))?;
            let line = start_mark.line + 1;
            let at = |e: Error| e.context(&format!("line {line} of the front matter"));
            match data {
                EventData::StreamEnd => break,
                EventData::DocumentStart { .. } => {
                    documents += 1;
                    if documents > 1 {
                        let what = "the front matter has more than one document";
                        return Err(at(Error::malformed(what)));
                    }
                }
                data => self.add(data).map_err(at)?,
            }
        }
        // values that are shared have anchors
        drop(self.anchors);
        let root = self.root.unwrap_or(Rc::new(CardValue::Null));
        Ok(Rc::try_unwrap(root).unwrap_or(CardValue::Null))
    }

    fn add(&mut self, event: EventData) -> Result<()> {
        match event {
            EventData::Alias { anchor } => {
                let value = self.anchors.get(&anchor).cloned();
                let value = value.ok_or_else(|| {
                    Error::malformed(format!("*{} has no anchor: quote the text", quote(&anchor)))
                })?;
                self.place(value)
            }
            EventData::Scalar {
                anchor,
                tag,
                value,
                style,
                ..
            } => {
                self.charge(value.len())?;
                let is_key = self.expects_key();
                let value = match (tag.as_deref(), style) {
                    (Some("tag:yaml.org,2002:str"), _) => CardValue::Text(value),
                    (Some(tag), _) => return Err(unknown_tag(tag)),
                    (None, ScalarStyle::Plain) => self.scalars.value(&value, is_key)?,
                    (None, _) => CardValue::Text(value),
                };
                self.finish(value, anchor)
            }
            EventData::SequenceStart { anchor, tag, .. } => {
                self.begin(CardValue::List(Vec::new()), anchor, tag)
            }
            EventData::MappingStart { anchor, tag, .. } => {
                self.begin(CardValue::Map(CardMap::default()), anchor, tag)
            }
            EventData::SequenceEnd | EventData::MappingEnd => match self.open.pop() {
                Some(open) => self.finish(open.value, open.anchor),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Charges a value, with the place that it has in a list or map and in the table of anchors.
    fn charge(&self, text: usize) -> Result<()> {
        let entry = size_of::<CardValue>() + 2 * size_of::<(String, Rc<CardValue>)>();
        self.budget.memory(2 * entry as u64, WHAT)?;
        self.budget.text(text, WHAT)
    }

    /// Whether the next value is a key of a map.
    fn expects_key(&self) -> bool {
        self.open
            .last()
            .is_some_and(|open| matches!(open.value, CardValue::Map(_)) && open.key.is_none())
    }

    fn begin(
        &mut self,
        value: CardValue,
        anchor: Option<String>,
        tag: Option<String>,
    ) -> Result<()> {
        if let Some(tag) = tag {
            return Err(unknown_tag(&tag));
        }
        if self.expects_key() {
            return Err(Error::malformed("a list or map is the key of a map"));
        }
        let depth = self.open.len() + 1;
        self.budget.depth(depth as u64, WHAT)?;
        if depth > DEPTH {
            let what = format!("{WHAT} has lists and maps in each other, deeper than {DEPTH}");
            return Err(Error::malformed(what));
        }
        self.charge(0)?;
        self.open.push(OpenValue {
            value,
            anchor,
            key: None,
        });
        Ok(())
    }

    /// Names a value that is complete, and places it.
    fn finish(&mut self, value: CardValue, anchor: Option<String>) -> Result<()> {
        let value = Rc::new(value);
        if let Some(anchor) = anchor {
            self.charge(anchor.len())?;
            if let Some(_first) = self.anchors.insert(anchor, value.clone()) {
                return Err(Error::malformed("two values have one anchor"));
            }
        }
        self.place(value)
    }

    /// Places a value in the list or map around it.
    fn place(&mut self, value: Rc<CardValue>) -> Result<()> {
        self.charge(0)?;
        let is_key = self.expects_key();
        let Some(open) = self.open.last_mut() else {
            self.root = Some(value);
            return Ok(());
        };
        match (&mut open.value, open.key.take()) {
            (CardValue::List(items), _) => items.push(value),
            (CardValue::Map(map), Some(Some(key))) => map.0.push((key, value)),
            (CardValue::Map(_), None) if is_key => {
                open.key = Some(match &*value {
                    CardValue::Text(key) => {
                        self.budget.text(key.len(), WHAT)?;
                        Some(key.clone())
                    }
                    CardValue::List(_) | CardValue::Map(_) => {
                        return Err(Error::malformed("a list or map is the key of a map"));
                    }
                    _ => None,
                });
            }
            _ => {}
        }
        Ok(())
    }
}

fn unknown_tag(tag: &str) -> Error {
    Error::unsupported(format!("the tag {} of a value", quote(tag)))
}
