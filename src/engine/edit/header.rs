//! The header of a file while it is edited: of either container.

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::engine::sink::container::{HeaderValue, check_opens, with_header};
use crate::engine::sink::in_place::{EditTarget, FileChange, NewHeader};
use crate::read::catalog::{Catalog, quote};
use crate::read::format::{self, Format};
use crate::read::rename::RenamedTensors;
use crate::read::source::cursor::Cursor;
use crate::read::source::{FnSource, Source};

use super::gguf_header::GgufHeader;
use super::safetensors_header::SafetensorsHeader;

/// More bytes than the room of a header has that is written anew.
const ROOM_AT_MOST: u64 = 64 << 10;

/// The header of one file, and the file.
pub(super) struct EditedHeader {
    target: EditTarget,
    /// The bytes in front of the data.
    old: Vec<u8>,
    format: &'static Format,
    entries: HeaderEntries,
    catalog: Catalog,
}

enum HeaderEntries {
    Safetensors(SafetensorsHeader),
    Gguf(GgufHeader),
}

impl EditedHeader {
    /// Reads the header of a file of this format.
    pub(super) fn read(target: EditTarget, format: &'static str, budget: &Budget) -> Result<Self> {
        let format = Format::from_name(format).expect("the format of a catalog");
        let path = target.path().to_owned();
        let read = || {
            let catalog = {
                let source = FnSource::new(target.len(), |at, buf: &mut [u8]| {
                    let read = target.read(at, buf);
                    read.map_err(|e| std::io::Error::other(e.to_string()))
                });
                parse(&source, format, budget)?
            };
            let (old, entries) = match format.name {
                "gguf" => {
                    let (old, header) = GgufHeader::read(&target, budget)?;
                    (old, HeaderEntries::Gguf(header))
                }
                _ => {
                    let (old, header) = SafetensorsHeader::read(&target, budget)?;
                    (old, HeaderEntries::Safetensors(header))
                }
            };
            Ok((catalog, old, entries))
        };
        let (catalog, old, entries) = read().map_err(|e: Error| e.in_file(&path))?;
        Ok(Self {
            target,
            old,
            format,
            entries,
            catalog,
        })
    }

    fn path(&self) -> &Path {
        self.target.path()
    }

    /// Whether the file has the metadata of the whole: the files of a split GGUF after the first have none.
    pub(super) fn is_complete_alone(&self) -> bool {
        matches!(self.entries, HeaderEntries::Safetensors(_))
    }

    pub(super) fn has_key(&self, key: &str) -> bool {
        match &self.entries {
            HeaderEntries::Safetensors(header) => header.has_key(key),
            HeaderEntries::Gguf(header) => header.has_key(key),
        }
    }

    pub(super) fn rename_key(&mut self, from: &str, to: &str) {
        match &mut self.entries {
            HeaderEntries::Safetensors(header) => header.rename_key(from, to),
            HeaderEntries::Gguf(header) => header.rename_key(from, to),
        }
    }

    pub(super) fn unset(&mut self, key: &str) {
        match &mut self.entries {
            HeaderEntries::Safetensors(header) => header.unset(key),
            HeaderEntries::Gguf(header) => header.unset(key),
        }
    }

    pub(super) fn set(&mut self, key: &str, value: &HeaderValue) -> Result<()> {
        match &mut self.entries {
            HeaderEntries::Safetensors(header) => header.set(key, value),
            HeaderEntries::Gguf(header) => header.set(key, value),
        }
    }

    /// Gives tensors their new names; and keys and lists that refer to them.
    pub(super) fn rename_tensors(
        &mut self,
        names: &RenamedTensors<'_>,
        budget: &Budget,
    ) -> Result<()> {
        match &mut self.entries {
            HeaderEntries::Safetensors(header) => header.rename_tensors(names, budget),
            HeaderEntries::Gguf(header) => header.rename_tensors(names),
        }
    }

    /// The change of the file, whose new header was parsed and describes the same tensors, under their new names if there are any.
    pub(super) fn into_change(
        self,
        names: Option<&RenamedTensors<'_>>,
        budget: &Budget,
    ) -> Result<FileChange> {
        let path = self.path().to_owned();
        let change = || {
            let new: Box<dyn NewHeader> = match self.entries {
                HeaderEntries::Safetensors(header) => Box::new(header.finished()),
                HeaderEntries::Gguf(header) => {
                    header.check()?;
                    Box::new(header)
                }
            };
            let least = new.least();
            let data = self.target.len() - self.old.len() as u64;
            let header = new.of_length(least).ok_or_else(|| {
                Error::unsupported("the header would be longer than readers accept")
            })?;
            {
                // charged for the comparison alone
                let _scope = budget.scope();
                // with the longest room that it may get
                let longest = (least + ROOM_AT_MOST).next_multiple_of(new.alignment());
                let longest = new.of_length(longest);
                let longest = longest.as_ref().unwrap_or(&header);
                let source = with_header(longest, longest.len() as u64 + data);
                let was = with_header(&self.old, self.target.len());
                // a file that is over a limit of the reader already is edited with the caller's
                if let Err(error) = check_opens(&source, self.format)
                    && check_opens(&was, self.format).is_ok()
                {
                    return Err(error);
                }
                let source = with_header(&header, least + data);
                let written = parse(&source, self.format, budget)?;
                let shift = least as i128 - self.old.len() as i128;
                check_same(&self.catalog, &written, names, shift)?;
            }
            Ok(FileChange::Header {
                target: self.target,
                old: self.old,
                new,
                format: self.format.name,
            })
        };
        change().map_err(|e: Error| e.in_file(&path))
    }
}

fn parse(source: &dyn Source, format: &'static Format, budget: &Budget) -> Result<Catalog> {
    let mut cursor = Cursor::new(source, budget);
    let options = format::ReadOptions {
        format: Some(format),
        ..format::ReadOptions::default()
    };
    format::read_file(&mut cursor, None, options)
}

/// Whether a header describes the same tensors under these names, at places that are `shift` bytes further.
fn check_same(
    old: &Catalog,
    new: &Catalog,
    names: Option<&RenamedTensors<'_>>,
    shift: i128,
) -> Result<()> {
    let wrong = |name: &str| {
        let what = format!(
            "the new header would not describe {} as the old one",
            quote(name)
        );
        Err(Error::unsupported(what))
    };
    if old.tensors().len() != new.tensors().len() {
        return wrong("the tensors");
    }
    for (old, new) in old.tensors().iter().zip(new.tensors()) {
        let renamed = names.and_then(|names| names.tensor(&old.name));
        let name = renamed.as_deref().unwrap_or(&old.name);
        let is_same = *new.name == *name
            && old.shape == new.shape
            && old.encoding.to_string() == new.encoding.to_string()
            && old.bytes.len == new.bytes.len
            && i128::from(old.bytes.start) + shift == i128::from(new.bytes.start);
        if !is_same {
            return wrong(name);
        }
    }
    Ok(())
}
