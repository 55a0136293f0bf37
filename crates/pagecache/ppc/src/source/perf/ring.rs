//! The ring buffer that the kernel writes samples into: one mapping per CPU.
//!
//! The kernel advances `head` after it has written samples; the consumer advances `tail` after it has copied them. The
//! acquire load of `head` makes the kernel's writes visible, and the release store of `tail` keeps the copies before it,
//! so the kernel overwrites nothing that is still being read.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Offsets of `data_head` and `data_tail` in `struct perf_event_mmap_page`, fixed by the kernel's ABI.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// A mapped ring and the perf event that owns it.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    /// Size of the first page, which holds the counters.
    page: usize,
    /// Size of the ring behind it, a power of two.
    len: usize,
    owner: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone, and every function that changes its state takes `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of a perf event. `pages` is its size, a power of two.
    pub(crate) fn map(owner: OwnedFd, pages: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let len = pages
            .checked_mul(page)
            .filter(|len| len.is_power_of_two())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let all = len.checked_add(page).ok_or(io::ErrorKind::InvalidInput)?;
        // writable: only then does the kernel respect `data_tail` and keep what was not read
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), all, prot, flags, &owner, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            base,
            page,
            len,
            owner,
        })
    }

    /// The descriptor of the event that owns the ring: the target of other events' output, and what is polled.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.owner.as_fd()
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: both counters lie in the first page, which is mapped as long as `self` lives.
        let counter = unsafe { self.base.add(at) };
        // SAFETY: the counter is aligned to eight bytes, and the kernel reads and writes it as one word.
        unsafe { AtomicU64::from_ptr(counter.cast().as_ptr()) }
    }

    /// The number of bytes that the kernel has written since the ring was created.
    pub(crate) fn head(&self) -> u64 {
        self.counter(HEAD).load(Ordering::Acquire)
    }

    /// Appends the new bytes, up to a [`head`](Self::head), to `into` and frees their space in the ring.
    pub(crate) fn consume(&mut self, head: u64, into: &mut Vec<u8>) {
        // only this side writes `tail`
        let tail = self.counter(TAIL).load(Ordering::Relaxed);
        let new = usize::try_from(head.wrapping_sub(tail))
            .unwrap_or(usize::MAX)
            .min(self.len);
        let mask = u64::try_from(self.len - 1).expect("usize fits into u64");
        let start = usize::try_from(tail & mask).expect("less than the length of the ring");
        let first = new.min(self.len - start);
        // copied before they are decoded, so that the kernel gets the space at once; a record may also wrap around the
        // end
        into.extend_from_slice(self.bytes(start, first));
        into.extend_from_slice(self.bytes(0, new - first));
        self.counter(TAIL).store(head, Ordering::Release);
    }

    fn bytes(&self, start: usize, len: usize) -> &[u8] {
        assert!(
            start.checked_add(len).is_some_and(|end| end <= self.len),
            "the range lies within the ring"
        );
        // SAFETY: the ring follows the first page, and the assertion keeps `start` within it.
        let from = unsafe { self.base.add(self.page + start) };
        // SAFETY: mapped as long as `self` lives, and the kernel does not write between tail and head.
        unsafe { std::slice::from_raw_parts(from.as_ptr(), len) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; every slice of it borrows `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.page + self.len) };
    }
}
