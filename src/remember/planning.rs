//! Planning: schemes claim their weights from the catalog, and the remaining tensors are plain.

use std::cell::{Cell, OnceCell, RefCell};

use crate::Dtype;
use crate::catalog::{TensorInfo, elements, quote};
use crate::error::{Error, Result};
use crate::limits::over;
use crate::plan::{Job, JobWork, PLAIN, Plan, RefusedWeight, StoredPart, TensorSpec, addressable};
use crate::quant::decode::{Cast, cast::casts};
use crate::quant::scheme::{
    Context, QuantConfig, SCHEMES, UnclaimedTensor, Weight, classify_unclaimed,
};

use super::Remember;

pub(super) fn plan(what: &Remember<'_>) -> Result<Plan> {
    if !matches!(what.dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32) {
        return Err(Error::invalid_argument(format!(
            "weights become BF16, F16 or F32, not {}",
            what.dtype
        )));
    }
    let checkpoint = what.checkpoint;
    let config = match (&what.config, checkpoint.path()) {
        (Some(config), _) => config.clone(),
        // the other formats describe their quantisation themselves, and their directory may hold the configuration of another
        // model
        (None, Some(path)) if matches!(checkpoint.catalog().format, "safetensors" | "pth") => {
            QuantConfig::load_sidecar(path)?
        }
        (None, _) => QuantConfig::default(),
    };
    let read = |info: &TensorInfo| {
        checkpoint
            .tensor_of(info)
            .bytes()
            .map(std::borrow::Cow::into_owned)
    };
    let cx = Context {
        catalog: checkpoint.catalog(),
        config: &config,
        read: &read,
        native_rounding: what.native,
        notes: RefCell::new(Vec::new()),
        claimed: Cell::new(false),
        metadata: OnceCell::new(),
        scales: Cell::new(0),
    };
    let mut plan = Plan::default();
    let wanted = |name: &str| what.selection.contains(name);
    let mut slots = claims(&cx, &mut plan, &wanted);
    for (tensor, slot) in slots.iter_mut().enumerate() {
        // in file order, so that outputs are read in the order in which they are stored
        match std::mem::replace(slot, TensorClaim::Taken) {
            TensorClaim::Weight(weight) if wanted(&weight.name) => match weigh(&weight, what.dtype)
            {
                Ok(()) => {
                    let job = decode_job(*weight, what.dtype);
                    match fits(&cx, &job, checkpoint.limits().tile_bytes) {
                        Ok(()) => plan.jobs.push(job),
                        Err(error) => plan.refused.push(RefusedWeight {
                            name: job.output.name,
                            error,
                        }),
                    }
                }
                Err(error) => plan.refused.push(RefusedWeight {
                    name: weight.name,
                    error,
                }),
            },
            TensorClaim::Free if wanted(&cx.info(tensor).name) => {
                match classify_unclaimed(&cx, tensor) {
                    Ok(UnclaimedTensor::Plain(dtype)) => {
                        plan.jobs.push(plain(&cx, tensor, dtype, what))
                    }
                    Ok(UnclaimedTensor::Dropped) => {}
                    Err(error) => plan.refused.push(RefusedWeight {
                        name: cx.info(tensor).name.clone(),
                        error,
                    }),
                }
            }
            TensorClaim::Free | TensorClaim::Weight(_) | TensorClaim::Taken => {}
        }
    }
    for listed in cx
        .catalog
        .refused
        .iter()
        .filter(|listed| wanted(&listed.name))
    {
        let what = format!("{}: {}; leave it out", quote(&listed.name), listed.reason);
        plan.refused.push(RefusedWeight {
            name: listed.name.clone(),
            error: Error::unsupported(what),
        });
    }
    // two schemes can give one name to different tensors (`X.qweight` and `X.weight_packed`); a file has room for one
    twice(&mut plan);
    plan.quantised = cx.quantised();
    plan.notes = cx.notes.into_inner();
    Ok(plan)
}

/// The claim on a stored tensor.
enum TensorClaim {
    /// No scheme has claimed it.
    Free,
    /// A scheme has recognised a weight by it.
    Weight(Box<Weight>),
    /// It is a part of a weight, possibly of a refused one.
    Taken,
}

/// Offers every tensor to every scheme. The first claim counts, and covers the parts of its weight.
fn claims(cx: &Context<'_>, plan: &mut Plan, wanted: &dyn Fn(&str) -> bool) -> Vec<TensorClaim> {
    let count = cx.catalog.tensors().len();
    let mut slots: Vec<TensorClaim> = (0..count).map(|_| TensorClaim::Free).collect();
    for tensor in 0..count {
        // a part of an earlier weight
        if matches!(slots[tensor], TensorClaim::Taken) {
            continue;
        }
        // in the order of the table, which has schemes with stricter conditions first
        for scheme in SCHEMES {
            match (scheme.claim)(cx, tensor) {
                Ok(None) => continue,
                Ok(Some(weight)) => {
                    // also for a weight that is refused below: it shows that the checkpoint is quantised
                    cx.claimed.set(true);
                    match take(cx, &mut slots, &weight) {
                        Ok(()) => slots[tensor] = TensorClaim::Weight(Box::new(weight)),
                        Err(error) => {
                            plan.refused
                                .extend(wanted(&weight.name).then_some(RefusedWeight {
                                    name: weight.name,
                                    error,
                                }));
                            slots[tensor] = TensorClaim::Taken;
                        }
                    }
                }
                Err(error) => {
                    let name = cx.info(tensor).name.clone();
                    plan.refused
                        .extend(wanted(&name).then_some(RefusedWeight { name, error }));
                    slots[tensor] = TensorClaim::Taken;
                }
            }
            // the first scheme that claims or refuses a tensor decides about it
            break;
        }
    }
    slots
}

/// Takes the parts of a weight, which may belong to no other.
fn take(cx: &Context<'_>, slots: &mut [TensorClaim], weight: &Weight) -> Result<()> {
    for (i, part) in weight.parts.iter().enumerate().skip(1) {
        let free = match &slots[part.tensor] {
            TensorClaim::Free => true,
            // it precedes the weight, and was recognised as a weight of its own
            // of one part only: a weight with siblings has better evidence than this one and keeps its parts
            TensorClaim::Weight(other) => other.parts.len() == 1,
            TensorClaim::Taken => false,
        };
        if !free
            || weight.parts[..i]
                .iter()
                .any(|earlier| earlier.tensor == part.tensor)
        {
            let (name, part) = (quote(&weight.name), quote(&cx.info(part.tensor).name));
            return Err(Error::malformed(format!(
                "weight {name}: its part {part} belongs to another weight too"
            )));
        }
    }
    weight.parts[1..]
        .iter()
        .for_each(|part| slots[part.tensor] = TensorClaim::Taken);
    Ok(())
}

/// A tile, what it reads, and what all of them share must fit in memory, once per thread.
fn fits(cx: &Context<'_>, job: &Job, allowed: u64) -> Result<()> {
    let JobWork::Tiles { decoder, rows } = &job.work else {
        return Ok(());
    };
    let grid = decoder.grid();
    // a small weight is one tile of fewer rows
    let rows = (*rows).min(grid.rows);
    if rows == 0 {
        return Ok(());
    }
    let output = rows
        .saturating_mul(grid.cols)
        .saturating_mul(job.output.dtype.bits())
        / 8;
    let spans = decoder.inputs(0..rows).into_iter().chain(decoder.shared());
    let inputs = spans
        .map(|span| span.bytes.nbytes())
        .fold(0, u64::saturating_add);
    let whole = job
        .parts
        .iter()
        .map(|part| cx.info(part.tensor))
        .filter(|info| !addressable(info));
    // a part that is not addressable is read whole before the first tile, so it counts fully
    let whole = whole.map(|info| info.nbytes()).fold(0, u64::saturating_add);
    let needed = output.saturating_add(inputs).saturating_add(whole);
    // an allocation is never larger than `isize::MAX`
    let allowed = allowed.min(u64::try_from(isize::MAX).unwrap_or(u64::MAX));
    if needed > allowed {
        let what = format!("a tile of weight {}", quote(&job.output.name));
        return Err(over(needed, allowed, what, "tile_bytes"));
    }
    Ok(())
}

/// Refuses a weight whose decoder makes another number of elements than its shape has.
fn weigh(weight: &Weight, dtype: Dtype) -> Result<()> {
    let grid = weight.decoder.grid();
    let made = grid.rows.checked_mul(grid.cols);
    let shaped = elements(&weight.shape).filter(|&n| dtype.nbytes(n).is_some());
    if made.is_none() || made != shaped {
        let what = format!(
            "weight {}: {} rows of {} are not {:?}",
            quote(&weight.name),
            grid.rows,
            grid.cols,
            weight.shape
        );
        return Err(Error::malformed(what));
    }
    Ok(())
}

fn plain(cx: &Context<'_>, tensor: usize, from: Dtype, what: &Remember<'_>) -> Job {
    let info = cx.info(tensor);
    let to = if what.cast && casts(from, what.dtype) {
        what.dtype
    } else {
        from
    };
    let work = if addressable(info) {
        let decoder = Cast {
            from,
            elements: info.elements(),
        };
        let rows = crate::plan::Decoder::grid(&decoder).rows_per_tile(to);
        JobWork::Tiles {
            decoder: std::sync::Arc::new(decoder),
            rows,
        }
    } else {
        JobWork::Stream { from }
    };
    let parts = vec![StoredPart {
        role: "values",
        tensor,
    }];
    Job {
        output: TensorSpec {
            name: info.name.clone(),
            shape: info.shape.clone(),
            dtype: to,
        },
        scheme: PLAIN,
        parts,
        work,
    }
}

/// Refuses the later of two outputs with the same name.
fn twice(plan: &mut Plan) {
    let mut seen = std::collections::HashSet::new();
    let refused = &mut plan.refused;
    plan.jobs.retain(|job| {
        let first = seen.insert(job.output.name.clone());
        if !first {
            let error = Error::malformed(format!(
                "two weights would be called {}",
                quote(&job.output.name)
            ));
            refused.push(RefusedWeight {
                name: job.output.name.clone(),
                error,
            });
        }
        first
    });
}

/// The job that dequantises a weight into `dtype`, tile by tile.
fn decode_job(weight: Weight, dtype: Dtype) -> Job {
    let rows = weight.decoder.grid().rows_per_tile(dtype);
    Job {
        output: TensorSpec {
            name: weight.name,
            shape: weight.shape,
            dtype,
        },
        scheme: weight.scheme,
        parts: weight.parts,
        work: JobWork::Tiles {
            decoder: weight.decoder,
            rows,
        },
    }
}
