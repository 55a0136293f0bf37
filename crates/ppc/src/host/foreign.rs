//! In the host: calls into the policy's library, and reading what it returns.
//!
//! Nothing here can know whether a policy's pointers lead anywhere. If they do not, this process ends, which is what it
//! is there for; the daemon says so and goes on.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::message::{Entry, Init, List, New, Told};
use super::sent::{EVICT, Part, Sent, slot};
use crate::abi::{EvictIo, EvictIos, IO_XPU, MissIo, PpcContext, PrefetchIo, PrefetchIos};
use crate::abi::{WANTS_EVICT, WANTS_PREFETCH, WANTS_TOUCH};
use crate::library::{self, Library};

/// Bytes of a path, the zero included.
const PATH: usize = 4096;

/// Why the policy gave up, by `ppc_context.fail`.
static GAVE_UP: Mutex<Option<String>> = Mutex::new(None);

/// A policy behind the C ABI.
pub(super) struct Foreign {
    library: Library,
    sent: Sent,
    entries: u64,
    /// The context and its strings, at places that do not move. The policy keeps pointers to them.
    _context: Box<PpcContext>,
    _strings: [CString; 2],
}

/// A list of either kind.
struct Returned {
    count: u64,
    ios: *const u8,
    first: u64,
    limit: u64,
    generation: u64,
    lane: u32,
    slot: u8,
}

impl Foreign {
    pub(super) fn init(library: Library, init: &Init) -> Result<Self, String> {
        let string = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| "a configuration with a zero byte".to_owned())
        };
        let strings = [string(&init.config)?, string(&init.root)?];
        let context = Box::new(PpcContext {
            config: strings[0].as_ptr(),
            size: u64::from(crate::abi::Abi::CURRENT.context),
            root: strings[1].as_ptr(),
            memory: init.cache,
            log: Some(log),
            fail: Some(fail),
        });
        if let Some(begin) = library.operation.init {
            // SAFETY: the library's own function, of the type that ppc.h gives it; the context stays where it is.
            let result = unsafe { begin((&raw const *context).cast_mut().cast()) };
            gave_up()?;
            if result != 0 {
                return Err(format!("ppc_init returned {result}"));
            }
        }
        Ok(Self {
            library,
            sent: Sent::default(),
            entries: init.entries,
            _context: context,
            _strings: strings,
        })
    }

    /// `PPC_WANTS_…` of the callbacks that are there.
    pub(super) fn wants(&self) -> Result<u32, String> {
        let operation = &self.library.operation;
        let of = |there: bool, bit: u32| if there { bit } else { 0 };
        let there = of(operation.prefetch.is_some(), WANTS_PREFETCH)
            | of(operation.evict.is_some(), WANTS_EVICT)
            | of(operation.touch.is_some(), WANTS_TOUCH);
        let Some(wants) = operation.wants else {
            return Ok(there);
        };
        // SAFETY: the library's own function, of the type that ppc.h gives it.
        let wants = unsafe { wants() };
        gave_up().map(|()| wants & there)
    }

    pub(super) fn start(&mut self, lanes: usize) -> Result<Vec<List>, String> {
        let Some(start) = self.library.operation.start else {
            return Ok(Vec::new());
        };
        // SAFETY: the library's own function, of the type that ppc.h gives it.
        let head = unsafe { start() };
        gave_up()?;
        let (mut lists, mut at) = (Vec::new(), head.cast_const());
        while !at.is_null() {
            if lists.len() == lanes {
                return Err(format!("ppc_start returned more than {lanes} lists"));
            }
            let next = read::<PrefetchIos>(at, self.library.abi.prefetch_list).next;
            lists.push(self.prefetch_list(at)?);
            at = next;
        }
        self.release(head.cast());
        Ok(lists)
    }

    pub(super) fn prefetch(&mut self, told: &Told) -> Result<Option<List>, String> {
        let Some(prefetch) = self.library.operation.prefetch else {
            return Ok(None);
        };
        let mut miss = Miss::new(told, self.library.abi.miss)?;
        // SAFETY: the library's own function, of the type that ppc.h gives it; the miss lives until it returns.
        let list = unsafe { prefetch(miss.at()) };
        self.answered(list)
    }

    pub(super) fn touch(&mut self, told: &Told) -> Result<Option<List>, String> {
        let Some(touch) = self.library.operation.touch else {
            return Ok(None);
        };
        let mut miss = Miss::new(told, self.library.abi.miss)?;
        // SAFETY: as in `prefetch`.
        let list = unsafe { touch(miss.at()) };
        self.answered(list)
    }

    fn answered(&mut self, list: *mut PrefetchIos) -> Result<Option<List>, String> {
        gave_up()?;
        if list.is_null() {
            return Ok(None);
        }
        let answer = self.prefetch_list(list)?;
        self.release(list.cast());
        Ok(Some(answer))
    }

    pub(super) fn evict(&mut self, told: Option<&Told>) -> Result<Option<List>, String> {
        let Some(evict) = self.library.operation.evict else {
            return Ok(None);
        };
        let mut miss = told
            .map(|told| Miss::new(told, self.library.abi.miss))
            .transpose()?;
        let at = miss.as_mut().map_or(std::ptr::null_mut(), Miss::at);
        // SAFETY: as in `prefetch`; ppc.h says that it may be NULL.
        let list = unsafe { evict(at) };
        gave_up()?;
        if list.is_null() {
            return Ok(None);
        }
        let EvictIos {
            count,
            ios,
            first,
            limit,
            generation,
        } = read(list, self.library.abi.evict_list);
        let returned = Returned {
            count,
            ios: ios.cast(),
            first,
            limit,
            generation,
            lane: 0,
            slot: EVICT,
        };
        let stride = self.library.abi.evict_entry;
        let answer = self.list(&returned, stride, |at| {
            Ok((read::<EvictIo>(at.cast(), stride), u32::MAX))
        })?;
        self.release(list.cast());
        Ok(Some(answer))
    }

    pub(super) fn exit(&mut self) -> Result<(), String> {
        let Some(exit) = self.library.operation.exit else {
            return Ok(());
        };
        // SAFETY: the library's own function, of the type that ppc.h gives it.
        let result = unsafe { exit() };
        if result != 0 {
            eprintln!("<4>ppc_exit returned {result}");
        }
        gave_up()
    }

    fn prefetch_list(&mut self, at: *const PrefetchIos) -> Result<List, String> {
        let PrefetchIos {
            count,
            ios,
            first,
            limit,
            generation,
            lane,
            ..
        } = read(at, self.library.abi.prefetch_list);
        let returned = Returned {
            count,
            ios: ios.cast(),
            first,
            limit,
            generation,
            lane,
            slot: slot(lane),
        };
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
                (true, u32::MAX) => return Err("names accelerator 4294967295".into()),
                (true, xpu) => xpu,
                (false, 0) => u32::MAX,
                (false, xpu) => return Err(format!("names accelerator {xpu} without PPC_IO_XPU")),
            };
            Ok((EvictIo { path, offset, size }, device))
        })
    }

    fn list(
        &mut self,
        list: &Returned,
        stride: u32,
        entry: impl Fn(*const u8) -> Result<(EvictIo, u32), String>,
    ) -> Result<List, String> {
        let &Returned {
            count,
            ios,
            first,
            limit,
            generation,
            lane,
            slot,
        } = list;
        if count > self.entries {
            return Err(format!(
                "a list of {count} entries, allowed are {}",
                self.entries
            ));
        }
        if first > count {
            return Err(format!("an answer from entry {first} of a list of {count}"));
        }
        let number = |at: u64| usize::try_from(at).map_err(|_| "a list that is too long");
        let end = if limit == 0 {
            count
        } else {
            count.min(first.saturating_add(limit))
        };
        let part = Part {
            lane,
            slot,
            generation,
            first: number(first)?,
            end: number(end)?,
        };
        let (count, stride) = (number(count)?, number(stride.into())?);
        if self.sent.has(&part, count) {
            return Ok(Sent::part(&part));
        }
        if ios.is_null() && count > 0 {
            return Err(format!("a list of {count} entries at NULL"));
        }
        let mut new = New::default();
        let mut last: Option<(*const c_char, u32)> = None;
        for index in 0..count {
            let in_entry = |what: String| format!("entry {index}: {what}");
            let (io, device) = entry(ios.wrapping_add(index * stride)).map_err(in_entry)?;
            let path = match last {
                Some((at, number)) if at == io.path => number, // read a moment ago
                _ => self.path(io.path, &mut new.paths).map_err(in_entry)?,
            };
            last = Some((io.path, path));
            new.entries.push(Entry {
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
            return Err("a path that is NULL".into());
        }
        // SAFETY: it looks no further than a path may be long; a pointer that leads nowhere ends this process.
        let len = unsafe { libc::strnlen(at, PATH) };
        if len == PATH {
            return Err(format!("a path of more than {PATH} bytes"));
        }
        // SAFETY: so many bytes were just looked at.
        let path = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) };
        self.sent.path(path, new)
    }

    fn release(&self, list: *mut c_void) {
        if let (Some(release), false) = (self.library.operation.release, list.is_null()) {
            // SAFETY: the library's own function, which gets back what it returned; it is not looked at any more.
            unsafe { release(list) };
        }
    }
}

/// What a policy's pointer leads to. All types that are read are plain numbers and pointers.
fn read<T: Copy>(at: *const T, size: u32) -> T {
    // SAFETY: the library was compiled with this size; one that points nowhere ends this process, and nothing else.
    unsafe { library::read(at, size) }
}

/// A `struct miss_io` as large as the policy believes it to be, with zeroes in fields that this build does not know.
struct Miss {
    _path: CString,
    bytes: Vec<u64>,
}

impl Miss {
    fn new(told: &Told, size: u32) -> Result<Self, String> {
        let path = CString::new(told.path.as_slice()).map_err(|_| "a path with a zero byte")?;
        let miss = MissIo {
            path: path.as_ptr(),
            offset: told.start,
            size: told.len,
            file_size: told.file,
            pid: told.pid,
            tid: told.tid,
            kind: told.kind,
            reserved: 0,
            time_ns: told.time,
        };
        let size = usize::try_from(size).unwrap_or(0).max(size_of::<MissIo>());
        let mut bytes = vec![0u64; size.div_ceil(8)];
        // SAFETY: there is room for it, aligned to eight bytes.
        unsafe { bytes.as_mut_ptr().cast::<MissIo>().write(miss) };
        Ok(Self { _path: path, bytes })
    }

    fn at(&mut self) -> *mut MissIo {
        self.bytes.as_mut_ptr().cast()
    }
}

fn gave_up() -> Result<(), String> {
    GAVE_UP
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .map_or(Ok(()), Err)
}

/// `ppc_context.log`: a line with its level, as the daemon takes it from standard error.
unsafe extern "C" fn log(level: c_int, text: *const c_char) {
    if !text.is_null() {
        // SAFETY: the policy's text, which ends with a zero byte.
        let text = unsafe { CStr::from_ptr(text) };
        let line = format!(
            "<{}>{}\n",
            level.clamp(0, 7),
            text.to_string_lossy().replace('\n', " ")
        );
        let _ = std::io::stderr().write_all(line.as_bytes()); // a log that is gone is no reason to end
    }
}

/// `ppc_context.fail`.
unsafe extern "C" fn fail(reason: *const c_char) {
    let reason = if reason.is_null() {
        "it gave up".to_owned()
    } else {
        // SAFETY: the policy's text, which ends with a zero byte.
        unsafe { CStr::from_ptr(reason) }
            .to_string_lossy()
            .chars()
            .take(1000)
            .collect()
    };
    GAVE_UP
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert(reason);
}
