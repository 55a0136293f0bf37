//! Prefetching into and evicting from the page cache.
//!
//! | | |
//! |---|---|
//! | [`Prefetcher`] | threads that read prefetch queues, interruptible, bounded by bandwidth and memory |
//! | [`Warmer`] | reads lists once, within the memory that there is |
//! | [`Evictor`] | evicts clean ranges in whole folios and verifies the result |
//! | [`FileResidency`], [`read_uncached`] | bytes of a file in the page cache; reading a file's head without changing them |
//! | [`page_retention`] | whether a FUSE file system keeps pages until a program opens the file |
//! | [`MemoryMeter`], [`MemoryPressure`] | memory limit and usage of a control group or the machine; memory pressure |
//! | [`join_cgroups`] | joins the control groups of a service, so that prefetched pages are charged to it |
//! | [`Topology`] | memory nodes with their cores, and accelerators |

mod bandwidth;
mod cgroup_join;
mod descriptor_cache;
mod evictor;
mod mappings;
mod options;
mod page_retention;
mod pieces;
mod prefetcher;
mod progress;
mod queues;
mod read_uncached;
mod thread_placement;
mod warmer;

pub use anamnesis_os::memory::{LimitSource, MemoryMeter, MemoryScope, MemoryUsage};
pub use anamnesis_os::pressure::{MemoryPressure, MemoryPressureTrigger};
pub use anamnesis_os::residency::{FileResidency, ResidencyMethod};
pub use anamnesis_os::topology::{Accelerator, NumaNode, Topology};
pub use cgroup_join::{JoinedCgroups, join_cgroups};
pub use evictor::{Evicted, Evictor};
pub use mappings::MappingProcesses;
pub use options::{
    ErrorCallback, MEMORY_THRESHOLD, MemoryHeadroom, PrefetchMethod, PrefetchOptions, ReadCallback,
};
pub(crate) use page_retention::is_fuse;
pub use page_retention::{PageRetention, page_retention};
pub use prefetcher::Prefetcher;
pub use progress::{PrefetchProgress, QueueProgress};
pub use read_uncached::read_uncached;
pub use warmer::{WarmOptions, WarmProgress, WarmState, Warmer};
