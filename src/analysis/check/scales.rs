//! Rules about scales: numbers that many weights are multiplied with.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::progress::{RunControl, RunProgress};
use crate::base::sync::PoisonMutex;
use crate::base::threads::{for_each_of, thread_count_for};
use crate::plan::Plan;
use crate::read::catalog::{Encoding, TensorInfo};
use crate::read::checkpoint::Checkpoint;

use super::check_rules;
use super::level::FindingLevel;
use super::numbers::number_values;
use super::places::position;
use super::report::Finding;

/// How many scales are wrong in each way, and the number of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScaleCounts {
    pub(super) nan: (u64, u64),
    pub(super) inf: (u64, u64),
    pub(super) zero: (u64, u64),
    pub(super) negative: (u64, u64),
}

/// A stored tensor of scales.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScaleTensor {
    pub(super) tensor: usize,
    /// Values are exponents (E8M0), whatever the dtype says.
    exponents: bool,
    /// Weights that a scale stands for; 0 if zeros and signs mean nothing.
    weights: u64,
    /// Whether scales of this scheme are never negative.
    unsigned: bool,
}

/// Schemes whose scales may be negative: their quantisers choose the sign.
static SIGNED: &[&str] = &["ggml", "mlx", "auto-round", "hqq", "quanto", "eetq"];

/// A scale that stands for at least as many weights is not zero in a sound model.
const MANY: u64 = 64 * 64;

/// Roles of parts that are scales alone.
static ROLES: &[&str] = &["scale", "scales", "scale_of_scales"];

impl ScaleTensor {
    /// The scales of the plan's weights, and tensors that are named as scales, each once.
    pub(super) fn list(
        checkpoint: &Checkpoint,
        plan: &Plan,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Vec<Self> {
        let catalog = checkpoint.catalog();
        let mut taken = vec![false; catalog.tensors().len()];
        let mut scales = Vec::new();
        for job in &plan.jobs {
            for part in &job.parts {
                let info = &catalog.tensors()[part.tensor];
                // several weights may share a tensor of scales, which has one finding
                if std::mem::replace(&mut taken[part.tensor], true) || !part.role.contains("scale")
                {
                    continue;
                }
                let plain = ROLES.contains(&part.role);
                let elements = crate::read::catalog::elements(&job.output.shape).unwrap_or(0);
                // safetensors had no E8M0 when the first files were written, so that exponents are stored as U8
                let exponents = is(info, Dtype::F8_E8M0)
                    || (is(info, Dtype::U8) && job.scheme.starts_with("mxfp"));
                if !exponents && !is_float(info) {
                    continue;
                }
                scales.push(Self {
                    tensor: part.tensor,
                    exponents,
                    weights: if plain && !exponents {
                        // one scale for all weights leaves nothing of them
                        if info.elements() == 1 {
                            u64::MAX
                        } else {
                            elements / info.elements().max(1)
                        }
                    } else {
                        0
                    },
                    unsigned: plain && !exponents && !SIGNED.contains(&job.scheme),
                });
            }
        }
        for (tensor, info) in catalog.tensors().iter().enumerate() {
            let last = info.name.rsplit('.').next().unwrap_or_default();
            // scales of schemes that are not decoded here, and learned scales of layers
            if !taken[tensor]
                && last.contains("scale")
                && is_float(info)
                && readable(info)
                && wanted(&info.name)
            {
                scales.push(Self {
                    tensor,
                    exponents: false,
                    // such a tensor may hold anything, so that zeros and signs mean nothing
                    weights: 0,
                    unsigned: false,
                });
            }
        }
        scales
    }

    fn count(&self, checkpoint: &Checkpoint, progress: &RunProgress<'_>) -> Result<ScaleCounts> {
        let tensor = checkpoint.tensor_at(self.tensor);
        let Encoding::Plain(dtype) = tensor.info().encoding else {
            return Ok(ScaleCounts::default());
        };
        let dtype = if self.exponents {
            Dtype::F8_E8M0
        } else {
            dtype
        };
        let (mut counts, mut at) = (ScaleCounts::default(), 0);
        let mut values = [0.0; 256];
        tensor.chunks(|chunk| {
            for batch in chunk.chunks(256 * dtype.width().max(1)) {
                let made = &mut values[..batch.len() / dtype.width().max(1)];
                number_values(dtype, batch, made);
                for value in made {
                    for (counted, found) in [
                        (&mut counts.nan, value.is_nan()),
                        (&mut counts.inf, value.is_infinite()),
                        (&mut counts.zero, *value == 0.0),
                        (&mut counts.negative, *value < 0.0),
                    ] {
                        if found {
                            let first = if counted.0 == 0 { at } else { counted.1 };
                            *counted = (counted.0 + 1, first);
                        }
                    }
                    at += 1;
                }
            }
            progress.add(chunk.len() as u64)
        })?;
        Ok(counts)
    }
}

fn is(info: &TensorInfo, dtype: Dtype) -> bool {
    matches!(info.encoding, Encoding::Plain(found) if found == dtype)
}

fn is_float(info: &TensorInfo) -> bool {
    matches!(
        info.encoding,
        Encoding::Plain(
            Dtype::F16
                | Dtype::BF16
                | Dtype::F32
                | Dtype::F64
                | Dtype::F8_E4M3
                | Dtype::F8_E5M2
                | Dtype::F8_E8M0
        )
    )
}

fn readable(info: &TensorInfo) -> bool {
    use crate::read::catalog::Layout;
    !matches!(info.layout, Layout::Absent | Layout::Sparse(_))
}

/// Counts in all tensors of scales, side by side; `None` of one that cannot be read.
///
/// # Errors
/// Cancellation.
pub(super) fn count_all(
    checkpoint: &Checkpoint,
    scales: &[ScaleTensor],
    threads: usize,
    control: &RunControl<'_>,
) -> Result<Vec<Option<ScaleCounts>>> {
    let nbytes = |scale: &ScaleTensor| checkpoint.catalog().tensors()[scale.tensor].nbytes();
    let total = scales.iter().map(nbytes).fold(0, u64::saturating_add);
    let progress = RunProgress::new(total, control);
    let counts = PoisonMutex::new(vec![None; scales.len()]);
    for_each_of(
        "check",
        scales,
        thread_count_for(threads, total),
        &progress,
        || (),
        |row, scale, ()| match scale.count(checkpoint, &progress) {
            Ok(counted) => {
                counts.lock().expect("no thread panics with the lock")[row] = Some(counted);
                Ok(())
            }
            // a tensor that cannot be read has a finding of its own, from decoding its weight
            Err(_) => control.check(),
        },
    )?;
    Ok(counts.into_inner().expect("no thread panicked"))
}

/// Findings about scales that were counted.
pub(super) fn findings(
    scale: &ScaleTensor,
    counts: &ScaleCounts,
    info: &TensorInfo,
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<()> {
    let all = info.elements();
    let of = |(count, first): (u64, u64), rule: &'static check_rules::CheckRule| {
        (count > 0).then(|| {
            let text = format!("{count} of {all} scales");
            Finding::new(rule, text)
                .of_tensor(&info.name)
                .count(count)
                .first(position(&info.shape, first))
        })
    };
    for found in [
        of(counts.nan, &check_rules::SCALE_NAN),
        of(counts.inf, &check_rules::SCALE_INF),
    ] {
        found.map_or(Ok(()), &mut *add)?;
    }
    if scale.weights > 0
        && let Some(found) = of(counts.zero, &check_rules::SCALE_ZERO)
    {
        // a small group may have nothing but zeros; a whole matrix does not
        let level = if scale.weights >= MANY {
            FindingLevel::Error
        } else {
            FindingLevel::Note
        };
        add(found.level(level))?;
    }
    if scale.unsigned {
        of(counts.negative, &check_rules::SCALE_NEGATIVE).map_or(Ok(()), &mut *add)?;
    }
    Ok(())
}

/// Findings about the scales of a tensor of blocks.
pub(super) fn block_findings(
    counts: &ScaleCounts,
    name: &str,
    shape: &[u64],
    block_len: u64,
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<()> {
    let elements = crate::read::catalog::elements(shape).unwrap_or(0);
    let blocks = elements / block_len.max(1);
    for ((count, first), rule) in [
        (counts.nan, &check_rules::SCALE_NAN),
        (counts.inf, &check_rules::SCALE_INF),
        (counts.zero, &check_rules::SCALE_ZERO),
    ] {
        if count > 0 {
            let found = Finding::new(rule, format!("{count} of {blocks} blocks"));
            add(found
                .of_tensor(name)
                .count(count)
                .first(position(shape, first)))?;
        }
    }
    Ok(())
}
