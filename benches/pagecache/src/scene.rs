//! What is varied: the machine's state (scenes), who loads (loaders), and who decides (variants).

/// The machine during a load.
pub struct Scene {
    pub name: &'static str,
    /// Of the model's size, how much memory the service's group has.
    pub memory: Option<f64>,
    /// Bytes per second that the device gives the group.
    pub throttle: Option<u64>,
    /// The kernel's read-ahead, in KiB; the machine's own if not given.
    pub read_ahead: Option<u64>,
    pub workers: u32,
    pub loaders: &'static [&'static str],
}

pub const SCENES: &[Scene] = &[
    Scene {
        name: "sufficient",
        memory: None,
        throttle: None,
        read_ahead: None,
        workers: 1,
        loaders: ALL,
    },
    Scene {
        name: "sufficient, 1 GB/s",
        memory: None,
        throttle: GB,
        read_ahead: None,
        workers: 1,
        loaders: ALL,
    },
    Scene {
        name: "limited",
        memory: HALF,
        throttle: None,
        read_ahead: None,
        workers: 1,
        loaders: FILES,
    },
    Scene {
        name: "limited, 1 GB/s",
        memory: HALF,
        throttle: GB,
        read_ahead: None,
        workers: 1,
        loaders: FILES,
    },
    // as Linux has it where nobody changed it
    Scene {
        name: "limited, 128 KiB",
        memory: HALF,
        throttle: None,
        read_ahead: Some(128),
        workers: 1,
        loaders: FILES,
    },
    // what makes native loading slow in the paper: small read-ahead, several workers with slices of each tensor
    Scene {
        name: "paper",
        memory: None,
        throttle: None,
        read_ahead: Some(128),
        workers: 4,
        loaders: FILES,
    },
    Scene {
        name: "paper, limited",
        memory: HALF,
        throttle: None,
        read_ahead: Some(128),
        workers: 4,
        loaders: FILES,
    },
];

const ALL: &[&str] = &["mmap", "pread", "torch", "ours"];
// torch.load and our own hold the model: half of it is not enough for them
const FILES: &[&str] = &["mmap", "pread"];
const HALF: Option<f64> = Some(0.5);
const GB: Option<u64> = Some(1_000_000_000);

/// Who decides.
pub struct Variant {
    pub name: &'static str,
    pub policy: Policy,
    /// In which scenes, by whether memory is limited.
    pub limited_only: bool,
}

pub enum Policy {
    /// The kernel alone.
    Native,
    /// Everything is read before the service starts.
    Cached,
    /// The runtime with this policy; `{template}` stands for the template's file.
    Ppc(&'static str),
    /// The kernel alone, and what is read is recorded.
    Recorded,
}

/// The variant that is no policy: it is told by itself.
pub const RECORDED: &str = "Recorded";

pub const VARIANTS: &[Variant] = &[
    Variant {
        name: "Native",
        policy: Policy::Native,
        limited_only: false,
    },
    // as the paper has it: everything at the first miss, whatever memory there is
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
