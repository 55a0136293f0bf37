//! [`Ios`] as lists of the C ABI: each is converted once, and its parts are numbers.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::abi::{EvictIo, EvictIos, IO_XPU, PrefetchIo, PrefetchIos};
use crate::{Io, Ios, Prefetch};

/// What was returned, at places that do not move until it is replaced.
#[derive(Default)]
pub(super) struct Lists {
    paths: HashMap<Arc<Path>, CString>,
    lanes: HashMap<u32, Converted<PrefetchIo, PrefetchIos>>,
    evict: Option<Converted<EvictIo, EvictIos>>,
    generation: u64,
}

struct Converted<Entry, Head> {
    /// Held, so that no other list can have its address.
    all: Arc<[Io]>,
    generation: u64,
    entries: Vec<Entry>,
    head: Option<Box<Head>>,
}

// SAFETY: its pointers lead to what it owns: strings, entries and heads, on the heap.
unsafe impl Send for Lists {}

impl Lists {
    pub(super) fn prefetch(&mut self, prefetch: &Prefetch) -> *mut PrefetchIos {
        let all = prefetch.ios.all();
        if !self
            .lanes
            .get(&prefetch.lane)
            .is_some_and(|lane| Arc::ptr_eq(&lane.all, all))
        {
            let converted = self.convert(all, |path, io| PrefetchIo {
                path,
                offset: io.start,
                size: io.len,
                xpu: io.device.unwrap_or(0),
                flags: if io.device.is_some() { IO_XPU } else { 0 },
            });
            self.lanes.insert(prefetch.lane, converted);
        }
        let Some(lane) = self.lanes.get_mut(&prefetch.lane) else {
            return std::ptr::null_mut();
        };
        let (count, first, limit) = part(&prefetch.ios);
        let head = PrefetchIos {
            count,
            ios: lane.entries.as_mut_ptr(),
            first,
            limit,
            generation: lane.generation,
            lane: prefetch.lane,
            reserved: 0,
            next: std::ptr::null_mut(),
        };
        &raw mut **lane.head.insert(Box::new(head))
    }

    /// One list after the other; of several for the same lane the last.
    pub(super) fn chain(&mut self, all: &[Prefetch]) -> *mut PrefetchIos {
        let mut next = std::ptr::null_mut();
        for (index, prefetch) in all.iter().enumerate().rev() {
            if all[index + 1..]
                .iter()
                .any(|later| later.lane == prefetch.lane)
            {
                continue;
            }
            let head = self.prefetch(prefetch);
            if let Some(head) = self
                .lanes
                .get_mut(&prefetch.lane)
                .and_then(|lane| lane.head.as_mut())
            {
                head.next = next;
            }
            next = head;
        }
        next
    }

    pub(super) fn evict(&mut self, ios: &Ios) -> *mut EvictIos {
        if !self
            .evict
            .as_ref()
            .is_some_and(|evict| Arc::ptr_eq(&evict.all, ios.all()))
        {
            let entry = |path, io: &Io| EvictIo {
                path,
                offset: io.start,
                size: io.len,
            };
            self.evict = Some(self.convert(ios.all(), entry));
        }
        let Some(evict) = &mut self.evict else {
            return std::ptr::null_mut();
        };
        let (count, first, limit) = part(ios);
        let ios = evict.entries.as_mut_ptr();
        let head = EvictIos {
            count,
            ios,
            first,
            limit,
            generation: evict.generation,
        };
        &raw mut **evict.head.insert(Box::new(head))
    }

    fn convert<Entry, Head>(
        &mut self,
        all: &Arc<[Io]>,
        entry: impl Fn(*const c_char, &Io) -> Entry,
    ) -> Converted<Entry, Head> {
        self.generation += 1;
        let convert = |io: &Io| {
            let path = self.paths.entry(Arc::clone(&io.path)).or_insert_with(|| {
                // a path with a zero byte names no file, and neither does the empty one
                CString::new(io.path.as_os_str().as_bytes()).unwrap_or_default()
            });
            entry(path.as_ptr(), io)
        };
        let entries = all.iter().map(convert).collect();
        Converted {
            all: Arc::clone(all),
            generation: self.generation,
            entries,
            head: None,
        }
    }
}

/// Entries, the first of the part, and how many; an empty part is at the end.
fn part(ios: &Ios) -> (u64, u64, u64) {
    let (count, range) = (ios.all().len() as u64, ios.range());
    if range.is_empty() {
        (count, count, 0)
    } else {
        (count, range.start as u64, range.len() as u64)
    }
}
