//! Dtype descriptors: `<f4`, `|S12`, `<M8[ns]`, and the nested lists of structured types.

use std::collections::HashSet;

use super::fault::{Fault, Result};
use super::literal::Literal;
use super::typestr::{Kind, Number, number};
use crate::Dtype;
use crate::catalog::{Encoding, Endian, Opaque};

/// numpy keeps item sizes in 31 bits.
pub(super) const ITEM_MAX: u64 = i32::MAX as u64;
/// Changes of number width within one item: more than any table has columns.
const UNITS_MAX: usize = 1 << 16;

/// What one element is.
#[derive(Debug, PartialEq)]
pub(super) struct Item {
    pub(super) encoding: Encoding,
    pub(super) endian: Endian,
    /// `f1`: numpy has no such type; ml_dtypes writes its float8_e5m2 so, and nothing else.
    pub(super) float8: bool,
}

/// Reads a descriptor; `source` is its text in the file, `at` where that stands.
pub(super) fn item(descr: &Literal, source: &str, at: usize) -> Result<Item> {
    if let Literal::Text(text) = descr {
        let found = number(text, at)?;
        // raw items have no order, until the caller says what they are (`OpenOptions::void_as`)
        let void = matches!(found.kind, Kind::Opaque('V', 2.., _)) && text.starts_with('>');
        let endian = if void {
            Endian::Big
        } else {
            found.endian.unwrap_or_default()
        };
        let float8 = found.kind == Kind::Plain(Dtype::F8_E5M2);
        return Ok(Item {
            encoding: found.encoding(),
            endian,
            float8,
        });
    }
    let mut record = Record {
        at,
        ..Record::default()
    };
    record.add(descr)?;
    let opaque = Opaque {
        name: format!("V{}", record.bytes).into(),
        item_bytes: record.bytes,
        units: record.units.into(),
        fields: source.into(),
    };
    Ok(Item {
        encoding: Encoding::Opaque(Box::new(opaque)),
        endian: record.endian.unwrap_or_default(),
        float8: record.float8,
    })
}

/// A structured type, laid out as it is read: fields follow one another without gaps, since numpy
/// writes its padding as fields of their own.
#[derive(Default)]
struct Record {
    units: Vec<(u32, u32)>,
    bytes: u64,
    endian: Option<Endian>,
    float8: bool,
    at: usize,
}

impl Record {
    /// Adds a descriptor. Recursion is bounded by that of the literal.
    fn add(&mut self, descr: &Literal) -> Result<()> {
        match descr {
            Literal::Text(text) => self.number(&number(text, self.at)?),
            Literal::List(fields) => self.fields(fields),
            Literal::Tuple(parts) => match &parts[..] {
                [inner, shape] => self.repeated(inner, shape),
                _ => Err(self.fault("a tuple that is not a dtype and its shape")),
            },
            _ => Err(self.fault("the descr is neither text nor a list of fields")),
        }
    }

    fn fault(&self, what: &str) -> Fault {
        Fault::malformed(self.at, what)
    }

    fn number(&mut self, found: &Number<'_>) -> Result<()> {
        self.float8 |= found.kind == Kind::Plain(Dtype::F8_E5M2);
        if let Some(endian) = found.endian
            && *self.endian.get_or_insert(endian) != endian
        {
            return Err(Fault::unsupported(
                self.at,
                "a structured type whose fields differ in byte order",
            ));
        }
        self.push(found.unit)
    }

    fn push(&mut self, (width, count): (u32, u32)) -> Result<()> {
        let bytes = self.bytes + u64::from(width) * u64::from(count);
        if bytes > ITEM_MAX {
            return Err(self.fault("an item of 2 GiB or more"));
        }
        if count == 0 {
            return Ok(());
        }
        self.bytes = bytes;
        let full = self.units.len() == UNITS_MAX;
        match self.units.last_mut() {
            // does not overflow: the bytes would have
            Some((last, n)) if *last == width => *n += count,
            _ if full => {
                return Err(Fault::unsupported(
                    self.at,
                    "a structured type of more than 65536 runs of numbers",
                ));
            }
            _ => self.units.push((width, count)),
        }
        Ok(())
    }

    fn fields(&mut self, fields: &[Literal]) -> Result<()> {
        let mut names = HashSet::with_capacity(fields.len());
        for field in fields {
            let Literal::Tuple(parts) = field else {
                return Err(self.fault("a field that is not a tuple"));
            };
            let (name, descr, shape) = match &parts[..] {
                [name, descr] => (name, descr, None),
                [name, descr, shape] => (name, descr, Some(shape)),
                _ => return Err(self.fault("a field is a name, a dtype, and sometimes a shape")),
            };
            let name = match name {
                Literal::Text(name) => name,
                Literal::Tuple(both) => match &both[..] {
                    [Literal::Text(_title), Literal::Text(name)] => name,
                    _ => return Err(self.fault("a field's title and name are not text")),
                },
                _ => return Err(self.fault("a field's name is not text")),
            };
            // padding has no name, and may be in several places
            if !name.is_empty() && !names.insert(&**name) {
                return Err(self.fault("two fields have one name"));
            }
            match shape {
                Some(shape) => self.repeated(descr, shape)?,
                None => self.add(descr)?,
            }
        }
        Ok(())
    }

    /// Adds `descr` as often as `shape` says.
    fn repeated(&mut self, descr: &Literal, shape: &Literal) -> Result<()> {
        let times = match shape {
            Literal::Number(n) => Some(*n),
            Literal::Tuple(sizes) => sizes.iter().try_fold(1u64, |n, size| match size {
                Literal::Number(size) => n.checked_mul(*size),
                _ => None,
            }),
            _ => None,
        };
        let times = times
            .ok_or_else(|| self.fault("the shape of a field is not a tuple of whole numbers"))?;
        let mut once = Self {
            at: self.at,
            endian: self.endian,
            float8: self.float8,
            ..Self::default()
        };
        once.add(descr)?;
        (self.endian, self.float8) = (once.endian, once.float8);
        if once
            .bytes
            .checked_mul(times)
            .is_none_or(|bytes| bytes > ITEM_MAX)
        {
            return Err(self.fault("an item of 2 GiB or more"));
        }
        if let [(width, count)] = once.units[..] {
            let count = u64::from(count) * times;
            return self.push((width, u32::try_from(count).expect("fewer than bytes")));
        }
        if once.units.is_empty() {
            return Ok(()); // items without bytes, however many
        }
        for _ in 0..times {
            once.units.iter().try_for_each(|&unit| self.push(unit))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "descr_tests.rs"]
mod tests;
