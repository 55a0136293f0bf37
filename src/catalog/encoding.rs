//! How elements are stored, arranged and packed.

use std::fmt;

use crate::Dtype;
use anamnesis_kernel::BlockFormat;

use super::TensorInfo;

/// How elements are stored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Encoding {
    /// One element after the other.
    Plain(Dtype),
    /// Blocks of a ggml type.
    Block(&'static BlockFormat),
    /// Fixed-size items that no [`Dtype`] describes: numpy strings, dates, void and structured types.
    Opaque(Box<Opaque>),
}

/// A fixed-size item without a [`Dtype`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// numpy's type string without its byte order: `V2`, `U3`, `S2`, `M8[D]`; `V20` for a structured type.
    pub name: Box<str>,
    /// Bytes per item.
    pub item_bytes: u64,
    /// The numbers an item consists of, as `(bytes, how many)`: what a change of byte order turns around.
    pub units: Box<[(u32, u32)]>,
    /// The fields of a structured type as numpy writes them, else empty.
    pub fields: Box<str>,
}

impl Encoding {
    /// Name of the dtype: safetensors' or ggml's, numpy's for the rest.
    pub fn name(&self) -> &str {
        match self {
            Self::Plain(dtype) => dtype.name(),
            Self::Block(block) => block.name,
            Self::Opaque(opaque) => &opaque.name,
        }
    }

    /// Bytes of `elements` elements; `None` if they end inside a byte or block, or do not fit in 64 bits.
    pub fn nbytes(&self, elements: u64) -> Option<u64> {
        match self {
            Self::Plain(dtype) => dtype.nbytes(elements),
            Self::Block(block) => block.nbytes(elements),
            Self::Opaque(opaque) => elements.checked_mul(opaque.item_bytes),
        }
    }

    /// Bytes per element, where elements have their own bytes.
    pub fn item_bytes(&self) -> Option<u64> {
        match self {
            Self::Plain(dtype) => dtype.item_bytes(),
            Self::Block(_) => None,
            Self::Opaque(opaque) => Some(opaque.item_bytes),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How elements are arranged in the stored bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Layout {
    /// C order, without gaps.
    RowMajor,
    /// Fortran order, without gaps.
    ColumnMajor,
    /// Strides in elements, one per dimension, from the first element of the range. May be 0.
    Strided(Box<[u64]>),
    /// A sparse tensor: its parts are tensors of their own.
    Sparse(Box<Sparse>),
    /// A tensor of which only the description was saved (PyTorch's `meta` device).
    Absent,
}

impl Layout {
    /// A stable name: `row_major`, `column_major`, `strided`, `sparse_coo`, …, `absent`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RowMajor => "row_major",
            Self::ColumnMajor => "column_major",
            Self::Strided(_) => "strided",
            Self::Sparse(sparse) => sparse.kind,
            Self::Absent => "absent",
        }
    }
}

/// Parts of a sparse tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Sparse {
    /// `sparse_coo`, `sparse_csr`, `sparse_csc`, `sparse_bsr` or `sparse_bsc`.
    pub kind: &'static str,
    /// `indices`, `values`, `crow_indices`, …
    pub parts: Vec<TensorInfo>,
}

/// What was done to the bytes between the tensor and the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Nothing: `bytes` are the tensor's.
    #[default]
    Raw,
    /// `bytes` are a deflate stream of `inflated` bytes; the tensor's first byte is number `skip` of those.
    Deflate {
        /// Length of the stream's content.
        inflated: u64,
        /// Content before the tensor's first byte.
        skip: u64,
    },
}
