//! The items of the `.distcp` files: from `.metadata` and the archives to a catalog.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::note::Note;
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{Catalog, Layout, TensorChunk, TensorInfo, quote};
use crate::read::format::{ReadOptions, pth, read_file};
use crate::read::source::Source;
use crate::read::source::cursor::Cursor;
use crate::read::source::range::RangeSource;

use super::{ChunkedTensor, Manifest, NAME, StoredItem, WHAT};

/// Number of names that a warning lists.
const SHOWN: usize = 3;

/// Makes the catalog of a checkpoint. `files` are the opened `.distcp` files, in the order of [`Manifest::files`];
/// in the catalog they follow `.metadata`. `opaque` is as in [`ReadOptions`].
pub(crate) fn catalog(
    manifest: Manifest,
    files: &[(PathBuf, Arc<dyn Source>)],
    opaque: bool,
    budget: &Budget,
) -> Result<Catalog> {
    let mut reader = ItemReader {
        files,
        opaque,
        budget,
        catalog: Catalog::new(NAME),
        warned: 0,
    };
    reader.check_items(&manifest)?;
    for tensor in manifest.tensors {
        reader.add_tensor(tensor)?;
    }
    let mut unread = Vec::new();
    for object in &manifest.objects {
        if !reader.add_object(&object.name, object.item)? {
            unread.push(&*object.name);
        }
    }
    let mut catalog = reader.catalog;
    if !unread.is_empty() {
        let names: Vec<_> = unread.iter().take(SHOWN).map(|name| quote(name)).collect();
        let more = if unread.len() > SHOWN { ", …" } else { "" };
        catalog.warnings.push(Note::from(format!(
            "values that are not tensors and cannot be shown: {} ({}{more})",
            unread.len(),
            names.join(", ")
        )));
    }
    if let Some((count, first)) = manifest.unused {
        catalog.warnings.push(Note::from(format!(
            "items that belong to no tensor and no value: {count} (the first is of {})",
            quote(&first)
        )));
    }
    catalog.refused = manifest.refused;
    catalog.detail("files", Value::U64(files.len() as u64));
    catalog.detail("storages", Value::U64(catalog.members.len() as u64));
    Ok(catalog)
}

struct ItemReader<'f, 'b> {
    files: &'f [(PathBuf, Arc<dyn Source>)],
    opaque: bool,
    budget: &'b Budget,
    catalog: Catalog,
    /// Number of items whose archives have warnings.
    warned: u64,
}

impl ItemReader<'_, '_> {
    /// Checks that the items lie inside of their files and do not overlap: otherwise a short file could be read many
    /// times. Warns of bytes that belong to no item.
    fn check_items(&mut self, manifest: &Manifest) -> Result<()> {
        let _rows = self
            .budget
            .temporary(size_of_val(&*manifest.items) as u64, WHAT)?;
        let mut items = manifest.items.clone();
        // `.metadata` lists them by name
        items.sort_unstable_by_key(|item| (item.file, item.start, item.len));
        let mut items = items.into_iter().peekable();
        for (number, (path, source)) in self.files.iter().enumerate() {
            let len = source.finish()?;
            let (mut end, mut unused) = (0, 0);
            while let Some(item) = items.next_if(|item| item.file == number) {
                if item.start < end {
                    let what = "two items of the file overlap";
                    return Err(Error::malformed(what).at(item.start).in_file(path));
                }
                unused += item.start - end;
                // saturated: such an end is behind the file, and refused there
                end = item.start.saturating_add(item.len);
            }
            if end > len {
                let what = format!("an item of the file ends at byte {end} and the file at {len}");
                return Err(Error::malformed(what).at(len).in_file(path));
            }
            unused += len - end;
            if unused > 0 {
                let name = quote(&manifest.files[number]);
                self.catalog
                    .warnings
                    .push(format!("{unused} bytes of {name} belong to no item").into());
            }
        }
        Ok(())
    }

    /// The catalog of an item, whose byte ranges count in its file.
    fn read(&self, item: StoredItem) -> Result<Catalog> {
        let (path, source) = &self.files[item.file];
        let range = RangeSource::new(&**source, item.start, item.len);
        let mut cursor = Cursor::new(&range, self.budget);
        let options = ReadOptions {
            // not probed: the items of a tensor are always archives of PyTorch
            format: Some(&pth::FORMAT),
            opaque: self.opaque,
            gaps: true,
        };
        let read = read_file(&mut cursor, None, options);
        let mut catalog = read.map_err(|e| e.shifted(item.start).in_file(path))?;
        let first_member = u32::try_from(self.catalog.members.len())
            .map_err(|_| Error::unsupported("the checkpoint has more than 2³² storages"))?;
        // file 0 is `.metadata`
        let file = 1 + u32::try_from(item.file).expect("files are few");
        catalog.move_to_range(file, item.start, first_member);
        Ok(catalog)
    }

    /// Reads the item of a chunk and keeps its storage.
    fn chunk(&mut self, whole: &TensorInfo, sizes: &[u64], item: StoredItem) -> Result<TensorInfo> {
        let budget = self.budget;
        let mut found = {
            // an item is a few hundred bytes without its tensor, and items do not overlap, so what is read of each is
            // linear in the file
            let _scope = budget.scope();
            self.read(item)?
        };
        self.warn(&whole.name, &found.warnings);
        let path = &self.files[item.file].0;
        let wrong = || {
            let what = format!(
                "the item is not the chunk of {} that it should be",
                quote(&whole.name)
            );
            Error::malformed(what).at(item.start).in_file(path)
        };
        // a tensor that was saved alone has one storage
        let (Some(part), 1) = (found.tensors.pop(), found.members.len()) else {
            return Err(wrong());
        };
        let has_elements = matches!(
            part.layout,
            Layout::RowMajor | Layout::ColumnMajor | Layout::Strided(_)
        );
        if !found.tensors.is_empty()
            || *part.shape != *sizes
            || part.encoding != whole.encoding
            || part.quantizer().is_some()
            || !has_elements
        {
            return Err(wrong());
        }
        budget.memory(part.boxed_memory() + 128, WHAT)?;
        for member in found.members {
            budget.push(&mut self.catalog.members, member, WHAT)?;
        }
        Ok(part)
    }

    /// Keeps the warnings of the first items that have any, and counts the others.
    fn warn(&mut self, name: &str, warnings: &[Note]) {
        // one writer makes all items, so that all tend to have the same warning
        const WARNED_MOST: u64 = 8;
        if warnings.is_empty() {
            return;
        }
        self.warned += 1;
        if self.warned <= WARNED_MOST {
            let warnings = warnings.iter();
            let warnings =
                warnings.map(|warning| Note::from(format!("{}: {}", quote(name), warning.text())));
            self.catalog.warnings.extend(warnings);
        } else if self.warned == WARNED_MOST + 1 {
            let more = "further items have warnings, which are not listed";
            self.catalog.warnings.push(more.into());
        }
    }

    fn add_tensor(&mut self, tensor: ChunkedTensor) -> Result<()> {
        let ChunkedTensor {
            info: whole,
            chunks,
        } = tensor;
        let info = match chunks.as_slice() {
            [] => whole,
            [only] => {
                let part = self.chunk(&whole, &whole.shape, only.item)?;
                TensorInfo {
                    name: whole.name,
                    ..part
                }
            }
            _ => {
                let mut parts = Vec::new();
                for chunk in chunks {
                    let part = self.chunk(&whole, &chunk.sizes, chunk.item)?;
                    let offsets = chunk.offsets;
                    self.budget
                        .push(&mut parts, TensorChunk { offsets, part }, WHAT)?;
                }
                let first = parts[0].part.bytes;
                self.budget
                    .memory((parts.len() * size_of::<TensorChunk>()) as u64, WHAT)?;
                TensorInfo {
                    // the place of the first chunk, for the order of tensors; the chunks have the bytes
                    bytes: crate::read::catalog::ByteRange { len: 0, ..first },
                    layout: Layout::Chunked(parts.into()),
                    ..whole
                }
            }
        };
        self.budget.push(&mut self.catalog.tensors, info, WHAT)
    }

    /// Adds a value that is not a tensor: what it contains to the metadata, arrays of numpy to the tensors. Returns whether
    /// it could be read as plain data.
    fn add_object(&mut self, name: &str, item: StoredItem) -> Result<bool> {
        let budget = self.budget;
        let found = match self.read(item) {
            Ok(found) if found.refused.is_empty() => Some(found),
            // classes that are not plain data
            _ => None,
        };
        let Some(mut found) = found.filter(|_| !item.transformed) else {
            let text = format!("an object of {} bytes", item.len);
            budget.text(text.len(), "the metadata")?;
            let metadata = &mut self.catalog.metadata;
            metadata.push_charged(name, Value::text(text), budget)?;
            return Ok(false);
        };
        let joined = |key: &str| {
            budget.text(name.len() + key.len() + 1, "the metadata")?;
            Ok::<_, Error>(match key {
                "" => name.to_owned(),
                key => format!("{name}.{key}"),
            })
        };
        self.warn(name, &found.warnings);
        budget.reserve(&mut self.catalog.members, found.members.len(), WHAT)?;
        self.catalog.members.append(&mut found.members);
        let no_tensors = found.tensors.is_empty();
        for mut tensor in found.tensors {
            budget.tensors(1)?;
            tensor.name = joined(&tensor.name)?.into();
            budget.push(&mut self.catalog.tensors, tensor, WHAT)?;
        }
        if found.metadata.is_empty() && no_tensors {
            let empty = Value::List(Box::default());
            self.catalog.metadata.push_charged(name, empty, budget)?;
        }
        for (key, value) in found.metadata {
            let key = joined(&key)?;
            self.catalog.metadata.push_charged(&key, value, budget)?;
        }
        Ok(true)
    }
}
