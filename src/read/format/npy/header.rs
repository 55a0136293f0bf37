//! The header of an array: magic number, version, and a dict with `descr`, `fortran_order` and `shape`.
//!
//! Source: numpy's NEP 1 and `numpy/lib/_format_impl.py`.

use std::borrow::Cow;

use super::descr::{self, ItemType};
use super::header_error::{HeaderError, Result};
use super::literal::{self, Literal};
use crate::base::limits::text_cost;
use crate::read::catalog::{Layout, Shape, TensorInfo, elements};

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Number of bytes before the header text in versions 2 and 3. A file of version 1 has at least as many, because its
/// text is longer than the two bytes by which its length field is shorter.
pub(crate) const PRELUDE: usize = 12;
/// Longest header text that is read, in bytes. numpy reads at most 10 000 bytes of an untrusted file, which refuses
/// structured dtypes of a few hundred fields that numpy itself writes; this length suffices for tens of thousands.
const TEXT_MAX: u32 = 1 << 20;
/// `NPY_MAXDIMS` of numpy 2.
const RANK_MAX: usize = 64;

/// The fixed-size fields before the header text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prelude {
    pub(crate) major: u8,
    /// Offset of the header text: the length of the fields before it.
    pub(crate) text_at: usize,
    pub(crate) text_len: usize,
}

impl Prelude {
    /// Reads the first [`PRELUDE`] bytes of an array.
    pub(crate) fn read(first: &[u8]) -> Result<Self> {
        if !first.starts_with(MAGIC) {
            return Err(HeaderError::malformed(
                0,
                "the file does not begin with the magic number of NPY",
            ));
        }
        let Some(&[major, minor, a, b, c, d]) = first[MAGIC.len()..].first_chunk::<6>() else {
            return Err(HeaderError::malformed(
                first.len(),
                "the array is cut off inside its header",
            ));
        };
        let (text_at, text_len) = match (major, minor) {
            (1, 0) => (10, u32::from(u16::from_le_bytes([a, b]))),
            (2 | 3, 0) => (12, u32::from_le_bytes([a, b, c, d])),
            _ => {
                return Err(HeaderError::unsupported(
                    MAGIC.len(),
                    format!(
                        "version {major}.{minor} of the NPY format cannot be read; 1.0, 2.0 and 3.0 can"
                    ),
                ));
            }
        };
        if text_len > TEXT_MAX {
            return Err(HeaderError::unsupported(
                // the field of the length follows the magic number and the version
                8,
                format!("the header has {text_len} bytes; at most {TEXT_MAX} are allowed"),
            ));
        }
        Ok(Self {
            major,
            text_at,
            text_len: usize::try_from(text_len).expect("at most TEXT_MAX"),
        })
    }

    /// Reads the text. Offsets of faults are from the magic on.
    pub(crate) fn array(&self, text: &[u8]) -> Result<ArrayHeader> {
        let decoded = self
            .decode(text)
            .map_err(|error| error.shifted_by(self.text_at))?;
        ArrayHeader::read(&decoded).map_err(|mut error| {
            // versions 1 and 2 are Latin-1, version 3 is UTF-8
            if self.major < 3 {
                // the text was Latin-1: a character was one byte, so convert the offset in UTF-8 back
                error.at = decoded
                    .get(..error.at)
                    .map_or(0, |before| before.chars().count());
            }
            error.shifted_by(self.text_at)
        })
    }

    fn decode<'t>(&self, text: &'t [u8]) -> Result<Cow<'t, str>> {
        match std::str::from_utf8(text) {
            Ok(utf8) if self.major >= 3 || text.is_ascii() => Ok(utf8.into()),
            Err(e) if self.major >= 3 => Err(HeaderError::malformed(
                e.valid_up_to(),
                "the header is not UTF-8",
            )),
            _ => Ok(text
                .iter()
                .map(|&b| char::from(b))
                .collect::<String>()
                .into()),
        }
    }
}

/// The description of an array. Its byte range depends on the container and is added by [`Self::tensor`].
#[derive(Debug)]
pub(crate) struct ArrayHeader {
    item: ItemType,
    pub(crate) fortran: bool,
    shape: Shape,
    /// Bytes of its data.
    pub(crate) nbytes: u64,
}

impl ArrayHeader {
    fn read(text: &str) -> Result<Self> {
        let entries = literal::dict(text)?;
        let [mut descr, mut order, mut shape] = [None, None, None];
        for entry in &entries {
            let at = entry.span.start;
            let slot = match &*entry.key {
                "descr" => &mut descr,
                "fortran_order" => &mut order,
                "shape" => &mut shape,
                // numpy refuses headers with other keys than these three too
                other => {
                    return Err(HeaderError::malformed(
                        at,
                        format!("the header has the unknown key {other:?}"),
                    ));
                }
            };
            if slot.replace(entry).is_some() {
                // Python keeps the last one of equal keys, and other readers the first
                return Err(HeaderError::malformed(
                    at,
                    format!("the header has the key {:?} twice", entry.key),
                ));
            }
        }
        let missing =
            |key: &str| HeaderError::malformed(0, format!("the header has no key '{key}'"));
        let descr = descr.ok_or_else(|| missing("descr"))?;
        let order = order.ok_or_else(|| missing("fortran_order"))?;
        let sizes = shape.ok_or_else(|| missing("shape"))?;
        // numpy refuses other types here too
        let Literal::Bool(fortran) = order.value else {
            return Err(HeaderError::malformed(
                order.span.start,
                "fortran_order is not True or False",
            ));
        };
        let at = sizes.span.start;
        let shape = read_shape(&sizes.value, at)?;
        let item = descr::item(&descr.value, descr.span.start)?;
        let nbytes = elements(&shape).and_then(|n| item.encoding.nbytes(n));
        let nbytes = nbytes.ok_or_else(|| {
            HeaderError::malformed(at, "the array's size does not fit in 64 bits")
        })?;
        Ok(Self {
            item,
            fortran,
            shape,
            nbytes,
        })
    }

    /// Whether the dtype is `f1`, which only ml_dtypes writes and which is read as float8_e5m2.
    pub(crate) fn is_guessed_float8(&self) -> bool {
        self.item.float8
    }

    /// Memory of the description of a structured dtype in bytes, beyond the size of a `TensorInfo`.
    pub(crate) fn memory(&self) -> u64 {
        let crate::read::catalog::Encoding::Opaque(opaque) = &self.item.encoding else {
            return 0;
        };
        (size_of_val(&**opaque) + size_of_val(&*opaque.units)) as u64
            + text_cost(opaque.fields.len())
            + text_cost(opaque.name.len())
    }

    /// The tensor with this name and these bytes.
    pub(crate) fn tensor(self, name: &str, bytes: crate::read::catalog::ByteRange) -> TensorInfo {
        let mut info = TensorInfo::new(name, self.shape, self.item.encoding, bytes);
        info.endian = self.item.endian;
        // with fewer than two dimensions or without elements, both orders are the same
        if self.fortran && info.shape.len() > 1 && self.nbytes > 0 {
            info.layout = Layout::ColumnMajor;
        }
        info
    }
}

fn read_shape(value: &Literal, at: usize) -> Result<Shape> {
    let Literal::Tuple(sizes) = value else {
        return Err(HeaderError::malformed(at, "the shape is not a tuple"));
    };
    if sizes.len() > RANK_MAX {
        return Err(HeaderError::malformed(
            at,
            format!(
                "the shape has {} dimensions; numpy allows at most {RANK_MAX}",
                sizes.len()
            ),
        ));
    }
    let size = |size: &Literal| match size {
        // `npy_intp` is signed
        Literal::Number(n) if i64::try_from(*n).is_ok() => Ok(*n),
        Literal::Number(_) => Err(HeaderError::malformed(at, "a dimension exceeds 63 bits")),
        _ => Err(HeaderError::malformed(at, "a dimension is not an integer")),
    };
    sizes.iter().map(size).collect()
}
