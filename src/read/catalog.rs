//! The description of a checkpoint as data: which tensor, of which dtype and shape, in which bytes of which file.
//!
//! A catalog is owned, `Send` and `Debug`, and needs no open file.

mod encoding;
mod extents;
mod member;
pub(crate) mod metadata;
mod natural_sort;
mod pytorch;
mod shape;
mod validate;

use crate::base::note::Note;
use std::path::PathBuf;

pub use metadata::{Item, Metadata, StoredArray, Value};

pub(crate) use anamnesis_template::ByteRange;
pub use encoding::{Encoding, Layout, Opaque, Packing, Sparse, TensorChunk};
pub use member::{IntegrityCheck, Member};
pub use natural_sort::natural_order;
pub use pytorch::{PytorchAttributes, Quantizer, ViewFlags};
pub use shape::Shape;

pub(crate) use crate::base::quote::quote;
pub(crate) use validate::{NameIndex, repeated};

/// Byte order of stored numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endian {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

/// The description of one tensor: name, shape, encoding and byte range.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Name; dotted where the file nests. Empty for an unnamed array.
    pub name: Box<str>,
    /// Sizes, outermost first.
    pub shape: Shape,
    /// How elements are stored.
    pub encoding: Encoding,
    /// Order of the elements in the stored bytes.
    pub layout: Layout,
    /// The byte range of the tensor in its file. For a strided view, it reaches from the first to the last element; it is
    /// empty for sparse and chunked tensors, whose parts have ranges of their own.
    pub bytes: ByteRange,
    /// Whether those bytes are packed.
    pub packing: Packing,
    /// Byte order of the stored numbers.
    pub endian: Endian,
    /// Index of the tensor's storage in [`Catalog::members`], for formats whose tensors may share one. Tied tensors have
    /// the same.
    pub member: Option<u32>,
    /// Attributes that only PyTorch files state; `None` for most tensors.
    pub pytorch: Option<Box<PytorchAttributes>>,
}

impl TensorInfo {
    /// A plain row-major little-endian tensor.
    pub fn new(
        name: impl Into<Box<str>>,
        shape: Shape,
        encoding: Encoding,
        bytes: ByteRange,
    ) -> Self {
        Self {
            name: name.into(),
            shape,
            encoding,
            layout: Layout::RowMajor,
            bytes,
            packing: Packing::Raw,
            endian: Endian::Little,
            member: None,
            pytorch: None,
        }
    }

    /// Signs to flip on reading.
    pub fn view_flags(&self) -> ViewFlags {
        self.pytorch
            .as_ref()
            .map_or(ViewFlags::default(), |p| p.view_flags)
    }

    /// Parameters of a PyTorch quantised tensor.
    pub fn quantizer(&self) -> Option<&Quantizer> {
        self.pytorch.as_ref()?.quantizer.as_ref()
    }

    /// Memory of the lists of this description that are not inline: sizes, strides.
    pub(crate) fn lists_memory(&self) -> u64 {
        let list = |sizes: &[u64]| {
            if sizes.len() > 4 {
                24 * sizes.len() as u64
            } else {
                0
            }
        };
        let strides = match &self.layout {
            Layout::Strided(strides) => list(strides) + size_of::<Shape>() as u64,
            _ => 0,
        };
        list(&self.shape) + strides
    }

    /// Memory of what this description refers to, without the name: its lists, and what only some tensors have.
    pub(crate) fn boxed_memory(&self) -> u64 {
        let part = |part: &Self| size_of::<Self>() as u64 + part.boxed_memory() + 32;
        let parts = match &self.layout {
            Layout::Sparse(sparse) => 64 + sparse.parts.iter().map(part).sum::<u64>(),
            Layout::Chunked(chunks) => chunks
                .iter()
                .map(|chunk| size_of::<Shape>() as u64 + part(&chunk.part))
                .sum(),
            _ => 0,
        };
        let pytorch = match self.quantizer() {
            Some(Quantizer::PerChannel {
                scales,
                zero_points,
                ..
            }) => part(scales) + part(zero_points),
            _ => 0,
        };
        let own = if self.pytorch.is_some() {
            size_of::<PytorchAttributes>() as u64
        } else {
            0
        };
        self.lists_memory() + parts + pytorch + own
    }

    /// Number of elements.
    ///
    /// Formats check the product when they read it, so it does not wrap here.
    pub fn elements(&self) -> u64 {
        elements(&self.shape).unwrap_or(u64::MAX)
    }

    /// Bytes of the logical contents (of blocks for a block type); of the stored parts for a sparse
    /// tensor; 0 where nothing is stored.
    pub fn nbytes(&self) -> u64 {
        match &self.layout {
            Layout::Absent => 0,
            Layout::Sparse(sparse) => sparse
                .parts
                .iter()
                .map(Self::nbytes)
                .fold(0, u64::saturating_add),
            // formats refuse sizes that do not fit, so the fallback is for catalogs of other origin
            _ => self.encoding.nbytes(self.elements()).unwrap_or(u64::MAX),
        }
    }
}

/// Product of the dimensions; `None` if it does not fit in 64 bits. A zero dimension makes it 0, even if
/// the product of the other dimensions overflows.
pub(crate) fn elements(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
}

/// Number of elements between the first and the last that a shape with these strides addresses, both
/// included: 0 if the shape is empty, `None` if the number does not fit in 64 bits.
pub(crate) fn span_of(shape: &[u64], strides: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    // the last index of a dimension is `d - 1`; sizes are at least 1 here
    let reach = |n: u64, (&d, &s): (&u64, &u64)| n.checked_add((d - 1).checked_mul(s)?);
    shape.iter().zip(strides).try_fold(0, reach)?.checked_add(1)
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileInfo {
    /// Path it was opened by; `None` for a reader or bytes.
    pub path: Option<PathBuf>,
    /// Length in bytes.
    pub nbytes: u64,
}

/// An entry that is listed and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Its name.
    pub name: Box<str>,
    /// The reason, for display.
    pub reason: Box<str>,
}

/// A field of a tensor's description that the format does not name: some writers describe their packing so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtraField {
    pub(crate) tensor: Box<str>,
    pub(crate) field: Box<str>,
}

/// The description of a checkpoint: its tensors, metadata and files.
///
/// [`Checkpoint::catalog`](crate::Checkpoint::catalog) returns it. It holds no reference to the files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    pub(crate) format: &'static str,
    pub(crate) details: Metadata,
    pub(crate) files: Vec<FileInfo>,
    pub(crate) metadata: Metadata,
    /// Whether the first file has a place for metadata, without a key.
    pub(crate) empty_metadata: bool,
    pub(crate) members: Vec<Member>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) warnings: Vec<Note>,
    /// Fields of tensors' descriptions that the format does not name.
    pub(crate) extra_fields: Vec<ExtraField>,
    /// Further values of keys of the metadata, which differ between the files: the first value is with the others.
    pub(crate) differing_values: Vec<(Box<str>, Value)>,
    pub(crate) tensors: Vec<TensorInfo>,
    /// If set, the file must end here: the format allows nothing after the last tensor.
    pub(crate) exact_end: Option<u64>,
    pub(crate) names: NameIndex,
}

impl Catalog {
    /// An empty catalog of this format.
    pub(crate) fn new(format: &'static str) -> Self {
        Self {
            format,
            ..Self::default()
        }
    }

    /// The format's name: `safetensors`, `gguf`, `npy`, `npz`, `pth`, or `dcp` for a directory of
    /// torch.distributed.checkpoint.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// Properties of the container by name: version, byte order, alignment, ….
    pub fn details(&self) -> &Metadata {
        &self.details
    }

    /// The files of the checkpoint, indexed by [`ByteRange::file`].
    pub fn files(&self) -> &[FileInfo] {
        &self.files
    }

    /// Keys and values that the files hold in addition to the tensors.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Whether a safetensors file has `__metadata__`, although there are no keys: its own package tells that from none.
    pub fn has_empty_metadata(&self) -> bool {
        self.empty_metadata && self.metadata.is_empty()
    }

    /// Storages that tensors share, indexed by [`TensorInfo::member`].
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Entries that are listed and cannot be read, such as object arrays.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Findings about the files that do not prevent reading them.
    pub fn warnings(&self) -> &[Note] {
        &self.warnings
    }

    /// The tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.position(name).map(|i| &self.tensors[i])
    }

    /// The index of the tensor with this name in [`tensors`](Self::tensors).
    pub fn position(&self, name: &str) -> Option<usize> {
        self.names.find(&self.tensors, name)
    }

    /// Sum of the tensors' logical bytes.
    pub fn nbytes(&self) -> u64 {
        self.tensors
            .iter()
            .map(TensorInfo::nbytes)
            // saturating: tied tensors count the same bytes again, so that the lengths of the files do not bound the
            // sum
            .fold(0, u64::saturating_add)
    }

    pub(crate) fn detail(&mut self, key: &str, value: Value) {
        self.details.push(key, value);
    }
}
