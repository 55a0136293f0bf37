//! The names of the files in a directory. Lists of a repository are kept in the cache of headers, by which it is opened
//! without a network, and a commit of it without a request.

use std::sync::Arc;
use std::time::Instant;

use url::Url;

use super::{Store, StorePlace, hub_path, key};
use crate::answer::FileVersion;
use crate::bucket::ListProgress;
use crate::error::{Error, ErrorKind, Result};
use crate::header_cache::{CacheEntry, CachedFile, key_of};
use crate::hub;

/// The longest list of files that is read.
pub(super) const LONGEST: u64 = 64 << 20;

/// Pages of a list at any depth, of 1000 keys each.
const PAGES: usize = 20_000;
/// The longest that it takes, in times of [`RemoteOptions::listing`](crate::RemoteOptions::listing): it has pages of all folders.
const PATIENCE: u32 = 10;

fn unlisted() -> Error {
    Error::new(
        ErrorKind::Offline,
        "no request is sent (offline), and lists of a bucket's objects are not kept: open a file or an index by its URL, or \
         allow requests",
    )
}

impl Store {
    /// The names of the files in a directory.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for web servers, which do not list their files; the errors of the request.
    pub fn list(&self, directory: &str) -> Result<Vec<String>> {
        let directory = directory.trim_end_matches('/');
        let (settings, commit) = match &self.place {
            StorePlace::Web { .. } => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "a web server does not list its files: open a file or an index by its URL",
                ));
            }
            StorePlace::Bucket(bucket) => {
                if self.client.options.offline {
                    return Err(unlisted());
                }
                let (bucket, prefix) = (Arc::clone(bucket), key(directory).to_owned());
                let names = self.wait(async move { bucket.list(&prefix).await })?;
                self.known().listed(directory, &names);
                return Ok(names);
            }
            StorePlace::Stated(model) => {
                let names = self.list_stated(model, directory)?;
                self.known().listed(directory, &names);
                return Ok(names);
            }
            StorePlace::Hub { settings, commit } => (settings, commit),
        };
        // most repositories of several files have this index: it is read while the list is
        self.begin(&mut std::iter::once(format!(
            "{directory}/model.safetensors.index.json"
        )));
        let path = hub_path(directory)?;
        let url = path.listing_url(&settings.endpoint)?;
        let kept = self.kept_listing(&url, hub::is_commit(&path.revision));
        let is_kept = kept.is_some();
        let text = match kept {
            Some(text) => text,
            None => {
                let resource = self.hub_resource(settings, commit, url.clone());
                let client = Arc::clone(&self.client);
                let most = LONGEST.min(self.memory.room() / 2);
                self.wait(async move { client.document(&resource, most).await })?
            }
        };
        // the names are kept as long as the text, which takes no more than a half
        let room = self.memory.room().saturating_sub(text.len() as u64);
        let (found, names) = hub::parse_listing(&text, &path.file, room)?;
        // the first answer determines the commit of all files
        if *commit.get_or_init(|| found.clone()) != found {
            return Err(Error::changed("the repository has another commit"));
        }
        if !is_kept {
            self.keep_listing(&url, text, found);
        }
        self.known().listed(directory, &names);
        Ok(names)
    }

    /// The names of the files in a directory, if it was the last that was listed: no request is sent.
    #[must_use]
    pub fn known_names(&self, directory: &str) -> Option<Vec<String>> {
        self.known().names(directory.trim_end_matches('/'))
    }

    /// Passes the files at any depth below a directory to `each`, by their paths below it, page by page;
    /// ends where that returns false. `false`: this place lists one directory at a time.
    ///
    /// # Errors
    /// The errors of the requests; [`Offline`](ErrorKind::Offline) if none is to be sent.
    pub fn list_below(&self, directory: &str, each: &mut dyn FnMut(&str) -> bool) -> Result<bool> {
        let StorePlace::Bucket(bucket) = &self.place else {
            return Ok(false);
        };
        if self.client.options.offline {
            return Err(unlisted());
        }
        let mut token = None;
        let mut progress = ListProgress::default();
        let longest = self.options().listing.saturating_mul(PATIENCE);
        let start = Instant::now();
        for _ in 0..PAGES {
            if start.elapsed() > longest {
                let seconds = longest.as_secs_f32();
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    format!(
                        "the bucket's listing takes longer than {seconds} s below this prefix: name a longer one"
                    ),
                ));
            }
            let (bucket, prefix) = (Arc::clone(bucket), key(directory).to_owned());
            let page = self.wait(async move { bucket.page_below(&prefix, token).await })?;
            if !page.keys.iter().all(|key| each(key)) {
                return Ok(true);
            }
            progress.add(page.fingerprint, page.next.as_deref())?;
            token = page.next;
            if token.is_none() {
                return Ok(true);
            }
        }
        Err(Error::refused(format!(
            "the bucket has more than {PAGES} pages of keys below this prefix: name a longer one"
        )))
    }

    /// The text of a list that was kept. With a network, the list of a branch comes from the server, which may have a newer
    /// commit.
    pub(super) fn kept_listing(&self, url: &Url, is_pinned: bool) -> Option<Vec<u8>> {
        let cache = self.headers.as_ref()?;
        if !is_pinned && !self.options().offline {
            return None;
        }
        let key = key_of(url.clone());
        match cache.load(&key, self.memory.room())? {
            CacheEntry::File(CachedFile { mut ranges, .. }) => {
                cache.touch(&key);
                Some(ranges.pop()?.1)
            }
            CacheEntry::Absent => None,
        }
    }

    /// Keeps the text of a list, which names its commit.
    pub(super) fn keep_listing(&self, url: &Url, text: Vec<u8>, commit: String) {
        let Some(cache) = &self.headers else { return };
        let version = FileVersion {
            len: text.len() as u64,
            etag: None,
            modified: None,
        };
        let listing = CachedFile {
            version,
            commit: Some(commit),
            ranges: vec![(0, text)],
        };
        cache.store(&key_of(url.clone()), &CacheEntry::File(listing));
    }
}
