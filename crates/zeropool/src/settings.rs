//! A pool's settings as the builder validated them.

use std::sync::Arc;

use crate::callbacks::SlabCallbacks;
use crate::class::Class;
use crate::evict::EvictionPolicy;
use crate::idle::IdleRelease;
use crate::region::{RegionError, RegionOptions};
use crate::slab::Slab;
use crate::stats::PoolCounters;

/// Buffers from this capacity are advised to use huge pages (experiment 7 in EXPERIMENTS.md).
const HUGE_FROM: usize = 64 << 10;

/// Whether buffers are locked into memory, so that they are never swapped out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Pinning {
    /// Buffers are not locked.
    #[default]
    Off,
    /// Buffers are locked where the system allows it and are plain memory otherwise.
    /// [`Stats::pinned`](crate::Stats::pinned) has the locked bytes.
    Try,
    /// Buffers are locked, or a request fails with [`GetError::Pin`](crate::GetError::Pin). On systems other than Unix,
    /// where memory cannot be locked, every request fails.
    Require,
}

/// Settings of one size class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClassSettings {
    /// Free objects are kept; otherwise they are released at once.
    pub(crate) pooled: bool,
    /// Thread-local magazines keep free objects.
    pub(crate) cached: bool,
    /// Maximum number of free objects.
    pub(crate) limit: usize,
}

impl ClassSettings {
    /// Pooled without a limit, so that a put needs no count.
    #[inline]
    pub(crate) fn is_unlimited(self) -> bool {
        self.pooled && self.limit == usize::MAX
    }
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) budget: usize,
    pub(crate) shards: usize,
    /// Slots per class in a thread-local magazine.
    pub(crate) thread_cache: usize,
    pub(crate) eviction: EvictionPolicy,
    pub(crate) zero_on_return: bool,
    pub(crate) node: Option<u32>,
    pub(crate) pinning: Pinning,
    pub(crate) huge_pages: bool,
    pub(crate) callbacks: Option<Arc<SlabCallbacks>>,
    /// By class.
    pub(crate) classes: Box<[ClassSettings]>,
    /// Buffers that nothing requests are released.
    pub(crate) idle: Option<IdleRelease>,
    /// Magazines may be biased: `membarrier` can be called.
    pub(crate) may_bias: bool,
}

impl Settings {
    #[inline]
    pub(crate) fn class(&self, class: Class) -> ClassSettings {
        self.classes[class.index()]
    }

    pub(crate) fn region_options(&self, class: Class) -> RegionOptions {
        // heap memory can be neither locked, kept out of core dumps nor bound to a node, and shares pages with other data
        let plain = self.pinning == Pinning::Off
            && !self.zero_on_return
            && self.node.is_none()
            && self.callbacks.is_none();
        RegionOptions {
            heap: !self.class(class).pooled && plain,
            huge: self.huge_pages && class.capacity() >= HUGE_FROM,
            pin: self.pinning != Pinning::Off,
            secret: self.zero_on_return,
            node: self.node,
        }
    }

    /// Maps a new slab for this class.
    pub(crate) fn map_slab(
        &self,
        class: Class,
        counters: &PoolCounters,
    ) -> Result<Arc<Slab>, RegionError> {
        let options = self.region_options(class);
        let map = |options| {
            let callbacks = self.callbacks.as_ref();
            Slab::new(class, options, &counters.slab_bytes, callbacks)
        };
        match map(&options) {
            Err(RegionError::Pin(_)) if self.pinning == Pinning::Try => map(&RegionOptions {
                pin: false,
                ..options
            }),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpooled_buffers_are_heap_memory_unless_a_setting_needs_a_mapping() {
        let settings = |zero_on_return, pinning, node| Settings {
            budget: 1 << 20,
            shards: 1,
            thread_cache: 0,
            eviction: EvictionPolicy::Lifo,
            zero_on_return,
            node,
            pinning,
            huge_pages: true,
            callbacks: None,
            classes: Class::all()
                .map(|_| ClassSettings {
                    pooled: false,
                    cached: false,
                    limit: 0,
                })
                .collect(),
            idle: None,
            may_bias: false,
        };
        let class = Class::of(100).unwrap();
        let options = |zero, pinning, node| settings(zero, pinning, node).region_options(class);
        assert!(options(false, Pinning::Off, None).heap);
        let secret = options(true, Pinning::Off, None);
        assert!(secret.secret && !secret.heap);
        assert!(!options(false, Pinning::Off, Some(1)).heap);
        assert!(!options(false, Pinning::Try, None).heap);
        let registered = Settings {
            callbacks: Some(Arc::new(SlabCallbacks::new(|_| Ok(()), drop))),
            ..settings(false, Pinning::Off, None)
        };
        assert!(!registered.region_options(class).heap);
    }
}
