//! The quantised weights of a checkpoint in its summary.

use serde::Serialize;

use crate::base::error::{ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};
use crate::plan::{PLAIN, Plan, RefusedWeight};
use crate::read::catalog::{Catalog, elements};

use super::{LISTING, Summary};

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
    pub(crate) fn add_weights(
        &mut self,
        plan: &Plan,
        catalog: &Catalog,
        budget: &Budget,
    ) -> Result<()> {
        let tensor = |tensor: usize| &*catalog.tensors()[tensor].name;
        let quantised = || plan.jobs.iter().filter(|job| job.scheme != PLAIN);
        for job in quantised() {
            let names = job.parts.iter().map(|p| text_cost(tensor(p.tensor).len()));
            let rows = job.parts.len() * size_of::<PartSummary>() + 8 * job.output.shape.len();
            let own = text_cost(job.output.name.len()) + rows as u64;
            budget.memory(own + names.sum::<u64>(), LISTING)?;
            let parts = job.parts.iter().map(|p| PartSummary {
                role: p.role,
                name: tensor(p.tensor).to_owned(),
            });
            let weight = WeightSummary {
                name: job.output.name.to_string(),
                scheme: Some(job.scheme),
                shape: job.output.shape.to_vec(),
                parts: parts.collect(),
                refused: None,
                // without quantised weights, refusals are of texts and structured arrays, which are not weights
            };
            budget.push(&mut self.weights, weight, LISTING)?;
        }
        // refusals of values that no plain tensors can be made of (texts, records) are not a matter of weights
        let is_unexplained =
            |refusal: &RefusedWeight| matches!(refusal.error.kind(), ErrorKind::Unexplained(_));
        if !self.weights.is_empty()
            || plan.quantised
            || !plan.unexplained.is_empty()
            || plan.refused.iter().any(is_unexplained)
        {
            for refusal in &plan.refused {
                let text = text_cost(refusal.name.len()) + 2 * refusal.error.memory();
                budget.memory(text, LISTING)?;
                let weight = WeightSummary {
                    name: refusal.name.to_string(),
                    scheme: None,
                    shape: Vec::new(),
                    parts: Vec::new(),
                    refused: Some(refusal.error.kind().to_string()),
                };
                budget.push(&mut self.weights, weight, LISTING)?;
            }
            // those about outputs are of `remember` alone
            for note in &plan.notes {
                budget.text(note.len(), LISTING)?;
                self.warnings.push(note.clone().into());
            }
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
        Ok(())
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
