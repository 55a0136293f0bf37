//! Which parts of tensors are read: boxes of elements, or the shares of a tensor-parallel worker.

use std::collections::HashMap;

use anamnesis::slice::TensorSlice;
use anamnesis::template::parallel::{Rule, Rules};
use anamnesis::{Load, Remember};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The range of each axis, by the name of a tensor.
pub(crate) type Boxes = HashMap<String, Vec<(u64, u64)>>;

/// The parts that a caller has chosen.
pub(crate) enum Parts {
    Boxes(Boxes),
    /// The share of worker `rank` of `of`.
    Shares {
        rank: u32,
        of: u32,
        rules: Rules,
    },
}

impl Parts {
    /// From keywords of Python: boxes, or a worker and rules that precede the default ones.
    pub(crate) fn new(
        slices: Option<Boxes>,
        tp: Option<(u32, u32)>,
        rules: Option<Vec<(String, String)>>,
    ) -> PyResult<Self> {
        match (slices, tp) {
            (Some(_), Some(_)) => Err(PyValueError::new_err(
                "slices and tp: a call reads the one or the other",
            )),
            // rules alone would be ignored, and every worker would load everything
            (_, None) if rules.is_some() => Err(PyValueError::new_err("rules without tp")),
            (slices, None) => Ok(Self::Boxes(slices.unwrap_or_default())),
            (None, Some((rank, of))) => Ok(Self::Shares {
                rank,
                of,
                rules: rules_of(rules)?,
            }),
        }
    }

    pub(crate) fn of_load(self, load: Load<'static>) -> Load<'static> {
        match self {
            Self::Boxes(boxes) if boxes.is_empty() => load,
            Self::Boxes(boxes) => load.slice(move |info| part_of(&boxes, &info.name)),
            Self::Shares { rank, of, rules } => load.tensor_parallel(rank, of, &rules),
        }
    }

    pub(crate) fn of_remember(self, remember: Remember<'static>) -> Remember<'static> {
        match self {
            Self::Boxes(boxes) if boxes.is_empty() => remember,
            Self::Boxes(boxes) => remember.slice(move |spec| part_of(&boxes, &spec.name)),
            Self::Shares { rank, of, rules } => remember.tensor_parallel(rank, of, &rules),
        }
    }
}

fn part_of(boxes: &Boxes, name: &str) -> TensorSlice {
    boxes.get(name).map_or(TensorSlice::Whole, |ranges| {
        TensorSlice::Axes(ranges.iter().map(|&(start, end)| start..end).collect())
    })
}

/// The default rules after these: patterns and names of rules, of which the first match applies.
pub(crate) fn rules_of(own: Option<Vec<(String, String)>>) -> PyResult<Rules> {
    let mut rules = Rules::default();
    // each goes to the front, so that the last one put there is the caller's first
    for (pattern, name) in own.unwrap_or_default().into_iter().rev() {
        let rule = match &*name {
            // the name in programs of the frameworks
            "replicate" => Rule::Replicated,
            name => name.parse().map_err(|error: anamnesis::template::Error| {
                PyValueError::new_err(error.to_string())
            })?,
        };
        rules.put_first(&pattern, rule);
    }
    Ok(rules)
}
