#![allow(unsafe_code)] // requests of io_uring; see the register in CONVENTIONS.md

//! A ring of reads. A buffer part belongs to the ring while the kernel may write to it.
//!
//! A ring whose submission is refused (`io_uring_enter`, in some sandboxes, or without memory) answers the reads that the
//! kernel does not have with that error, and still waits for those that it has: their bytes may arrive at any time.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use zeropool::BufferPart;

pub(super) struct ReadRing<T> {
    ring: IoUring,
    /// By slot: the reads that were pushed and not returned. The slot is the `user_data` of the kernel's entry.
    reads: Vec<Option<RingRead<T>>>,
    /// Slots without a read.
    free: Vec<usize>,
    /// Slots of the reads in the submission queue that the kernel has not consumed, in its order.
    unsubmitted: VecDeque<usize>,
    /// Why the kernel accepts no more reads.
    refused: Option<Errno>,
}

struct RingRead<T> {
    part: BufferPart,
    read: T,
}

/// A read that has ended.
pub(super) struct EndedRead<T> {
    pub(super) read: T,
    pub(super) part: BufferPart,
    /// The number of bytes that were read. `Err(None)`: the ring does not work here, and the read was not started.
    pub(super) outcome: Result<usize, Option<io::Error>>,
}

/// How often a submission is repeated that the kernel refuses for the moment, a millisecond apart.
const MAX_ATTEMPTS: u32 = 1000;
/// How long a submission pauses before it is repeated.
const PAUSE: Duration = Duration::from_millis(1);

/// The ring of the kernel, or one whose results a test decides (`faults.rs`).
pub(super) trait RingOperations<T> {
    fn is_empty(&self) -> bool;

    fn is_full(&self) -> bool;

    /// Why the kernel accepts no more reads; `None` while it does.
    fn refusal(&self) -> Option<io::Error>;

    /// Queues a read of the file from `start` on into these bytes of the part. The ring must not be full. The descriptor
    /// must stay open until the read is returned.
    fn push(
        &mut self,
        file: BorrowedFd<'_>,
        start: u64,
        part: BufferPart,
        bytes: Range<usize>,
        read: T,
    );

    /// Submits what is queued and waits until a read has ended; `None` if there is none.
    fn wait(&mut self) -> Option<EndedRead<T>>;
}

impl<T> ReadRing<T> {
    /// A ring for `depth` reads.
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        let entries = u32::try_from(depth.next_power_of_two()).unwrap_or(1 << 10);
        Ok(Self {
            ring: IoUring::new(entries)?,
            reads: (0..depth).map(|_| None).collect(),
            free: (0..depth).collect(),
            unsubmitted: VecDeque::with_capacity(depth),
            refused: None,
        })
    }

    fn end(&mut self, slot: usize, outcome: Result<usize, Option<io::Error>>) -> EndedRead<T> {
        self.free.push(slot);
        let RingRead { part, read } = self.reads[slot].take().expect("one end per read");
        EndedRead {
            read,
            part,
            outcome,
        }
    }
}

impl<T> RingOperations<T> for ReadRing<T> {
    fn is_empty(&self) -> bool {
        self.free.len() == self.reads.len()
    }

    fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    fn refusal(&self) -> Option<io::Error> {
        self.refused.map(io::Error::from)
    }

    fn push(
        &mut self,
        file: BorrowedFd<'_>,
        start: u64,
        mut part: BufferPart,
        bytes: Range<usize>,
        read: T,
    ) {
        let out = &mut part[bytes];
        let len = u32::try_from(out.len()).expect("requests are at most 64 MiB");
        let slot = self.free.pop().expect("the ring is not full");
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), out.as_mut_ptr(), len)
            .offset(start)
            .build()
            .user_data(slot as u64);
        self.reads[slot] = Some(RingRead { part, read });
        // SAFETY: the bytes are in a mapping that the part keeps alive and has exclusive use of, and whose address does
        // not change with the part. `reads` holds the part until the kernel's entry for it was received, or until it is
        // certain that the kernel never consumes this entry (`wait`); `drop` waits for that too.
        unsafe { self.ring.submission().push(&entry) }.expect("as many entries as slots");
        self.unsubmitted.push_back(slot);
    }

    fn wait(&mut self) -> Option<EndedRead<T>> {
        let mut attempts = 0;
        while !self.is_empty() {
            let ended = self.ring.completion().next();
            if let Some(ended) = ended {
                let outcome = usize::try_from(ended.result())
                    .map_err(|_| Some(io::Error::from_raw_os_error(-ended.result())));
                let slot = usize::try_from(ended.user_data()).expect("as pushed");
                return Some(self.end(slot, outcome));
            }
            if self.refused.is_some() {
                // `io_uring_enter` is not called again, so that the kernel never consumes these
                if let Some(slot) = self.unsubmitted.pop_front() {
                    return Some(self.end(slot, Err(None)));
                }
                // the kernel has the others: it posts their ends to the shared memory whenever this thread makes a
                // system call, such as this one
                thread::sleep(PAUSE);
                continue;
            }
            let entered = self.ring.submit_and_wait(1);
            let consumed = self.unsubmitted.len() - self.ring.submission().len();
            self.unsubmitted.drain(..consumed);
            let Err(error) = entered else {
                attempts = 0;
                continue;
            };
            attempts += 1;
            match Errno::from_io_error(&error) {
                // a signal
                Some(Errno::INTR) if attempts < MAX_ATTEMPTS => {}
                // no memory for a request, or ends that were not received yet
                Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) if attempts < MAX_ATTEMPTS => {
                    thread::sleep(PAUSE);
                }
                errno => self.refused = Some(errno.unwrap_or(Errno::IO)),
            }
        }
        None
    }
}

impl<T> Drop for ReadRing<T> {
    fn drop(&mut self) {
        // after a panic: the kernel may still write to the parts
        while self.wait().is_some() {}
    }
}
