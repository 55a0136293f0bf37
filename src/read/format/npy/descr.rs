//! Dtype descriptors: `<f4`, `|S12`, `<M8[ns]`, and the nested lists of structured types.

use std::collections::HashSet;

use super::header_error::{HeaderError, Result};
use super::literal::Literal;
use super::typestr::{ITEM_MAX, ItemKind, TypeStr, parse_typestr};
use crate::base::kernel::Dtype;
use crate::read::catalog::{Encoding, Endian, Opaque};

/// Largest number of runs of equal-width units in one element. A field of repeated records could otherwise make a list of
/// 2^31 runs from a short header.
const UNITS_MAX: usize = 1 << 16;

/// The type of one element.
#[derive(Debug, PartialEq)]
pub(super) struct ItemType {
    pub(super) encoding: Encoding,
    pub(super) endian: Endian,
    /// Whether it contains `f1`. numpy has no such type; ml_dtypes writes its float8_e5m2 so, and no other type.
    pub(super) float8: bool,
}

/// Reads a descriptor, whose text begins at `at`.
pub(super) fn item(descr: &Literal, at: usize) -> Result<ItemType> {
    if let Literal::Text(text) = descr {
        let found = parse_typestr(text, at)?;
        // raw bytes (`V`) have no byte order, but keep the stored one: `OpenOptions::void_as` may give them a dtype
        let void = matches!(found.kind, ItemKind::Opaque('V', 2.., _)) && text.starts_with('>');
        let endian = if void {
            Endian::Big
        } else {
            found.endian.unwrap_or_default()
        };
        let float8 = found.kind == ItemKind::Plain(Dtype::F8_E5M2);
        return Ok(ItemType {
            encoding: found.encoding(),
            endian,
            float8,
        });
    }
    let mut record = StructuredDtype {
        at,
        ..StructuredDtype::default()
    };
    // recursion is bounded by the literal's depth of 40
    record.add(descr)?;
    let (units, endian) = swapped_units(&record.runs);
    let opaque = Opaque {
        name: format!("V{}", record.bytes).into(),
        item_bytes: record.bytes,
        units,
        fields: descr.to_string().into(),
    };
    Ok(ItemType {
        encoding: Encoding::Opaque(Box::new(opaque)),
        endian,
        float8: record.float8,
    })
}

/// Numbers of one width and byte order that follow one another in an item.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NumberRun {
    width: u32,
    count: u32,
    big: bool,
}

/// The units of byte swapping of an item, and the byte order of a tensor of such items: a tensor has one in the catalog. Where
/// the fields of an item have both, little-endian numbers are bytes, which swapping leaves as they are.
fn swapped_units(runs: &[NumberRun]) -> (Box<[(u32, u32)]>, Endian) {
    if !runs.iter().any(|run| run.big) {
        let units = runs.iter().map(|run| (run.width, run.count));
        return (units.collect(), Endian::Little);
    }
    let mut units: Vec<(u32, u32)> = Vec::with_capacity(runs.len());
    for run in runs {
        let (width, count) = if run.big {
            (run.width, run.count)
        } else {
            (1, run.width * run.count) // at most ITEM_MAX, as `push` has checked
        };
        match units.last_mut() {
            Some((last, n)) if *last == width => *n += count,
            _ => units.push((width, count)),
        }
    }
    (units.into(), Endian::Big)
}

/// A structured dtype while its fields are added. Fields follow one another without gaps, because numpy writes padding as
/// fields without a name.
#[derive(Default)]
struct StructuredDtype {
    runs: Vec<NumberRun>,
    bytes: u64,
    float8: bool,
    at: usize,
}

impl StructuredDtype {
    /// Adds a descriptor. The depth of the literal, which the parser limits, bounds the recursion.
    fn add(&mut self, descr: &Literal) -> Result<()> {
        match descr {
            Literal::Text(text) => self.number(&parse_typestr(text, self.at)?),
            Literal::List(fields) => self.fields(fields),
            Literal::Tuple(parts) => match &parts[..] {
                [inner, shape] => self.repeated(inner, shape),
                _ => Err(self.error("a tuple in the descr is not (dtype, shape)")),
            },
            _ => Err(self.error("the descr is neither text nor a list of fields")),
        }
    }

    fn error(&self, what: &str) -> HeaderError {
        HeaderError::malformed(self.at, what)
    }

    fn number(&mut self, found: &TypeStr<'_>) -> Result<()> {
        self.float8 |= found.kind == ItemKind::Plain(Dtype::F8_E5M2);
        let (width, count) = found.unit;
        self.push(NumberRun {
            width,
            count,
            big: found.endian == Some(Endian::Big),
        })
    }

    fn push(&mut self, run: NumberRun) -> Result<()> {
        // cannot overflow: both operands are below 2³¹ and 2⁶²
        let bytes = self.bytes + u64::from(run.width) * u64::from(run.count);
        if bytes > ITEM_MAX {
            return Err(self.error("the item size exceeds 2 GiB"));
        }
        // `S0`, `U0` and `V0` are dtypes of numpy: elements without bytes
        if run.count == 0 {
            return Ok(());
        }
        self.bytes = bytes;
        let full = self.runs.len() == UNITS_MAX;
        match self.runs.last_mut() {
            // cannot overflow: the bytes would have exceeded ITEM_MAX
            Some(last) if (last.width, last.big) == (run.width, run.big) => last.count += run.count,
            _ if full => {
                return Err(HeaderError::unsupported(
                    self.at,
                    "a structured dtype has more than 65536 runs of equal-width numbers",
                ));
            }
            _ => self.runs.push(run),
        }
        Ok(())
    }

    fn fields(&mut self, fields: &[Literal]) -> Result<()> {
        let mut names = HashSet::with_capacity(fields.len());
        for field in fields {
            let Literal::Tuple(parts) = field else {
                return Err(self.error("a field of a structured dtype is not a tuple"));
            };
            let (name, descr, shape) = match &parts[..] {
                [name, descr] => (name, descr, None),
                [name, descr, shape] => (name, descr, Some(shape)),
                _ => return Err(self.error("a field is not (name, dtype) or (name, dtype, shape)")),
            };
            let name = match name {
                Literal::Text(name) => name,
                Literal::Tuple(both) => match &both[..] {
                    // numpy's `(title, name)` pairs; only the name is a key
                    [Literal::Text(_title), Literal::Text(name)] => name,
                    _ => return Err(self.error("a field's title and name are not text")),
                },
                _ => return Err(self.error("a field's name is not text")),
            };
            // padding has an empty name and may occur several times
            if !name.is_empty() && !names.insert(&**name) {
                return Err(self.error("two fields have the same name"));
            }
            match shape {
                Some(shape) => self.repeated(descr, shape)?,
                None => self.add(descr)?,
            }
        }
        Ok(())
    }

    /// Adds a field that is an array of `shape` elements of type `descr`.
    fn repeated(&mut self, descr: &Literal, shape: &Literal) -> Result<()> {
        let times = match shape {
            Literal::Number(n) => Some(*n),
            Literal::Tuple(sizes) => sizes.iter().try_fold(1u64, |n, size| match size {
                Literal::Number(size) => n.checked_mul(*size),
                _ => None,
            }),
            _ => None,
        };
        let times =
            times.ok_or_else(|| self.error("the shape of a field is not a tuple of integers"))?;
        let mut once = Self {
            at: self.at,
            ..Self::default()
        };
        once.add(descr)?;
        self.float8 |= once.float8;
        if once
            .bytes
            .checked_mul(times)
            .is_none_or(|bytes| bytes > ITEM_MAX)
        {
            return Err(self.error("the item size exceeds 2 GiB"));
        }
        // one run of equal units stays one run however often it is repeated, so that a large subarray costs nothing
        if let [run] = once.runs[..] {
            let count = u64::from(run.count) * times;
            return self.push(NumberRun {
                count: u32::try_from(count).expect("fewer units than bytes, which were checked"),
                ..run
            });
        }
        if once.runs.is_empty() {
            return Ok(()); // elements of no bytes, repeated any number of times
        }
        for _ in 0..times {
            once.runs.iter().try_for_each(|&run| self.push(run))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
