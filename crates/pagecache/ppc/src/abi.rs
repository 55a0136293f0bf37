//! The C ABI of policies: the structures of `include/ppc.h`, which documents them. A test compares sizes and offsets.

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
    /// Number of bytes.
    pub size: u64,
    /// Length of the file.
    pub file_size: u64,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// 0 miss, 1 touch, 2 open.
    pub kind: u32,
    /// Always zero.
    pub reserved: u32,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
}

/// `struct ppc_context`.
#[derive(Debug)]
#[repr(C)]
pub struct PpcContext {
    /// The configuration string of the registration.
    pub config: *const c_char,
    /// Size of this structure in bytes.
    pub size: u64,
    /// Absolute path of the namespace.
    pub root: *const c_char,
    /// Bytes that the page cache may use.
    pub memory: u64,
    /// Writes a line to the log.
    pub log: Option<unsafe extern "C" fn(c_int, *const c_char)>,
    /// Reports a failure, which ends the registration.
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
    /// Number of bytes.
    pub size: u64,
    /// The accelerator, if `flags` has [`IO_XPU`].
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
    /// Number of bytes.
    pub size: u64,
}

/// `struct prefetch_ios`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PrefetchIos {
    /// Number of entries of `ios`.
    pub count: u64,
    /// The array.
    pub ios: *mut PrefetchIo,
    /// Index of the first entry of the answer.
    pub first: u64,
    /// Limit on the entries of the answer; 0: all from `first` on.
    pub limit: u64,
    /// If not 0, the array is the same as in earlier answers with this number.
    pub generation: u64,
    /// Number of the prefetch queue.
    pub queue: u32,
    /// Always zero.
    pub reserved: u32,
    /// Result of `ppc_start`: the list of another queue, or null.
    pub next: *mut PrefetchIos,
}

/// `struct evict_ios`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EvictIos {
    /// Number of entries of `ios`.
    pub count: u64,
    /// The array.
    pub ios: *mut EvictIo,
    /// Index of the first entry of the answer.
    pub first: u64,
    /// Limit on the entries of the answer; 0: all from `first` on.
    pub limit: u64,
    /// If not 0, the array is the same as in earlier answers with this number.
    pub generation: u64,
}

/// `struct ppc_operation`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Operation {
    /// Called at registration.
    pub init: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    /// Called when the registration ends.
    pub exit: Option<unsafe extern "C" fn() -> c_int>,
    /// Called at a miss.
    pub prefetch: Option<unsafe extern "C" fn(*mut MissIo) -> *mut PrefetchIos>,
    /// Called under memory pressure.
    pub evict: Option<unsafe extern "C" fn(*mut MissIo) -> *mut EvictIos>,
    /// Called before the service starts.
    pub start: Option<unsafe extern "C" fn() -> *mut PrefetchIos>,
    /// Called at every access.
    pub touch: Option<unsafe extern "C" fn(*mut MissIo) -> *mut PrefetchIos>,
    /// Called after a list was copied.
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Returns which callbacks are to be called.
    pub wants: Option<unsafe extern "C" fn() -> u32>,
}

/// `struct ppc_abi`: sizes of the structures in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Abi {
    /// Size of this structure.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// Size of `struct ppc_operation`.
    pub operation: u32,
    /// Size of `struct ppc_context`.
    pub context: u32,
    /// Size of `struct miss_io`.
    pub miss: u32,
    /// Size of `struct prefetch_ios`.
    pub prefetch_list: u32,
    /// Size of `struct prefetch_io`.
    pub prefetch_entry: u32,
    /// Size of `struct evict_ios`.
    pub evict_list: u32,
    /// Size of `struct evict_io`.
    pub evict_entry: u32,
    /// Always zero.
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
    /// The sizes of the first release with this [`VERSION`]. Structures only grow, so these are the minimum.
    // numbers and not `size_of`: they stay as they are when the structures grow
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

    /// The sizes of this build.
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
