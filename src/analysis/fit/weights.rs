//! The weights: as stored, after `remember`, their numbers of parameters, and what each worker holds.

use std::collections::HashSet;

use anamnesis_template::parallel::Experts;

use crate::base::error::{ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, text_cost};
use crate::base::progress::RunProgress;
use crate::models::config::ModelConfig;
use crate::models::names;
use crate::plan::Plan;
use crate::read::catalog::{ByteRange, Encoding, TensorInfo, elements};
use crate::read::checkpoint::Checkpoint;

use super::Fit;
use super::estimate::Parameters;

/// The weights of a checkpoint.
#[derive(Debug)]
pub(super) struct ModelWeights<'c> {
    /// Bytes of the stored tensors.
    pub(super) stored: u64,
    /// Bytes of what is loaded: as stored, or dequantised.
    pub(super) nbytes: u64,
    pub(super) parameters: Parameters,
    /// The names of the stored dtypes, largest first.
    pub(super) dtypes: Vec<String>,
    /// The tensors that are loaded.
    pub(super) tensors: LoadedTensors<'c>,
    /// Names and shapes of logical weights, for the layers.
    pub(super) rows: super::tensors::StackRows,
    pub(super) notes: Vec<String>,
    /// Whether weights are missing from the sums.
    pub(super) incomplete: bool,
}

/// The tensors that workers divide.
#[derive(Debug)]
pub(super) enum LoadedTensors<'c> {
    Stored(Vec<&'c TensorInfo>),
    Dequantised(Vec<TensorInfo>),
}

impl LoadedTensors<'_> {
    pub(super) fn list(&self) -> Vec<&TensorInfo> {
        match self {
            Self::Stored(list) => list.clone(),
            Self::Dequantised(list) => list.iter().collect(),
        }
    }
}

/// Sums up the weights; dequantised where the estimate is of another dtype.
pub(super) fn weights<'c>(
    checkpoint: &'c Checkpoint,
    config: &ModelConfig,
    fit: &Fit<'_>,
    progress: &RunProgress<'_>,
    budget: &Budget,
) -> Result<ModelWeights<'c>> {
    let dtype = fit.dtype;
    let catalog = checkpoint.catalog();
    let what = "the weights";
    // the list, and rows of the tables of storages and of tensors that are left out
    budget.memory(
        catalog.tensors().len() as u64 * (size_of::<&TensorInfo>() + 64) as u64,
        what,
    )?;
    let mut notes = Vec::new();
    let mut training = 0u64;
    // tied tensors, which share a storage, are there once
    let mut seen: HashSet<(Option<u32>, ByteRange)> = HashSet::new();
    let mut left_out: HashSet<usize> = HashSet::new();
    let mut stored: Vec<&TensorInfo> = Vec::new();
    for (i, info) in catalog.tensors().iter().enumerate() {
        progress.add(info.nbytes())?;
        if names::is_training_state(&info.name) {
            training = training.saturating_add(info.nbytes());
            left_out.insert(i);
        } else if info.member.is_some() && !seen.insert((info.member, info.bytes)) {
            left_out.insert(i);
        } else {
            stored.push(info);
        }
    }
    if training > 0 {
        notes.push(format!(
            "{training} bytes are the state of a training run and are not loaded"
        ));
    }
    let stored_nbytes = stored
        .iter()
        .map(|info| info.nbytes())
        .fold(0, u64::saturating_add);
    let dtypes = dtype_names(&stored);
    let mut remember = crate::remember(checkpoint);
    if let Some(dtype) = dtype {
        remember = remember.dtype(dtype);
    }
    if let Some(token) = fit.options.control.token() {
        remember = remember.cancel(token);
    }
    let mut weights = ModelWeights {
        stored: stored_nbytes,
        nbytes: stored_nbytes,
        parameters: Parameters::default(),
        dtypes,
        tensors: LoadedTensors::Stored(stored),
        rows: super::tensors::StackRows::new(),
        notes,
        incomplete: false,
    };
    match remember.plan_within(budget) {
        Ok(plan) => weights.add_plan(&plan, config, dtype, &left_out, budget)?,
        // the sum of dequantised weights needs the plan; stored ones are summed without
        Err(error) if dtype.is_some() || matches!(error.kind(), ErrorKind::Cancelled) => {
            return Err(error);
        }
        Err(error) => {
            weights
                .notes
                .push(format!("parameters are not counted: {error}"));
            let stored = catalog.tensors().iter().map(|t| (&*t.name, &t.shape[..]));
            weights.rows = super::tensors::rows(stored, budget)?;
        }
    }
    Ok(weights)
}

/// Dtypes that are distinguished. Types of structured arrays may be any number, and are no weights.
const MAX_DTYPES: usize = 64;

/// The stored dtypes, the one with the most bytes first.
fn dtype_names(stored: &[&TensorInfo]) -> Vec<String> {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for info in stored {
        let name = info.encoding.name();
        let has_room = sums.len() < MAX_DTYPES;
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(info.nbytes()),
            None if has_room => sums.push((name, info.nbytes())),
            None => {}
        }
    }
    // equal sums by name, so that the order is the same for every sharding
    sums.sort_by(|(a, m), (b, n)| n.cmp(m).then_with(|| a.cmp(b)));
    sums.into_iter().map(|(name, _)| name.to_owned()).collect()
}

impl ModelWeights<'_> {
    fn add_plan(
        &mut self,
        plan: &Plan,
        config: &ModelConfig,
        dtype: Option<Dtype>,
        left_out: &HashSet<usize>,
        budget: &Budget,
    ) -> Result<()> {
        let what = "the weights";
        let jobs = || {
            plan.jobs
                .iter()
                .filter(|job| !job.parts.iter().any(|part| left_out.contains(&part.tensor)))
        };
        let mut made: Vec<TensorInfo> = Vec::new();
        let (mut total, mut experts, mut vision, mut nbytes) = (0u64, 0u64, 0u64, 0u64);
        for job in jobs() {
            let spec = &job.output;
            let count = elements(&spec.shape).unwrap_or(u64::MAX);
            // codes, indices and masks are no parameters
            if is_float(spec.dtype) {
                total = total.saturating_add(count);
                if Experts::of(&spec.name).is_some() {
                    experts = experts.saturating_add(count);
                }
                if names::is_vision(&spec.name) {
                    vision = vision.saturating_add(count);
                }
            }
            let own = spec.nbytes().unwrap_or(u64::MAX);
            nbytes = nbytes.saturating_add(own);
            if dtype.is_some() {
                budget.memory(text_cost(spec.name.len()), what)?;
                // it is not stored: its length alone counts
                let bytes = ByteRange {
                    file: 0,
                    start: 0,
                    len: own,
                };
                let info = TensorInfo::new(
                    spec.name.clone(),
                    spec.shape.clone(),
                    Encoding::Plain(spec.dtype),
                    bytes,
                );
                budget.push(&mut made, info, what)?;
            }
        }
        self.parameters = Parameters {
            total: Some(total),
            active: active(total, experts, config),
            experts: Some(experts),
            vision: Some(vision),
        };
        let outputs = jobs().map(|job| (&*job.output.name, &job.output.shape[..]));
        self.rows = super::tensors::rows(outputs, budget)?;
        if dtype.is_some() {
            self.nbytes = nbytes;
            self.tensors = LoadedTensors::Dequantised(made);
        }
        if !plan.refused.is_empty() && (plan.quantised || dtype.is_some()) {
            let n = plan.refused.len();
            let first = crate::read::catalog::quote(&plan.refused[0].name).to_string();
            self.incomplete = dtype.is_some();
            self.notes.push(if dtype.is_some() {
                format!("{n} weights cannot be dequantised and are not in the sum, the first of them {first}")
            } else {
                format!("{n} weights are not in the number of parameters, the first of them {first}")
            });
        }
        Ok(())
    }
}

fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16)
        // floats of eight bits and fewer
        || dtype.name().starts_with('F')
}

/// Parameters that one token uses: all but the experts that it is not routed to.
fn active(total: u64, experts: u64, config: &ModelConfig) -> Option<u64> {
    if experts == 0 {
        return Some(total);
    }
    let (all, used) = (config.experts()?, config.experts_used()?);
    // parameters times experts exceed 64 bits
    let idle = u128::from(experts) * u128::from(all.checked_sub(used)?) / u128::from(all.max(1));
    u64::try_from(idle)
        .ok()
        .map(|idle| total.saturating_sub(idle))
}
