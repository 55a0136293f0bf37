//! Carries out what policies recommend: brings bytes into the page cache and lets them go, as far as the machine allows.
//!
//! | | |
//! |---|---|
//! | [`Prefetcher`] | threads that read lists, lane by lane, interruptible, bounded by bandwidth and memory |
//! | [`Evictor`] | lets go of what is clean, in whole pieces of memory, and looks whether it went |
//! | [`Residency`], [`peek`] | what the page cache holds of a file; looking at one without changing that |
//! | [`Memory`], [`Pressure`] | how much may be in memory and is, by control group or machine; how long tasks wait for it |
//! | [`join`] | being in a service's control groups, so that it is charged for what is brought |
//! | [`Topology`] | which cores and accelerators are near which memory |

mod bandwidth;
mod cores;
mod evictor;
mod files;
mod groups;
mod lanes;
mod list;
mod mappers;
mod memory;
mod options;
mod peek;
mod prefetcher;
mod pressure;
mod progress;
mod residency;
mod sys;
mod topology;
mod worker;

pub use evictor::{Evicted, Evictor};
pub use groups::{Joined, join};
pub use mappers::Mappers;
pub use memory::{Memory, Scope, Source, THRESHOLD, Usage};
pub use options::{Fill, Options, Report, Room};
pub use peek::peek;
pub use prefetcher::Prefetcher;
pub use pressure::{Pressure, PressureTrigger};
pub use progress::{LaneProgress, Progress};
pub use residency::{Counted, Residency};
pub use topology::{Accelerator, Node, Topology};
