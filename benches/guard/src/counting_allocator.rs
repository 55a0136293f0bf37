#![allow(unsafe_code)] // `GlobalAlloc` is an unsafe trait; see CONVENTIONS.md

//! A global allocator that counts: it forwards to the system's and, while counting is on, counts calls and bytes in use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicI64 = AtomicI64::new(0);
/// Bytes in use, relative to the start of counting.
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

/// The system's allocator with counters.
pub(crate) struct CountingAllocator;

/// The counts of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapCounts {
    /// Allocations and reallocations.
    pub(crate) calls: u64,
    /// The most bytes in use at once, relative to the start.
    pub(crate) peak: u64,
}

/// Runs `call` and counts the allocations of all threads meanwhile.
pub(crate) fn counted(call: &mut dyn FnMut()) -> HeapCounts {
    [&CALLS, &LIVE, &PEAK]
        .iter()
        .for_each(|count| count.store(0, Relaxed));
    ON.store(true, Relaxed);
    call();
    ON.store(false, Relaxed);
    let count = |of: &AtomicI64| u64::try_from(of.load(Relaxed)).unwrap_or(0);
    HeapCounts {
        calls: count(&CALLS),
        peak: count(&PEAK),
    }
}

fn note(calls: i64, bytes: i64) {
    if ON.load(Relaxed) {
        CALLS.fetch_add(calls, Relaxed);
        let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(live, Relaxed);
    }
}

fn len(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

// SAFETY: every call is forwarded unchanged to the system's allocator, and its result is returned unchanged. Counting uses
// atomics only: it does not allocate and cannot unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, len(layout.size()));
        // SAFETY: the caller upholds the contract of `alloc`, which is `System::alloc`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, len(layout.size()));
        // SAFETY: the caller upholds the contract of `alloc_zeroed`, which is `System::alloc_zeroed`'s.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, -len(layout.size()));
        // SAFETY: the caller guarantees that `block` was allocated here with this layout, hence by `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, len(size) - len(layout.size()));
        // SAFETY: as for `dealloc`; the caller guarantees that `size` is valid, as `System::realloc` requires.
        unsafe { System.realloc(block, layout, size) }
    }
}
