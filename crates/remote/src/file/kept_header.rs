//! The header of a file in the cache of headers, and the bytes that are read until it is parsed.

use std::sync::Arc;

use super::read_ranges::ReadRanges;
use crate::blocks::BlockMemory;
use crate::header_cache::{CachedFile, HeaderCache};

/// Where the header of a file is kept.
#[derive(Clone)]
pub(crate) struct HeaderPlace {
    pub(crate) cache: Arc<HeaderCache>,
    /// See [`key_of`](crate::header_cache::key_of).
    pub(crate) key: String,
    /// Whether the URL names one content for ever.
    pub(crate) is_pinned: bool,
}

/// The kept bytes of a file, and the bytes to keep.
pub(super) struct KeptHeader {
    pub(super) place: HeaderPlace,
    /// The entry of the cache, while the server has not said whether that is the file.
    pub(super) offered: Option<CachedFile>,
    /// The commit under which it was kept.
    pub(super) commit: Option<String>,
    /// Whether the blocks have what was kept.
    pub(super) is_filled: bool,
    /// The bytes that were read.
    pub(super) read: ReadRanges,
    /// Whether bytes were requested, which the cache has not.
    pub(super) is_new: bool,
}

impl KeptHeader {
    pub(super) fn new(place: HeaderPlace, memory: Arc<BlockMemory>) -> Self {
        Self {
            place,
            offered: None,
            commit: None,
            is_filled: false,
            read: ReadRanges::new(memory),
            is_new: false,
        }
    }
}
