//! The plan of a quantised GGUF: its tensors in the order of llama.cpp, each copied or encoded.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::error::{Error, Remedy, Result};
use crate::base::kernel::{BlockFormat, Dtype};
use crate::base::limits::text_cost;
use crate::base::quote::quote;
use crate::models::gguf_types::{
    TOKEN_EMBD, TypeChoices, TypeChooser, is_quantised, needs_importance,
};
use crate::plan::decode::{CheckedCopy, Encoded, EncodedType};
use crate::plan::{Decoder, Job, JobWork, Plan, StoredPart, TensorSpec};
use crate::read::catalog::Encoding;

use super::Quantise;
use super::converted::ConvertedModel;
use super::keys::Keys;
use super::source_tensors::{Kept, StoredDecoders, converted_tensors, stored_tensors};
use super::type_patterns::{TypePattern, TypePatterns};

const PLAN: &str = "the plan";
/// The scheme of tensors that are encoded.
const ENCODED: &str = "quantised";
/// Memory of a job and its decoders.
const JOB: u64 = 768;

pub(super) fn plan(what: &Quantise<'_>) -> Result<Plan> {
    let checkpoint = &*what.weights.checkpoint;
    let budget = checkpoint.budget();
    let mut plan = Plan {
        quantised: true,
        ..Plan::default()
    };
    let (kept, keys) = match ConvertedModel::of(what, &budget)? {
        Some(model) => {
            let keys = Keys::of_converted(what, model.keys.clone(), &model);
            plan.notes.extend(model.notes);
            plan.unexplained.extend(model.unexplained);
            for (name, error) in model.outputs.refused {
                plan.refuse(&name, error, &budget)?;
            }
            (
                converted_tensors(what, model.outputs.outputs, &model.form, &budget)?,
                keys,
            )
        }
        None => {
            for refused in &checkpoint.catalog().refused {
                let text = format!("{}: {}", quote(&refused.name), refused.reason);
                plan.refuse(&refused.name, Error::unsupported(text), &budget)?;
            }
            (stored_tensors(what, &budget)?, Keys::of(what, &budget)?)
        }
    };
    check_pruned(what, &kept)?;
    let mut kept = kept;
    kept.retain(|kept| !kept.is_pruned);
    let facts = keys.facts(kept.iter().map(|kept| &*kept.name), what)?;
    let patterns = TypePatterns::new(&what.of_names, &budget)?;
    let quantised = what.file_type.filter(|_| !keys.is_converters);
    let mut chooser = quantised.map(|file_type| {
        let choices = TypeChoices {
            file_type,
            pure: what.pure,
            token_embedding: what.token_embedding,
            output: what.output,
        };
        TypeChooser::new(choices, facts)
    });
    for kept in kept {
        what.weights.options.control.check()?;
        budget.memory(JOB + text_cost(kept.name.len()), PLAN)?;
        let named = patterns.first(&kept.name)?;
        let to = match kept.made {
            Some(made) => Ok(Some(made)),
            None => to(what, chooser.as_mut(), &kept, named),
        };
        let source = kept.source.clone();
        match to.and_then(|to| job(what, kept, to)) {
            Ok(job) => budget.push(&mut plan.jobs, job, PLAN)?,
            Err(error) => plan.refuse(&source, error, &budget)?,
        }
    }
    plan.notes.extend(patterns.unused());
    Ok(plan)
}

/// Refuses to leave out a layer that is not there.
fn check_pruned(what: &Quantise<'_>, kept: &[Kept]) -> Result<()> {
    let layers: BTreeSet<u64> = kept.iter().filter_map(|kept| kept.layer).collect();
    match what.pruned.difference(&layers).next() {
        Some(layer) => Err(Error::invalid_argument(format!(
            "no tensor is of layer {layer}, which is to be left out"
        ))),
        None => Ok(()),
    }
}

/// The type that a tensor gets; `None` if it is copied.
fn to(
    what: &Quantise<'_>,
    chooser: Option<&mut TypeChooser<'_>>,
    kept: &Kept,
    named: Option<&TypePattern>,
) -> Result<Option<EncodedType>> {
    let (Some(chooser), Some(file_type)) = (chooser, what.file_type) else {
        return Ok(None);
    };
    if !is_quantised(kept.ggml(), what.leave_output) {
        return Ok(None);
    }
    let kind = chooser.next(kept.ggml(), named.map(|named| named.kind))?;
    if let Some(named) = named.filter(|_| chooser.follows_names()) {
        named.used.set(true);
    }
    let own = kept.encoding.to_string();
    if own == kind {
        return Ok(None);
    }
    let stored_as_blocks = matches!(kept.encoding, Encoding::Block(_));
    if stored_as_blocks && !what.requantise {
        let text = format!(
            "tensor {} is quantised already, as {own}: what it has lost stays lost, and {kind} loses more",
            quote(&kept.source)
        );
        return Err(Error::unsupported(text).with_remedy(Remedy::Requantise));
    }
    if needs_importance(kind, file_type, &kept.name) && importance(what, kept)?.is_none() {
        let text = format!(
            "tensor {} becomes {kind}, which is too coarse without an importance matrix that has it",
            quote(&kept.source)
        );
        return Err(Error::unsupported(text).with_remedy(Remedy::GiveImportance));
    }
    Ok(Some(match BlockFormat::from_name(kind) {
        Some(format) => EncodedType::Blocks(format),
        None => EncodedType::Plain(match kind {
            "F16" => Dtype::F16,
            "BF16" => Dtype::BF16,
            _ => Dtype::F32,
        }),
    }))
}

/// The importance of a tensor's columns, one list for each matrix.
fn importance(what: &Quantise<'_>, kept: &Kept) -> Result<Option<Arc<[f32]>>> {
    let entries = what.importance.as_ref();
    let Some(values) = entries.and_then(|entries| entries.of(&kept.source)) else {
        return Ok(None);
    };
    let width = kept.sizes.first().copied().unwrap_or(1);
    let matrices = kept.sizes.get(2).copied().unwrap_or(1);
    if Some(values.len() as u64) == width.checked_mul(matrices) {
        return Ok(Some(values.clone()));
    }
    // llama-imatrix counts this one by tokens
    if &*kept.name == TOKEN_EMBD {
        return Ok(None);
    }
    Err(Error::malformed(format!(
        "the importance of {} has {} numbers, and its columns are {width} of {matrices} matrices: it was measured with another model",
        quote(&kept.source),
        values.len()
    )))
}

/// The job of a tensor.
fn job(what: &Quantise<'_>, kept: Kept, to: Option<EncodedType>) -> Result<Job> {
    let about =
        |text: String| Error::unsupported(format!("tensor {}: {text}", quote(&kept.source)));
    let importance = match to {
        Some(EncodedType::Blocks(_)) => importance(what, &kept)?,
        _ => None,
    };
    let StoredDecoders { copy, values } = kept.decoders?;
    let shape = kept.sizes.iter().rev().copied().collect();
    let mut output = TensorSpec::new(kept.name, shape, Dtype::U8);
    let Some(to) = to else {
        match &kept.encoding {
            Encoding::Plain(dtype) => output.dtype = *dtype,
            Encoding::Block(format) => output.block = Some(*format),
            Encoding::Opaque(_) => unreachable!("has no decoder"),
        }
        let dtype = output.dtype;
        let decoder: Arc<dyn Decoder> = match values {
            Some(values) => Arc::new(CheckedCopy { copy, values }),
            None => copy,
        };
        let rows = decoder.grid().rows_per_tile(dtype);
        return Ok(made(kept.parts, output, decoder, rows, kept.scheme));
    };
    let inner = values.ok_or_else(|| about(format!("{} is not quantised", kept.encoding)))?;
    let width = kept.sizes.first().copied().unwrap_or(1);
    // the sizes of a tensor that is there, whose product was computed
    let rows = kept.sizes.iter().skip(1).product();
    let matrix_rows = kept.sizes.get(1).copied().unwrap_or(1);
    let tile = what.weights.checkpoint.limits().tile_bytes;
    if !width.is_multiple_of(inner.grid().cols.max(1)) || width.saturating_mul(8) > tile {
        return Err(about(format!(
            "a row of {width} elements is not encoded at once"
        )));
    }
    match to {
        EncodedType::Plain(dtype) => output.dtype = dtype,
        EncodedType::Blocks(format) if width.is_multiple_of(format.block_len.into()) => {
            output.block = Some(format);
        }
        EncodedType::Blocks(format) => {
            // by `--output-tensor-type` or `--token-embedding-type`, which take no other type in its place
            return Err(about(format!(
                "{} has blocks of {} elements, and its rows have {width}",
                format.name, format.block_len
            )));
        }
    }
    let encoded = Encoded {
        inner,
        to,
        rows,
        width,
        importance,
        matrix_rows: matrix_rows.max(1),
    };
    let per_tile = encoded.rows_per_tile();
    Ok(made(
        kept.parts,
        output,
        Arc::new(encoded),
        per_tile,
        ENCODED,
    ))
}

fn made(
    parts: Vec<StoredPart>,
    output: TensorSpec,
    decoder: Arc<dyn Decoder>,
    rows: u64,
    scheme: &'static str,
) -> Job {
    Job {
        output,
        scheme,
        parts,
        work: JobWork::Tiles { decoder, rows },
    }
}
