//! The ring that the kernel writes samples into: one mapping per CPU.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Where `struct perf_event_mmap_page` keeps its counters: fixed by the kernel's interface.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// A mapped ring, and the event that owns it.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    /// Bytes of the first page, which holds the counters.
    page: usize,
    /// Bytes after it, a power of two.
    len: usize,
    carrier: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone, and everything that changes what we hold of it takes `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of an event. `pages`: its size, a power of two.
    pub(crate) fn map(carrier: OwnedFd, pages: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let len = pages
            .checked_mul(page)
            .filter(|len| len.is_power_of_two())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let all = len.checked_add(page).ok_or(io::ErrorKind::InvalidInput)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), all, prot, flags, &carrier, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            base,
            page,
            len,
            carrier,
        })
    }

    /// The event that owns the ring: others write into it, and its descriptor is what is polled.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.carrier.as_fd()
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped as long as `self` lives, both counters lie in it.
        let place = unsafe { self.base.add(at) };
        // SAFETY: aligned to eight bytes, and shared with the kernel, which reads and writes it as one word.
        unsafe { AtomicU64::from_ptr(place.cast().as_ptr()) }
    }

    /// How far the kernel has written, in bytes since the beginning.
    pub(crate) fn head(&self) -> u64 {
        self.counter(HEAD).load(Ordering::Acquire)
    }

    /// Moves what is new, up to a [`head`](Self::head), to the end of `into`.
    pub(crate) fn take(&mut self, head: u64, into: &mut Vec<u8>) {
        let tail = self.counter(TAIL).load(Ordering::Relaxed);
        let new = usize::try_from(head.wrapping_sub(tail))
            .unwrap_or(usize::MAX)
            .min(self.len);
        let mask = u64::try_from(self.len - 1).expect("fits");
        let start = usize::try_from(tail & mask).expect("less than the length");
        let first = new.min(self.len - start);
        into.extend_from_slice(self.bytes(start, first));
        into.extend_from_slice(self.bytes(0, new - first));
        self.counter(TAIL).store(head, Ordering::Release);
    }

    fn bytes(&self, start: usize, len: usize) -> &[u8] {
        assert!(
            start.checked_add(len).is_some_and(|end| end <= self.len),
            "within the ring"
        );
        // SAFETY: the ring follows the first page, and the assertion keeps to it.
        let from = unsafe { self.base.add(self.page + start) };
        // SAFETY: mapped as long as `self` lives; the kernel does not write between tail and head.
        unsafe { std::slice::from_raw_parts(from.as_ptr(), len) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; every slice of it borrowed `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.page + self.len) };
    }
}
