#![allow(unsafe_code)] // an allocator can be written in no other way; see CONVENTIONS.md

//! An allocator that counts: the system's, and how often and how much it was asked for while counting is on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicI64 = AtomicI64::new(0);
/// Bytes in use, less those that were when counting began.
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, counted.
pub(crate) struct Counted;

/// What was asked for while a call ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heap {
    /// Calls that gave memory, or more of it.
    pub(crate) calls: u64,
    /// The most bytes that were in use at once beyond those at the beginning.
    pub(crate) peak: u64,
}

/// Counts what `call` asks for, in all threads.
pub(crate) fn counted(call: &mut dyn FnMut()) -> Heap {
    [&CALLS, &LIVE, &PEAK]
        .iter()
        .for_each(|count| count.store(0, Relaxed));
    ON.store(true, Relaxed);
    call();
    ON.store(false, Relaxed);
    let count = |of: &AtomicI64| u64::try_from(of.load(Relaxed)).unwrap_or(0);
    Heap {
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

// SAFETY: every call goes to the system's allocator as it came, and its answer goes back as it is; counting allocates
// nothing and cannot unwind.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, len(layout.size()));
        // SAFETY: the caller promises what `System::alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, len(layout.size()));
        // SAFETY: the caller promises what `System::alloc_zeroed` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, -len(layout.size()));
        // SAFETY: the caller promises that `block` is of this layout, and it came from `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, len(size) - len(layout.size()));
        // SAFETY: as for `dealloc`, and the caller promises that `size` is one that `System` takes.
        unsafe { System.realloc(block, layout, size) }
    }
}
