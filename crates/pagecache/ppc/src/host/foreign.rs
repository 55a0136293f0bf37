//! Host side of the C ABI: calls the policy's callbacks and reads the lists that they return.
//!
//! Whether a pointer of the policy is valid cannot be checked. An invalid one ends this process, which exists for
//! this reason; the daemon reports the end and continues.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::message::{Init, NewList, WireAccess, WireList, WireRange};
use super::sent_lists::{EVICT, ListPart, SentLists, slot};
use crate::abi::{EvictIo, EvictIos, IO_XPU, MissIo, PpcContext, PrefetchIo, PrefetchIos};
use crate::abi::{WANTS_EVICT, WANTS_PREFETCH, WANTS_TOUCH};
use crate::library::{self, LoadedLibrary};

/// Limit on the bytes of a path with its terminating zero.
const MAX_PATH: usize = 4096;

/// The reason that the policy passed to `ppc_context.fail`. A static, because the C function has no argument that
/// identifies the policy; a host process has one policy.
static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// A policy behind the C ABI.
pub(super) struct ForeignPolicy {
    library: LoadedLibrary,
    sent: SentLists,
    max_entries: u64,
    /// The context and its strings. They are on the heap, because the policy keeps pointers to them.
    _context: Box<PpcContext>,
    _strings: [CString; 2],
}

/// The common fields of `struct prefetch_ios` and `struct evict_ios`.
struct ReturnedList {
    count: u64,
    ios: *const u8,
    first: u64,
    limit: u64,
    generation: u64,
    queue: u32,
    slot: u8,
}

/// A [`ReturnedList`] of either structure. A macro, because the two are different types.
macro_rules! returned_list {
    ($list:ident, queue: $queue:expr, slot: $slot:expr) => {
        ReturnedList {
            count: $list.count,
            ios: $list.ios.cast(),
            first: $list.first,
            limit: $list.limit,
            generation: $list.generation,
            queue: $queue,
            slot: $slot,
        }
    };
}

impl ForeignPolicy {
    pub(super) fn init(library: LoadedLibrary, init: &Init) -> Result<Self, String> {
        let string = |bytes: &[u8]| {
            CString::new(bytes)
                .map_err(|_| "the configuration or the root contains a zero byte".to_owned())
        };
        let strings = [string(&init.config)?, string(&init.root)?];
        let context = Box::new(PpcContext {
            config: strings[0].as_ptr(),
            size: u64::from(crate::abi::Abi::CURRENT.context),
            root: strings[1].as_ptr(),
            memory: init.cache_memory,
            log: Some(log),
            fail: Some(fail),
        });
        if let Some(init) = library.operation.init {
            // SAFETY: a function of the library with the type that ppc.h declares; the context is on the heap and
            // outlives it.
            let result = unsafe { init((&raw const *context).cast_mut().cast()) };
            // before the result: the reason says more than a number
            take_failure()?;
            if result != 0 {
                return Err(format!("ppc_init returned {result}"));
            }
        }
        Ok(Self {
            library,
            sent: SentLists::default(),
            max_entries: init.max_entries,
            _context: context,
            _strings: strings,
        })
    }

    /// The `PPC_WANTS_…` of the callbacks that are defined and wanted.
    pub(super) fn interests(&self) -> Result<u32, String> {
        let operation = &self.library.operation;
        let bit_if = |defined: bool, bit: u32| if defined { bit } else { 0 };
        let defined = bit_if(operation.prefetch.is_some(), WANTS_PREFETCH)
            | bit_if(operation.evict.is_some(), WANTS_EVICT)
            | bit_if(operation.touch.is_some(), WANTS_TOUCH);
        let Some(wants) = operation.wants else {
            return Ok(defined);
        };
        // SAFETY: a function of the library with the type that ppc.h declares.
        let wants = unsafe { wants() };
        // bits of callbacks that are not defined would make the daemon request answers that never come
        take_failure().map(|()| wants & defined)
    }

    pub(super) fn start(&mut self, max_lists: usize) -> Result<Vec<WireList>, String> {
        let Some(start) = self.library.operation.start else {
            return Ok(Vec::new());
        };
        // SAFETY: a function of the library with the type that ppc.h declares.
        let head = unsafe { start() };
        take_failure()?;
        let (mut lists, mut at) = (Vec::new(), head.cast_const());
        while !at.is_null() {
            // the policy may have linked its list to itself
            if lists.len() == max_lists {
                return Err(format!("ppc_start returned more than {max_lists} lists"));
            }
            // before the list is released
            let next = read::<PrefetchIos>(at, self.library.abi.prefetch_list).next;
            lists.push(self.prefetch_list(at)?);
            at = next;
        }
        self.release(head.cast());
        Ok(lists)
    }

    pub(super) fn prefetch(&mut self, access: &WireAccess) -> Result<Option<WireList>, String> {
        let Some(prefetch) = self.library.operation.prefetch else {
            return Ok(None);
        };
        let mut miss = MissBuffer::new(access, self.library.abi.miss)?;
        // SAFETY: a function of the library with the type that ppc.h declares; the miss lives until it returns.
        let list = unsafe { prefetch(miss.as_mut_ptr()) };
        self.finish_prefetch(list)
    }

    pub(super) fn touch(&mut self, access: &WireAccess) -> Result<Option<WireList>, String> {
        let Some(touch) = self.library.operation.touch else {
            return Ok(None);
        };
        let mut miss = MissBuffer::new(access, self.library.abi.miss)?;
        // SAFETY: as in `prefetch`.
        let list = unsafe { touch(miss.as_mut_ptr()) };
        self.finish_prefetch(list)
    }

    fn finish_prefetch(&mut self, list: *mut PrefetchIos) -> Result<Option<WireList>, String> {
        take_failure()?;
        if list.is_null() {
            return Ok(None);
        }
        let answer = self.prefetch_list(list)?;
        self.release(list.cast());
        Ok(Some(answer))
    }

    pub(super) fn evict(
        &mut self,
        access: Option<&WireAccess>,
    ) -> Result<Option<WireList>, String> {
        let Some(evict) = self.library.operation.evict else {
            return Ok(None);
        };
        let mut miss = access
            .map(|access| MissBuffer::new(access, self.library.abi.miss))
            .transpose()?;
        let at = miss
            .as_mut()
            .map_or(std::ptr::null_mut(), MissBuffer::as_mut_ptr);
        // SAFETY: as in `prefetch`; ppc.h allows NULL.
        let list = unsafe { evict(at) };
        take_failure()?;
        if list.is_null() {
            return Ok(None);
        }
        let ios: EvictIos = read(list, self.library.abi.evict_list);
        let returned = returned_list!(ios, queue: 0, slot: EVICT);
        let stride = self.library.abi.evict_entry;
        let answer = self.list(&returned, stride, |at| {
            // an eviction is for no accelerator
            Ok((read::<EvictIo>(at.cast(), stride), u32::MAX))
        })?;
        self.release(list.cast());
        Ok(Some(answer))
    }

    pub(super) fn exit(&mut self) -> Result<(), String> {
        let Some(exit) = self.library.operation.exit else {
            return Ok(());
        };
        // SAFETY: a function of the library with the type that ppc.h declares.
        let result = unsafe { exit() };
        // the policy ends in any case, so that its result is only logged; 4 is syslog's level of warnings
        if result != 0 {
            eprintln!("<4>ppc_exit returned {result}");
        }
        take_failure()
    }

    fn prefetch_list(&mut self, at: *const PrefetchIos) -> Result<WireList, String> {
        let ios: PrefetchIos = read(at, self.library.abi.prefetch_list);
        let returned = returned_list!(ios, queue: ios.queue, slot: slot(ios.queue));
        let stride = self.library.abi.prefetch_entry;
        self.list(&returned, stride, |at| {
            let PrefetchIo {
                path,
                offset,
                size,
                xpu,
                flags,
            } = read(at.cast(), stride);
            let device = match (flags & IO_XPU != 0, xpu) {
                // the number that stands for none
                (true, u32::MAX) => return Err("names accelerator 4294967295".into()),
                (true, xpu) => xpu,
                (false, 0) => u32::MAX,
                // the flag was probably forgotten, and the policy would not notice that its number has no effect
                (false, xpu) => return Err(format!("names accelerator {xpu} without PPC_IO_XPU")),
            };
            Ok((EvictIo { path, offset, size }, device))
        })
    }

    fn list(
        &mut self,
        list: &ReturnedList,
        stride: u32,
        entry: impl Fn(*const u8) -> Result<(EvictIo, u32), String>,
    ) -> Result<WireList, String> {
        let &ReturnedList {
            count,
            ios,
            first,
            limit,
            generation,
            queue,
            slot,
        } = list;
        if count > self.max_entries {
            return Err(format!(
                "the policy returned a list of {count} entries, allowed are {}",
                self.max_entries
            ));
        }
        if first > count {
            return Err(format!(
                "the policy returned a list of {count} entries with first = {first}"
            ));
        }
        let number = |at: u64| usize::try_from(at).map_err(|_| "the list is too long");
        // zero in the fields of older headers: the whole list
        let end = if limit == 0 {
            count
        } else {
            count.min(first.saturating_add(limit))
        };
        let part = ListPart {
            queue,
            slot,
            generation,
            first: number(first)?,
            end: number(end)?,
        };
        let (count, stride) = (number(count)?, number(stride.into())?);
        // before the array is read, whose length would otherwise be the cost of every answer
        if self.sent.has(&part, count) {
            return Ok(SentLists::part(&part));
        }
        if ios.is_null() && count > 0 {
            return Err(format!(
                "the policy returned a list of {count} entries with ios = NULL"
            ));
        }
        let mut new = NewList::default();
        let mut last: Option<(*const c_char, u32)> = None;
        for index in 0..count {
            let in_entry = |what: String| format!("entry {index}: {what}");
            // the array's length is the policy's claim, so that the pointer may lead outside of an allocation
            let (io, device) = entry(ios.wrapping_add(index * stride)).map_err(in_entry)?;
            let path = match last {
                Some((at, number)) if at == io.path => number, // the same pointer as in the previous entry
                _ => self.path(io.path, &mut new.paths).map_err(in_entry)?,
            };
            last = Some((io.path, path));
            new.entries.push(WireRange {
                path,
                device,
                start: io.offset,
                len: io.size,
            });
        }
        Ok(self.sent.read(&part, new))
    }

    fn path(&mut self, at: *const c_char, new: &mut Vec<Vec<u8>>) -> Result<u32, String> {
        if at.is_null() {
            return Err("the path is NULL".into());
        }
        // SAFETY: at most `MAX_PATH` bytes are read; an invalid pointer ends this process.
        let len = unsafe { libc::strnlen(at, MAX_PATH) };
        if len == MAX_PATH {
            return Err(format!("the path has more than {} bytes", MAX_PATH - 1));
        }
        // SAFETY: `strnlen` has just read `len` bytes.
        let path = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) };
        self.sent.path(path, new)
    }

    fn release(&self, list: *mut c_void) {
        if let (Some(release), false) = (self.library.operation.release, list.is_null()) {
            // SAFETY: a function of the library with the type that ppc.h declares; it receives the list that it
            // returned, which is not read afterwards.
            unsafe { release(list) };
        }
    }
}

/// Reads a structure of the policy, which has `size` bytes there. All types that are read consist of numbers and
/// pointers.
fn read<T: Copy>(at: *const T, size: u32) -> T {
    // SAFETY: `ppc_abi` of the library states this size; an invalid pointer ends this process.
    unsafe { library::read(at, size) }
}

/// A `struct miss_io` of the size with which the policy was compiled. Fields that this build lacks are zero.
struct MissBuffer {
    _path: CString,
    bytes: Vec<u64>,
}

impl MissBuffer {
    fn new(access: &WireAccess, size: u32) -> Result<Self, String> {
        let path =
            CString::new(access.path.as_slice()).map_err(|_| "the path contains a zero byte")?;
        let miss = MissIo {
            path: path.as_ptr(),
            offset: access.start,
            size: access.len,
            file_size: access.file_len,
            pid: access.pid,
            tid: access.tid,
            kind: access.kind,
            reserved: 0,
            time_ns: access.time,
        };
        // at least as large as this build's structure, which is written whole; a policy of an older header reads its
        // beginning
        let size = usize::try_from(size).unwrap_or(0).max(size_of::<MissIo>());
        let mut bytes = vec![0u64; size.div_ceil(8)];
        // SAFETY: the buffer has at least the size of a `MissIo`, and its elements are aligned to eight bytes.
        unsafe { bytes.as_mut_ptr().cast::<MissIo>().write(miss) };
        Ok(Self { _path: path, bytes })
    }

    fn as_mut_ptr(&mut self) -> *mut MissIo {
        self.bytes.as_mut_ptr().cast()
    }
}

fn take_failure() -> Result<(), String> {
    FAILURE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .map_or(Ok(()), Err)
}

/// `ppc_context.log`: writes a line with its level to standard error, from which the daemon reads it.
unsafe extern "C" fn log(level: c_int, text: *const c_char) {
    if !text.is_null() {
        // SAFETY: ppc.h requires a string that ends with a zero byte.
        let text = unsafe { CStr::from_ptr(text) };
        let line = format!(
            "<{}>{}\n",
            // syslog has the levels 0 to 7; a line break would begin another record
            level.clamp(0, 7),
            text.to_string_lossy().replace('\n', " ")
        );
        let _ = std::io::stderr().write_all(line.as_bytes()); // a log that cannot be written does not end the policy
    }
}

/// `ppc_context.fail`: records the reason; the first one counts.
unsafe extern "C" fn fail(reason: *const c_char) {
    let reason = if reason.is_null() {
        "the policy failed without a reason".to_owned()
    } else {
        // SAFETY: ppc.h requires a string that ends with a zero byte.
        unsafe { CStr::from_ptr(reason) }
            .to_string_lossy()
            .chars()
            // a reason of any length would become a message of any length
            .take(1000)
            .collect()
    };
    FAILURE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert(reason);
}
