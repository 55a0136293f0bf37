//! Files whose first blocks come from the header cache, and are kept in it.

use std::sync::Arc;

use super::SharedFile;
use super::kept_header::{HeaderPlace, KeptHeader};
use super::state::FileState;
use crate::answer::{Answer, FileVersion, RequestedRange};
use crate::error::{Error, ErrorKind, Result};
use crate::header_cache::{CacheEntry, CachedFile};

/// How a file is begun.
pub(super) enum Beginning {
    /// By its first requests.
    Requests,
    /// By a first request under the condition that the file is not the one that was kept.
    Comparison,
    /// By what was kept: nothing is requested.
    Kept,
}

impl SharedFile {
    /// Looks for what was kept of the file.
    pub(super) fn look_up(&self, state: &mut FileState, place: HeaderPlace) -> Beginning {
        let memory = Arc::clone(state.blocks.memory());
        let found = place.cache.load(&place.key, memory.room());
        let is_pinned = place.is_pinned;
        let mut kept = KeptHeader::new(place, memory);
        let is_offline = self.client.options.offline;
        let beginning = match found {
            // a URL that names a commit has one content for ever; without a network there is nothing to compare with
            Some(CacheEntry::File(file)) if is_pinned || is_offline => {
                let is_current = file
                    .commit
                    .as_ref()
                    .is_none_or(|commit| self.resource.is_of(commit));
                if is_current {
                    kept.offered = Some(file);
                    Beginning::Kept
                } else {
                    Beginning::Requests
                }
            }
            Some(CacheEntry::File(file)) if file.version.condition().is_some() => {
                kept.offered = Some(file);
                Beginning::Comparison
            }
            // with a network it is requested: a file may have been added since
            Some(CacheEntry::Absent) if is_offline => {
                state.failed = Some(Error::new(
                    ErrorKind::NotFound,
                    "the server had no such file, as the cache of headers says",
                ));
                Beginning::Kept
            }
            _ => Beginning::Requests,
        };
        state.kept = Some(kept);
        if matches!(beginning, Beginning::Kept) && state.failed.is_none() {
            self.fill(state);
        }
        beginning
    }

    /// Puts what was kept into the blocks.
    fn fill(&self, state: &mut FileState) {
        let Some(kept) = &mut state.kept else { return };
        let Some(file) = kept.offered.take() else {
            return;
        };
        kept.is_filled = true;
        kept.commit = file.commit;
        kept.place.cache.touch(&kept.place.key);
        // the request that compared was for blocks that end here
        state.epoch += 1;
        state.blocks.clear();
        for (start, bytes) in file.ranges {
            state.blocks.insert_kept(start, bytes);
        }
        state.version = Some(file.version);
        // parts of it, which are as the registry sent them
        state.awaits_digest = false;
        self.client.counters.header_found();
    }

    /// Requests the first bytes of a file, unless it is the one that was kept (`None`).
    pub(super) async fn compare(
        &self,
        range: RequestedRange,
        epoch: u64,
    ) -> Result<Option<Answer>> {
        let version = {
            let state = self.lock();
            let offered = state.kept.as_ref().and_then(|kept| kept.offered.as_ref());
            offered.map(|file| file.version.clone())
        };
        let etag = version.as_ref().and_then(FileVersion::condition);
        let etag = etag.unwrap_or_default();
        let answer = self.client.changed_range(&self.resource, range, etag);
        // some servers send the file in spite of the condition
        let answer = answer
            .await?
            .filter(|answer| version.as_ref() != Some(&answer.version));
        let mut state = self.lock();
        // the opening may have been given up meanwhile, and its blocks with it
        if state.epoch == epoch {
            match &answer {
                None => self.fill(&mut state),
                Some(_) => {
                    if let Some(kept) = &mut state.kept {
                        kept.offered = None;
                    }
                }
            }
        }
        drop(state);
        self.changed.notify_all();
        Ok(answer)
    }

    /// Keeps what was read until now, if it is of a version that can be recognised.
    pub(super) fn keep(&self, kept: KeptHeader, version: Option<FileVersion>) {
        let Some(version) = version else { return };
        let commit = self.resource.commit().map(str::to_owned);
        // without an ETag or a commit nothing could tell later whether the file is still this one
        if version.condition().is_none() && commit.is_none() {
            return;
        }
        // an entry of an earlier commit would not be found together with the entries of this one
        if kept.is_filled && !kept.is_new && kept.commit == commit {
            return;
        }
        let KeptHeader {
            place,
            mut read,
            is_filled,
            ..
        } = kept;
        if is_filled
            && let Some(CacheEntry::File(before)) = place.cache.load(&place.key, read.room())
            && before.version == version
        {
            // also what this opening had no need of
            for (start, bytes) in &before.ranges {
                read.add(*start, bytes);
            }
        }
        if let Some(ranges) = read.into_ranges() {
            let file = CachedFile {
                version,
                commit,
                ranges,
            };
            place.cache.store(&place.key, &CacheEntry::File(file));
        }
    }

    /// Keeps that there is no such file.
    pub(super) fn keep_absence(&self, kept: &KeptHeader) {
        // absence is what a server said, and offline none was asked
        if !self.client.options.offline {
            let place = &kept.place;
            place.cache.store(&place.key, &CacheEntry::Absent);
        }
    }
}
