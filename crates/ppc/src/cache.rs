//! Carries out what policies recommend: brings bytes into the page cache and lets them go, as far as the machine allows.
//!
//! | | |
//! |---|---|
//! | [`Prefetcher`] | threads that read lists, lane by lane, interruptible, bounded by bandwidth and memory |
//! | [`Residency`] | what the page cache holds of a file |
//! | [`Topology`] | which cores and accelerators are near which memory |

mod bandwidth;
mod cores;
mod files;
mod lanes;
mod list;
mod prefetcher;
mod progress;
mod residency;
mod sys;
mod topology;
mod worker;

pub use prefetcher::{Options, Prefetcher, Report, Room};
pub use progress::{LaneProgress, Progress};
pub use residency::{Counted, Residency};
pub use topology::{Accelerator, Node, Topology};
