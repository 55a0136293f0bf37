//! The quantised weights of a checkpoint in its summary.

use serde::Serialize;

use crate::catalog::{Catalog, elements};
use crate::plan::{PLAIN, Plan};

use super::Summary;

/// A quantised weight and the stored parts that it is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WeightSummary {
    /// Name of the PyTorch parameter.
    pub name: String,
    /// Its scheme; `None` if it is refused.
    pub scheme: Option<&'static str>,
    /// Its sizes, outermost first; empty if it is refused.
    pub shape: Vec<u64>,
    /// The stored tensors that it is made from.
    pub parts: Vec<PartSummary>,
    /// Why it cannot be dequantised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A stored tensor that a weight is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartSummary {
    /// Its role in the weight.
    pub role: &'static str,
    /// Its name.
    pub name: String,
}

/// Bytes of a checkpoint's outputs, by the dtype that its weights are dequantised to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // the dtypes' own names
pub struct DequantisedSizes {
    pub bf16_nbytes: u64,
    pub f16_nbytes: u64,
    pub f32_nbytes: u64,
}

impl Summary {
    /// Adds the quantised weights of a plan.
    pub(crate) fn add_weights(&mut self, plan: &Plan, catalog: &Catalog) {
        let tensor = |tensor: usize| catalog.tensors()[tensor].name.to_string();
        let quantised = || plan.jobs.iter().filter(|job| job.scheme != PLAIN);
        self.weights = quantised()
            .map(|job| WeightSummary {
                name: job.output.name.to_string(),
                scheme: Some(job.scheme),
                shape: job.output.shape.to_vec(),
                parts: job
                    .parts
                    .iter()
                    .map(|p| PartSummary {
                        role: p.role,
                        name: tensor(p.tensor),
                    })
                    .collect(),
                refused: None,
            })
            .collect();
        // without quantised weights, refusals are of texts and structured arrays, which are not weights
        if !self.weights.is_empty() || plan.quantised {
            self.weights
                .extend(plan.refused.iter().map(|refusal| WeightSummary {
                    name: refusal.name.to_string(),
                    scheme: None,
                    shape: Vec::new(),
                    parts: Vec::new(),
                    refused: Some(refusal.error.kind().to_string()),
                }));
            self.warnings.extend(plan.notes.iter().cloned());
        }
        let elements = quantised().map(|job| elements(&job.output.shape).unwrap_or(u64::MAX));
        let elements = elements.fold(0, u64::saturating_add);
        // F32 has two bytes more per element of the dequantised weights; other outputs keep their dtype
        let wider = plan.nbytes().saturating_add(elements.saturating_mul(2));
        self.dequantised = (!self.weights.is_empty()).then(|| DequantisedSizes {
            // the plan was made for BF16, which is as wide as F16
            bf16_nbytes: plan.nbytes(),
            f16_nbytes: plan.nbytes(),
            f32_nbytes: wider,
        });
    }

    /// Retains the weights whose name or part is among the remaining tensors.
    pub(super) fn retain_weights(&mut self) {
        let left: std::collections::HashSet<&str> = self.tensors.iter().map(|t| &*t.name).collect();
        let named = |w: &WeightSummary| {
            left.contains(&*w.name) || w.parts.iter().any(|p| left.contains(&*p.name))
        };
        self.weights.retain(named);
    }
}
