//! From the jobs of a Hugging Face checkpoint to the jobs of a GGUF: the rules of an architecture, read backwards.
//!
//! Outputs are in the order of llama.cpp's converter: tables, then tensors by file and name, each stack of experts where the last
//! of a layer's experts is.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::error::{Error, Remedy, Result};
use crate::base::limits::{Budget, text_cost};
use crate::plan::decode::ConstantElements;
use crate::plan::{Decoder, Job, PLAIN, StoredPart};
use crate::read::catalog::{Shape, quote};

use super::source_model::SourceModel;
use super::tensor_rules::{StoredTensors, TensorRule, filled};

const PLAN: &str = "the plan";
/// Memory of an output: its decoders and their lists.
const JOB: u64 = 1 << 10;

/// A tensor of the GGUF.
#[derive(Debug)]
pub(crate) struct GgufOutput {
    pub(crate) name: String,
    /// Sizes, outermost first.
    pub(crate) shape: Shape,
    pub(crate) decoder: Arc<dyn Decoder>,
    pub(crate) parts: Vec<StoredPart>,
    pub(crate) scheme: &'static str,
}

/// The tensors of a GGUF.
#[derive(Debug, Default)]
pub(crate) struct GgufOutputs {
    pub(crate) outputs: Vec<GgufOutput>,
    /// Tensors of the checkpoint that have no place in the GGUF, by name.
    pub(crate) refused: Vec<(Box<str>, Error)>,
    /// Other names of a tensor that is written once.
    pub(crate) shared: Vec<Box<str>>,
    /// Tensors of encoders of images and sounds, which are a file of their own.
    pub(crate) of_other_modalities: Vec<Box<str>>,
}

/// The tensors of one rule of a stack.
struct RuleStack<'j> {
    rule: &'static TensorRule,
    suffix: &'static str,
    /// Each with its number.
    jobs: Vec<(u64, &'j Job)>,
}

/// Stacks whose tensors are collected until the last one.
struct Stack<'j> {
    rules: Vec<RuleStack<'j>>,
    layer: Option<String>,
    /// Tensors that are missing.
    missing: u64,
}

/// Makes the outputs of the jobs of a checkpoint, which are sorted as the converter reads them.
pub(crate) fn to_gguf(
    model: &SourceModel<'_>,
    jobs: &[&Job],
    check: &dyn Fn() -> Result<()>,
    budget: &Budget,
) -> Result<GgufOutputs> {
    let mut done = GgufOutputs::default();
    for (name, values) in (model.writing.tables)(model)? {
        budget.memory(JOB + 4 * values.len() as u64, PLAN)?;
        let table = GgufOutput {
            name: name.to_owned(),
            shape: Shape::from_slice(&[values.len() as u64]),
            decoder: Arc::new(ConstantElements(values)),
            parts: Vec::new(),
            scheme: PLAIN,
        };
        budget.push(&mut done.outputs, table, PLAN)?;
    }
    let mut is_shared_written = false;
    let mut stacks: HashMap<(String, Option<String>), Stack<'_>> = HashMap::new();
    for &job in jobs {
        check()?;
        let own = &*job.output.name;
        budget.steps(1 + own.len() as u64 / 4, PLAN)?;
        budget.memory(JOB + 2 * text_cost(own.len()), PLAN)?;
        let Some(name) = model.usual_name(own) else {
            continue;
        };
        if is_of_other_modality(own) {
            budget.push(&mut done.of_other_modalities, own.into(), PLAN)?;
            continue;
        }
        let name = match model.writing.shared.split_last() {
            Some((last, others)) if name == *last || others.contains(&&*name) => {
                if std::mem::replace(&mut is_shared_written, true) {
                    budget.push(&mut done.shared, own.into(), PLAN)?;
                    continue;
                }
                (*last).to_owned()
            }
            _ => name,
        };
        let Some(matched) = matched(model, &name) else {
            let text = format!(
                "tensor {}: the architecture {} has no place for it",
                quote(own),
                model.name()
            );
            let error = Error::unsupported(text).with_remedy(Remedy::LeaveOut);
            budget.push(&mut done.refused, (own.into(), error), PLAN)?;
            continue;
        };
        if !matched.is_stacked() {
            let stored = StoredTensors {
                jobs: vec![job],
                layer: matched.layer_number(),
                expert: 0,
            };
            make(
                model,
                matched.rule,
                &matched.stored_names(),
                &stored,
                budget,
                &mut done,
            )?;
            continue;
        }
        let key = (matched.module(), matched.layer.map(str::to_owned));
        if !stacks.contains_key(&key) {
            let stack = Stack::of(model, &matched)?;
            stacks.insert(key.clone(), stack);
        }
        let stack = stacks.get_mut(&key).expect("was added");
        if let Some(error) = stack.add(&matched, job) {
            budget.push(&mut done.refused, (own.into(), error), PLAN)?;
        }
        if stack.missing > 0 {
            continue;
        }
        let stack = stacks.remove(&key).expect("is there");
        for RuleStack {
            rule,
            suffix,
            mut jobs,
        } in stack.rules
        {
            jobs.sort_by_key(|(number, _)| *number);
            let stored = StoredTensors {
                jobs: jobs.iter().map(|(_, job)| *job).collect(),
                layer: None,
                expert: 0,
            };
            let names = stored_names(rule, suffix, stack.layer.as_deref(), None);
            make(model, rule, &names, &stored, budget, &mut done)?;
        }
    }
    for ((module, layer), stack) in stacks {
        let text = format!(
            "{} of layer {}: {} tensors of experts are missing",
            quote(&module),
            layer.unwrap_or_default(),
            stack.missing
        );
        budget.push(
            &mut done.refused,
            (module.into(), Error::malformed(text)),
            PLAN,
        )?;
    }
    Ok(done)
}

/// The outputs of a rule.
fn make(
    model: &SourceModel<'_>,
    rule: &TensorRule,
    names: &[String],
    stored: &StoredTensors<'_>,
    budget: &Budget,
    done: &mut GgufOutputs,
) -> Result<()> {
    let first = stored.jobs[0];
    budget.memory(16 * stored.jobs.len() as u64, PLAN)?;
    let made = match &rule.change {
        Some(change) => (change.to_gguf)(model, stored),
        None => stored.source(0).map(|source| {
            vec![super::ChangedTensor {
                shape: first.output.shape.clone(),
                decoder: source.decoder,
            }]
        }),
    };
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            let name = first.output.name.clone();
            return budget.push(&mut done.refused, (name, error), PLAN);
        }
    };
    for (name, made) in names.iter().zip(made) {
        let output = GgufOutput {
            name: name.clone(),
            shape: made.shape,
            decoder: made.decoder,
            parts: stored.parts(),
            scheme: first.scheme,
        };
        budget.push(&mut done.outputs, output, PLAN)?;
    }
    Ok(())
}

/// A name, as a rule's output matches it.
struct MatchedOutput<'n> {
    rule: &'static TensorRule,
    list: &'static [TensorRule],
    layer: Option<&'n str>,
    expert: Option<&'n str>,
    /// `.weight`, `.bias` or nothing: the part that the patterns of the rule lack.
    suffix: &'static str,
}

/// The rule that makes tensors of this name, in the other direction.
fn matched<'n>(model: &SourceModel<'_>, name: &'n str) -> Option<MatchedOutput<'n>> {
    model.conversion.tensors.iter().find_map(|list| {
        let rules = list.iter().filter(|rule| !rule.is_older);
        rules.into_iter().find_map(|rule| {
            ["", ".weight", ".bias"].into_iter().find_map(|suffix| {
                let (layer, expert) = numbers(rule.output, name.strip_suffix(suffix)?)?;
                Some(MatchedOutput {
                    rule,
                    list,
                    layer,
                    expert,
                    suffix,
                })
            })
        })
    })
}

/// The layer and the expert in a name of this pattern.
fn numbers<'n>(pattern: &str, name: &'n str) -> Option<(Option<&'n str>, Option<&'n str>)> {
    let (mut layer, mut expert) = (None, None);
    let (mut pattern, mut name) = (pattern.split('.'), name.split('.'));
    loop {
        match (pattern.next(), name.next()) {
            (None, None) => return Some((layer, expert)),
            (Some(part), Some(own)) => {
                let number = !own.is_empty() && own.bytes().all(|b| b.is_ascii_digit());
                match part {
                    "{i}" if number => layer = Some(own),
                    "{e}" if number => expert = Some(own),
                    _ if part == own => {}
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
}

impl MatchedOutput<'_> {
    /// Whether the tensor is one of a stack.
    fn is_stacked(&self) -> bool {
        self.expert.is_some() && !self.rule.stored[0].contains("{e}")
    }

    fn layer_number(&self) -> Option<u64> {
        self.layer?.parse().ok()
    }

    /// The pattern in front of the expert's number, which the tensors of a layer's experts have in common.
    fn module(&self) -> String {
        module(self.rule.output).to_owned()
    }

    fn stored_names(&self) -> Vec<String> {
        stored_names(self.rule, self.suffix, self.layer, self.expert)
    }
}

fn module(pattern: &str) -> &str {
    pattern.split("{e}").next().unwrap_or(pattern)
}

fn stored_names(
    rule: &TensorRule,
    suffix: &str,
    layer: Option<&str>,
    expert: Option<&str>,
) -> Vec<String> {
    let whole = |pattern: &&str| filled(&[*pattern, suffix].concat(), layer, expert);
    rule.stored.iter().map(whole).collect()
}

impl<'j> Stack<'j> {
    /// The stacks of a module, in the order of their names in the checkpoint.
    fn of(model: &SourceModel<'_>, matched: &MatchedOutput<'_>) -> Result<Self> {
        let own = matched.module();
        let alike = matched.list.iter().filter(|rule| {
            !rule.is_older && rule.output.contains("{e}") && module(rule.output) == own
        });
        let mut rules: Vec<&TensorRule> = alike.collect();
        rules.sort_by_key(|rule| rule.output);
        let each = model.stacked(matched.rule)?;
        let missing = each.saturating_mul(rules.len() as u64);
        let suffix = matched.suffix;
        let rules = rules.into_iter().map(|rule| RuleStack {
            rule,
            suffix,
            jobs: Vec::new(),
        });
        Ok(Self {
            rules: rules.collect(),
            layer: matched.layer.map(str::to_owned),
            missing,
        })
    }

    /// Adds a tensor; an error if it does not belong to the stack.
    fn add(&mut self, matched: &MatchedOutput<'_>, job: &'j Job) -> Option<Error> {
        let number = matched.expert.and_then(|number| number.parse().ok());
        let mut known = self.rules.iter_mut();
        let stack = known
            .find(|stack| std::ptr::eq(stack.rule, matched.rule) && stack.suffix == matched.suffix);
        match (stack, number) {
            (Some(stack), Some(number)) => {
                stack.jobs.push((number, job));
                self.missing -= 1;
                None
            }
            _ => Some(Error::unsupported(format!(
                "tensor {}: a stack of experts has no place for it",
                quote(&job.output.name)
            ))),
        }
    }
}

/// Whether a tensor is of an encoder of images or sounds: llama.cpp has them in a file of its own.
///
/// Source: `TextModel.filter_tensors` of llama.cpp's `conversion/base.py`.
fn is_of_other_modality(name: &str) -> bool {
    const BEGINNINGS: &[&str] = &[
        "mlp",
        "vit.",
        "vpm.",
        "siglip2.",
        "conformer.",
        "merger.",
        "resampler.",
        "sound_encoder.",
        "sound_projection.",
        "speech_embeddings.",
    ];
    const PARTS: &[&str] = &[
        "visual.",
        "vision.",
        "audio.",
        "talker.",
        "vision_",
        "audio_",
        "token2wav.",
        "code2wav.",
        "projector.",
        "pre_mm_projector_norm",
        "image_newline",
        "view_seperator",
        "patch_embed",
        "patch_merger.",
        "patch_merge_mlp.",
        "model.connector.",
    ];
    BEGINNINGS.iter().any(|start| name.starts_with(start))
        || PARTS.iter().any(|part| name.contains(part))
}

impl SourceModel<'_> {
    /// The name by which rules know a tensor; `None` if no GGUF has it.
    fn usual_name(&self, name: &str) -> Option<String> {
        /// Masks and tables that the configuration determines.
        const DERIVED: &[&str] = &[
            ".attention.masked_bias",
            ".attention.bias",
            ".attn.masked_bias",
            ".attn.bias",
            ".rotary_emb.inv_freq",
        ];
        let writing = self.writing;
        let name = name.replace("language_model.", "");
        let name = name.strip_prefix(writing.dropped_prefix).unwrap_or(&name);
        let name = name.to_owned();
        let is_omitted = DERIVED.iter().any(|end| name.ends_with(end))
            || writing
                .left_out
                .iter()
                .any(|omitted| match omitted.strip_suffix('*') {
                    Some(start) => name.starts_with(start),
                    None => name == *omitted,
                })
            || self.is_behind_last_layer(&name);
        if is_omitted {
            return None;
        }
        if matched(self, &name).is_some() || writing.shared.contains(&&*name) {
            return Some(name);
        }
        // a class without a head saves the names of its own modules
        let inner = [writing.prefix, &name].concat();
        Some(if matched(self, &inner).is_some() {
            inner
        } else {
            name
        })
    }

    /// Whether a tensor is of layers that predict further tokens, which this architecture's GGUF does not have.
    fn is_behind_last_layer(&self, name: &str) -> bool {
        let Some(layers) = self
            .config
            .layers()
            .filter(|_| self.writing.drops_further_layers)
        else {
            return false;
        };
        let layer = name
            .strip_prefix("model.layers.")
            .and_then(|rest| rest.split('.').next());
        layer
            .and_then(|layer| layer.parse::<u64>().ok())
            .is_some_and(|layer| layer >= layers)
    }

    /// Tensors of a stack: experts, or heads with norms of their own.
    fn stacked(&self, rule: &TensorRule) -> Result<u64> {
        use crate::models::config::keys::EXPERTS;
        if rule.output.contains("q_layernorm") {
            return self.heads();
        }
        if rule.output.contains("k_layernorm") {
            return self.key_value_heads();
        }
        self.needed(&EXPERTS)
    }
}
