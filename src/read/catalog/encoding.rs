//! The encoding, order and packing of stored elements.

use std::borrow::Cow;
use std::fmt;

use crate::base::kernel::Dtype;
use anamnesis_kernel::BlockFormat;

use super::{Endian, Shape, TensorInfo};

/// How elements are stored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Encoding {
    /// Elements of a dtype, one after the other.
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
    /// The numbers that an item consists of, as `(bytes, count)`: the units of byte swapping.
    pub units: Box<[(u32, u32)]>,
    /// The fields of a structured type as numpy writes them; empty for other types.
    pub fields: Box<str>,
}

impl Opaque {
    /// numpy's descriptor of items whose numbers have this byte order: a type string, or a list of fields as a Python literal, in
    /// which each field has the byte order that it is stored with.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, Encoding};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/npz/odd_dtypes.npz")?;
    /// let info = checkpoint.catalog().get("str").expect("an array of texts");
    /// let Encoding::Opaque(item) = &info.encoding else { panic!("texts have no dtype") };
    /// assert_eq!((&*item.name, &*item.descriptor(info.endian)), ("U3", "<U3"));
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    pub fn descriptor(&self, endian: Endian) -> Cow<'_, str> {
        if !self.fields.is_empty() {
            return Cow::Borrowed(&self.fields);
        }
        let order = match endian {
            _ if self.units.iter().all(|&(bytes, _)| bytes == 1) => '|',
            Endian::Big => '>',
            Endian::Little => '<',
        };
        // the catalog's names of long doubles count bits, as the names of its dtypes do
        let (letter, bits) = self.name.split_at(1);
        Cow::Owned(match (letter, bits.parse::<u32>()) {
            ("F" | "C", Ok(bits)) => format!("{order}{}{}", letter.to_lowercase(), bits / 8),
            _ => format!("{order}{}", self.name),
        })
    }
}

impl Encoding {
    /// Name of the dtype, as safetensors or ggml spell it; numpy's for opaque items.
    pub fn name(&self) -> &str {
        match self {
            Self::Plain(dtype) => dtype.name(),
            Self::Block(block) => block.name,
            Self::Opaque(opaque) => &opaque.name,
        }
    }

    /// Bytes of `elements` elements; `None` if they end inside a byte or block, or do not fit in 64 bits.
    #[inline]
    pub fn nbytes(&self, elements: u64) -> Option<u64> {
        match self {
            Self::Plain(dtype) => dtype.nbytes(elements),
            Self::Block(block) => block.nbytes(elements),
            Self::Opaque(opaque) => elements.checked_mul(opaque.item_bytes),
        }
    }

    /// The least elements that fill whole bytes or a block, and their bytes: what a slice cannot split.
    ///
    /// ```
    /// use anamnesis::{Dtype, Encoding};
    ///
    /// assert_eq!(Encoding::Plain(Dtype::F32).unit(), (1, 4));
    /// assert_eq!(Encoding::Plain(Dtype::F4).unit(), (2, 1));
    /// ```
    #[inline]
    pub fn unit(&self) -> (u64, u64) {
        match self {
            Self::Plain(dtype) => {
                let bits = dtype.bits();
                // a power of two, as it divides the bits of a byte
                let shared = 1 << bits.trailing_zeros().min(3);
                (8 / shared, bits / shared)
            }
            Self::Block(block) => (block.block_len.into(), block.block_bytes.into()),
            Self::Opaque(opaque) => (1, opaque.item_bytes),
        }
    }

    /// Bytes per element; `None` for blocks, and for elements that share a byte.
    pub fn item_bytes(&self) -> Option<u64> {
        match self {
            Self::Plain(dtype) => dtype.item_bytes(),
            // a block has no address per element
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
    /// A sparse tensor, whose indices and values are tensors of their own.
    Sparse(Box<Sparse>),
    /// A tensor that is stored in several chunks, as the processes of a training run held it.
    Chunked(Box<[TensorChunk]>),
    /// A tensor that was saved without data (PyTorch's `meta` device).
    Absent,
}

impl Layout {
    /// A stable name: `row_major`, `column_major`, `strided`, `sparse_coo`, …, `chunked`, `absent`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RowMajor => "row_major",
            Self::ColumnMajor => "column_major",
            Self::Strided(_) => "strided",
            Self::Sparse(sparse) => sparse.kind,
            Self::Chunked(_) => "chunked",
            Self::Absent => "absent",
        }
    }
}

/// One of the boxes that a chunked tensor consists of. Together they contain each element once.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorChunk {
    /// The indices of its first element in the whole tensor.
    pub offsets: Shape,
    /// Its elements, a tensor of their own.
    pub part: TensorInfo,
}

/// The indices and values of a sparse tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Sparse {
    /// `sparse_coo`, `sparse_csr`, `sparse_csc`, `sparse_bsr` or `sparse_bsc`.
    pub kind: &'static str,
    /// `indices`, `values`, `crow_indices`, …
    pub parts: Vec<TensorInfo>,
}

/// How a tensor's bytes are packed in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Not packed: `bytes` are the tensor's bytes.
    #[default]
    Raw,
    /// `bytes` are a deflate stream of `inflated` bytes; the tensor begins at offset `skip` of those.
    Deflate {
        /// Length of the inflated stream.
        inflated: u64,
        /// Inflated bytes before the tensor.
        skip: u64,
    },
    /// `bytes` are text in UTF-8, whose characters U+0000 to U+00FF are the tensor's bytes: pickles of protocols up to 2
    /// have no other form of byte strings.
    Latin1,
    /// Like [`Latin1`](Self::Latin1), with the text in a deflate stream.
    DeflatedLatin1 {
        /// Length of the inflated stream.
        inflated: u64,
        /// Inflated bytes before the text.
        skip: u64,
    },
}

impl Packing {
    /// The name in JSON: `deflate`, `latin1` or `deflate+latin1`; `None` for bytes that are not packed.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Raw => None,
            Self::Deflate { .. } => Some("deflate"),
            Self::Latin1 => Some("latin1"),
            Self::DeflatedLatin1 { .. } => Some("deflate+latin1"),
        }
    }

    pub(crate) fn is_deflated(self) -> bool {
        matches!(self, Self::Deflate { .. } | Self::DeflatedLatin1 { .. })
    }

    pub(crate) fn is_latin1(self) -> bool {
        matches!(self, Self::Latin1 | Self::DeflatedLatin1 { .. })
    }
}
