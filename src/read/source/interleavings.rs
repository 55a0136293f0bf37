//! The state that threads share in sources, under thousands of thread schedules, explored with shuttle: one length of a
//! source that states others, one map of a file, and reads of a reader that has one position. `RUSTFLAGS="--cfg shuttle"
//! cargo test --lib source::models` (`.ci/prove`).
//!
//! The models of the length and the position were seen to fail: with the length of the own call instead of the kept one, and
//! with a lock that is released between seeking and reading.

use std::io::{Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread;

use super::checked::CheckedSource;
use super::{ReaderSource, Source, StreamSource};
use crate::base::sync::{AtomicU64, explore};

/// Runs another thread, if the schedule says so.
fn switch() {
    thread::sleep(Duration::ZERO);
}

/// States another length at each call.
#[derive(Default)]
struct GrowingSource(AtomicU64);

impl Source for GrowingSource {
    fn len(&self) -> Option<u64> {
        Some(1 + self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst))
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<usize> {
        Ok(0)
    }

    fn mapped(&self) -> Option<&[u8]> {
        Some(&[0; 2])
    }
}

#[test]
fn a_source_has_one_length() {
    explore(1000, || {
        let source = CheckedSource::new(GrowingSource::default());
        let lengths = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let len = source.len().unwrap();
                    assert_eq!(source.mapped().is_some(), len == 2);
                    lengths.lock().unwrap().push(len);
                });
            }
        });
        let lengths = lengths.into_inner().unwrap();
        let kept = source.len().unwrap();
        assert!(lengths.iter().all(|len| *len == kept), "{lengths:?}");
    });
}

#[cfg(feature = "mmap")]
#[test]
fn a_file_is_mapped_once() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
    explore(1000, move || {
        let source = super::MmapSource::new(std::fs::File::open(&path).unwrap()).unwrap();
        let addresses = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let map = source.mapped().unwrap();
                    addresses.lock().unwrap().push(map.as_ptr().addr());
                    switch();
                    source.dont_need(0, map.len() as u64);
                });
            }
        });
        let addresses = addresses.into_inner().unwrap();
        assert_eq!(addresses[0], addresses[1]);
    });
}

/// The bytes 0, 1, 2, …; other threads run between its calls.
#[derive(Default)]
struct CountingReader(u8);

/// Bytes of the reader.
const BYTES: u8 = 8;

impl Read for CountingReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        switch();
        let n = out.len().min(usize::from(BYTES - self.0)).min(2);
        for out in &mut out[..n] {
            *out = self.0;
            self.0 += 1;
        }
        switch();
        Ok(n)
    }
}

impl Seek for CountingReader {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        switch();
        self.0 = match to {
            SeekFrom::Start(at) => u8::try_from(at).unwrap(),
            _ => BYTES,
        };
        Ok(u64::from(self.0))
    }
}

/// Reads three bytes at these offsets, one after another.
fn read_all(source: &impl Source, starts: &[u8]) {
    for &start in starts {
        let mut out = [0; 3];
        let read = source.read_at(u64::from(start), &mut out).unwrap();
        let expected: Vec<u8> = (start..BYTES).take(3).collect();
        assert_eq!(out[..read], expected);
    }
}

#[test]
fn readers_and_streams_return_the_bytes_of_the_offset() {
    explore(1000, || {
        let reader = Arc::new(ReaderSource::new(CountingReader::default()).unwrap());
        let stream = Arc::new(StreamSource::new(CountingReader::default()));
        thread::scope(|scope| {
            scope.spawn(|| read_all(&*reader, &[0, 3]));
            scope.spawn(|| read_all(&*reader, &[5, 1]));
            scope.spawn(|| read_all(&*stream, &[2, 5]));
            scope.spawn(|| {
                let end = stream.finish().unwrap();
                assert_eq!((end, stream.len()), (8, Some(8)));
            });
        });
    });
}
