//! The object of a PyTorch file, on request: the pickle is interpreted once more, or instead of opening the file.

use std::path::Path;
use std::sync::Arc;

use super::{Checkpoint, OpenOptions};
use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::format::{self, ReadOptions};
use crate::read::objects::{ObjectNode, ObjectTree};
use crate::read::source::cursor::Cursor;
use crate::read::source::file_system::OpenedPath;
use crate::read::source::files::Files;
use crate::read::source::{CheckedSource, MemorySource, Source};

/// The object of a PyTorch file, and the storages of its tensors.
///
/// ```
/// use anamnesis::objects::ObjectNode;
/// use anamnesis::{OpenOptions, load};
///
/// let path = "fixtures/pth/tied.pth";
/// let objects = OpenOptions::new().objects(path)?.expect("a PyTorch file");
/// assert!(matches!(objects.tree().nodes[0], ObjectNode::Dict { .. }));
/// for tensor in &objects.tree().nodes {
///     let ObjectNode::Tensor(tensor) = tensor else { continue };
///     // the bytes of the storage, which tied tensors share
///     let storage = objects.storages().tensor(&tensor.storage.to_string()).expect("it is listed");
///     println!("{} {:?} in {} bytes", tensor.dtype, tensor.shape, storage.info().nbytes());
/// }
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Debug)]
pub struct Objects {
    tree: ObjectTree,
    storages: Checkpoint,
}

impl Objects {
    /// The graph of values.
    pub fn tree(&self) -> &ObjectTree {
        &self.tree
    }

    /// The storages, as tensors of bytes whose names are their numbers: what [`load`](crate::load()) reads. A storage of
    /// big-endian numbers has their dtype instead, and is read little endian.
    pub fn storages(&self) -> &Checkpoint {
        &self.storages
    }

    /// The graph, and the storages.
    pub fn into_parts(self) -> (ObjectTree, Checkpoint) {
        (self.tree, self.storages)
    }
}

impl OpenOptions {
    /// The object of the PyTorch file at a path, without listing its tensors by name. `None` for directories, indexes and files
    /// of other formats, which hold tensors only.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`]. A value that cannot be described is a [`Refused`](ObjectNode::Refused) node and
    /// no error.
    pub fn objects(&self, path: impl AsRef<Path>) -> Result<Option<Objects>> {
        let (files, path) = Files::with(
            path.as_ref(),
            &self.urls,
            self.limits.memory_without_tensors(),
        )?;
        let path = &*path;
        let budget = self.budget();
        let read = || match files.open_path(path, self.mapping(), self.cancel.as_ref(), &budget)? {
            OpenedPath::Directory => Ok(None),
            // an index of shards, or a configuration: neither is a pickle
            OpenedPath::File(_) if path.extension().is_some_and(|e| e == "json") => Ok(None),
            OpenedPath::File(source) => self.objects_of(source, Some(path), &budget, false),
        };
        let objects = read().map_err(|e| e.in_file(path))?;
        Ok(objects.map(|mut objects| {
            objects.storages.path = Some(path.to_owned());
            objects.storages.files = files;
            objects
        }))
    }

    /// Like [`objects`](Self::objects), for bytes in memory.
    ///
    /// # Errors
    /// The errors of [`objects`](Self::objects).
    pub fn objects_from_bytes(
        &self,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Option<Objects>> {
        let source = Arc::new(CheckedSource::new(MemorySource::new(bytes)));
        self.objects_of(source, None, &self.budget(), false)
    }

    fn objects_of(
        &self,
        source: Arc<dyn Source>,
        path: Option<&Path>,
        budget: &Budget,
        named: bool,
    ) -> Result<Option<Objects>> {
        self.check_cancelled()?;
        source.ready()?;
        let read = {
            let mut cursor = Cursor::new(&*source, budget);
            let options = ReadOptions {
                format: self.format,
                opaque: self.opaque,
                // bytes that no tensor uses are no fault of an object
                gaps: false,
            };
            format::read_objects(&mut cursor, path, options, named)?
        };
        Ok(read.map(|(tree, catalog)| Objects {
            tree,
            storages: Checkpoint {
                assume_plain: false,
                sources: vec![source],
                states: Vec::new(),
                catalog,
                limits: self.limits,
                usage: self.usage.clone(),
                kept: budget.kept(),
                private: self.private,
                opaque: self.opaque,
                path: None,
                other_models: None,
                described_by: None,
                joined: Vec::new(),
                is_half_replaced: false,
                index: None,
                files: Files::default(),
            },
        }))
    }
}

impl Checkpoint {
    /// The object of this PyTorch file, whose tensors refer to the tensors of the [catalog](Self::catalog) where they have a
    /// name. `None` for other formats. The pickle is interpreted again: opening a checkpoint does not pay for this.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); an invalid argument where the checkpoint has several files, each of which has an
    /// object of its own.
    pub fn objects(&self) -> Result<Option<Objects>> {
        if self.catalog.format != format::pth::FORMAT.name {
            return Ok(None);
        }
        let [source] = &self.sources[..] else {
            return Err(Error::invalid_argument(format!(
                "the checkpoint has {} files, each with an object of its own: open one of them",
                self.sources.len()
            )));
        };
        let options = OpenOptions {
            limits: self.limits,
            usage: self.usage.clone(),
            private: self.private,
            opaque: self.opaque,
            ..OpenOptions::default()
        };
        let path = self.catalog.files[0].path.as_deref();
        let made = options.objects_of(Arc::clone(source), path, &self.budget(), true);
        let made = made.map_err(|error| self.place(error, 0))?;
        let Some(mut objects) = made else {
            return Ok(None);
        };
        objects.storages.path.clone_from(&self.path);
        objects.storages.files = self.files.clone();
        let listed = self.catalog.tensors.len();
        let is_unknown = |node: &ObjectNode| match node {
            ObjectNode::Tensor(tensor) => tensor.entry.is_some_and(|row| row as usize >= listed),
            _ => false,
        };
        // the pickle was interpreted twice, and another process may have written to the file in between
        if objects.tree.nodes.iter().any(is_unknown) {
            let changed = Error::malformed("the file has changed since it was opened");
            return Err(self.place(changed, 0));
        }
        Ok(Some(objects))
    }
}
