//! NPZ: arrays of numpy as members of a zip archive, stored or deflated.
//!
//! What counts as an array is what numpy takes for one: a member that begins with the magic of NPY,
//! whatever its name. One that is named `.npy` and does not is listed as refused rather than passed
//! over, so that a tensor never goes missing without a word.

mod opening;

use super::npy::{self, MAGIC, PRELUDE, Prelude};
use super::{Archive, Format, Head};
use crate::catalog::{ByteRange, Catalog, Packing, Refused, quote};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Value;
use crate::source::cursor::Cursor;

use opening::{Inflate, Opening};

/// NPZ: a zip archive of arrays. A zip archive without members is one without arrays.
pub static FORMAT: Format = Format {
    name: "npz",
    extensions: &["npz"],
    probe,
    read,
};

const SUFFIX: &str = ".npy";

fn probe(head: &Head<'_>) -> bool {
    let Some(archive) = &head.archive else {
        return false;
    };
    let names = || archive.entries.iter().map(|entry| &*entry.name);
    // a PyTorch archive may carry arrays among its extra files
    let torch = || names().any(|name| name == "data.pkl" || name.ends_with("/data.pkl"));
    archive.entries.is_empty() || (names().any(|name| name.ends_with(SUFFIX)) && !torch())
}

fn read(cursor: &mut Cursor<'_>, head: Head<'_>) -> Result<Catalog> {
    let archive = match head.archive {
        Some(archive) => archive,
        None => Archive::read(cursor)?, // asked for by name, and says what is wrong
    };
    let mut npz = Npz {
        catalog: Catalog::new(FORMAT.name),
        inflate: Inflate::default(),
        strangers: Vec::new(),
    };
    for row in 0..archive.entries.len() {
        npz.member(cursor, &archive, row)?;
    }
    npz.finish(&archive)
}

/// The catalog while members are added to it.
struct Npz {
    catalog: Catalog,
    inflate: Inflate,
    /// Rows of members that are not arrays.
    strangers: Vec<usize>,
}

impl Npz {
    fn member(&mut self, cursor: &mut Cursor<'_>, archive: &Archive, row: usize) -> Result<()> {
        let entry = &archive.entries[row];
        if entry.name.ends_with('/') {
            return Ok(()); // a directory
        }
        let named = entry.name.strip_suffix(SUFFIX);
        let place = match archive.visit(cursor, row) {
            Ok(place) => place,
            // a README may be packed in any way
            Err(e) if named.is_none() && matches!(e.kind(), ErrorKind::Unsupported(_)) => {
                self.strangers.push(row);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let start = place.bytes.start;
        let mut opening = Opening::new(&place, entry.deflated(), &mut self.inflate);
        opening.check_small(cursor, &entry.name, entry.crc32)?;
        let first = opening.upto(cursor, &entry.name, PRELUDE)?;
        if !first.starts_with(MAGIC) {
            match named {
                Some(name) => self.refuse(cursor, name, "it does not begin as an NPY file does")?,
                None => self.strangers.push(row),
            }
            return Ok(());
        }
        let fault = |fault: npy::Fault| fault.error(start, Some(&quote(&entry.name)));
        let prelude = Prelude::read(first).map_err(fault)?;
        if prelude.text_len > npy::LONG {
            cursor
                .budget()
                .memory(prelude.text_len as u64, "an NPY header")?;
        }
        let header_len = prelude.text_at + prelude.text_len;
        let header = opening.upto(cursor, &entry.name, header_len)?;
        if header.len() < header_len {
            let what = format!("member {} ends inside its NPY header", quote(&entry.name));
            return Err(Error::malformed(what).at(start));
        }
        let name = named.unwrap_or(&entry.name);
        let array = match prelude.array(&header[prelude.text_at..]) {
            Ok(array) => array,
            Err(e) => match e.object_array() {
                Some(reason) => return self.refuse(cursor, name, reason),
                None => return Err(fault(e)),
            },
        };
        let skip = header_len as u64;
        if array.nbytes > place.inflated.saturating_sub(skip) {
            return Err(Error::malformed(format!(
                "member {} has {} bytes, and its array takes {} behind a header of {skip}",
                quote(&entry.name),
                place.inflated,
                array.nbytes
            ))
            .at(start));
        }
        cursor.budget().tensors(1)?;
        cursor.budget().memory(
            array.memory() + (size_of_val(&place) + 2 * entry.name.len()) as u64,
            "an array",
        )?;
        if array.guessed()
            && !self
                .catalog
                .warnings
                .iter()
                .any(|w| w == npy::FLOAT8_GUESSED)
        {
            self.catalog.warnings.push(npy::FLOAT8_GUESSED.into());
        }
        let (bytes, packing) = if entry.deflated() {
            (
                place.bytes,
                Packing::Deflate {
                    inflated: place.inflated,
                    skip,
                },
            )
        } else {
            (ByteRange::new(start + skip, array.nbytes), Packing::Raw)
        };
        let mut info = array.tensor(name, bytes);
        info.packing = packing;
        info.member = Some(u32::try_from(self.catalog.members.len()).expect("limited in number"));
        self.catalog.members.push(place);
        self.catalog.tensors.push(info);
        Ok(())
    }

    fn refuse(&mut self, cursor: &Cursor<'_>, name: &str, reason: &str) -> Result<()> {
        let memory = size_of::<Refused>() + name.len() + reason.len();
        cursor
            .budget()
            .memory(memory as u64, "the list of refused members")?;
        self.catalog.refused.push(Refused {
            name: name.into(),
            reason: reason.into(),
        });
        Ok(())
    }

    fn finish(mut self, archive: &Archive) -> Result<Catalog> {
        if self.catalog.tensors.is_empty()
            && let Some(first) = self.catalog.refused.first()
        {
            let what = format!(
                "no array can be read; of {}: {}",
                quote(&first.name),
                first.reason
            );
            return Err(Error::unsupported(what));
        }
        if let Some(&first) = self.strangers.first() {
            let first = quote(&archive.entries[first].name);
            let what = match self.strangers.len() {
                1 => format!("member {first} is not an array"),
                n => format!("{n} members are not arrays: {first}, …"),
            };
            self.catalog.warnings.push(what);
        }
        let deflated = self
            .catalog
            .tensors
            .iter()
            .filter(|t| t.packing != Packing::Raw)
            .count();
        self.catalog
            .detail("members", Value::U64(archive.entries.len() as u64));
        self.catalog.detail("deflated", Value::U64(deflated as u64));
        Ok(self.catalog)
    }
}
