//! NPZ, numpy's archive of arrays: a zip archive whose members are NPY files, stored or deflated.
//!
//! Specification: `numpy.savez` and `numpy/lib/_npyio_impl.py`; the archive is described in `archive.rs`.
//!
//! As in numpy, a member is an array if it begins with the magic number of NPY, whatever its name. A member named `.npy`
//! without that magic number is listed as refused instead of skipped, so that no tensor disappears silently.
//!
//! A member that cannot be read (an object array, an unknown dtype, encryption, another compression method, a damaged header
//! or checksum) is listed as refused, and the other arrays can be read. An archive that two readers see differently is an
//! error of the whole file: `archive.rs`, and a local header that contradicts the directory.

mod member_prefix;

use super::npy::{self, MAGIC, PRELUDE, Prelude};
use super::{Archive, DirectoryEntry, Format, Head};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::text_cost;
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{ByteRange, Catalog, Member, Packing, Refused, quote};
use crate::read::source::cursor::Cursor;

use member_prefix::{MemberPrefix, SharedInflater};

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
    // a PyTorch archive may contain NPY files among its extra files
    let torch = || names().any(|name| name == "data.pkl" || name.ends_with("/data.pkl"));
    archive.entries.is_empty() || (names().any(|name| name.ends_with(SUFFIX)) && !torch())
}

fn read(cursor: &mut Cursor<'_>, head: Head<'_>) -> Result<Catalog> {
    let archive = match head.archive {
        Some(archive) => archive,
        None => Archive::read(cursor)?, // the caller chose this format: return the error of the archive
    };
    let mut npz = NpzReader {
        catalog: Catalog::new(FORMAT.name),
        inflate: SharedInflater::default(),
        not_arrays: Vec::new(),
        first_error: None,
    };
    cursor.source().scattered(&mut archive.openings());
    for row in 0..archive.entries.len() {
        npz.member(cursor, &archive, row)?;
    }
    npz.finish(&archive)
}

/// The catalog while members are added to it.
struct NpzReader {
    catalog: Catalog,
    inflate: SharedInflater,
    /// Members that are not arrays, by their index in the directory.
    not_arrays: Vec<usize>,
    /// The error of the first member that was refused for one.
    first_error: Option<Error>,
}

impl NpzReader {
    /// Adds a member, or lists it as refused.
    fn member(&mut self, cursor: &mut Cursor<'_>, archive: &Archive, row: usize) -> Result<()> {
        let entry = &archive.entries[row];
        // archives that were made with other tools contain entries for directories
        if entry.name.ends_with('/') {
            return Ok(()); // a directory
        }
        let named = entry.name.strip_suffix(SUFFIX);
        // numpy's members have no fixed alignment, and the NPY header behind the local header is read in any case, so
        // visiting it costs no further page
        let place = match archive.verified_member(cursor, row) {
            Ok(place) => place,
            // a member that need not be an array, such as a README, may use any compression
            Err(e) if named.is_none() && matches!(e.kind(), ErrorKind::Unsupported(_)) => {
                return cursor
                    .budget()
                    .push(&mut self.not_arrays, row, "the list of members");
            }
            // encrypted, or packed by another method
            Err(e) if matches!(e.kind(), ErrorKind::Unsupported(_)) => {
                return self.refuse_for(cursor, &entry.name, e);
            }
            // two readers could see two archives
            Err(e) => return Err(e),
        };
        match self.array(cursor, entry, row, place) {
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::Malformed(_) | ErrorKind::Unsupported(_)
                ) =>
            {
                self.refuse_for(cursor, &entry.name, e)
            }
            result => result,
        }
    }

    /// Adds a member whose bytes are known. An error is about this member alone.
    fn array(
        &mut self,
        cursor: &mut Cursor<'_>,
        entry: &DirectoryEntry,
        row: usize,
        place: Member,
    ) -> Result<()> {
        let named = entry.name.strip_suffix(SUFFIX);
        let start = place.bytes.start;
        let mut prefix = MemberPrefix::new(&place, entry.deflated(), &mut self.inflate);
        // first, because the header of a damaged member may parse and describe another array
        prefix.check_small(cursor, &entry.name, entry.crc32)?;
        // in two steps: the first twelve bytes give the length of the header
        let first = prefix.first_bytes(cursor, &entry.name, PRELUDE)?;
        if !first.starts_with(MAGIC) {
            match named {
                Some(name) => self.refuse(
                    cursor,
                    name,
                    "the member does not begin with the magic number of NPY",
                )?,
                None => cursor
                    .budget()
                    .push(&mut self.not_arrays, row, "the list of members")?,
            }
            return Ok(());
        }
        let error = |error: npy::HeaderError| error.error(start, Some(&quote(&entry.name)));
        let prelude = Prelude::read(first).map_err(error)?;
        let budget = cursor.budget();
        let parsing = npy::charge_header(prelude.text_len, budget)?;
        let header_len = prelude.text_at + prelude.text_len;
        let header = prefix.first_bytes(cursor, &entry.name, header_len)?;
        if header.len() < header_len {
            let what = format!("member {} ends inside its NPY header", quote(&entry.name));
            return Err(Error::malformed(what).at(start));
        }
        let name = named.unwrap_or(&entry.name);
        let array = match prelude.array(&header[prelude.text_at..]) {
            Ok(array) => array,
            Err(e) => match e.object_array() {
                // object arrays are pickles: listed as refused, so that the others can be read
                Some(reason) => return self.refuse(cursor, name, reason),
                None => return Err(error(e)),
            },
        };
        drop(parsing);
        let skip = header_len as u64;
        // numpy fails on a member that is too short. One that is longer is accepted, as numpy stops reading at the
        // last element
        if array.nbytes > place.inflated.saturating_sub(skip) {
            return Err(Error::malformed(format!(
                "member {} has {} bytes, but its array needs {} after a header of {skip}",
                quote(&entry.name),
                place.inflated,
                array.nbytes
            ))
            .at(start));
        }
        budget.tensors(1)?;
        budget.memory(array.memory() + text_cost(name.len()), "an array")?;
        if array.is_guessed_float8()
            && !self
                .catalog
                .warnings
                .iter()
                .any(|w| *w == npy::FLOAT8_GUESSED)
        {
            self.catalog.warnings.push(npy::FLOAT8_GUESSED.into());
        }
        // the header is a part of the deflate stream, so that a tensor of a deflated member begins at an offset
        // inside of it
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
        info.member = Some(
            u32::try_from(self.catalog.members.len())
                .expect("the budget limits the number of tensors"),
        );
        budget.push(&mut self.catalog.members, place, "an array")?;
        budget.push(&mut self.catalog.tensors, info, "an array")?;
        Ok(())
    }

    fn refuse_for(&mut self, cursor: &Cursor<'_>, member: &str, error: Error) -> Result<()> {
        let name = member.strip_suffix(SUFFIX).unwrap_or(member);
        let reason = match error.kind() {
            ErrorKind::Malformed(what) | ErrorKind::Unsupported(what) => what.clone(),
            other => other.to_string(),
        };
        self.refuse(cursor, name, &reason)?;
        self.first_error.get_or_insert(error);
        Ok(())
    }

    fn refuse(&mut self, cursor: &Cursor<'_>, name: &str, reason: &str) -> Result<()> {
        const WHAT: &str = "the list of refused members";
        let budget = cursor.budget();
        budget.memory(text_cost(name.len()) + text_cost(reason.len()), WHAT)?;
        let row = Refused {
            name: name.into(),
            reason: reason.into(),
        };
        budget.push(&mut self.catalog.refused, row, WHAT)
    }

    fn finish(mut self, archive: &Archive) -> Result<Catalog> {
        // an archive of pickled objects only is refused as a whole: an empty list would look like an empty file
        if self.catalog.tensors.is_empty()
            && let Some(first) = self.catalog.refused.first()
        {
            if let Some(error) = self.first_error {
                return Err(error);
            }
            let what = format!(
                "no array of the archive can be read; {}: {}",
                quote(&first.name),
                first.reason
            );
            return Err(Error::unsupported(what));
        }
        if let Some(&first) = self.not_arrays.first() {
            let first = quote(&archive.entries[first].name);
            let what = match self.not_arrays.len() {
                1 => format!("member {first} is not an array and is not listed"),
                n => format!("{n} members are not arrays and are not listed: {first}, …"),
            };
            self.catalog.warnings.push(what.into());
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
