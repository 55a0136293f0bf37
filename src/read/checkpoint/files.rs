//! The files of a checkpoint as an I/O template lists them: paths below the model's root, and the byte ranges of the
//! headers, which every reader reads first.

mod heads;

use std::io;
use std::path::{Component, Path, PathBuf};

use anamnesis_template::{File, TemplateBuilder};

use crate::base::error::{Error, ErrorKind, Result};
use crate::read::catalog::{ByteRange, FileInfo, quote};
use crate::read::checkpoint::Checkpoint;
use heads::FileHeads;

/// Files below a root, and the bytes of them that belong to no tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateFiles {
    root: PathBuf,
    /// Relative paths and lengths, as the catalog numbers them.
    files: Vec<(String, u64)>,
    heads: FileHeads,
    headers: Vec<ByteRange>,
}

impl TemplateFiles {
    /// The files of an open checkpoint. Reads nothing.
    ///
    /// The root is the directory that was opened, or the one that the file or index is in; of a checkpoint at a URL, the URL
    /// of it.
    pub(crate) fn of(checkpoint: &Checkpoint) -> Result<Self> {
        let Some(opened) = checkpoint.path() else {
            return Err(Error::invalid_argument(
                "an I/O template names files, and this checkpoint was opened from a reader or from bytes: open a path",
            ));
        };
        // templates name files relative to the model, so that they apply to a copy of it elsewhere
        let root = checkpoint.files().folder_of(opened);
        let catalog = checkpoint.catalog();
        let files = catalog
            .files
            .iter()
            .map(|file| Ok((relative_path(root, file)?, file.nbytes)))
            .collect::<Result<_>>()?;
        Ok(Self {
            root: root.to_owned(),
            files,
            heads: FileHeads::of(checkpoint),
            headers: headers(checkpoint),
        })
    }

    /// The number in the catalog of the file with this path.
    pub(crate) fn position(&self, path: &str) -> Option<u32> {
        self.files
            .iter()
            .position(|(known, _)| known == path)
            .and_then(|number| u32::try_from(number).ok())
    }

    /// The byte ranges that a reader of the headers reads, file after file.
    pub(crate) fn headers(&self) -> &[ByteRange] {
        &self.headers
    }

    /// Adds the files to a template under their numbers in the catalog, with their lengths and a hash of their first bytes,
    /// which are read; local ones with their times.
    pub(crate) fn add_to(&self, builder: &mut TemplateBuilder) -> Result<Vec<File>> {
        let mut known = Vec::with_capacity(self.files.len());
        for (number, (path, nbytes)) in (0u32..).zip(&self.files) {
            // a file that was replaced since it was opened would get a template with the ranges of its predecessor
            let replaced =
                |what: String| Error::new(ErrorKind::Replaced(what)).in_file(&self.root.join(path));
            let file = self.heads.file(number, &self.root, path, *nbytes);
            let file = file.map_err(|error| match error.kind() {
                ErrorKind::Io(e) if e.kind() == io::ErrorKind::NotFound => {
                    replaced("the file was removed after the checkpoint was opened".to_owned())
                }
                _ => error,
            })?;
            if file.nbytes != *nbytes {
                return Err(replaced(format!(
                    "the file has {} bytes; it had {nbytes} when the checkpoint was opened",
                    file.nbytes
                )));
            }
            // the builder merges equal paths; the catalog's numbers would then name other files
            if builder.file(file.clone())? != number {
                return Err(Error::invalid_argument(
                    "the same path occurs twice in the checkpoint",
                )
                .in_file(&self.root.join(path)));
            }
            known.push(file);
        }
        Ok(known)
    }
}

/// The path of a file relative to the root, with `/` between its parts.
fn relative_path(root: &Path, file: &FileInfo) -> Result<String> {
    let path = file
        .path
        .as_deref()
        .ok_or_else(|| Error::invalid_argument("a file of the checkpoint has no path"))?;
    let wrong = |what: &str| {
        Error::invalid_argument(format!("{what} {}", quote(&root.display().to_string())))
            .in_file(path)
    };
    let inner = path
        .strip_prefix(root)
        .map_err(|_| wrong("a template names files below the model's root, which is"))?;
    let parts = inner.components().map(|part| match part {
        Component::Normal(name) => name
            .to_str()
            .ok_or_else(|| wrong("a template's paths are UTF-8, below")),
        // `..` or a prefix: a template must not refer to a file outside of the model
        _ => Err(wrong(
            "a template names files below the model's root, which is",
        )),
    });
    Ok(parts.collect::<Result<Vec<_>>>()?.join("/"))
}

/// The headers of each file: the bytes before its first tensor. For an archive, the directory behind the last tensor
/// comes first, as it is read first.
fn headers(checkpoint: &Checkpoint) -> Vec<ByteRange> {
    let catalog = checkpoint.catalog();
    // empty bounds, so that a file without tensors is a header from its first byte to its last
    let mut bounds: Vec<(u64, u64)> = catalog.files.iter().map(|file| (file.nbytes, 0)).collect();
    let mut archive = vec![false; bounds.len()];
    let index = |file: u32| usize::try_from(file).expect("an index");
    for info in catalog.tensors() {
        // members as a whole, so that local headers count as tensors and not as headers of the file
        catalog.stored(info, &mut |bytes, _| {
            let (first, end) = &mut bounds[index(bytes.file)];
            (*first, *end) = ((*first).min(bytes.start), (*end).max(bytes.end()));
        });
    }
    for member in &catalog.members {
        archive[index(member.bytes.file)] = true;
    }
    let mut headers = Vec::new();
    for (((file, info), (first, end)), archive) in
        (0u32..).zip(&catalog.files).zip(bounds).zip(archive)
    {
        let mut add = |start: u64, end: u64| {
            let len = end.saturating_sub(start);
            headers.extend((len > 0).then_some(ByteRange { file, start, len }));
        };
        // a reader of an archive reads the directory first, which is behind the last member
        if archive && end > 0 {
            add(end, info.nbytes);
        }
        add(0, first);
    }
    headers
}
