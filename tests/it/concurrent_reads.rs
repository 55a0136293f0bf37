//! Loads from sources whose reads are started and end later: how many are under way, which are repeated, and how they end.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::cancelled_load::assert_cancelled_soon;
use crate::support::random::random_bytes;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::load::{Backend, RemoteLoader};
use anamnesis::source::{ConcurrentReads, ReadReceiver, Source, StartedRead};
use anamnesis::{Checkpoint, load};
use zeropool::BufferPool;

/// The behaviour of a read, by its number: reads are numbered in the order in which they are started.
type Behaviour = fn(&StartedByTest, Box<dyn ReadReceiver>);

/// A file in memory whose reads run on threads.
struct ThreadSource {
    bytes: Arc<Vec<u8>>,
    behaviour: Behaviour,
    counts: Arc<ReadCounts>,
}

#[derive(Default)]
struct ReadCounts {
    started: AtomicUsize,
    again: AtomicUsize,
    under_way: AtomicUsize,
    /// The most reads under way while the one with this number ran.
    most: Mutex<HashMap<usize, usize>>,
    /// Handles that were dropped.
    dropped: AtomicUsize,
}

/// One read.
struct StartedByTest {
    number: usize,
    start: u64,
    bytes: Vec<u8>,
    again: bool,
    is_dropped: Arc<AtomicBool>,
}

struct DropFlag(Arc<AtomicBool>, Arc<ReadCounts>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
        self.1.dropped.fetch_add(1, SeqCst);
    }
}

impl Source for ThreadSource {
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = &self.bytes[self.bytes.len().min(usize::try_from(start).unwrap())..];
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn concurrent(&self) -> Option<&dyn ConcurrentReads> {
        Some(self)
    }
}

impl ConcurrentReads for ThreadSource {
    fn start(
        &self,
        start: u64,
        len: u64,
        again: bool,
        receiver: Box<dyn ReadReceiver>,
    ) -> StartedRead {
        let counts = Arc::clone(&self.counts);
        let from = usize::try_from(start).unwrap();
        let is_dropped = Arc::new(AtomicBool::new(false));
        let read = StartedByTest {
            number: counts.started.fetch_add(1, SeqCst),
            start,
            bytes: self.bytes[from..from + usize::try_from(len).unwrap()].to_vec(),
            again,
            is_dropped: Arc::clone(&is_dropped),
        };
        counts.again.fetch_add(usize::from(again), SeqCst);
        let now = counts.under_way.fetch_add(1, SeqCst) + 1;
        counts.most.lock().unwrap().insert(read.number, now);
        let behaviour = self.behaviour;
        let of_thread = Arc::clone(&counts);
        thread::spawn(move || {
            // before the receiver is notified, so that a read which follows from its end does not count this one
            let receiver = Box::new(Counted(receiver, of_thread, false));
            behaviour(&read, receiver);
        });
        StartedRead::new(DropFlag(is_dropped, counts))
    }
}

/// A receiver that counts the read as ended before it is notified of its last byte.
struct Counted(Box<dyn ReadReceiver>, Arc<ReadCounts>, bool);

impl Counted {
    fn end(&mut self) {
        if !std::mem::replace(&mut self.2, true) {
            self.1.under_way.fetch_sub(1, SeqCst);
        }
    }
}

impl ReadReceiver for Counted {
    fn arrived(&mut self, start: u64, bytes: &[u8]) -> ControlFlow<()> {
        self.end();
        self.0.arrived(start, bytes)
    }

    fn delayed(&mut self) {
        self.0.delayed();
    }

    fn ended(mut self: Box<Self>, outcome: io::Result<()>) {
        self.end();
        let Self(receiver, ..) = *self;
        receiver.ended(outcome);
    }
}

/// Passes all bytes at once, after a while.
fn after(time: Duration, read: &StartedByTest, mut receiver: Box<dyn ReadReceiver>) {
    thread::sleep(time);
    let _ = receiver.arrived(read.start, &read.bytes);
    receiver.ended(Ok(()));
}

/// Until the load has dropped the read.
fn hang(read: &StartedByTest) {
    while !read.is_dropped.load(SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn open(bytes: Vec<u8>, behaviour: Behaviour) -> (Checkpoint, Arc<ReadCounts>) {
    let counts = Arc::default();
    let source = ThreadSource {
        bytes: Arc::new(bytes),
        behaviour,
        counts: Arc::clone(&counts),
    };
    (Checkpoint::from_source(source).unwrap(), counts)
}

/// A tensor of random bytes for this many requests of [`PIECE`] bytes.
fn tensor(requests: usize) -> Vec<u8> {
    let values = random_bytes(7, requests * PIECE - 64);
    safetensors(
        &[StoredTensor::new("t", "U8", &[values.len() as u64], values)],
        &[],
    )
}

const PIECE: usize = 64 << 10;

fn loader() -> RemoteLoader {
    RemoteLoader::new().request_size(PIECE)
}

/// Loads with [`loader`] and compares the bytes.
fn load_all(bytes: &[u8], checkpoint: &Checkpoint) {
    let loaded = load(checkpoint).loader(loader()).run().unwrap();
    let info = &checkpoint.catalog().tensors()[0];
    let start = usize::try_from(info.bytes.start).unwrap();
    let len = usize::try_from(info.bytes.len).unwrap();
    assert!(loaded.get("t").unwrap().bytes() == &bytes[start..start + len]);
    let report = loaded.report().unwrap();
    assert_eq!(
        (report.backend, report.fallback.as_deref()),
        (Backend::Requests, None)
    );
}

#[test]
fn a_source_with_concurrent_reads_is_loaded_with_many_under_way() {
    let bytes = tensor(100);
    let (checkpoint, counts) = open(bytes.clone(), |read, receiver| {
        after(Duration::from_millis(5), read, receiver);
    });
    assert_eq!(
        load(&checkpoint).run().unwrap().choice().loader.name(),
        "remote"
    );
    load_all(&bytes, &checkpoint);
    let most = *counts.most.lock().unwrap().values().max().unwrap();
    assert!((10..=64).contains(&most), "{most} under way");
    let few = load(&checkpoint).loader(loader().requests(3));
    counts.most.lock().unwrap().clear();
    few.run().unwrap();
    let most = *counts.most.lock().unwrap().values().max().unwrap();
    assert!((2..=3).contains(&most), "{most} under way");
}

#[test]
fn bytes_arrive_in_parts_of_any_length() {
    let bytes = tensor(30);
    let (checkpoint, _) = open(bytes.clone(), |read, mut receiver| {
        let mut at = 0;
        for n in (1..).map(|i| i * 977 % 5000) {
            let end = read.bytes.len().min(at + n);
            if receiver
                .arrived(read.start + at as u64, &read.bytes[at..end])
                .is_break()
            {
                break;
            }
            at = end;
        }
        receiver.ended(Ok(()));
    });
    load_all(&bytes, &checkpoint);
}

#[test]
fn fewer_are_under_way_after_a_refusal() {
    let bytes = tensor(200);
    let (checkpoint, counts) = open(bytes.clone(), |read, mut receiver| {
        if read.number < 16 {
            receiver.delayed();
            // until the others have begun
            thread::sleep(Duration::from_millis(50));
        }
        after(Duration::from_millis(2), read, receiver);
    });
    let begun = Instant::now();
    load_all(&bytes, &checkpoint);
    let most = |numbers: std::ops::Range<usize>| {
        let most = counts.most.lock().unwrap();
        numbers.map(|number| most[&number]).max().unwrap()
    };
    assert_eq!(most(0..16), 16);
    // it grows again after some seconds, which this load does not take
    if begun.elapsed() < Duration::from_secs(3) {
        assert!(most(20..200) <= 12, "{} under way", most(20..200));
    }
}

#[test]
fn a_late_read_is_repeated_and_the_others_are_not() {
    let bytes = tensor(100);
    let (checkpoint, counts) = open(bytes.clone(), |read, mut receiver| {
        if read.number == 50 {
            // half of it arrives
            let half = read.bytes.len() / 2;
            let _ = receiver.arrived(read.start, &read.bytes[..half]);
            hang(read);
        } else {
            after(Duration::from_millis(5), read, receiver);
        }
    });
    let begun = Instant::now();
    load_all(&bytes, &checkpoint);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    let again = counts.again.load(SeqCst);
    assert!((1..=5).contains(&again), "{again} of 100 repeated");
}

#[test]
fn one_read_in_twenty_is_repeated_at_most() {
    let bytes = tensor(100);
    let (checkpoint, counts) = open(bytes.clone(), |read, receiver| {
        // all are late, once it is known how long reads take
        let late = read.number > 20 && !read.again;
        let time = if late { 250 } else { 1 };
        after(Duration::from_millis(time), read, receiver);
    });
    load_all(&bytes, &checkpoint);
    let (started, again) = (counts.started.load(SeqCst), counts.again.load(SeqCst));
    assert!(
        again >= 1 && again * 20 <= started - again,
        "{again} of {started}"
    );
}

#[test]
fn a_cancelled_load_ends_its_reads_at_once() {
    let bytes = tensor(100);
    let (checkpoint, counts) = open(bytes, |read, mut receiver| {
        let _ = receiver.arrived(read.start, &read.bytes[..10]);
        hang(read);
        // too late: the memory is no longer the load's
        let _ = receiver.arrived(read.start + 10, &read.bytes[10..]);
    });
    assert_cancelled_soon(&checkpoint, loader(), Duration::from_millis(100));
    assert_eq!(counts.dropped.load(SeqCst), counts.started.load(SeqCst));
}

/// The error of a load whose reads behave so.
fn error_of(behaviour: Behaviour) -> anamnesis::Error {
    let (checkpoint, _) = open(tensor(20), behaviour);
    let pool = BufferPool::new();
    let error = load(&checkpoint)
        .loader(loader())
        .pool(&pool)
        .run()
        .unwrap_err();
    assert_eq!(pool.stats().in_use, 0);
    error
}

#[test]
fn failures_name_offset_and_range() {
    let failing = error_of(|read, mut receiver| {
        if read.number == 5 {
            let _ = receiver.arrived(read.start, &read.bytes[..100]);
            return receiver.ended(Err(io::Error::other("the line was cut")));
        }
        after(Duration::ZERO, read, receiver);
    });
    let first = open(tensor(20), |_, _| ()).0.catalog().tensors()[0]
        .bytes
        .start;
    // requests begin at multiples of 64
    let start = first / 64 * 64 + 5 * PIECE as u64;
    assert_eq!(failing.offset(), Some(start + 100), "{failing}");
    let range = format!("requested bytes {start} to {}", start + PIECE as u64);
    let text = failing.to_string();
    assert!(
        text.contains("the line was cut") && text.contains(&range),
        "{text}"
    );
    let failing: [(Behaviour, &str); 4] = [
        // ends before its last byte
        (
            |read, mut receiver| {
                let _ = receiver.arrived(read.start, &read.bytes[1..]);
                receiver.ended(Ok(()));
            },
            "the file ends here",
        ),
        // other bytes than those that follow
        (
            |read, mut receiver| {
                let _ = receiver.arrived(read.start + 1, &read.bytes);
                receiver.ended(Ok(()));
            },
            "the file ends here",
        ),
        (|_, receiver| drop(receiver), "without an answer"),
        (|_, _| panic!("a thread of the source"), "without an answer"),
    ];
    for (behaviour, text) in failing {
        let error = error_of(behaviour);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn more_bytes_than_requested_are_not_kept() {
    let bytes = tensor(20);
    let (checkpoint, _) = open(bytes.clone(), |read, mut receiver| {
        let more = [&read.bytes[..], &[1; 100_000]].concat();
        let _ = receiver.arrived(read.start, &more);
        let _ = receiver.arrived(read.start, &more);
        receiver.ended(Ok(()));
    });
    load_all(&bytes, &checkpoint);
}

#[test]
fn a_stream_reads_no_further_ahead_than_allowed() {
    let tensors: Vec<_> = (0..40)
        .map(|i| {
            let values = random_bytes(i, 1 << 20);
            StoredTensor::new(&format!("t{i}"), "U8", &[1 << 20], values)
        })
        .collect();
    let (checkpoint, counts) = open(safetensors(&tensors, &[]), |read, receiver| {
        after(Duration::ZERO, read, receiver);
    });
    load(&checkpoint)
        .loader(loader())
        .read_ahead(4 << 20)
        .stream(|tensors| {
            for (n, tensor) in (1..).zip(tensors) {
                tensor?;
                thread::sleep(Duration::from_millis(2));
                let started = counts.started.load(SeqCst) * PIECE;
                assert!(started <= (n + 9) << 20, "{started} bytes for {n} tensors");
            }
            Ok(())
        })
        .unwrap();
    assert!(counts.started.load(SeqCst) * PIECE >= 40 << 20);
}
