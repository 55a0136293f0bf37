//! Pieces of tensors in several safetensors files: what `HuggingFaceStorageWriter` of torch.distributed.checkpoint writes from
//! several processes.
//!
//! The metadata of each file has `DCP_SHARDING_INFO`, JSON `{name: {"saved_offsets": [row, column, …]}}`: at which indices of
//! the whole tensor the file's tensor begins. The whole has the largest end of a piece in each dimension; the pieces must
//! contain each element once.
//!
//! Source: PyTorch 2.15, `distributed/checkpoint/hf_storage.py` and `_hf_utils.py`.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::{ByteRange, Layout, Shape, TensorChunk, TensorInfo, Value, quote};
use crate::read::json::{JsonReader, Tree};

use super::merge::ParsedFile;

/// The key of the metadata.
pub(crate) const PLACES: &str = "DCP_SHARDING_INFO";

const WHAT: &str = "the pieces of tensors";

/// A tensor of pieces: where its first one is, and the pieces.
struct JoinedTensor {
    file: usize,
    position: usize,
    pieces: Vec<TensorChunk>,
}

/// Joins the pieces of tensors of files that are merged next. Files without the key are left as they are.
pub(super) fn join(files: &mut [ParsedFile], budget: &Budget) -> Result<()> {
    let is_piece = |file: &ParsedFile| file.catalog.metadata.get(PLACES).is_some();
    if files.len() < 2 || !files.iter().all(is_piece) {
        return Ok(());
    }
    let mut joined: HashMap<Box<str>, JoinedTensor> = HashMap::new();
    for (number, file) in files.iter_mut().enumerate() {
        let places = places(file, budget)?;
        let mut kept = Vec::new();
        for mut part in std::mem::take(&mut file.catalog.tensors) {
            let rank = part.shape.len();
            let offsets = places.get(&*part.name).cloned();
            let offsets = offsets.unwrap_or_else(|| std::iter::repeat_n(0, rank).collect());
            if offsets.len() != rank {
                return Err(Error::malformed(format!(
                    "tensor {}: {} offsets for {rank} dimensions",
                    quote(&part.name),
                    offsets.len()
                )));
            }
            // merging numbers tensors by file, but not their pieces
            part.bytes.file = u32::try_from(number).expect("files are few");
            budget.memory(
                text_cost(part.name.len()) + 2 * size_of::<TensorChunk>() as u64,
                WHAT,
            )?;
            let entry = joined.entry(part.name.clone()).or_insert_with(|| {
                kept.push(TensorInfo {
                    bytes: ByteRange {
                        file: 0,
                        ..part.bytes
                    },
                    ..part.clone()
                });
                JoinedTensor {
                    file: number,
                    position: kept.len() - 1,
                    pieces: Vec::new(),
                }
            });
            entry.pieces.push(TensorChunk { offsets, part });
        }
        file.catalog.tensors = kept;
    }
    for (name, tensor) in joined {
        let whole = whole(&name, tensor.pieces, budget)?;
        let file = &mut files[tensor.file];
        if let Some(mut whole) = whole {
            whole.bytes.file = 0;
            file.catalog.tensors[tensor.position] = whole;
        }
    }
    Ok(())
}

/// The offsets of a file's tensors.
fn places(file: &ParsedFile, budget: &Budget) -> Result<HashMap<String, Shape>> {
    let Some(Value::Text(text)) = file.catalog.metadata.get(PLACES) else {
        return Ok(HashMap::new());
    };
    let wrong = |why: &dyn std::fmt::Display| Error::malformed(format!("{PLACES}: {why}"));
    let reader = JsonReader::new(budget, WHAT);
    let parsed = reader.parse(text, Tree(&reader), |e| wrong(&e))?;
    let Json::Object(map) = parsed else {
        return Err(wrong(&"not an object"));
    };
    budget.memory(text.len() as u64 * 2, WHAT)?;
    map.into_iter()
        .map(|(name, entry)| {
            let offsets = entry.get("saved_offsets").and_then(Json::as_array);
            let offsets: Option<Shape> =
                offsets.and_then(|all| all.iter().map(Json::as_u64).collect());
            offsets
                .map(|offsets| (name, offsets))
                .ok_or_else(|| wrong(&"an entry without saved_offsets"))
        })
        .collect()
}

/// The whole tensor of several pieces; `None` if a single piece, or each of several equal ones, is all of it.
fn whole(name: &str, mut pieces: Vec<TensorChunk>, budget: &Budget) -> Result<Option<TensorInfo>> {
    // a tensor that is not divided is saved by one process or by all
    pieces.sort_by(|a, b| a.offsets.cmp(&b.offsets));
    pieces.dedup_by(|a, b| a.offsets == b.offsets && a.part.shape == b.part.shape);
    let first = pieces[0].part.clone();
    if pieces.len() == 1 && pieces[0].offsets.iter().all(|offset| *offset == 0) {
        return Ok(None);
    }
    let wrong =
        |why: &str| Error::malformed(format!("the pieces of tensor {}: {why}", quote(name)));
    let rank = first.shape.len();
    let mut shape: Shape = std::iter::repeat_n(0, rank).collect();
    let mut elements = 0u64;
    for piece in &pieces {
        if piece.part.encoding != first.encoding || piece.part.shape.len() != rank {
            return Err(wrong("they have several dtypes or ranks"));
        }
        for axis in 0..rank {
            let end = piece.offsets[axis]
                .checked_add(piece.part.shape[axis])
                .ok_or_else(|| wrong("their offsets do not fit in 64 bits"))?;
            shape[axis] = shape[axis].max(end);
        }
        elements = elements.saturating_add(piece.part.elements());
    }
    // boxes that do not overlap and have as many elements as the whole contain each once
    for (i, a) in pieces.iter().enumerate() {
        budget.steps(pieces.len() as u64, WHAT)?;
        let overlaps = |b: &TensorChunk| {
            (0..rank).all(|axis| {
                let (start, len) = (a.offsets[axis], a.part.shape[axis]);
                let (other, size) = (b.offsets[axis], b.part.shape[axis]);
                start < other + size && other < start + len
            })
        };
        if pieces[i + 1..].iter().any(overlaps) {
            return Err(wrong("they overlap"));
        }
    }
    if crate::read::catalog::elements(&shape) != Some(elements) {
        return Err(Error::new(crate::base::error::ErrorKind::MissingPart(
            format!(
                "pieces of tensor {}: there are {elements} elements of {shape:?}; a file of its ranks is missing",
                quote(name)
            ),
        )));
    }
    let bytes = ByteRange {
        len: 0,
        ..first.bytes
    };
    Ok(Some(TensorInfo {
        shape,
        bytes,
        layout: Layout::Chunked(pieces.into()),
        ..first
    }))
}
