//! A sink that writes one safetensors file, or several and their index. Files are written under a temporary name in the
//! target's directory, then renamed.
//!
//! Source: the format description of the `safetensors` repository. Tensors are laid out widest elements
//! first, as that crate's writer does, so that each is aligned to its elements.

mod file;
mod header;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::error::{Error, Result};
use crate::plan::TensorSpec;

use super::Sink;
use file::Shard;
use header::FileLayout;

/// How outputs are distributed over files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// The target is one file.
    SingleFile,
    /// The target is a directory: shards of at most this many bytes of tensors each (a larger tensor gets a shard of its
    /// own), and `model.safetensors.index.json`.
    Shards(u64),
}

/// Name of the only file in a directory, and stem of the index of several.
const NAME: &str = "model.safetensors";

/// Writes safetensors files. They appear under their names when all of them are complete; a sink that is dropped
/// before removes its temporary files.
#[derive(Debug)]
pub struct SafetensorsSink {
    target: PathBuf,
    sharding: Sharding,
    overwrite: bool,
    metadata: Vec<(String, String)>,
    shards: Vec<Shard>,
    /// Of each output: the index of its shard, and its offset in that file.
    places: Vec<(usize, u64)>,
    /// The index of several shards. It is renamed last, so that a reader which finds it finds its shards.
    index: Option<Shard>,
    /// A file of an earlier run that a reader would mistake for this run's; removed at the end.
    stale: Option<PathBuf>,
    /// Directories that were created for the files, outermost first.
    created_directories: Vec<PathBuf>,
}

impl SafetensorsSink {
    /// A sink that writes to `target`.
    pub fn new(target: impl Into<PathBuf>, sharding: Sharding) -> Self {
        Self {
            target: target.into(),
            sharding,
            overwrite: false,
            metadata: Vec::new(),
            shards: Vec::new(),
            places: Vec::new(),
            index: None,
            stale: None,
            created_directories: Vec::new(),
        }
    }

    /// Whether existing files are replaced. Default off: they are refused.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// The entries of the header's `__metadata__`, in this order.
    #[must_use]
    pub fn metadata(mut self, metadata: Vec<(String, String)>) -> Self {
        self.metadata = metadata;
        self
    }

    /// The files that the sink writes. They exist after the run.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(Shard::target)
    }

    /// Refuses a path that exists and must not be replaced.
    fn check_free(&self, path: &Path) -> Result<()> {
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => Err(Error::from(std::io::Error::from(
                std::io::ErrorKind::IsADirectory,
            ))
            .in_file(path)),
            Ok(meta) if !meta.is_file() && !meta.is_symlink() => Err(Error::invalid_argument(
                "the target is neither a file nor a link, and only those are replaced",
            )
            .in_file(path)),
            Ok(_) if !self.overwrite => Err(Error::from(std::io::Error::from(
                std::io::ErrorKind::AlreadyExists,
            ))
            .in_file(path)),
            _ => Ok(()),
        }
    }

    /// Creates the target directory, and records the directories that did not exist.
    fn create_directory(&mut self) -> Result<()> {
        let missing = self
            .target
            .ancestors()
            .take_while(|a| !a.as_os_str().is_empty() && !a.exists());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        self.created_directories.extend(missing);
        fs::create_dir_all(&self.target).map_err(|e| Error::from(e).in_file(&self.target))
    }

    /// The paths of `count` files.
    fn names(&self, count: usize) -> Vec<PathBuf> {
        match (&self.sharding, count) {
            (Sharding::SingleFile, _) => vec![self.target.clone()],
            (Sharding::Shards(_), 1) => vec![self.target.join(NAME)],
            (Sharding::Shards(_), n) => (1..=n)
                .map(|i| {
                    self.target
                        .join(format!("model-{i:05}-of-{n:05}.safetensors"))
                })
                .collect(),
        }
    }
}

impl Sink for SafetensorsSink {
    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()> {
        // temporary files of an earlier run that failed
        self.shards.clear();
        self.index = None;
        let layouts = header::layouts(outputs, &self.sharding)?;
        let names = self.names(layouts.len());
        // all targets are checked before the first file is created, so that a refused run changes nothing
        let index = self.target.join(format!("{NAME}.index.json"));
        names.iter().try_for_each(|path| self.check_free(path))?;
        if matches!(self.sharding, Sharding::Shards(_)) {
            // readers prefer either the index or the single file: only one of them may remain
            let single = self.target.join(NAME);
            // the number of shards may change between two runs to one directory
            let other = if layouts.len() > 1 {
                self.check_free(&index).map(|()| single)
            } else {
                Ok(index.clone())
            }?;
            self.check_free(&other)?;
            self.stale = Some(other);
            self.create_directory()?;
        }
        // only the first shard carries all of the metadata: a tokenizer of megabytes is not repeated in every shard
        let format: Vec<_> = self
            .metadata
            .iter()
            .filter(|(key, _)| key == "format")
            .cloned()
            .collect();
        let metadata = std::iter::once(&self.metadata).chain(std::iter::repeat(&format));
        let headers = layouts
            .iter()
            .zip(metadata)
            .map(|(layout, metadata)| header::header(layout, outputs, metadata));
        let headers = headers.collect::<Result<Vec<_>>>()?;
        let nbytes =
            |(layout, header): (&FileLayout, &Vec<u8>)| layout.nbytes + header.len() as u64;
        // checked for all shards at once: each alone could still be allocated on a disk that cannot hold the last
        let total = layouts
            .iter()
            .zip(&headers)
            .map(nbytes)
            .fold(0, u64::saturating_add);
        file::check_space(
            names[0].parent().unwrap_or(Path::new(".")),
            total,
            &self.target,
        )?;
        self.places = vec![(0, 0); outputs.len()];
        for (number, ((layout, header), name)) in
            layouts.iter().zip(&headers).zip(&names).enumerate()
        {
            self.shards.push(Shard::create(
                name,
                header,
                header.len() as u64 + layout.nbytes,
            )?);
            for &(output, start) in &layout.outputs {
                self.places[output] = (number, header.len() as u64 + start);
            }
        }
        if layouts.len() > 1 {
            let file = |shard: usize| {
                names[shard]
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned()
            };
            let map = outputs
                .iter()
                .zip(&self.places)
                .map(|(o, (shard, _))| (o.name.to_string(), json!(file(*shard))));
            let map: serde_json::Map<_, _> = map.collect();
            // `total_size` counts the tensors without headers, as transformers writes it
            let size: u64 = layouts.iter().map(|g| g.nbytes).sum();
            let text = json!({"metadata": {"total_size": size}, "weight_map": map});
            let text = format!("{text:#}\n");
            self.index = Some(Shard::create(&index, text.as_bytes(), text.len() as u64)?);
        }
        Ok(())
    }

    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()> {
        let (shard, base) = self.places[output];
        self.shards[shard].write(base + start, bytes)
    }

    fn end(&mut self) -> Result<()> {
        let files = self.shards.iter_mut().chain(&mut self.index);
        let mut published: Vec<&Shard> = Vec::new();
        // the index is last in this chain: until it is there, a reader finds no checkpoint of several shards
        for file in files {
            if let Err(error) = file.publish(self.overwrite) {
                if !self.overwrite {
                    // not after an overwrite: the published files have replaced older ones, and without them there
                    // would be neither
                    published.iter().for_each(|file| file.remove());
                }
                return Err(error);
            }
            published.push(file);
        }
        // removed after the new files are in place, so that at no time is there neither
        if let Some(stale) = self.stale.take().filter(|stale| stale.exists()) {
            fs::remove_file(&stale).map_err(|e| Error::from(e).in_file(&stale))?;
        }
        // published: they are no longer removed when the sink is dropped
        self.created_directories.clear();
        Ok(())
    }
}

impl Drop for SafetensorsSink {
    fn drop(&mut self) {
        // temporary files are removed first: a directory must be empty
        self.shards.clear();
        self.index = None;
        for directory in self.created_directories.iter().rev() {
            // fails for a directory that holds other files, which is left; a destructor cannot report it
            let _ = fs::remove_dir(directory);
        }
    }
}
