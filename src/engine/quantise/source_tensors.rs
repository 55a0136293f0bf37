//! The tensors that are quantised: of a GGUF as they are stored, of a Hugging Face checkpoint as llama.cpp's converter writes them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::base::kernel::{BlockFormat, Dtype};
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::models::conversion::GgufOutput;
use crate::models::gguf_types::{GgmlTensor, is_always_f32, layer_of};
use crate::plan::decode::{Cast, EncodedType, Rounded, StoredBlocks};
use crate::plan::{Decoder, PLAIN, StoredPart, addressable};
use crate::quant::scheme::ggml_blocks;
use crate::read::catalog::{Encoding, Endian, TensorInfo};

use super::Quantise;
use super::converted::ConvertedForm;

const PLAN: &str = "the plan";

/// A tensor of the output, before a type is chosen for it.
pub(super) struct Kept {
    /// Its name in the output, where layers in front of it may be left out.
    pub(super) name: Box<str>,
    /// Its name with the layers of the source.
    pub(super) source: Box<str>,
    /// Its layer in the source.
    pub(super) layer: Option<u64>,
    pub(super) is_pruned: bool,
    /// The file of the source, and the place in it.
    stored: (u32, u64),
    /// Its sizes, innermost first.
    pub(super) sizes: SmallVec<[u64; 4]>,
    /// Its type if it is copied.
    pub(super) encoding: Encoding,
    pub(super) decoders: Result<StoredDecoders>,
    pub(super) parts: Vec<StoredPart>,
    pub(super) scheme: &'static str,
    /// The type that the converter gives it.
    pub(super) made: Option<EncodedType>,
}

/// The decoder that copies a tensor, and the one that makes numbers of it, if it has any.
pub(super) struct StoredDecoders {
    pub(super) copy: Arc<dyn Decoder>,
    pub(super) values: Option<Arc<dyn Decoder>>,
}

impl Kept {
    pub(super) fn ggml(&self) -> GgmlTensor<'_> {
        GgmlTensor {
            name: &self.name,
            sizes: &self.sizes,
        }
    }

    /// Where llama-quantize puts it: by layers, and then by names, of the source, whose layers may be numbered otherwise.
    fn place(&self) -> (u64, &str) {
        let layer = self.layer.map_or(0, |layer| layer.saturating_add(1));
        (layer, &self.source)
    }
}

/// The tensors of a GGUF, in the order of the output.
pub(super) fn stored_tensors(what: &Quantise<'_>, budget: &Budget) -> Result<Vec<Kept>> {
    let catalog = what.weights.checkpoint.catalog();
    let mut kept = Vec::new();
    for (tensor, info) in catalog.tensors().iter().enumerate() {
        let name = what.kept_name(&info.name);
        let row = Kept {
            is_pruned: name.is_none(),
            stored: (info.bytes.file, info.bytes.start),
            name: name.unwrap_or_default().into(),
            source: info.name.clone(),
            layer: layer_of(&info.name),
            sizes: sizes(&info.shape),
            encoding: info.encoding.clone(),
            decoders: decoders(info),
            parts: vec![StoredPart {
                role: "values",
                tensor,
            }],
            scheme: PLAIN,
            made: None,
        };
        budget.push(&mut kept, row, PLAN)?;
    }
    match what.keep_split {
        true => kept.sort_by_key(|kept| kept.stored),
        false => kept.sort_by(|a, b| a.place().cmp(&b.place())),
    }
    Ok(kept)
}

/// The number of tensors of each file of the output; one for a single file.
pub(super) fn counts_of_files(what: &Quantise<'_>) -> Result<Vec<usize>> {
    let catalog = what.weights.checkpoint.catalog();
    if !what.keep_split {
        return Ok(vec![catalog.tensors().len()]);
    }
    if catalog.format() != "gguf" {
        return Err(Error::invalid_argument(
            "the files of a GGUF are kept, and this checkpoint has other tensors in its own",
        ));
    }
    let mut counts = vec![0; catalog.files().len()];
    for info in catalog.tensors() {
        if what.kept_name(&info.name).is_some() {
            counts[info.bytes.file as usize] += 1;
        }
    }
    match counts.iter().position(|count| *count == 0) {
        Some(file) if counts.len() > 1 => Err(Error::invalid_argument(format!(
            "file {} of {} would have no tensors, as all of its layers are left out",
            file + 1,
            counts.len()
        ))),
        _ => Ok(counts),
    }
}

/// Sizes as ggml counts dimensions: innermost first, without any of 1 at the end.
fn sizes(shape: &[u64]) -> SmallVec<[u64; 4]> {
    let mut sizes: SmallVec<[u64; 4]> = shape.iter().rev().copied().collect();
    while sizes.len() > 1 && sizes.last() == Some(&1) {
        sizes.pop();
    }
    sizes
}

/// The tensors of a Hugging Face checkpoint, in the order of the output.
pub(super) fn converted_tensors(
    what: &Quantise<'_>,
    outputs: Vec<GgufOutput>,
    form: &ConvertedForm,
    budget: &Budget,
) -> Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for output in outputs {
        let name = what.kept_name(&output.name);
        let width = output.shape.last().copied().unwrap_or(1);
        let (dtype, made) = converted_type(&output, form, width);
        let values = Rounded::through(Arc::clone(&output.decoder), dtype);
        let row = Kept {
            is_pruned: name.is_none(),
            stored: (0, 0),
            name: name.unwrap_or_default().into(),
            layer: layer_of(&output.name),
            source: output.name.into(),
            sizes: match form.is_whole {
                true => output.shape.iter().rev().copied().collect(),
                false => sizes(&output.shape),
            },
            encoding: Encoding::Plain(dtype),
            decoders: Ok(StoredDecoders {
                copy: output.decoder,
                values: Some(values),
            }),
            parts: output.parts,
            scheme: output.scheme,
            made,
        };
        budget.push(&mut kept, row, PLAN)?;
    }
    if !form.is_whole {
        kept.sort_by(|a, b| a.place().cmp(&b.place()));
    }
    Ok(kept)
}

/// The float that the converter writes, or the blocks that it encodes.
fn converted_type(
    output: &GgufOutput,
    form: &ConvertedForm,
    width: u64,
) -> (Dtype, Option<EncodedType>) {
    if is_always_f32(&output.name, output.shape.len()) {
        return (Dtype::F32, None);
    }
    match form.blocks {
        Some(format) if width.is_multiple_of(format.block_len.into()) => {
            (Dtype::F32, Some(EncodedType::Blocks(format)))
        }
        Some(_) => (Dtype::F16, None),
        None => (form.dtype, None),
    }
}

/// The decoders of a tensor of a GGUF.
fn decoders(info: &TensorInfo) -> Result<StoredDecoders> {
    let about = |text: &str| {
        Err(Error::unsupported(format!(
            "tensor {}: {text}",
            quote(&info.name)
        )))
    };
    if !addressable(info) || info.endian == Endian::Big {
        return about("it is not stored as little-endian numbers, one after another");
    }
    let (copy, values): (Arc<dyn Decoder>, _) = match &info.encoding {
        Encoding::Opaque(_) => return about("its items have no dtype"),
        Encoding::Block(format) => block_decoders(format, info.elements()),
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
    };
    Ok(StoredDecoders { copy, values })
}

fn block_decoders(
    format: &'static BlockFormat,
    elements: u64,
) -> (Arc<dyn Decoder>, Option<Arc<dyn Decoder>>) {
    let count = elements / u64::from(format.block_len);
    let copy = StoredBlocks {
        format,
        count,
        big: false,
    };
    (Arc::new(copy), Some(ggml_blocks(format, count)))
}
