//! What lies where: the description of a checkpoint, as data.
//!
//! A catalog is owned, `Send`, printable, and needs no file to build.

mod encoding;
mod finish;
mod lazy;
mod member;
mod natural;
mod whole;

use std::path::PathBuf;

use smallvec::SmallVec;

use crate::metadata::{Metadata, Value};

pub use anamnesis_template::ByteRange;
pub use encoding::{Encoding, Layout, Opaque, Packing, Sparse};
pub use lazy::{Lazy, Quantizer};
pub use member::{Guard, Member};
pub use natural::natural;

pub(crate) use finish::{NameIndex, quote, repeated};

/// Sizes per dimension, outermost first (row-major; a GGUF `ne[]` reversed). Empty for a scalar.
pub type Shape = SmallVec<[u64; 4]>;

/// Byte order of stored numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endian {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

/// One tensor: what it is and where it lies.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Name; dotted where the file nests. Empty for an unnamed array.
    pub name: Box<str>,
    /// Sizes, outermost first.
    pub shape: Shape,
    /// How elements are stored.
    pub encoding: Encoding,
    /// How they are arranged.
    pub layout: Layout,
    /// The stored bytes it touches: for a strided view, from its first element to its last.
    pub bytes: ByteRange,
    /// Whether those bytes are packed.
    pub packing: Packing,
    /// Byte order of the stored numbers.
    pub endian: Endian,
    /// The storage it lies in, an index into [`Catalog::members`], for formats that share storages.
    /// Tied tensors have the same.
    pub member: Option<u32>,
    /// Signs to flip on reading.
    pub lazy: Lazy,
    /// How to read quantised elements.
    pub quantizer: Option<Box<Quantizer>>,
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
            lazy: Lazy::default(),
            quantizer: None,
        }
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
            _ => self.encoding.nbytes(self.elements()).unwrap_or(u64::MAX),
        }
    }
}

/// Product of the dimensions; `None` if it does not fit in 64 bits. A zero dimension makes it 0,
/// whatever the others say.
pub(crate) fn elements(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
}

/// Elements from the first to behind the last that a shape with these strides touches: 0 if it is
/// empty, `None` if that does not fit in 64 bits.
pub(crate) fn span_of(shape: &[u64], strides: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let reach = |n: u64, (&d, &s): (&u64, &u64)| n.checked_add((d - 1).checked_mul(s)?);
    shape.iter().zip(strides).try_fold(0, reach)?.checked_add(1)
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Path it was opened by; `None` for a reader or bytes.
    pub path: Option<PathBuf>,
    /// Length in bytes.
    pub nbytes: u64,
}

/// Something that is listed and cannot be read: the reason is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub name: Box<str>,
    /// Why.
    pub reason: Box<str>,
}

/// What a checkpoint holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// The format's name: `safetensors`, `gguf`, `npy`, `npz`, `pth`.
    pub format: &'static str,
    /// Facts of the container (version, byte order, alignment, …), by name.
    pub details: Metadata,
    /// The files it consists of.
    pub files: Vec<FileInfo>,
    /// Keys and values beside the tensors.
    pub metadata: Metadata,
    /// Storages that tensors share.
    pub members: Vec<Member>,
    /// What is listed and cannot be read, such as object arrays.
    pub refused: Vec<Refused>,
    /// What a reader should know and no one need stop for.
    pub warnings: Vec<String>,
    pub(crate) tensors: Vec<TensorInfo>,
    /// If set, the file must end here: the format allows nothing behind.
    pub(crate) exact_end: Option<u64>,
    pub(crate) names: NameIndex,
}

impl Catalog {
    /// An empty catalog of this format.
    pub fn new(format: &'static str) -> Self {
        Self {
            format,
            ..Self::default()
        }
    }

    /// The tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.position(name).map(|i| &self.tensors[i])
    }

    /// The number of the tensor with this name: its index in [`tensors`](Self::tensors).
    pub fn position(&self, name: &str) -> Option<usize> {
        self.names.find(&self.tensors, name)
    }

    /// Sum of the tensors' logical bytes.
    pub fn nbytes(&self) -> u64 {
        self.tensors
            .iter()
            .map(TensorInfo::nbytes)
            .fold(0, u64::saturating_add)
    }

    pub(crate) fn detail(&mut self, key: &str, value: Value) {
        self.details.push(key, value);
    }
}
