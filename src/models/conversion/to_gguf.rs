//! From the jobs of a Hugging Face checkpoint to the jobs of a GGUF: the rules of an architecture, read backwards.
//!
//! Outputs are in the order of llama.cpp's converter: tables, then tensors by file and name, each stack of experts where the last
//! of a layer's experts is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::kernel::can_cast_from;
use crate::base::limits::{Budget, text_cost};
use crate::models::config::keys;
use crate::plan::decode::ConstantElements;
use crate::plan::{Decoder, Job, PLAIN, StoredPart};
use crate::read::catalog::{Shape, quote};

use super::output_names::{
    MatchedOutput, UsualName, is_of_other_modality, matched, module, stored_names,
};
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
    /// Parameters that no GGUF of the architecture has.
    pub(crate) left_out: Vec<Box<str>>,
    /// Other names of a tensor that is written once.
    pub(crate) shared: Vec<Box<str>>,
    /// Tensors of encoders of images and sounds, which are a file of their own.
    pub(crate) of_other_modalities: Vec<Box<str>>,
}

/// The tensors of one rule of a stack.
struct RuleStack<'j> {
    rule: &'static TensorRule,
    suffix: &'static str,
    /// By the number of the expert.
    jobs: BTreeMap<u64, &'j Job>,
}

/// Stacks whose tensors are collected until the last one.
struct Stack<'j> {
    rules: Vec<RuleStack<'j>>,
    layer: Option<String>,
    /// Tensors of each rule.
    each: u64,
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
    let layers = model.most_layers()?;
    let (mut seen, mut is_shared_written) = (BTreeSet::new(), false);
    let mut stacks: HashMap<(String, Option<String>), Stack<'_>> = HashMap::new();
    for &job in jobs {
        check()?;
        let own = &*job.output.name;
        budget.steps(1 + own.len() as u64 / 4, PLAN)?;
        budget.memory(JOB + 2 * text_cost(own.len()), PLAN)?;
        let name = match model.usual_name(own) {
            UsualName::Known(name) => name,
            UsualName::LeftOut => {
                budget.push(&mut done.left_out, own.into(), PLAN)?;
                continue;
            }
            UsualName::Derived => continue,
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
            let error = Error::unsupported(text);
            budget.push(&mut done.refused, (own.into(), error), PLAN)?;
            continue;
        };
        let layer = matched.layer_number();
        if let Some(layer) = layer {
            if layer >= layers {
                let text = format!(
                    "tensor {}: the configuration has {layers} layers, and this is of layer {layer}",
                    quote(own)
                );
                let error = Error::unsupported(text);
                budget.push(&mut done.refused, (own.into(), error), PLAN)?;
                continue;
            }
            seen.insert(layer);
        }
        if !matched.is_stacked() {
            let stored = StoredTensors {
                jobs: vec![job],
                layer,
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
            continue;
        }
        if stack.missing > 0 {
            continue;
        }
        let stack = stacks.remove(&key).expect("is there");
        for own in &stack.rules {
            let stored = StoredTensors {
                jobs: own.jobs.values().copied().collect(),
                layer: None,
                expert: 0,
            };
            let names = stored_names(own.rule, own.suffix, stack.layer.as_deref(), None);
            make(model, own.rule, &names, &stored, budget, &mut done)?;
        }
    }
    if let Some(absent) = (0..layers).find(|layer| !seen.contains(layer)) {
        let text =
            format!("the configuration has {layers} layers, and no tensor is of layer {absent}");
        return Err(Error::unsupported(text));
    }
    let incomplete = stacks.into_iter().filter(|(_, stack)| stack.missing > 0);
    for ((module, layer), stack) in incomplete {
        let text = format!(
            "{}: {} of {} tensors are missing",
            quote(&filled(&module, layer.as_deref(), None)),
            stack.missing,
            stack.each.saturating_mul(stack.rules.len() as u64)
        );
        budget.push(
            &mut done.refused,
            (module.into(), Error::unsupported(text)),
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
    if let Some(job) = stored
        .jobs
        .iter()
        .find(|job| !can_cast_from(job.output.dtype))
    {
        let text = format!(
            "tensor {}: {} elements, where a weight has floats",
            quote(&job.output.name),
            job.output.dtype
        );
        let refused = (job.output.name.clone(), Error::unsupported(text));
        return budget.push(&mut done.refused, refused, PLAN);
    }
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
            jobs: BTreeMap::new(),
        });
        Ok(Self {
            rules: rules.collect(),
            layer: matched.layer.map(str::to_owned),
            each,
            missing,
        })
    }

    /// Adds a tensor; an error if it does not belong to the stack.
    fn add(&mut self, matched: &MatchedOutput<'_>, job: &'j Job) -> Option<Error> {
        let number = matched.expert.and_then(|number| number.parse().ok());
        let mut known = self.rules.iter_mut();
        let stack = known
            .find(|stack| std::ptr::eq(stack.rule, matched.rule) && stack.suffix == matched.suffix);
        // once each, and none behind the last one
        let number = number.filter(|number| *number < self.each);
        if let (Some(stack), Some(number)) = (stack, number)
            && stack.jobs.insert(number, job).is_none()
        {
            self.missing -= 1;
            return None;
        }
        Some(Error::unsupported(format!(
            "tensor {}: a stack of {} has no place for it",
            quote(&job.output.name),
            self.each
        )))
    }
}

impl SourceModel<'_> {
    /// Layers, of the larger stack where there are two.
    fn most_layers(&self) -> Result<u64> {
        let stacks = [&keys::LAYERS, &keys::STACK_LAYERS, &keys::DECODER_LAYERS];
        let stated = stacks.iter().filter_map(|field| self.config.number(field));
        stated
            .max()
            .ok_or_else(|| self.config.missing(&keys::LAYERS))
    }

    /// Tensors of a stack: experts, or heads with norms of their own.
    fn stacked(&self, rule: &TensorRule) -> Result<u64> {
        if rule.output.contains("q_layernorm") {
            return self.heads();
        }
        if rule.output.contains("k_layernorm") {
            return self.key_value_heads();
        }
        self.needed(&keys::EXPERTS)
    }
}
