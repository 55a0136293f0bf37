//! From the jobs of stored tensors to the jobs of a Hugging Face checkpoint.

use std::collections::{HashMap, HashSet};

use crate::base::error::{Error, Result};
use crate::base::kernel;
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, text_cost};
use crate::models::config::keys;
use crate::plan::{Job, JobWork, RefusedWeight, TensorSpec};
use crate::read::catalog::quote;

use super::model::Model;
use super::tensor_rules::{StoredTensors, TensorRule, filled, pattern_of};

const PLAN: &str = "the plan";

/// Memory of a changed output: its decoders and their lists.
const CHANGED_JOB: u64 = 1 << 9;

/// The jobs of a Hugging Face checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Conversion {
    pub(crate) jobs: Vec<ConvertedJob>,
    /// Outputs that cannot be made, by name.
    pub(crate) refused: Vec<(Box<str>, Error)>,
    /// Names of stored tensors that no rule names; their outputs keep these names.
    pub(crate) unknown: Vec<Box<str>>,
}

/// An output, and whether its values or their order differ from the stored tensor's.
#[derive(Debug)]
pub(crate) struct ConvertedJob {
    pub(crate) job: Job,
    pub(crate) changed: bool,
}

/// Converts the jobs of all stored tensors; `refused` are the tensors that have none. `dtype` is the dtype of dequantised
/// weights; `wanted` selects outputs by name, and `check` reports cancellation.
pub(crate) fn convert(
    model: &Model<'_>,
    jobs: Vec<Job>,
    refused: Vec<RefusedWeight>,
    dtype: Dtype,
    wanted: &dyn Fn(&str) -> bool,
    check: &dyn Fn() -> Result<()>,
    budget: &Budget,
) -> Result<Conversion> {
    // names twice, in a map and in a set, each with a table entry
    let all_names = || {
        let made = jobs.iter().map(|job| &*job.output.name);
        made.chain(refused.iter().map(|weight| &*weight.name))
    };
    let names: u64 = all_names()
        .map(|name| 2 * text_cost(name.len()) + 128)
        .fold(0, u64::saturating_add);
    let _names = budget.temporary(names, PLAN)?;
    let stored = StoredNames {
        jobs: jobs.iter().map(|job| (&*job.output.name, job)).collect(),
        refused: refused
            .iter()
            .map(|weight| (&*weight.name, &weight.error))
            .collect(),
    };
    let mut others = HashSet::new();
    for name in all_names() {
        check()?;
        let name = MatchedName::new(name);
        for rule in name.rules(model) {
            // collected first: a tensor that belongs to another's output must not become one of its own, whatever the
            // order of the file
            others.extend(rule.stored[1..].iter().map(|other| name.other(other)));
        }
    }
    let mut done = Conversion::default();
    for job in &jobs {
        check()?;
        let own = &*job.output.name;
        let name = MatchedName::new(own);
        budget.steps(1 + own.len() as u64 / 4, PLAN)?;
        if others.contains(own) || model.conversion.omitted.contains(&&*name.pattern) {
            continue;
        }
        let mut known = false;
        for rule in name.rules(model) {
            known = true;
            outputs(
                model, &name, rule, job, &stored, dtype, wanted, budget, &mut done,
            )?;
        }
        // kept under its name: it may be a new part of the architecture, and a note names it
        if !known && wanted(own) {
            budget.memory(text_cost(own.len()), PLAN)?;
            budget.push(&mut done.unknown, own.into(), PLAN)?;
            let job = ConvertedJob {
                job: job.clone(),
                changed: false,
            };
            budget.memory(text_cost(own.len()), PLAN)?;
            budget.push(&mut done.jobs, job, PLAN)?;
        }
    }
    for weight in &refused {
        check()?;
        let own = &*weight.name;
        let name = MatchedName::new(own);
        budget.steps(1 + own.len() as u64 / 4, PLAN)?;
        // with another tensor's output, if it has one
        if others.contains(own) || model.conversion.omitted.contains(&&*name.pattern) {
            continue;
        }
        if let Some(output) = name.first_output(model, wanted, budget)? {
            refuse(&mut done, output, weight.error.duplicate(), budget)?;
        }
    }
    Ok(done)
}

/// The stored tensors, by name.
struct StoredNames<'j> {
    jobs: HashMap<&'j str, &'j Job>,
    /// Those that cannot be decoded.
    refused: HashMap<&'j str, &'j Error>,
}

/// Lists an output that cannot be made.
fn refuse(done: &mut Conversion, output: String, error: Error, budget: &Budget) -> Result<()> {
    // the name by which a filter leaves it out; the message has the name of the stored tensor
    let error = error.context(&quote(&output));
    budget.memory(error.memory() + text_cost(output.len()), PLAN)?;
    budget.push(&mut done.refused, (output.into(), error), PLAN)
}

/// The outputs of a rule: one, or one per expert.
#[allow(clippy::too_many_arguments)] // one call, which fills the conversion
fn outputs(
    model: &Model<'_>,
    name: &MatchedName<'_>,
    rule: &TensorRule,
    first: &Job,
    by_name: &StoredNames<'_>,
    dtype: Dtype,
    wanted: &dyn Fn(&str) -> bool,
    budget: &Budget,
    done: &mut Conversion,
) -> Result<()> {
    let pattern = [rule.output, name.suffix(rule)].concat();
    let (layer, second) = (name.numbers.first().copied(), name.numbers.get(1).copied());
    let experts = if name.per_expert(&pattern) {
        first.output.shape.first().copied().unwrap_or(0)
    } else {
        1
    };
    let mut jobs = vec![first];
    let mut absent = None;
    for other in &rule.stored[1..] {
        let other = name.other(other);
        match by_name.jobs.get(&*other) {
            Some(job) => jobs.push(job),
            None => absent = Some(other),
        }
    }
    let mut stored = StoredTensors {
        jobs,
        layer: layer.and_then(|layer| layer.parse().ok()),
        expert: 0,
    };
    for expert in 0..experts {
        budget.steps(1, PLAN)?;
        let number = expert.to_string();
        let output = filled(&pattern, layer, second.or(Some(&number)));
        if !wanted(&output) {
            continue;
        }
        budget.memory(
            CHANGED_JOB + text_cost(output.len()) + 16 * stored.jobs.len() as u64,
            PLAN,
        )?;
        stored.expert = expert;
        let made = match (&absent, rule.change) {
            (Some(other), _) => Err(match by_name.refused.get(&**other) {
                Some(error) => error.duplicate(),
                None => Error::malformed(format!(
                    "tensor {}: {}, which belongs to it, is missing",
                    quote(&first.output.name),
                    quote(other)
                )),
            }),
            (None, None) => {
                let mut job = first.clone();
                job.output.name = output.as_str().into();
                Ok(ConvertedJob {
                    job,
                    changed: false,
                })
            }
            (None, Some(change)) => (change.to_hf)(model, &stored).and_then(|made| {
                let dtype = dtype_of(&stored, dtype)?;
                let rows = made.decoder.grid().rows_per_tile(dtype);
                let job = Job {
                    output: TensorSpec::new(output.as_str(), made.shape, dtype),
                    scheme: first.scheme,
                    parts: stored.parts(),
                    work: JobWork::Tiles {
                        decoder: made.decoder,
                        rows,
                    },
                };
                Ok(ConvertedJob { job, changed: true })
            }),
        };
        match made {
            Ok(job) => budget.push(&mut done.jobs, job, PLAN)?,
            Err(error) => {
                refuse(done, output, error, budget)?;
                // the other experts of the stack would be refused for the same reason
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The dtype of an output whose values change: the dtype of its stored tensors where they have one in common.
fn dtype_of(stored: &StoredTensors<'_>, dtype: Dtype) -> Result<Dtype> {
    let common = stored.jobs[0].output.dtype;
    let same = stored.jobs.iter().all(|job| job.output.dtype == common);
    for job in &stored.jobs {
        // values are changed in F32, which an integer or an opaque type does not have
        if !kernel::can_cast_from(job.output.dtype) {
            return Err(Error::unsupported(format!(
                "tensor {}: {} elements, where a weight has floats",
                quote(&job.output.name),
                job.output.dtype
            )));
        }
    }
    // tensors of several dtypes have no dtype of their own
    Ok(if same { common } else { dtype })
}

/// A stored name, as rules see it.
struct MatchedName<'n> {
    pattern: String,
    numbers: Vec<&'n str>,
}

impl<'n> MatchedName<'n> {
    fn new(name: &'n str) -> Self {
        let (pattern, numbers) = pattern_of(name);
        Self { pattern, numbers }
    }

    /// The pattern without `.weight` or `.bias`.
    fn stem(&self) -> &str {
        let stem = |suffix| self.pattern.strip_suffix(suffix);
        stem(".weight")
            .or_else(|| stem(".bias"))
            .unwrap_or(&self.pattern)
    }

    /// The rules for this name, from the first list that has any.
    fn rules(&self, model: &Model<'_>) -> impl Iterator<Item = &'static TensorRule> {
        let applies = |rule: &TensorRule| {
            (rule.stored[0] == self.pattern || rule.stored[0] == self.stem())
                && model.satisfies(rule.needs)
        };
        let lists = model.conversion.tensors.iter();
        // an architecture's own rules stand before the shared ones
        let list = lists
            .copied()
            .find(|rules| rules.iter().any(applies))
            .unwrap_or_default();
        list.iter().filter(move |rule| applies(rule))
    }

    /// Whether a pattern of outputs stands for one output per expert of a stack.
    fn per_expert(&self, pattern: &str) -> bool {
        // a stored name with a second number is one expert's already
        pattern.contains("{e}") && self.numbers.len() < 2
    }

    /// The name of the first output of this tensor that is wanted, for a tensor without a job; the tensor's own name if no
    /// rule names it. Experts are counted by the metadata, as the shape may be unknown.
    fn first_output(
        &self,
        model: &Model<'_>,
        wanted: &dyn Fn(&str) -> bool,
        budget: &Budget,
    ) -> Result<Option<String>> {
        let (layer, second) = (self.numbers.first().copied(), self.numbers.get(1).copied());
        let mut known = false;
        for rule in self.rules(model) {
            known = true;
            let pattern = [rule.output, self.suffix(rule)].concat();
            // the count is the file's, so that each name is charged as a step
            let experts = if self.per_expert(&pattern) {
                model.number(&keys::EXPERTS).unwrap_or(1).max(1)
            } else {
                1
            };
            for expert in 0..experts {
                budget.steps(1, PLAN)?;
                let output = filled(&pattern, layer, second.or(Some(&expert.to_string())));
                if wanted(&output) {
                    return Ok(Some(output));
                }
            }
        }
        let own = filled(&self.pattern, layer, second);
        Ok((!known && wanted(&own)).then_some(own))
    }

    /// The part of this name that the rule's names lack: `.weight`, `.bias` or nothing.
    fn suffix(&self, rule: &TensorRule) -> &str {
        &self.pattern[rule.stored[0].len()..]
    }

    /// The name of another tensor of a rule for this one.
    fn other(&self, pattern: &str) -> String {
        let whole = [".weight", ".bias"]
            .iter()
            .any(|end| pattern.ends_with(end));
        let suffix = if whole {
            ""
        } else {
            &self.pattern[self.stem().len()..]
        };
        filled(
            &[pattern, suffix].concat(),
            self.numbers.first().copied(),
            self.numbers.get(1).copied(),
        )
    }
}
