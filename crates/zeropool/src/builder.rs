//! Building a pool. The defaults are measured in `EXPERIMENTS.md`.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::barrier;
use crate::budget;
use crate::callbacks::SlabCallbacks;
use crate::class::Class;
use crate::error::BuildError;
use crate::evict::EvictionPolicy;
use crate::idle::IdleRelease;
use crate::magazine::SLOTS_PER_CLASS;
use crate::pool::BufferPool;
use crate::settings::{ClassSettings, Pinning, Settings};

/// Configures a [`BufferPool`].
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
pub struct PoolBuilder {
    budget: Option<usize>,
    shards: usize,
    thread_cache: usize,
    thread_cache_max: usize,
    min_pooled: usize,
    class_limit: usize,
    class_limits: Vec<(usize, usize)>,
    eviction: EvictionPolicy,
    pinning: Pinning,
    zero_on_return: bool,
    huge_pages: bool,
    node: Option<u32>,
    callbacks: Option<Arc<SlabCallbacks>>,
    watch: Option<(f32, Duration)>,
    release: Option<(Duration, usize)>,
}

impl Default for PoolBuilder {
    fn default() -> Self {
        Self {
            budget: None,
            // experiment 3: two cores gain nothing from more
            shards: 1,
            // experiment 1
            thread_cache: SLOTS_PER_CLASS,
            // experiment 2: a limit makes 64 MiB 2.8 times slower and frees nothing that other threads cannot take
            // anyway
            thread_cache_max: usize::MAX,
            // experiment 4: the heap is 40 times slower, since its buffers are charged and have headers too
            min_pooled: 0,
            // experiment 5: an exact count bypasses the magazines
            class_limit: usize::MAX,
            class_limits: Vec::new(),
            // experiment 6: evictions are rare with the default budget
            eviction: EvictionPolicy::Lifo,
            pinning: Pinning::Off,
            // experiment 11: 27 times slower for 64 KiB of which little is touched
            zero_on_return: false,
            // experiment 7, and `HUGE_FROM` in `settings.rs`
            huge_pages: true,
            node: None,
            callbacks: None,
            watch: None,
            release: None,
        }
    }
}

impl BufferPool {
    /// A builder with this machine's defaults.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }
}

impl PoolBuilder {
    /// The maximum number of bytes that the pool holds, in use and free, counted in capacities of buffers. When the
    /// budget is exhausted, free buffers of other sizes are released, and then requests wait.
    ///
    /// Default: three quarters of the smallest of this machine's memory and the memory limits of this process's control
    /// groups and their ancestors.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget = Some(bytes);
        self
    }

    /// The number of shards of the shared stacks, which hold the free buffers outside thread-local magazines: a power of
    /// two, at most 1024. Every thread prefers one shard and searches the others before it maps memory. Default: 1.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// The number of free buffers of each size class in a thread's magazine, where they are available without a lock:
    /// 0 to 8, and larger numbers mean 8. Other threads can take them when they find no other free buffer. Default: 8.
    pub fn thread_cache(mut self, buffers: usize) -> Self {
        self.thread_cache = buffers.min(SLOTS_PER_CLASS);
        self
    }

    /// Magazines keep no buffers with a capacity above this, in bytes. Default: no limit.
    pub fn thread_cache_max(mut self, len: usize) -> Self {
        self.thread_cache_max = len;
        self
    }

    /// Buffers of size classes below this length's class are not pooled: each is allocated on the heap and freed when it is
    /// dropped. Where buffers are locked, wiped (`zero_on_return`) or bound to a node, they are mapped instead of taken from
    /// the heap. They count against the budget in either case. Default: 0, everything is pooled.
    pub fn min_pooled(mut self, len: usize) -> Self {
        self.min_pooled = len;
        self
    }

    /// The maximum number of free buffers of every size class. One more, and the buffer that has been free longest is
    /// released to the system. Magazines keep no buffers of classes with a limit, so that the count is exact. Default:
    /// no limit.
    pub fn class_limit(mut self, buffers: usize) -> Self {
        self.class_limit = buffers;
        self
    }

    /// Overrides [`class_limit`](Self::class_limit) for the size class of buffers of `len` bytes.
    pub fn class_limit_for(mut self, len: usize, buffers: usize) -> Self {
        self.class_limits.push((len, buffers));
        self
    }

    /// Which free buffers are released first when the budget is exhausted. Default: [`EvictionPolicy::Lifo`].
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

    /// Whether buffers are locked into memory. Each buffer is locked separately, and buffers of less than a page share
    /// locked pages, so that no more is locked than buffers use. Buffers below 2 MiB then share no huge pages. Default:
    /// [`Pinning::Off`].
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// Overwrites a buffer's written bytes with zeros when it is dropped, for secrets, and keeps the pool's memory out
    /// of core dumps. A buffer passed to `mem::forget` is not wiped. Default: false.
    pub fn zero_on_return(mut self, zero: bool) -> Self {
        self.zero_on_return = zero;
        self
    }

    /// Advises the kernel to use huge pages for buffers of 64 KiB and more, as long as it has them quickly: the first page of
    /// a slab of 2 MiB and more is touched when it is mapped, and where that takes more than a millisecond (in a guest whose
    /// hypervisor took its free memory) this slab and some that follow have small pages. Default: true.
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.huge_pages = huge;
        self
    }

    /// Prefers the memory of this NUMA node while it has free pages (`MPOL_PREFERRED`). No effect on a machine with one
    /// node. Default: the node of the thread that first touches a page.
    pub fn numa_node(mut self, node: Option<u32>) -> Self {
        self.node = node;
        self
    }

    /// Calls `register` with the memory of each slab when it is mapped, and `unregister` with the same memory before it is
    /// unmapped: for a device that reads or writes the pool's buffers (`cudaHostRegister`, RDMA). Default: no callbacks.
    ///
    /// Every `register` that returns `Ok` is followed by one `unregister` with the same address and length, also where
    /// the pool's last handle is dropped before its buffers. If `register` fails or panics, the memory is unmapped
    /// without `unregister`. As where the system has no memory, the pool then releases its free buffers and tries again;
    /// if that fails as well, the request ends in [`GetError::Register`](crate::GetError::Register).
    ///
    /// The memory is whole pages, initialised, and locked before if the pool is [`pinned`](Self::pinned). It belongs to
    /// buffers: the callbacks must not access it. As with locked memory, each buffer of a page and more is registered
    /// separately, smaller ones in groups, and pages are released with their whole slab only, so that a device never
    /// has pages that the process has lost. Buffers below [`min_pooled`](Self::min_pooled) are mapped too, and so
    /// registered for each use.
    ///
    /// Callbacks run on the thread that gets, drops or trims buffers or drops the last handle, and on the thread of
    /// [`watch_pressure`](Self::watch_pressure); several may run at the same time. No lock of the pool is held. They may use
    /// other pools, and call [`stats`](BufferPool::stats) of this one. They must not get buffers from this one: `register`
    /// would be called by itself without end, and a request in `unregister` may wait for the memory that is being
    /// released. If `unregister` panics, the memory stays mapped for the rest of the process, as the device may still use
    /// it.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::{Arc, Mutex};
    /// use zeropool::BufferPool;
    ///
    /// # struct Device;
    /// # impl Device {
    /// #     fn register(&self, _: *mut u8, len: usize) -> std::io::Result<usize> { Ok(len) }
    /// #     fn unregister(&self, _: usize) {}
    /// # }
    /// # let device = Arc::new(Device);
    /// // the device's handle of each slab, by its address
    /// let handles = Arc::new(Mutex::new(HashMap::new()));
    /// let (known, released) = (handles.clone(), handles.clone());
    /// # let same = device.clone();
    /// let pool = BufferPool::builder()
    ///     .on_slab(
    ///         move |memory| {
    ///             let handle = device.register(memory.as_ptr().cast(), memory.len())?;
    ///             known.lock().unwrap().insert(memory.addr(), handle);
    ///             Ok(())
    ///         },
    ///         move |memory| {
    ///             let handle = released.lock().unwrap().remove(&memory.addr());
    /// #           let device = &same;
    ///             device.unregister(handle.expect("the slab was registered"));
    ///         },
    ///     )
    ///     .build()?;
    /// let buffer = pool.get(4 << 20);
    /// assert_eq!(handles.lock().unwrap().len(), 1);
    /// drop((buffer, pool));
    /// assert!(handles.lock().unwrap().is_empty());
    /// # Ok::<(), zeropool::BuildError>(())
    /// ```
    pub fn on_slab(
        mut self,
        register: impl Fn(NonNull<[u8]>) -> io::Result<()> + Send + Sync + 'static,
        unregister: impl Fn(NonNull<[u8]>) + Send + Sync + 'static,
    ) -> Self {
        self.callbacks = Some(Arc::new(SlabCallbacks::new(register, unregister)));
        self
    }

    /// Starts a thread that reads the memory pressure every `interval` (at least 10 ms) and trims the pool while the
    /// pressure is at least `threshold` per cent and not falling. The thread ends with the pool's last handle. Default:
    /// no thread; see [`BufferPool::trim_under_pressure`].
    pub fn watch_pressure(mut self, threshold: f32, interval: Duration) -> Self {
        self.watch = Some((threshold, interval));
        self
    }

    /// Releases free buffers to the system, all but `keep` bytes of them, when they have been free for `period` to twice that:
    /// for a program whose memory others should have when it does not use it, and that may load again at once. Requests
    /// that find buffers meanwhile keep others for longer, up to 64 times their bytes. A thread does
    /// so, which is started when more than `keep` bytes become free and ends when no more are. Thread-local magazines are off.
    /// Default: free buffers are kept.
    pub fn release_after(mut self, period: Duration, keep: usize) -> Self {
        self.release = Some((period, keep));
        self
    }

    /// Builds the pool. Maps no memory yet.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for invalid settings and for settings that this machine cannot meet.
    pub fn build(self) -> Result<BufferPool, BuildError> {
        let watch = self.watch;
        BufferPool::with_settings(self.settings()?, watch)
    }

    fn settings(self) -> Result<Settings, BuildError> {
        if !self.shards.is_power_of_two() || self.shards > 1024 {
            return Err(BuildError::Shards(self.shards));
        }
        let known = anamnesis_os::numa::nodes_with_memory();
        if let Some(node) = self.node.filter(|node| !known.contains(node)) {
            return Err(BuildError::NoSuchNode { node, known });
        }
        Ok(Settings {
            budget: self.budget.unwrap_or_else(budget::of_machine),
            shards: self.shards,
            thread_cache: self.thread_cache,
            eviction: self.eviction,
            zero_on_return: self.zero_on_return,
            node: self.node.filter(|_| known.len() > 1),
            callbacks: self.callbacks.clone(),
            pinning: self.pinning,
            huge_pages: self.huge_pages,
            classes: Class::all()
                .map(|class| self.class_settings(class))
                .collect(),
            idle: self
                .release
                .map(|(period, keep)| IdleRelease::new(period, keep)),
            // registering waits for milliseconds in a process with several threads
            may_bias: self.thread_cache > 0 && self.release.is_none() && barrier::register(),
        })
    }

    /// Builds the pool as where `membarrier` is not available.
    #[cfg(test)]
    pub(crate) fn build_without_membarrier(self) -> Result<BufferPool, BuildError> {
        let settings = Settings {
            may_bias: false,
            ..self.settings()?
        };
        BufferPool::with_settings(settings, None)
    }

    fn class_settings(&self, class: Class) -> ClassSettings {
        let own = self
            .class_limits
            .iter()
            .rev()
            .find(|(len, _)| Class::of(*len) == Some(class));
        let limit = own.map_or(self.class_limit, |&(_, limit)| limit);
        let pooled = Class::of(self.min_pooled).is_some_and(|least| class >= least);
        let cached = pooled
            && limit == usize::MAX
            && self.thread_cache > 0
            // puts to magazines are not counted
            && self.release.is_none()
            && class.capacity() <= self.thread_cache_max;
        ClassSettings {
            pooled,
            cached,
            limit,
        }
    }
}
