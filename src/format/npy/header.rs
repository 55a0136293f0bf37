//! The header of an array: magic, version, and a dict of `descr`, `fortran_order` and `shape`.
//!
//! Source: numpy's NEP 1 and `numpy/lib/_format_impl.py`.

use std::borrow::Cow;

use super::descr::{self, Item};
use super::fault::{Fault, Result};
use super::literal::{self, Literal};
use crate::catalog::{Layout, Shape, TensorInfo, elements};

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes that always stand in front of the data: magic, version, and the longer of the two lengths.
pub(crate) const PRELUDE: usize = 12;
/// Longest text that is read. numpy stops at 10 000 bytes unless the file is trusted, which refuses
/// its own tables of some hundred columns; a text of this length still describes thousands.
const TEXT_MAX: u32 = 1 << 20;
/// `NPY_MAXDIMS` of numpy 2.
const RANK_MAX: usize = 64;

/// What stands before the header's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prelude {
    pub(crate) major: u8,
    /// Length of magic, version and length field.
    pub(crate) text_at: usize,
    pub(crate) text_len: usize,
}

impl Prelude {
    /// Reads the first bytes of an array.
    pub(crate) fn read(first: &[u8]) -> Result<Self> {
        if !first.starts_with(MAGIC) {
            return Err(Fault::malformed(
                0,
                "the first bytes are not those of an NPY file",
            ));
        }
        let Some(&[major, minor, a, b, c, d]) = first[MAGIC.len()..].first_chunk::<6>() else {
            return Err(Fault::malformed(
                first.len(),
                "the array ends inside its header",
            ));
        };
        let (text_at, text_len) = match (major, minor) {
            (1, 0) => (10, u32::from(u16::from_le_bytes([a, b]))),
            (2 | 3, 0) => (12, u32::from_le_bytes([a, b, c, d])),
            _ => {
                return Err(Fault::unsupported(
                    MAGIC.len(),
                    format!("version {major}.{minor} of the NPY format"),
                ));
            }
        };
        if text_len > TEXT_MAX {
            return Err(Fault::unsupported(
                8,
                format!("a header of {text_len} bytes; at most {TEXT_MAX} are read"),
            ));
        }
        Ok(Self {
            major,
            text_at,
            text_len: usize::try_from(text_len).expect("at most TEXT_MAX"),
        })
    }

    /// Reads the text. Offsets of faults are from the magic on.
    pub(crate) fn array(&self, text: &[u8]) -> Result<Array> {
        let decoded = self
            .decode(text)
            .map_err(|fault| fault.behind(self.text_at))?;
        Array::read(&decoded).map_err(|mut fault| {
            if self.major < 3 {
                // Latin-1: a byte was a character
                fault.at = decoded
                    .get(..fault.at)
                    .map_or(0, |before| before.chars().count());
            }
            fault.behind(self.text_at)
        })
    }

    fn decode<'t>(&self, text: &'t [u8]) -> Result<Cow<'t, str>> {
        match std::str::from_utf8(text) {
            Ok(utf8) if self.major >= 3 || text.is_ascii() => Ok(utf8.into()),
            Err(e) if self.major >= 3 => {
                Err(Fault::malformed(e.valid_up_to(), "the header is not UTF-8"))
            }
            _ => Ok(text
                .iter()
                .map(|&b| char::from(b))
                .collect::<String>()
                .into()),
        }
    }
}

/// An array, described; where its bytes lie is for the container to say.
#[derive(Debug)]
pub(crate) struct Array {
    item: Item,
    pub(crate) fortran: bool,
    shape: Shape,
    /// Bytes of its data.
    pub(crate) nbytes: u64,
}

impl Array {
    fn read(text: &str) -> Result<Self> {
        let entries = literal::dict(text)?;
        let [mut descr, mut order, mut shape] = [None, None, None];
        for entry in &entries {
            let at = entry.span.start;
            let slot = match &*entry.key {
                "descr" => &mut descr,
                "fortran_order" => &mut order,
                "shape" => &mut shape,
                other => {
                    return Err(Fault::malformed(
                        at,
                        format!("the header has a key {other:?}"),
                    ));
                }
            };
            if slot.replace(entry).is_some() {
                return Err(Fault::malformed(
                    at,
                    format!("the header has the key {:?} twice", entry.key),
                ));
            }
        }
        let missing = |key: &str| Fault::malformed(0, format!("the header has no key '{key}'"));
        let descr = descr.ok_or_else(|| missing("descr"))?;
        let order = order.ok_or_else(|| missing("fortran_order"))?;
        let sizes = shape.ok_or_else(|| missing("shape"))?;
        let Literal::Bool(fortran) = order.value else {
            return Err(Fault::malformed(
                order.span.start,
                "fortran_order is not True or False",
            ));
        };
        let at = sizes.span.start;
        let shape = read_shape(&sizes.value, at)?;
        let item = descr::item(&descr.value, &text[descr.span.clone()], descr.span.start)?;
        let nbytes = elements(&shape).and_then(|n| item.encoding.nbytes(n));
        let nbytes = nbytes
            .ok_or_else(|| Fault::malformed(at, "the array's size does not fit in 64 bits"))?;
        Ok(Self {
            item,
            fortran,
            shape,
            nbytes,
        })
    }

    /// Whether its dtype is a guess: `f1`, which only ml_dtypes writes.
    pub(crate) fn guessed(&self) -> bool {
        self.item.float8
    }

    /// Memory that its description takes beyond a row of the catalog.
    pub(crate) fn memory(&self) -> u64 {
        let crate::catalog::Encoding::Opaque(opaque) = &self.item.encoding else {
            return 0;
        };
        (size_of_val(&**opaque)
            + size_of_val(&*opaque.units)
            + opaque.fields.len()
            + opaque.name.len()) as u64
    }

    /// The tensor, with its bytes at this place.
    pub(crate) fn tensor(self, name: &str, bytes: crate::catalog::ByteRange) -> TensorInfo {
        let mut info = TensorInfo::new(name, self.shape, self.item.encoding, bytes);
        info.endian = self.item.endian;
        // with fewer dimensions, or nothing in them, the two orders are one
        if self.fortran && info.shape.len() > 1 && self.nbytes > 0 {
            info.layout = Layout::ColumnMajor;
        }
        info
    }
}

fn read_shape(value: &Literal, at: usize) -> Result<Shape> {
    let Literal::Tuple(sizes) = value else {
        return Err(Fault::malformed(at, "the shape is not a tuple"));
    };
    if sizes.len() > RANK_MAX {
        return Err(Fault::malformed(
            at,
            format!("{} dimensions; numpy has at most {RANK_MAX}", sizes.len()),
        ));
    }
    let size = |size: &Literal| match size {
        Literal::Number(n) if i64::try_from(*n).is_ok() => Ok(*n),
        Literal::Number(_) => Err(Fault::malformed(at, "a dimension over 63 bits")),
        _ => Err(Fault::malformed(
            at,
            "a dimension that is not a whole number",
        )),
    };
    sizes.iter().map(size).collect()
}
