//! The C ABI of policies, field by field as in `include/ppc.h`, which is its manual. A test compares the two.

use std::ffi::{c_char, c_int, c_void};

/// `PPC_ABI_VERSION`.
pub const VERSION: u32 = 1;
/// `PPC_IO_XPU`.
pub const IO_XPU: u32 = 1;
/// `PPC_WANTS_PREFETCH`.
pub const WANTS_PREFETCH: u32 = 1;
/// `PPC_WANTS_EVICT`.
pub const WANTS_EVICT: u32 = 2;
/// `PPC_WANTS_TOUCH`.
pub const WANTS_TOUCH: u32 = 4;

/// `struct miss_io`.
#[derive(Debug)]
#[repr(C)]
pub struct MissIo {
    /// Relative to the namespace's root.
    pub path: *const c_char,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// Length of the file.
    pub file_size: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// 0 miss, 1 touch, 2 open.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
}

/// `struct ppc_context`.
#[derive(Debug)]
#[repr(C)]
pub struct PpcContext {
    /// What was given with the registration.
    pub config: *const c_char,
    /// Of this structure.
    pub size: u64,
    /// Absolute path of the namespace.
    pub root: *const c_char,
    /// Bytes that the page cache may take.
    pub memory: u64,
    /// Writes a line to the log.
    pub log: Option<unsafe extern "C" fn(c_int, *const c_char)>,
    /// Gives up.
    pub fail: Option<unsafe extern "C" fn(*const c_char)>,
}

/// `struct prefetch_io`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PrefetchIo {
    /// Relative to the namespace's root.
    pub path: *const c_char,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// The accelerator, with [`IO_XPU`].
    pub xpu: u32,
    /// `PPC_IO_…`.
    pub flags: u32,
}

/// `struct evict_io`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EvictIo {
    /// Relative to the namespace's root.
    pub path: *const c_char,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub size: u64,
}

/// `struct prefetch_ios`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PrefetchIos {
    /// Entries of `ios`.
    pub count: u64,
    /// The array.
    pub ios: *mut PrefetchIo,
    /// The answer's first entry.
    pub first: u64,
    /// Entries of the answer; 0 for all from `first` on.
    pub limit: u64,
    /// Not 0: the array is that of the last answer with this number.
    pub generation: u64,
    /// The worker.
    pub lane: u32,
    /// Zero.
    pub reserved: u32,
    /// Another lane's list, at a start.
    pub next: *mut PrefetchIos,
}

/// `struct evict_ios`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EvictIos {
    /// Entries of `ios`.
    pub count: u64,
    /// The array.
    pub ios: *mut EvictIo,
    /// The answer's first entry.
    pub first: u64,
    /// Entries of the answer; 0 for all from `first` on.
    pub limit: u64,
    /// Not 0: the array is that of the last answer with this number.
    pub generation: u64,
}

/// `struct ppc_operation`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Operation {
    /// It was registered.
    pub init: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    /// Its registration ends.
    pub exit: Option<unsafe extern "C" fn() -> c_int>,
    /// A process waits for bytes.
    pub prefetch: Option<unsafe extern "C" fn(*mut MissIo) -> *mut PrefetchIos>,
    /// Memory is short.
    pub evict: Option<unsafe extern "C" fn(*mut MissIo) -> *mut EvictIos>,
    /// The service is about to start.
    pub start: Option<unsafe extern "C" fn() -> *mut PrefetchIos>,
    /// A process asked for bytes.
    pub touch: Option<unsafe extern "C" fn(*mut MissIo) -> *mut PrefetchIos>,
    /// A list was copied.
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Which callbacks are wanted.
    pub wants: Option<unsafe extern "C" fn() -> u32>,
}

/// `struct ppc_abi`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Abi {
    /// Of this structure.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// `struct ppc_operation`.
    pub operation: u32,
    /// `struct ppc_context`.
    pub context: u32,
    /// `struct miss_io`.
    pub miss: u32,
    /// `struct prefetch_ios`.
    pub prefetch_list: u32,
    /// `struct prefetch_io`.
    pub prefetch_entry: u32,
    /// `struct evict_ios`.
    pub evict_list: u32,
    /// `struct evict_io`.
    pub evict_entry: u32,
    /// Zero.
    pub reserved: u32,
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "sizes of small structures, in a constant"
)]
const fn size<T>() -> u32 {
    size_of::<T>() as u32
}

impl Abi {
    /// Of the first build of this [`VERSION`]. Structures grow at their end; none was ever smaller.
    pub const FIRST: Self = Self {
        size: 40,
        version: VERSION,
        operation: 64,
        context: 48,
        miss: 56,
        prefetch_list: 56,
        prefetch_entry: 32,
        evict_list: 40,
        evict_entry: 24,
        reserved: 0,
    };

    /// Of this build.
    pub const CURRENT: Self = Self {
        size: size::<Self>(),
        version: VERSION,
        operation: size::<Operation>(),
        context: size::<PpcContext>(),
        miss: size::<MissIo>(),
        prefetch_list: size::<PrefetchIos>(),
        prefetch_entry: size::<PrefetchIo>(),
        evict_list: size::<EvictIos>(),
        evict_entry: size::<EvictIo>(),
        reserved: 0,
    };
}
