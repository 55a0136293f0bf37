//! Rings that fail: short, interrupted and failed reads, in any order, and a ring that stops to accept reads. A load ends in
//! the right bytes or in the error, and its buffers return to the pool.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use zeropool::{BufferPart, BufferPool};

use super::ring::{EndedRead, RingOperations};
use super::{RingFiles, RingReader};
use crate::base::error::{ErrorKind, Result};
use crate::engine::load::coalesce::coalesce;
use crate::engine::load::pread::MAX_SHARED_EXTENT;
use crate::engine::load::read_ahead::ReadAhead;
use crate::engine::load::report::{Backend, ReportBuilder};
use crate::engine::load::{Feed, LoadContext, PreadLoader};
use crate::read::checkpoint::Checkpoint;

/// The ring's answer to a read.
#[derive(Clone, Copy, Debug)]
enum RingResult {
    /// Reads at most this many bytes.
    AtMost(usize),
    Error(Errno),
    /// Is refused, as all later ones are.
    Refused,
}

type Results = fn(u64) -> RingResult;

/// A ring whose results depend on the number of the read.
struct FaultyRing<T> {
    results: Results,
    reads: Vec<(File, u64, BufferPart, Range<usize>, T)>,
    ended: u64,
    refused: bool,
}

// few places, so that the ring is full during most of a load
const DEPTH: usize = 6;

impl<T> RingOperations<T> for FaultyRing<T> {
    fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    fn is_full(&self) -> bool {
        self.reads.len() == DEPTH
    }

    fn refusal(&self) -> Option<io::Error> {
        self.refused.then(|| Errno::PERM.into())
    }

    fn push(
        &mut self,
        file: BorrowedFd<'_>,
        start: u64,
        part: BufferPart,
        bytes: Range<usize>,
        read: T,
    ) {
        assert!(!self.is_full() && !self.refused && !bytes.is_empty());
        let file = File::from(file.try_clone_to_owned().unwrap());
        self.reads.push((file, start, part, bytes, read));
    }

    fn wait(&mut self) -> Option<EndedRead<T>> {
        if self.reads.is_empty() {
            return None;
        }
        let number = self.ended;
        self.ended += 1;
        // neither in order nor in reverse
        let place = usize::try_from(number * 7).unwrap() % self.reads.len();
        let (file, start, mut part, bytes, read) = self.reads.swap_remove(place);
        let outcome = match (self.results)(number) {
            // a refused read was not begun, so that it ends without an error of the system
            _ if self.refused => Err(None),
            RingResult::AtMost(most) => {
                let out = &mut part[bytes];
                let len = out.len().min(most);
                file.read_at(&mut out[..len], start).map_err(Some)
            }
            RingResult::Error(errno) => Err(Some(errno.into())),
            RingResult::Refused => {
                self.refused = true;
                Err(None)
            }
        };
        Some(EndedRead {
            read,
            part,
            outcome,
        })
    }
}

/// Loads every tensor of a checkpoint through the ring, and compares the bytes. Returns why a read fell back.
fn load(results: Results, direct: bool) -> Result<Option<String>> {
    let checkpoint = Checkpoint::open("fixtures/model/scribe.safetensors")?;
    let pool = BufferPool::new();
    let context = LoadContext {
        checkpoint: &checkpoint,
        pool: pool.clone(),
        read_ahead: 64 << 10,
        max_gap: 0,
        into_memory: false,
    };
    let tensors = checkpoint.catalog().tensors();
    let reads: Vec<_> = tensors.iter().map(|tensor| tensor.bytes).collect();
    let report = Arc::new(ReportBuilder::new(Backend::IoUring, None));
    let files = RingFiles::open(checkpoint.sources(), direct, &report).unwrap();
    // several requests for each extent
    let layout = PreadLoader::new().request_size(4096).layout(files.align());
    let list = coalesce(&reads, 0, MAX_SHARED_EXTENT.min(40 << 10));
    let queue = ReadAhead::new(&context, list, layout, Arc::clone(&report));
    let ring = FaultyRing {
        results,
        reads: Vec::new(),
        ended: 0,
        refused: false,
    };
    let reader = RingReader {
        queue: &queue,
        files: &files,
        report: &report,
    };
    let outcome = thread::scope(|scope| {
        // before the scope waits for the reader: a failed assertion would leave it without an end
        let stop = queue.stop_on_drop();
        scope.spawn(|| reader.run(ring));
        let outcome = (0..reads.len()).try_for_each(|read| {
            let bytes = queue.get(read)?;
            let expected = checkpoint.tensor_at(read).bytes()?;
            assert!(bytes[..] == expected[..], "other bytes of read {read}");
            Ok(())
        });
        // ends the reader, which the scope waits for
        drop(stop);
        outcome
    });
    let fallback = report.report().fallback;
    // it holds buffers, which the next line would count
    drop(queue);
    assert_eq!(pool.stats().in_use, 0, "buffers are not in the pool");
    outcome.map(|()| fallback)
}

#[test]
fn short_and_interrupted_reads_are_continued() {
    let all: [Results; 4] = [
        |_| RingResult::AtMost(usize::MAX),
        // most of these lengths are not aligned, so that a direct read must begin again at a boundary
        |number| RingResult::AtMost(1 + usize::try_from(number * 797 % 5000).unwrap()),
        |number| match number % 4 {
            0 => RingResult::Error(Errno::INTR),
            1 => RingResult::AtMost(512),
            _ => RingResult::AtMost(usize::MAX),
        },
        |number| match number % 3 {
            2 => RingResult::AtMost(4096),
            _ => RingResult::Error(Errno::INTR),
        },
    ];
    for results in all {
        for direct in [false, true] {
            load(results, direct).unwrap();
        }
    }
}

#[test]
fn a_failed_read_is_an_error_with_its_offset() {
    let all: [(Results, Errno); 4] = [
        (|_| RingResult::Error(Errno::IO), Errno::IO),
        (|_| RingResult::Error(Errno::AGAIN), Errno::AGAIN),
        (
            |number| match number {
                9 => RingResult::Error(Errno::IO),
                _ => RingResult::AtMost(1000),
            },
            Errno::IO,
        ),
        (
            |number| match number {
                20 => RingResult::Error(Errno::NOMEM),
                _ => RingResult::AtMost(usize::MAX),
            },
            Errno::NOMEM,
        ),
    ];
    for (results, errno) in all {
        for direct in [false, true] {
            let error = load(results, direct).unwrap_err();
            let ErrorKind::Io(io) = error.kind() else {
                panic!("{error}")
            };
            assert_eq!(Errno::from_io_error(io), Some(errno), "{error}");
            assert!(
                error.offset().is_some() && error.path().is_some(),
                "{error}"
            );
        }
    }
}

#[test]
fn an_end_of_the_file_and_endless_interruptions_are_errors() {
    let all: [(Results, io::ErrorKind); 2] = [
        (
            |number| RingResult::AtMost(if number < 5 { 700 } else { 0 }),
            io::ErrorKind::UnexpectedEof,
        ),
        (|_| RingResult::Error(Errno::INTR), io::ErrorKind::Other),
    ];
    for (results, kind) in all {
        for direct in [false, true] {
            let error = load(results, direct).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Io(io) if io.kind() == kind),
                "{error}"
            );
        }
    }
}

/// The reads that are in flight then, and all later ones, are read with system calls.
#[test]
fn a_ring_that_refuses_reads_is_not_used_further() {
    let all: [Results; 4] = [
        |_| RingResult::Refused,
        |number| match number {
            13 => RingResult::Refused,
            _ => RingResult::AtMost(2500),
        },
        // errors of kernels and file systems that lack the operation, not of the read
        |_| RingResult::Error(Errno::NOSYS),
        |number| match number {
            4 => RingResult::Error(Errno::OPNOTSUPP),
            _ => RingResult::AtMost(usize::MAX),
        },
    ];
    for results in all {
        let fallback = load(results, false).unwrap();
        assert!(fallback.is_some_and(|why| why.contains("one by one")));
    }
    // a direct read that a file system refuses with another error than `EINVAL` is an error
    for results in &all[..2] {
        load(*results, true).unwrap();
    }
}
