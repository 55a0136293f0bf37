//! Files at URLs: the adapter of `anamnesis-remote`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_remote::{
    ErrorKind, OpenedUrl, RangeReceiver, RemoteFile, RemoteOptions, StatedDigests, Store,
    hub_digests, shard_names,
};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, TemporaryCharge};

use super::file_system::{FileSystem, MapMode, NamedPath};
use super::regular::charged_buffer;
use super::{ConcurrentReads, ReadReceiver, Source, StartedRead};

/// Where a URL leads: to a place of its own, or (`None`) to a path of the local file system, where the hub's cache has it.
pub(super) fn open(
    url: &str,
    options: RemoteOptions,
) -> Result<(Option<Arc<dyn FileSystem>>, PathBuf)> {
    match open_store(url, options)? {
        OpenedUrl::Local(path) => Ok((None, path)),
        OpenedUrl::Store(store) => {
            let path = PathBuf::from(store.path());
            Ok((Some(Arc::new(RemoteFiles(*store))), path))
        }
    }
}

fn open_store(url: &str, options: RemoteOptions) -> Result<OpenedUrl> {
    let variable = |name: &str| std::env::var(name).ok();
    Store::open_with(url, options, &variable).map_err(of_remote)
}

fn of_remote(error: anamnesis_remote::Error) -> Error {
    match error.kind() {
        ErrorKind::Invalid => Error::invalid_argument(error.to_string()),
        ErrorKind::Unsupported => Error::unsupported(error.to_string()),
        _ => io::Error::from(error).into(),
    }
}

/// The digests that the hub or ModelScope states of a repository's files, or a registry of a model's.
pub(crate) fn stated_digests(url: &str, options: RemoteOptions) -> Result<StatedDigests> {
    let scheme = url.split(':').next().unwrap_or_default();
    let mut stating = ["oci", "ms"].iter();
    if stating.any(|known| known.eq_ignore_ascii_case(scheme))
        && let OpenedUrl::Store(store) = open_store(url, options.clone())?
    {
        return store.stated_digests().map_err(of_remote);
    }
    let variable = |name: &str| std::env::var(name).ok();
    hub_digests(url, options, &variable).map_err(of_remote)
}

/// The bucket that a URL leads to, to be written to.
pub(crate) fn open_bucket(url: &str, options: RemoteOptions) -> Result<Store> {
    match open_store(url, options)? {
        OpenedUrl::Store(store) if store.is_bucket() => Ok(*store),
        _ => Err(Error::unsupported(
            "only buckets are written to (s3://, gs://, az://, abfss://): write to a local directory, and upload it",
        )),
    }
}

/// The files of one URL.
struct RemoteFiles(Store);

impl RemoteFiles {
    fn file(&self, path: &Path) -> io::Result<RemoteSource> {
        Ok(RemoteSource(self.0.file(&text(path))?))
    }
}

/// The text of a path, which was a URL.
fn text(path: &Path) -> String {
    let text = path.to_string_lossy();
    // `join` puts the system's separator in front of a name
    if cfg!(windows) {
        text.replace('\\', "/")
    } else {
        text.into_owned()
    }
}

impl FileSystem for RemoteFiles {
    fn is_directory(&self, path: &Path) -> bool {
        self.0.is_directory(&text(path))
    }

    fn is_file(&self, path: &Path) -> bool {
        // without a request, as in `exists`
        !self.is_directory(path)
    }

    fn exists(&self, _path: &Path) -> bool {
        // a request of its own would be a round trip; the request that opens the file answers it as well
        true
    }

    fn list(
        &self,
        directory: &Path,
        wanted: &dyn Fn(&OsStr) -> bool,
        each: &mut dyn FnMut(OsString) -> Result<()>,
    ) -> Result<()> {
        let names = self.0.list(&text(directory)).map_err(io::Error::from)?;
        names
            .into_iter()
            .map(OsString::from)
            .filter(|name| wanted(name))
            .try_for_each(each)
    }

    fn stated_digest(&self, path: &Path) -> Option<String> {
        self.0.stated_digest(&text(path))
    }

    fn known_names(&self, directory: &Path) -> Option<Vec<String>> {
        self.0.known_names(&text(directory))
    }

    fn list_below(
        &self,
        directory: &Path,
        each: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<bool> {
        let mut refused = None;
        let listed = self.0.list_below(&text(directory), &mut |key| {
            refused = each(key).err();
            refused.is_none()
        });
        match refused {
            Some(error) => Err(error),
            None => Ok(listed.map_err(io::Error::from)?),
        }
    }

    fn open_named(
        &self,
        path: NamedPath<'_>,
        _mode: MapMode,
        _budget: &Budget,
    ) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(self.file(path.path())?))
    }

    fn read_whole<'b>(
        &self,
        path: NamedPath<'_>,
        budget: &'b Budget,
        what: &str,
    ) -> Result<(Vec<u8>, TemporaryCharge<'b>)> {
        let path = path.path();
        let file = self.file(path)?;
        self.begin_shards(path, &file)?;
        let len = file.0.len().map_err(io::Error::from)?;
        let _held = budget.temporary(file.held(), "what is read ahead of remote files")?;
        let (mut content, charge) = charged_buffer(len, budget, what)?;
        super::read_exact_at(&file, 0, &mut content)?;
        // all of it belongs to what opening reads
        file.settled();
        Ok((content, charge))
    }

    fn opened(&self) {
        self.0.opened();
    }

    fn begin(&self, paths: &mut dyn Iterator<Item = PathBuf>) {
        self.0.begin(&mut paths.map(|path| text(&path)));
    }
}

impl RemoteFiles {
    /// Requests the shards of an index while the rest of the index arrives: its first kilobytes name one of them.
    fn begin_shards(&self, path: &Path, index: &RemoteSource) -> io::Result<()> {
        /// More than the metadata and the first entry of an index.
        const BEGINNING: usize = 4 << 10;
        if !text(path).ends_with(".index.json") {
            return Ok(());
        }
        let mut beginning = [0; BEGINNING];
        let n = index.read_at(0, &mut beginning)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        if let Some(names) = shard_names(&beginning[..n]) {
            self.0
                .begin(&mut names.map(|name| text(&folder.join(name))));
        }
        Ok(())
    }
}

/// A file at a URL. Its first bytes are requested when it is opened, and waited for by [`Source::ready`].
struct RemoteSource(RemoteFile);

impl Source for RemoteSource {
    fn len(&self) -> Option<u64> {
        // an error is reported by `ready`, before a length is needed
        self.0.len().ok()
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read_at(start, buf)?)
    }

    fn will_need(&self, start: u64, len: u64) {
        self.0.scattered(&mut std::iter::once((start, len)));
    }

    fn scattered(&self, ranges: &mut dyn Iterator<Item = (u64, u64)>) {
        self.0.scattered(ranges);
    }

    fn settled(&self) {
        self.0.settled();
    }

    fn held(&self) -> u64 {
        self.0.held()
    }

    fn ready(&self) -> io::Result<()> {
        self.0.len()?;
        Ok(())
    }

    fn concurrent(&self) -> Option<&dyn ConcurrentReads> {
        Some(self)
    }
}

impl ConcurrentReads for RemoteSource {
    fn start(
        &self,
        start: u64,
        len: u64,
        again: bool,
        receiver: Box<dyn ReadReceiver>,
    ) -> StartedRead {
        let receiver = Box::new(RemoteReceiver(receiver));
        StartedRead::new(self.0.start(start, len, again, receiver))
    }
}

/// Passes what a remote file reports to the receiver of a read.
struct RemoteReceiver(Box<dyn ReadReceiver>);

impl RangeReceiver for RemoteReceiver {
    fn arrived(&mut self, start: u64, bytes: &[u8]) -> bool {
        self.0.arrived(start, bytes).is_continue()
    }

    fn delayed(&mut self) {
        self.0.delayed();
    }

    fn ended(self: Box<Self>, outcome: anamnesis_remote::Result<()>) {
        self.0.ended(outcome.map_err(io::Error::from));
    }
}
