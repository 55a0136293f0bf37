//! The plan of a quantised GGUF: its tensors in the order of llama.cpp, each copied or encoded.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::{Error, Remedy, Result};
use crate::base::kernel::{BlockFormat, Dtype};
use crate::base::limits::{Budget, text_cost};
use crate::base::quote::quote;
use crate::models::gguf_types::{
    GgmlTensor, TOKEN_EMBD, TypeChoices, TypeChooser, is_quantised, layer_of, needs_importance,
};
use crate::plan::decode::{Cast, CheckedCopy, Encoded, EncodedType, StoredBlocks};
use crate::plan::{Decoder, Job, JobWork, PLAIN, Plan, StoredPart, TensorSpec, addressable};
use crate::quant::scheme::ggml_blocks;
use crate::read::catalog::{Encoding, Endian, TensorInfo};

use super::Quantise;
use super::keys::Keys;
use super::type_patterns::{TypePattern, TypePatterns};

const PLAN: &str = "the plan";
/// The scheme of tensors that are encoded.
const ENCODED: &str = "quantised";
/// Memory of a job and its decoders.
const JOB: u64 = 768;

/// A tensor that is written.
struct Kept<'c> {
    /// Its index in the catalog.
    tensor: usize,
    info: &'c TensorInfo,
    /// Its name in the output, where layers in front of it may be left out.
    name: Box<str>,
    /// Its sizes, innermost first.
    sizes: SmallVec<[u64; 4]>,
}

impl Kept<'_> {
    fn ggml(&self) -> GgmlTensor<'_> {
        GgmlTensor {
            name: &self.name,
            sizes: &self.sizes,
        }
    }
}

pub(super) fn plan(what: &Quantise<'_>) -> Result<Plan> {
    let checkpoint = &*what.weights.checkpoint;
    let catalog = checkpoint.catalog();
    let budget = checkpoint.budget();
    if catalog.format() != "gguf" {
        return Err(Error::unsupported(format!(
            "a {} is not quantised to a GGUF yet: its tensors and keys have other names there",
            catalog.format()
        )));
    }
    let mut plan = Plan {
        quantised: true,
        ..Plan::default()
    };
    for refused in &catalog.refused {
        let text = format!("{}: {}", quote(&refused.name), refused.reason);
        plan.refuse(&refused.name, Error::unsupported(text), &budget)?;
    }
    let kept = kept(what, &budget)?;
    let keys = Keys::of(what, &budget)?;
    let facts = keys.facts(kept.iter().map(|kept| &*kept.name), what)?;
    let patterns = TypePatterns::new(&what.of_names, &budget)?;
    let mut chooser = what.file_type.map(|file_type| {
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
        let job = to(what, chooser.as_mut(), &kept, named).and_then(|to| job(what, &kept, to));
        match job {
            Ok(job) => budget.push(&mut plan.jobs, job, PLAN)?,
            Err(error) => plan.refuse(&kept.info.name, error, &budget)?,
        }
    }
    plan.notes.extend(patterns.unused());
    Ok(plan)
}

/// The tensors that are written, in their order: by layers and then by names.
fn kept<'c>(what: &'c Quantise<'_>, budget: &Budget) -> Result<Vec<Kept<'c>>> {
    let catalog = what.weights.checkpoint.catalog();
    let mut kept = Vec::new();
    for (tensor, info) in catalog.tensors().iter().enumerate() {
        let Some(name) = what.kept_name(&info.name) else {
            continue;
        };
        let mut sizes: SmallVec<[u64; 4]> = info.shape.iter().rev().copied().collect();
        // as ggml counts dimensions
        while sizes.len() > 1 && sizes.last() == Some(&1) {
            sizes.pop();
        }
        let row = Kept {
            tensor,
            info,
            name: name.into(),
            sizes,
        };
        budget.push(&mut kept, row, PLAN)?;
    }
    // by the names of the source, whose layers may be numbered otherwise
    let layer =
        |kept: &Kept<'c>| layer_of(&kept.info.name).map_or(0, |layer| layer.saturating_add(1));
    kept.sort_by(|a, b| (layer(a), &*a.info.name).cmp(&(layer(b), &*b.info.name)));
    Ok(kept)
}

/// The type that a tensor gets; `None` if it is copied.
fn to(
    what: &Quantise<'_>,
    chooser: Option<&mut TypeChooser<'_>>,
    kept: &Kept<'_>,
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
    let own = kept.info.encoding.to_string();
    if own == kind {
        return Ok(None);
    }
    let stored_as_blocks = matches!(kept.info.encoding, Encoding::Block(_));
    if stored_as_blocks && !what.requantise {
        let text = format!(
            "tensor {} is quantised already, as {own}: what it has lost stays lost, and {kind} loses more",
            quote(&kept.info.name)
        );
        return Err(Error::unsupported(text).with_remedy(Remedy::Requantise));
    }
    if needs_importance(kind, file_type, &kept.name) && importance(what, kept)?.is_none() {
        let text = format!(
            "tensor {} becomes {kind}, which is too coarse without an importance matrix that has it",
            quote(&kept.info.name)
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
fn importance(what: &Quantise<'_>, kept: &Kept<'_>) -> Result<Option<Arc<[f32]>>> {
    let entries = what.importance.as_ref();
    let Some(values) = entries.and_then(|entries| entries.of(&kept.info.name)) else {
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
        quote(&kept.info.name),
        values.len()
    )))
}

/// The job of a tensor.
fn job(what: &Quantise<'_>, kept: &Kept<'_>, to: Option<EncodedType>) -> Result<Job> {
    let info = kept.info;
    let about = |text: String| Error::unsupported(format!("tensor {}: {text}", quote(&info.name)));
    if !addressable(info) || info.endian == Endian::Big {
        return Err(about(
            "it is not stored as little-endian numbers, one after another".into(),
        ));
    }
    let Some((copy, values)) = decoders(info) else {
        return Err(about("its items have no dtype".into()));
    };
    let shape = kept.sizes.iter().rev().copied().collect();
    let mut output = TensorSpec::new(kept.name.clone(), shape, Dtype::U8);
    let Some(to) = to else {
        match &info.encoding {
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
        return Ok(made(kept, output, decoder, rows, PLAIN));
    };
    let inner = values.ok_or_else(|| about(format!("{} is not quantised", info.encoding)))?;
    let width = info.shape.last().copied().unwrap_or(1);
    let rows = info.elements() / width.max(1);
    let matrix_rows = kept.sizes.get(1).copied().unwrap_or(1);
    let tile = what.weights.checkpoint.limits().tile_bytes;
    if !width.is_multiple_of(inner.grid().cols.max(1)) || width.saturating_mul(8) > tile {
        return Err(about(format!(
            "a row of {width} elements is not encoded at once"
        )));
    }
    let importance = match to {
        EncodedType::Blocks(_) => importance(what, kept)?,
        EncodedType::Plain(_) => None,
    };
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
    Ok(made(kept, output, Arc::new(encoded), per_tile, ENCODED))
}

fn made(
    kept: &Kept<'_>,
    output: TensorSpec,
    decoder: Arc<dyn Decoder>,
    rows: u64,
    scheme: &'static str,
) -> Job {
    let parts = vec![StoredPart {
        role: "values",
        tensor: kept.tensor,
    }];
    Job {
        output,
        scheme,
        parts,
        work: JobWork::Tiles { decoder, rows },
    }
}

/// The decoder that makes numbers of a tensor, if it has any.
type Numbers = Option<Arc<dyn Decoder>>;

/// The decoder that copies a tensor, and the one that makes numbers of it, if it has any; `None` if its items have no dtype.
fn decoders(info: &TensorInfo) -> Option<(Arc<dyn Decoder>, Numbers)> {
    Some(match &info.encoding {
        Encoding::Opaque(_) => return None,
        Encoding::Block(format) => {
            let count = info.elements() / u64::from(format.block_len);
            let copy = StoredBlocks {
                format,
                count,
                big: false,
            };
            (Arc::new(copy), Some(ggml_blocks(format, count)))
        }
        Encoding::Plain(dtype) => {
            let cast = || {
                Arc::new(Cast {
                    from: *dtype,
                    elements: info.elements(),
                })
            };
            let is_float = matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16);
            (cast(), is_float.then(|| cast() as Arc<dyn Decoder>))
        }
    })
}
