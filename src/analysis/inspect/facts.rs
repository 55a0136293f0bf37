//! The facts about a checkpoint as a model: what its configuration says, and what its weights are.

use std::collections::HashSet;
use std::path::Path;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::models::config::ModelConfig;
use crate::models::names;
use crate::plan::{PLAIN, Plan};
use crate::quant::account::may_be_quantised;
use crate::quant::scheme::QuantConfig;
use crate::read::catalog::{ByteRange, Catalog, Encoding, TensorInfo, Value, elements};
use crate::read::checkpoint::Checkpoint;

use super::Totals;

/// The facts about a model. Each is `None` where the files do not say it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelFacts {
    pub(crate) architecture: Option<String>,
    /// In tokens.
    pub(crate) context: Option<u64>,
    /// Elements of weights.
    pub(crate) parameters: Option<u64>,
    /// The stored dtype with the most bytes.
    pub(crate) dtype: Option<String>,
    /// The scheme of most quantised weights; the label of a GGUF.
    pub(crate) quantisation: Option<String>,
    /// Why the configuration cannot be read.
    pub(crate) config_error: Option<String>,
}

impl ModelFacts {
    /// The facts of a checkpoint that is opened for them alone: it is planned only where names, shapes and dtypes leave open what is
    /// a weight. Also the names of its weights, if it was.
    ///
    /// # Errors
    /// [`ErrorKind::Replaced`](crate::ErrorKind::Replaced).
    pub(crate) fn planned(
        checkpoint: &Checkpoint,
        budget: &Budget,
    ) -> Result<(Self, Option<Plan>)> {
        let config = whole(ModelConfig::load(checkpoint, budget))?;
        let config_error = config.as_ref().err().map(ToString::to_string);
        let config = config.unwrap_or_default();
        let catalog = checkpoint.catalog();
        // a stored output layer may be the embedding once more
        if is_plain(catalog) && config.ties_embeddings() != Some(true) {
            let facts = Self {
                quantisation: label(catalog),
                parameters: counted_as_stored(catalog, budget),
                config_error,
                ..Self::stated(catalog, &config)
            };
            return Ok((facts, None));
        }
        let plan = whole(crate::remember(checkpoint).plan_within(budget))?.ok();
        let facts = Self {
            quantisation: quantisation(checkpoint, plan.as_ref(), budget),
            parameters: parameters(catalog, plan.as_ref(), budget),
            config_error,
            ..Self::stated(catalog, &config)
        };
        Ok((facts, plan))
    }

    fn stated(catalog: &Catalog, config: &ModelConfig) -> Self {
        let tensors = catalog.tensors().iter();
        let rows = tensors.map(|t| (t.encoding.name(), t.elements(), t.nbytes()));
        let totals = Totals::new(rows, 0);
        Self {
            architecture: config.architecture().map(str::to_owned),
            context: config.context_max(),
            dtype: totals.by_dtype.into_iter().next().map(|row| row.dtype),
            ..Self::default()
        }
    }
}

/// The configuration of a model. One that cannot be read says nothing; the weights are listed all the same.
///
/// # Errors
/// [`ErrorKind::Replaced`](crate::ErrorKind::Replaced).
pub(super) fn configuration(checkpoint: &Checkpoint, budget: &Budget) -> Result<ModelConfig> {
    Ok(whole(ModelConfig::load(checkpoint, budget))?.unwrap_or_default())
}

/// The result, or the error that another process has replaced the model: what was found out so far is about one that is gone.
pub(super) fn whole<T>(result: Result<T>) -> Result<Result<T>> {
    match result {
        Err(error) if error.is_replaced() => Err(error),
        result => Ok(result),
    }
}

/// The elements of the weights, by the plan of the checkpoint or without one where planning failed.
pub(super) fn parameters(catalog: &Catalog, plan: Option<&Plan>, budget: &Budget) -> Option<u64> {
    match plan {
        Some(plan) => counted_of(catalog, plan, budget),
        None if is_plain(catalog) => counted_as_stored(catalog, budget),
        None => None,
    }
}

/// Whether nothing beside the checkpoint is read for a summary. A web server lists nothing: each configuration that a weight may be
/// described by is a request, hardly ever for a file that is there, and floats of 16 bits and more are no packed codes.
pub(super) fn is_alone(checkpoint: &Checkpoint) -> bool {
    let (files, catalog) = (checkpoint.files(), checkpoint.catalog());
    let is_listed = |path: &Path| {
        files.is_directory(path) || files.known_names(files.folder_of(path)).is_some()
    };
    let on_a_web_server =
        !files.is_local() && checkpoint.path().is_some_and(|path| !is_listed(path));
    // the other formats describe their models themselves
    on_a_web_server
        && matches!(catalog.format(), "safetensors" | "pth")
        && catalog.files().len() == 1
        && catalog.extra_fields.is_empty()
        && catalog.refused().is_empty()
        && !may_be_quantised(catalog)
}

/// Whether each stored tensor is a weight or a plain number, so that no scheme has to be asked: floating point, blocks of a
/// GGUF, and arrays of NumPy.
fn is_plain(catalog: &Catalog) -> bool {
    let is_array = matches!(catalog.format(), "npz" | "npy" | "gguf");
    let is_plain = |info: &TensorInfo| match &info.encoding {
        Encoding::Plain(dtype) => is_wide_float(*dtype),
        _ => false,
    };
    is_array || (catalog.refused().is_empty() && catalog.tensors().iter().all(is_plain))
}

fn is_wide_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

fn is_float(dtype: Dtype) -> bool {
    is_wide_float(dtype) || dtype.name().starts_with('F')
}

/// The stored tensors that are no weights: states of training, and names of what has another name too.
fn left_out(catalog: &Catalog, budget: &Budget) -> Option<HashSet<usize>> {
    const ROW: u64 = 2 * size_of::<(Option<u32>, ByteRange)>() as u64;
    let rows = ROW.saturating_mul(catalog.tensors().len() as u64);
    let _charge = budget.temporary(rows, "the list of weights").ok()?;
    let mut seen: HashSet<(Option<u32>, ByteRange)> = HashSet::new();
    let mut left_out = HashSet::new();
    for (row, info) in catalog.tensors().iter().enumerate() {
        let is_repeated = info.member.is_some() && !seen.insert((info.member, info.bytes));
        if is_repeated || names::is_training_state(&info.name) {
            left_out.insert(row);
        }
    }
    Some(left_out)
}

/// The elements of floating point; of all, where there are no others: indices and masks beside weights are no parameters.
fn sum(rows: impl Iterator<Item = (bool, u64)>) -> u64 {
    let (mut floats, mut all) = (0u64, 0u64);
    for (is_float, count) in rows {
        all = all.saturating_add(count);
        if is_float {
            floats = floats.saturating_add(count);
        }
    }
    if floats > 0 { floats } else { all }
}

fn counted_as_stored(catalog: &Catalog, budget: &Budget) -> Option<u64> {
    if !catalog.refused().is_empty() {
        return None;
    }
    let left_out = left_out(catalog, budget)?;
    let rows = catalog.tensors().iter().enumerate();
    let rows = rows.filter(|(row, _)| !left_out.contains(row));
    Some(sum(rows.map(|(_, info)| {
        let is_float = match &info.encoding {
            Encoding::Plain(dtype) => is_float(*dtype),
            Encoding::Block(_) => true,
            _ => false,
        };
        (is_float, info.elements())
    })))
}

fn counted_of(catalog: &Catalog, plan: &Plan, budget: &Budget) -> Option<u64> {
    // a weight that cannot be made has no known number of elements
    if !plan.refused.is_empty() {
        return None;
    }
    let left_out = left_out(catalog, budget)?;
    let jobs = plan.jobs.iter();
    let jobs = jobs.filter(|job| !job.parts.iter().any(|part| left_out.contains(&part.tensor)));
    Some(sum(jobs.map(|job| {
        let count = elements(&job.output.shape).unwrap_or(u64::MAX);
        (is_float(job.output.dtype), count)
    })))
}

/// The label of a GGUF, or the type of its blocks where it has none.
fn label(catalog: &Catalog) -> Option<String> {
    if catalog.format() != "gguf" {
        return None;
    }
    match catalog.details().get("file_type") {
        Some(Value::Text(label)) => return Some(label.to_string()),
        Some(Value::U64(number)) => return Some(number.to_string()),
        _ => {}
    }
    let blocks = catalog.tensors().iter();
    let blocks = blocks.filter(|t| matches!(t.encoding, Encoding::Block(_)));
    let rows = blocks.map(|t| (t.encoding.name(), t.elements(), t.nbytes()));
    let totals = Totals::new(rows, 0);
    totals.by_dtype.into_iter().next().map(|row| row.dtype)
}

/// The scheme of most elements that are quantised; the method of the configuration where no scheme explains them.
fn quantisation(checkpoint: &Checkpoint, plan: Option<&Plan>, budget: &Budget) -> Option<String> {
    let catalog = checkpoint.catalog();
    if let Some(label) = label(catalog) {
        return Some(label);
    }
    let jobs = plan.iter().flat_map(|plan| &plan.jobs);
    let quantised = jobs.filter(|job| job.scheme != PLAIN);
    let rows = quantised.map(|job| {
        let count = elements(&job.output.shape).unwrap_or(u64::MAX);
        (job.scheme, count, count)
    });
    let schemes = Totals::new(rows, 0).by_dtype;
    if let Some(most) = schemes.into_iter().next() {
        return Some(most.dtype);
    }
    let is_refused = plan.is_none_or(|plan| plan.quantised && !plan.refused.is_empty());
    let path = checkpoint
        .path()
        .filter(|_| is_refused && !is_plain(catalog))?;
    let config = QuantConfig::load_edited(checkpoint, path, &|_, text| Ok(text), budget).ok()?;
    config.method().map(str::to_owned)
}
