//! Conversion of [`RangeList`] to the lists of the C ABI.
//!
//! A [`RangeList`] is a range of a shared array. The whole array is converted once and gets a generation; each answer
//! that refers to the same array is a new head with other indices, so that its cost does not depend on the length of
//! the array.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::abi::{EvictIo, EvictIos, IO_XPU, PrefetchIo, PrefetchIos};
use crate::{FileRange, PrefetchRequest, RangeList};

/// The lists that were returned last, by queue. They are on the heap, so that the pointers that C holds stay valid
/// until a list is replaced.
#[derive(Default)]
pub(super) struct ReturnedLists {
    paths: HashMap<Arc<Path>, CString>,
    queues: HashMap<u32, ConvertedList<PrefetchIo, PrefetchIos>>,
    evict: Option<ConvertedList<EvictIo, EvictIos>>,
    generation: u64,
}

struct ConvertedList<Entry, Head> {
    /// The array. Keeping it alive ensures that no other array has its address, by which it is recognised.
    source: Arc<[FileRange]>,
    generation: u64,
    entries: Vec<Entry>,
    head: Option<Box<Head>>,
}

// SAFETY: all pointers refer to strings, entries and heads on the heap that this value owns.
unsafe impl Send for ReturnedLists {}

impl ReturnedLists {
    pub(super) fn prefetch(&mut self, prefetch: &PrefetchRequest) -> *mut PrefetchIos {
        let source = prefetch.ranges.backing();
        if !self
            .queues
            .get(&prefetch.queue)
            .is_some_and(|queue| Arc::ptr_eq(&queue.source, source))
        {
            let converted = self.convert(source, |path, range| PrefetchIo {
                path,
                offset: range.start,
                size: range.len,
                xpu: range.device.unwrap_or(0),
                flags: if range.device.is_some() { IO_XPU } else { 0 },
            });
            self.queues.insert(prefetch.queue, converted);
        }
        let Some(queue) = self.queues.get_mut(&prefetch.queue) else {
            return std::ptr::null_mut();
        };
        let (count, first, limit) = extent(&prefetch.ranges);
        let head = PrefetchIos {
            count,
            ios: queue.entries.as_mut_ptr(),
            first,
            limit,
            generation: queue.generation,
            queue: prefetch.queue,
            reserved: 0,
            next: std::ptr::null_mut(),
        };
        &raw mut **queue.head.insert(Box::new(head))
    }

    /// Links the lists of several queues. If there are several lists for one queue, the last is used.
    pub(super) fn chain(&mut self, all: &[PrefetchRequest]) -> *mut PrefetchIos {
        let mut next = std::ptr::null_mut();
        // from the last to the first, as each head points to the next one
        for (index, prefetch) in all.iter().enumerate().rev() {
            if all[index + 1..]
                .iter()
                .any(|later| later.queue == prefetch.queue)
            {
                continue;
            }
            let head = self.prefetch(prefetch);
            if let Some(head) = self
                .queues
                .get_mut(&prefetch.queue)
                .and_then(|queue| queue.head.as_mut())
            {
                head.next = next;
            }
            next = head;
        }
        next
    }

    pub(super) fn evict(&mut self, ios: &RangeList) -> *mut EvictIos {
        if !self
            .evict
            .as_ref()
            .is_some_and(|evict| Arc::ptr_eq(&evict.source, ios.backing()))
        {
            let entry = |path, io: &FileRange| EvictIo {
                path,
                offset: io.start,
                size: io.len,
            };
            self.evict = Some(self.convert(ios.backing(), entry));
        }
        let Some(evict) = &mut self.evict else {
            return std::ptr::null_mut();
        };
        let (count, first, limit) = extent(ios);
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
        source: &Arc<[FileRange]>,
        entry: impl Fn(*const c_char, &FileRange) -> Entry,
    ) -> ConvertedList<Entry, Head> {
        // the daemon converts an array again only when this has changed
        self.generation += 1;
        let convert = |io: &FileRange| {
            let path = self.paths.entry(Arc::clone(&io.path)).or_insert_with(|| {
                // no file has a path with a zero byte; the empty path that replaces it is refused by the daemon
                CString::new(io.path.as_os_str().as_bytes()).unwrap_or_default()
            });
            entry(path.as_ptr(), io)
        };
        let entries = source.iter().map(convert).collect();
        ConvertedList {
            source: Arc::clone(source),
            generation: self.generation,
            entries,
            head: None,
        }
    }
}

/// `count`, `first` and `limit` of a list. Because a limit of 0 means no limit, an empty list starts at the end.
fn extent(ios: &RangeList) -> (u64, u64, u64) {
    let (count, range) = (ios.backing().len() as u64, ios.indices());
    if range.is_empty() {
        (count, count, 0)
    } else {
        (count, range.start as u64, range.len() as u64)
    }
}
