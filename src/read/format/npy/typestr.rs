//! Type strings such as `<f4`: a byte order, a letter and a width in bytes.
//!
//! Source: numpy's array interface protocol, and `dtype.str` of the types numpy 2 has.

use super::header_error::{HeaderError, Result};
use crate::base::kernel::Dtype;
use crate::read::catalog::{Encoding, Endian, Opaque};

/// Largest element size in bytes: numpy keeps it in a signed 32-bit integer.
pub(super) const ITEM_MAX: u64 = i32::MAX as u64;

/// The element type that a type string names.
#[derive(Debug, PartialEq)]
pub(super) struct TypeStr<'t> {
    pub(super) kind: ItemKind<'t>,
    /// Width in bytes of the unit that is byte-swapped, and the number of units per element.
    pub(super) unit: (u32, u32),
    /// `None` if the units have one byte, so that there is no byte order.
    pub(super) endian: Option<Endian>,
}

#[derive(Debug, PartialEq)]
pub(super) enum ItemKind<'t> {
    Plain(Dtype),
    /// A type without a dtype here: letter, width, and the unit of a date in brackets.
    Opaque(char, u32, &'t str),
}

impl TypeStr<'_> {
    pub(super) fn encoding(&self) -> Encoding {
        match self.kind {
            ItemKind::Plain(dtype) => Encoding::Plain(dtype),
            ItemKind::Opaque(letter, n, unit) => Encoding::Opaque(Box::new(Opaque {
                name: format!("{letter}{n}{unit}").into(),
                item_bytes: u64::from(self.unit.0) * u64::from(self.unit.1),
                units: if self.unit.1 == 0 {
                    [].into()
                } else {
                    [self.unit].into()
                },
                fields: "".into(),
            })),
        }
    }
}

/// Parses a type string, which begins at offset `at` of the header text.
pub(super) fn parse_typestr(text: &str, at: usize) -> Result<TypeStr<'_>> {
    let unknown = || HeaderError::malformed(at, format!("unknown numpy dtype {text:?}"));
    let (order, rest) = match text.as_bytes().first() {
        Some(&order @ (b'<' | b'>' | b'=' | b'|')) => (order, &text[1..]),
        _ => (b'=', text),
    };
    let letter = rest.chars().next().ok_or_else(unknown)?;
    let rest = &rest[letter.len_utf8()..];
    let width = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, unit) = rest.split_at(width);
    if letter == 'O' {
        return Err(HeaderError::object(at)); // before the width is parsed: old versions of numpy wrote `|O8`
    }
    let dates = matches!(letter, 'M' | 'm');
    let sized = matches!(letter, 'S' | 'a' | 'U' | 'V');
    let n: u32 = if digits.is_empty() && sized {
        0
    } else {
        digits.parse().map_err(|_| unknown())?
    };
    // a unit elsewhere would be text after the type string, which numpy refuses
    if dates && !is_date_unit(unit) || !dates && !unit.is_empty() {
        return Err(unknown());
    }
    // complex numbers are swapped part by part
    let plain = |dtype: Dtype| {
        let width = dtype.swap_unit();
        let parts = u32::try_from(dtype.bits() / 8).expect("at most 16") / width;
        (ItemKind::Plain(dtype), (width, parts))
    };
    let (kind, unit) = match (letter, n) {
        ('b', 1) => plain(Dtype::BOOL),
        ('i', 1) => plain(Dtype::I8),
        ('i', 2) => plain(Dtype::I16),
        ('i', 4) => plain(Dtype::I32),
        ('i', 8) => plain(Dtype::I64),
        ('u', 1) => plain(Dtype::U8),
        ('u', 2) => plain(Dtype::U16),
        ('u', 4) => plain(Dtype::U32),
        ('u', 8) => plain(Dtype::U64),
        // numpy has no float of one byte. ml_dtypes writes float8_e5m2 so; its other types are raw bytes (`V1`),
        // whose dtype the caller gives by `OpenOptions::void_as`
        ('f', 1) => plain(Dtype::F8_E5M2),
        ('f', 2) => plain(Dtype::F16),
        ('f', 4) => plain(Dtype::F32),
        ('f', 8) => plain(Dtype::F64),
        ('c', 8) => plain(Dtype::C64),
        ('c', 16) => plain(Dtype::C128),
        // C's long double: 12 or 16 bytes with padding, depending on the platform of the writer
        ('f', 12 | 16) => (ItemKind::Opaque('F', n * 8, ""), (n, 1)),
        // two long doubles
        ('c', 24 | 32) => (ItemKind::Opaque('C', n * 8, ""), (n / 2, 2)),
        ('M' | 'm', 8) => (ItemKind::Opaque(letter, 8, unit), (8, 1)),
        ('V', n) => (ItemKind::Opaque('V', n, ""), (1, n)),
        ('S' | 'a', n) => (ItemKind::Opaque('S', n, ""), (1, n)),
        // text is UCS-4: the width counts characters, and each is swapped as a whole
        ('U', n) => (ItemKind::Opaque('U', n, ""), (4, n)),
        _ => return Err(unknown()),
    };
    if u64::from(unit.0) * u64::from(unit.1) > ITEM_MAX {
        return Err(HeaderError::malformed(
            at,
            format!("{text:?}: the item size exceeds 2 GiB"),
        ));
    }
    // `=` is the byte order of the reading machine in numpy; little endian here, so that a file reads the same everywhere
    let endian = if order == b'>' {
        Endian::Big
    } else {
        Endian::Little
    };
    Ok(TypeStr {
        kind,
        unit,
        endian: (unit.0 > 1 && unit.1 > 0).then_some(endian),
    })
}

/// Whether this is the unit of a date, such as `[ns]`, `[25s]` or `[D/3]`, or empty for a date without a unit.
fn is_date_unit(text: &str) -> bool {
    const UNITS: &[&str] = &[
        "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "μs", "ns", "ps", "fs", "as", "generic",
    ];
    if text.is_empty() {
        return true;
    }
    let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) else {
        return false;
    };
    let few_digits = |t: &str| t.len() <= 10 && t.bytes().all(|b| b.is_ascii_digit());
    let name = inner.trim_start_matches(|c: char| c.is_ascii_digit());
    let (name, divisor) = name.split_once('/').unwrap_or((name, "1"));
    few_digits(&inner[..inner.len() - inner.trim_start_matches(|c: char| c.is_ascii_digit()).len()])
        && !divisor.is_empty()
        && few_digits(divisor)
        && UNITS.contains(&name)
}
