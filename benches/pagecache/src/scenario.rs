//! The scenarios (state of the machine), loaders and variants (page-cache policies) of the evaluation.

/// The state of the machine during a load.
pub struct Scenario {
    pub name: &'static str,
    /// Memory limit of the service's control group as a share of the model's size; unlimited if `None`.
    pub memory: Option<f64>,
    /// Read rate of the device in bytes per second; unlimited if `None`.
    pub throttle: Option<u64>,
    /// The kernel's read-ahead in KiB; the machine's setting if `None`.
    pub read_ahead: Option<u64>,
    pub workers: u32,
    pub loaders: &'static [&'static str],
}

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "sufficient",
        memory: None,
        throttle: None,
        read_ahead: None,
        workers: 1,
        loaders: ALL,
    },
    Scenario {
        name: "sufficient, 1 GB/s",
        memory: None,
        throttle: GB,
        read_ahead: None,
        workers: 1,
        loaders: ALL,
    },
    Scenario {
        name: "limited",
        memory: HALF,
        throttle: None,
        read_ahead: None,
        workers: 1,
        loaders: FILES,
    },
    Scenario {
        name: "limited, 1 GB/s",
        memory: HALF,
        throttle: GB,
        read_ahead: None,
        workers: 1,
        loaders: FILES,
    },
    // the default read-ahead of Linux
    Scenario {
        name: "limited, 128 KiB",
        memory: HALF,
        throttle: None,
        read_ahead: Some(128),
        workers: 1,
        loaders: FILES,
    },
    // as in the paper, where native loading is slow: small read-ahead, and several workers that read slices of each tensor
    Scenario {
        name: "paper",
        memory: None,
        throttle: None,
        read_ahead: Some(128),
        workers: 4,
        loaders: FILES,
    },
    Scenario {
        name: "paper, limited",
        memory: HALF,
        throttle: None,
        read_ahead: Some(128),
        workers: 4,
        loaders: FILES,
    },
];

const ALL: &[&str] = &["mmap", "pread", "torch", "anamnesis"];
// torch.load and the loader of anamnesis hold the whole model in memory, so they do not run with memory for half of it
const FILES: &[&str] = &["mmap", "pread"];
const HALF: Option<f64> = Some(0.5);
const GB: Option<u64> = Some(1_000_000_000);

/// A page-cache policy to measure.
pub struct Variant {
    pub name: &'static str,
    pub policy: Policy,
    /// Whether it runs only in scenarios with limited memory.
    pub limited_only: bool,
}

pub enum Policy {
    /// The kernel alone.
    Native,
    /// The whole model is read into the page cache before the service starts.
    Cached,
    /// `anamnesis warm` of the template, alongside the service.
    Warm,
    /// The runtime with this policy, where `{template}` is replaced by the template's path.
    Ppc(&'static str),
    /// The kernel alone, while `anamnesis record` records the reads.
    Recorded,
}

/// The variant that records. It is not a policy, and has a table of its own.
pub const RECORDED: &str = "Recorded";

pub const VARIANTS: &[Variant] = &[
    Variant {
        name: "Native",
        policy: Policy::Native,
        limited_only: false,
    },
    // as in the paper: prefetches everything at the first miss, regardless of memory
    Variant {
        name: "EagerLoad",
        policy: Policy::Ppc("eager --threshold off"),
        limited_only: false,
    },
    Variant {
        name: "PreCache",
        policy: Policy::Cached,
        limited_only: false,
    },
    Variant {
        name: "Warm",
        policy: Policy::Warm,
        limited_only: false,
    },
    Variant {
        name: "MAIO",
        policy: Policy::Ppc("maio:{template},start=no"),
        limited_only: false,
    },
    Variant {
        name: "MAIO from time zero",
        policy: Policy::Ppc("maio:{template}"),
        limited_only: false,
    },
    Variant {
        name: "MAIO without eviction",
        policy: Policy::Ppc("maio:{template},start=no,evict=no"),
        limited_only: true,
    },
    Variant {
        name: "MAIO without prefetch",
        policy: Policy::Ppc("maio:{template},start=no,prefetch=no"),
        limited_only: true,
    },
    Variant {
        name: "MAIO, misses only",
        policy: Policy::Ppc("maio:{template},start=no,touch=no"),
        limited_only: true,
    },
    Variant {
        name: RECORDED,
        policy: Policy::Recorded,
        limited_only: false,
    },
];
