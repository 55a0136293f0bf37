//! A safetensors file, or several with an index: written beside the target, then renamed.
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
use header::Group;

/// How much is written into one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// One file: the target.
    File,
    /// The target is a directory, with files of at most this many bytes of tensors each (a tensor that is
    /// larger has one of its own), and `model.safetensors.index.json` beside them.
    Shards(u64),
}

/// Name of the one file in a directory, and of the index of several.
const NAME: &str = "model.safetensors";

/// Writes safetensors files. Nothing is seen under their names before all is written; a sink that is
/// dropped before removes what it began.
#[derive(Debug)]
pub struct SafetensorsSink {
    target: PathBuf,
    extent: Extent,
    overwrite: bool,
    metadata: Vec<(String, String)>,
    shards: Vec<Shard>,
    /// Of each output: its shard, and where it begins in the file.
    places: Vec<(usize, u64)>,
    /// The index of several files: named after them, so that who finds it finds its files.
    index: Option<Shard>,
    /// What an earlier run left, and a reader would take for this one's.
    stale: Option<PathBuf>,
    /// Directories that were made for the files, outermost first.
    made: Vec<PathBuf>,
}

impl SafetensorsSink {
    /// Will write to `target`.
    pub fn new(target: impl Into<PathBuf>, extent: Extent) -> Self {
        Self {
            target: target.into(),
            extent,
            overwrite: false,
            metadata: Vec::new(),
            shards: Vec::new(),
            places: Vec::new(),
            index: None,
            stale: None,
            made: Vec::new(),
        }
    }

    /// Whether files that exist are replaced. They are refused if not.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// What the header's `__metadata__` holds, in this order.
    #[must_use]
    pub fn metadata(mut self, metadata: Vec<(String, String)>) -> Self {
        self.metadata = metadata;
        self
    }

    /// The files that were written: after the run, under their names.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(Shard::target)
    }

    fn free(&self, path: &Path) -> Result<()> {
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => Err(Error::from(std::io::Error::from(
                std::io::ErrorKind::IsADirectory,
            ))
            .in_file(path)),
            Ok(meta) if !meta.is_file() && !meta.is_symlink() => Err(Error::misuse(
                "only a file is replaced, and this is a device or a pipe",
            )
            .in_file(path)),
            Ok(_) if !self.overwrite => Err(Error::from(std::io::Error::from(
                std::io::ErrorKind::AlreadyExists,
            ))
            .in_file(path)),
            _ => Ok(()),
        }
    }

    /// Makes the target directory, and remembers what was not there.
    fn make_directory(&mut self) -> Result<()> {
        let missing = self
            .target
            .ancestors()
            .take_while(|a| !a.as_os_str().is_empty() && !a.exists());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        self.made.extend(missing);
        fs::create_dir_all(&self.target).map_err(|e| Error::from(e).in_file(&self.target))
    }

    /// The names of so many files.
    fn names(&self, count: usize) -> Vec<PathBuf> {
        match (&self.extent, count) {
            (Extent::File, _) => vec![self.target.clone()],
            (Extent::Shards(_), 1) => vec![self.target.join(NAME)],
            (Extent::Shards(_), n) => (1..=n)
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
        // what an earlier run began and did not end
        self.shards.clear();
        self.index = None;
        let groups = header::groups(outputs, &self.extent)?;
        let names = self.names(groups.len());
        let index = self.target.join(format!("{NAME}.index.json"));
        names.iter().try_for_each(|path| self.free(path))?;
        if matches!(self.extent, Extent::Shards(_)) {
            // readers look for either, and differ in which they look for first
            let alone = self.target.join(NAME);
            let other = if groups.len() > 1 {
                self.free(&index).map(|()| alone)
            } else {
                Ok(index.clone())
            }?;
            self.free(&other)?;
            self.stale = Some(other);
            self.make_directory()?;
        }
        // megabytes of tokenizer are not repeated in every shard
        let format: Vec<_> = self
            .metadata
            .iter()
            .filter(|(key, _)| key == "format")
            .cloned()
            .collect();
        let metadata = std::iter::once(&self.metadata).chain(std::iter::repeat(&format));
        let headers = groups
            .iter()
            .zip(metadata)
            .map(|(group, metadata)| header::header(group, outputs, metadata));
        let headers = headers.collect::<Result<Vec<_>>>()?;
        let nbytes = |(group, header): (&Group, &Vec<u8>)| group.nbytes + header.len() as u64;
        let total = groups
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
        for (number, ((group, header), name)) in groups.iter().zip(&headers).zip(&names).enumerate()
        {
            self.shards.push(Shard::create(
                name,
                header,
                header.len() as u64 + group.nbytes,
            )?);
            for &(output, start) in &group.outputs {
                self.places[output] = (number, header.len() as u64 + start);
            }
        }
        if groups.len() > 1 {
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
            let size: u64 = groups.iter().map(|g| g.nbytes).sum();
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
        let mut kept: Vec<&Shard> = Vec::new();
        for file in files {
            if let Err(error) = file.keep(self.overwrite) {
                if !self.overwrite {
                    kept.iter().for_each(|file| file.remove());
                }
                return Err(error);
            }
            kept.push(file);
        }
        if let Some(stale) = self.stale.take().filter(|stale| stale.exists()) {
            fs::remove_file(&stale).map_err(|e| Error::from(e).in_file(&stale))?;
        }
        self.made.clear();
        Ok(())
    }
}

impl Drop for SafetensorsSink {
    fn drop(&mut self) {
        self.shards.clear();
        self.index = None;
        for directory in self.made.iter().rev() {
            // someone may have put something there, and nobody is left to hear of it
            let _ = fs::remove_dir(directory);
        }
    }
}
