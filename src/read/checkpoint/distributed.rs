//! Opens a directory of torch.distributed.checkpoint: `.metadata` and the `.distcp` files that it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::catalog::{Catalog, FileInfo};
use crate::read::format::dcp;
use crate::read::source::Source;
use crate::read::source::cursor::Cursor;
use crate::read::source::file_system::NamedPath;
use crate::read::source::files::Files;

use super::merge::{ParsedFile, merge};
use super::named_files::{charge_files, plain_name, require};
use super::read_state::ReadState;
use super::{Checkpoint, OpenOptions};

/// The file that describes the checkpoint.
pub(super) const METADATA: &str = ".metadata";
/// The extension of the files that hold the tensors.
pub(super) const EXTENSION: &str = "distcp";

pub(super) fn is_metadata(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == METADATA)
}

/// The error for a file of tensors that is opened alone: which bytes of it are which part of which tensor is in
/// `.metadata` only.
pub(super) fn opened_alone() -> Error {
    Error::unsupported(
        "a `.distcp` file is a part of a torch.distributed.checkpoint directory and does not name its tensors; open the \
         directory",
    )
}

/// Opens the checkpoint whose `.metadata` has this path.
pub(super) fn open(
    files: &Files,
    path: NamedPath<'_>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    read(files, path, options, budget).map_err(|e| e.in_file(path.path()).in_format(dcp::NAME))
}

fn read(
    place: &Files,
    path: NamedPath<'_>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    let metadata = open_source(place, path, options, budget)?;
    let path = path.path();
    let manifest = dcp::read(&mut Cursor::new(&*metadata, budget), options.opaque)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut paths = Vec::new();
    for name in &manifest.files {
        charge_files(budget, 1, directory, name.len())?;
        // a name must not lead out of the directory
        paths.push(directory.join(plain_name(name)?));
    }
    // all of them before the first is opened, so that the error lists each that is missing
    require(place, &paths)?;
    // at a URL, requests for them run side by side
    place.begin(&mut paths.iter().cloned());
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let named = NamedPath::below(directory, &path);
        let source = open_source(place, named, options, budget).map_err(|e| e.in_file(&path))?;
        files.push((path, source));
    }
    let mut catalog = dcp::catalog(manifest, &files, options.opaque, budget)?;
    catalog.index_names(budget)?;
    catalog.files = vec![file_info(path, &*metadata)?];
    // the catalog of `.metadata` has all tensors, whose byte ranges name the other files
    let mut parsed = vec![ParsedFile {
        state: ReadState::of(&*metadata),
        source: metadata,
        catalog,
    }];
    for (path, source) in files {
        let mut catalog = Catalog::new(dcp::NAME);
        catalog.files = vec![file_info(&path, &*source)?];
        // no edit changes them
        let state = ReadState::default();
        parsed.push(ParsedFile {
            source,
            state,
            catalog,
        });
    }
    merge(parsed, options, budget)
}

fn open_source(
    place: &Files,
    path: NamedPath<'_>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Arc<dyn Source>> {
    // before each file: an answer of a file system or server may take long
    options.check_cancelled()?;
    let source = place.open_named(path, options.mapping(), budget)?;
    source.ready()?;
    Ok(source)
}

fn file_info(path: &Path, source: &dyn Source) -> Result<FileInfo> {
    Ok(FileInfo {
        path: Some(PathBuf::from(path)),
        nbytes: source.finish()?,
    })
}
