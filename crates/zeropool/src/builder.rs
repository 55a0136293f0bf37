//! A pool's settings. Their defaults are measured in `EXPERIMENTS.md`.

use std::sync::Arc;
use std::time::Duration;

use crate::budget;
use crate::cells::CELLS;
use crate::class::Class;
use crate::error::BuildError;
use crate::evict::EvictionPolicy;
use crate::numa;
use crate::pool::BufferPool;
use crate::region::{Refusal, Wish};
use crate::slab::Slab;
use crate::stats::Counters;

/// Buffers of at least this many bytes are advised to lie in huge pages.
const HUGE_FROM: usize = 64 << 10;

/// Whether buffers are locked into memory, so that they are never swapped out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Pinning {
    /// They are not.
    #[default]
    Off,
    /// They are where the system allows it, and plain memory otherwise. [`Stats::pinned`](crate::Stats::pinned) says
    /// how much is locked.
    Try,
    /// They are, or there is [`GetError::Pin`](crate::GetError::Pin): always so where there is no way to lock memory,
    /// on systems other than Unix.
    Require,
}

/// What to do with blocks of one class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) pooled: bool,
    /// Threads keep some.
    pub(crate) cached: bool,
    /// Free blocks that are kept at most.
    pub(crate) limit: usize,
}

impl Rule {
    /// Pooled, without a limit.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        self.pooled && self.limit == usize::MAX
    }
}

/// What the builder decided.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) budget: usize,
    pub(crate) shards: usize,
    pub(crate) cells: usize,
    pub(crate) eviction: EvictionPolicy,
    pub(crate) zero_on_return: bool,
    pub(crate) node: Option<u32>,
    pinning: Pinning,
    huge_pages: bool,
    rules: Box<[Rule]>,
}

impl Settings {
    #[inline]
    pub(crate) fn rule(&self, class: Class) -> Rule {
        self.rules[class.index()]
    }

    pub(crate) fn wish(&self, class: Class) -> Wish {
        // the heap can be told none of this
        let plain = self.pinning == Pinning::Off && !self.zero_on_return && self.node.is_none();
        Wish {
            heap: !self.rule(class).pooled && plain,
            huge: self.huge_pages && class.capacity() >= HUGE_FROM,
            pin: self.pinning != Pinning::Off,
            secret: self.zero_on_return,
            node: self.node,
        }
    }

    /// A new slab for this class.
    pub(crate) fn map(&self, class: Class, counters: &Counters) -> Result<Arc<Slab>, Refusal> {
        let wish = self.wish(class);
        match Slab::new(class, &wish, &counters.totals) {
            Err(Refusal::Pin(_)) if self.pinning == Pinning::Try => {
                Slab::new(class, &Wish { pin: false, ..wish }, &counters.totals)
            }
            made => made,
        }
    }
}

/// Settings of a [`BufferPool`] to be.
///
/// ```
/// use zeropool::{BufferPool, EvictionPolicy};
///
/// let pool = BufferPool::builder()
///     .budget(64 << 20)
///     .eviction(EvictionPolicy::ClockPro)
///     .zero_on_return(true)
///     .build()?;
/// assert_eq!(pool.stats().budget, 64 << 20);
/// # Ok::<(), zeropool::BuildError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    budget: Option<usize>,
    shards: usize,
    cells: usize,
    cache_max: usize,
    min_pooled: usize,
    class_limit: usize,
    limits: Vec<(usize, usize)>,
    eviction: EvictionPolicy,
    pinning: Pinning,
    zero_on_return: bool,
    huge_pages: bool,
    node: Option<u32>,
    watch: Option<(f32, Duration)>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            budget: None,
            shards: 1,
            cells: CELLS,
            cache_max: usize::MAX,
            min_pooled: 0,
            class_limit: usize::MAX,
            limits: Vec::new(),
            eviction: EvictionPolicy::Lifo,
            pinning: Pinning::Off,
            zero_on_return: false,
            huge_pages: true,
            node: None,
            watch: None,
        }
    }
}

impl Builder {
    /// The most bytes that the pool may hold, in use and free, counted in buffers' capacities. When it is spent, free
    /// buffers of other sizes are given up, and then requests wait.
    ///
    /// Default: three quarters of the memory of this machine, or of the least limit of this process's control groups
    /// and their ancestors, whichever is less.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget = Some(bytes);
        self
    }

    /// In how many shards free buffers lie that no thread keeps: a power of two, at most 1024. Every thread uses one,
    /// and looks into the others before it asks the system. Default: 1.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// How many free buffers of each size class a thread keeps for itself, to be had without a lock: 0 to 8, more is
    /// taken as 8. They are not lost to others: a thread that finds none of its own takes them. Default: 8.
    pub fn thread_cache(mut self, buffers: usize) -> Self {
        self.cells = buffers.min(CELLS);
        self
    }

    /// Threads keep no buffers that are larger than this, in bytes. Default: no limit.
    pub fn thread_cache_max(mut self, len: usize) -> Self {
        self.cache_max = len;
        self
    }

    /// Buffers of size classes below that of this length are taken from the heap and freed at once; from a slab, and
    /// given back to it at once, where they are locked, secret (`zero_on_return`) or bound to a node. They count
    /// against the budget like all others. Default: 0, everything is pooled.
    pub fn min_pooled(mut self, len: usize) -> Self {
        self.min_pooled = len;
        self
    }

    /// How many free buffers are kept of every size class. One over, and the one that lay longest is given back to
    /// the system. Classes with a limit are not kept by threads, so that the count is exact. Default: no limit.
    pub fn class_limit(mut self, buffers: usize) -> Self {
        self.class_limit = buffers;
        self
    }

    /// The same for the size class of one length, instead of the limit of all.
    pub fn class_limit_for(mut self, len: usize, buffers: usize) -> Self {
        self.limits.push((len, buffers));
        self
    }

    /// Which free buffers go first when the budget is spent. Default: [`EvictionPolicy::Lifo`].
    pub fn eviction(mut self, policy: EvictionPolicy) -> Self {
        self.eviction = policy;
        self
    }

    /// [`Pinning::Require`] or [`Pinning::Off`].
    pub fn pinned(self, pinned: bool) -> Self {
        self.pinning(if pinned {
            Pinning::Require
        } else {
            Pinning::Off
        })
    }

    /// Whether buffers are locked into memory: each by itself, those of less than a page by the page. So below 2 MiB
    /// they do not share huge pages. Default: [`Pinning::Off`].
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// Overwrites with zeros what was in a buffer when it is dropped, for secrets, wherever it goes then. Their memory
    /// is also kept out of core dumps. What a user forgets (`mem::forget`) is not wiped. Default: false.
    pub fn zero_on_return(mut self, zero: bool) -> Self {
        self.zero_on_return = zero;
        self
    }

    /// Advises the kernel to use huge pages for buffers of 64 KiB and more. Default: true.
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.huge_pages = huge;
        self
    }

    /// Takes memory from this node while it has some (`MPOL_PREFERRED`). On a machine with one node, where all memory
    /// is that node's, this does nothing. Default: wherever the thread runs that touches a page first.
    pub fn numa_node(mut self, node: Option<u32>) -> Self {
        self.node = node;
        self
    }

    /// Starts a thread that trims the pool when memory pressure is at least `threshold` per cent and not falling,
    /// looking every `interval`, of at least 10 ms. It ends with the pool's last handle. Default: no thread; see
    /// [`BufferPool::trim_under_pressure`].
    pub fn watch_pressure(mut self, threshold: f32, interval: Duration) -> Self {
        self.watch = Some((threshold, interval));
        self
    }

    /// The pool. No memory is mapped yet.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for settings that this machine cannot meet or that make no sense.
    pub fn build(self) -> Result<BufferPool, BuildError> {
        if !self.shards.is_power_of_two() || self.shards > 1024 {
            return Err(BuildError::Shards(self.shards));
        }
        let known = numa::nodes();
        if let Some(node) = self.node.filter(|node| !known.contains(node)) {
            return Err(BuildError::NoSuchNode { node, known });
        }
        let settings = Settings {
            budget: self.budget.unwrap_or_else(budget::of_machine),
            shards: self.shards,
            cells: self.cells,
            eviction: self.eviction,
            zero_on_return: self.zero_on_return,
            node: self.node.filter(|_| known.len() > 1),
            pinning: self.pinning,
            huge_pages: self.huge_pages,
            rules: Class::all().map(|class| self.rule(class)).collect(),
        };
        BufferPool::with(settings, self.watch)
    }

    fn rule(&self, class: Class) -> Rule {
        let own = self
            .limits
            .iter()
            .rev()
            .find(|(len, _)| Class::of(*len) == Some(class));
        let limit = own.map_or(self.class_limit, |&(_, limit)| limit);
        let pooled = Class::of(self.min_pooled).is_some_and(|least| class >= least);
        let cached =
            pooled && limit == usize::MAX && self.cells > 0 && class.capacity() <= self.cache_max;
        Rule {
            pooled,
            cached,
            limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_are_from_the_heap_where_nothing_is_asked_of_their_memory() {
        let settings = |zero_on_return, pinning, node| Settings {
            budget: 1 << 20,
            shards: 1,
            cells: 0,
            eviction: EvictionPolicy::Lifo,
            zero_on_return,
            node,
            pinning,
            huge_pages: true,
            rules: Class::all()
                .map(|_| Rule {
                    pooled: false,
                    cached: false,
                    limit: 0,
                })
                .collect(),
        };
        let class = Class::of(100).unwrap();
        assert!(settings(false, Pinning::Off, None).wish(class).heap);
        let secret = settings(true, Pinning::Off, None).wish(class);
        assert!(secret.secret && !secret.heap);
        assert!(!settings(false, Pinning::Off, Some(1)).wish(class).heap);
        assert!(!settings(false, Pinning::Try, None).wish(class).heap);
    }
}
