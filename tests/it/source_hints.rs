//! The calls that a source receives while it is opened: becoming ready, the ranges that follow, and the end of the header.

use std::io::{self, Write};
use std::sync::Mutex;

use crate::support::fixture;
use crate::support::random::random_bytes;
use crate::support::writers::npy_header;
use anamnesis::{Checkpoint, ErrorKind, Source};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// A source in memory that records the calls, and fails to become ready where it has a failure.
struct HintedSource<'t> {
    bytes: Vec<u8>,
    failure: Option<io::ErrorKind>,
    calls: &'t Mutex<Vec<Call>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Call {
    Ready,
    Read(u64, u64),
    Scattered(Vec<(u64, u64)>),
    Settled,
}

impl HintedSource<'_> {
    fn record(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }
}

impl Source for HintedSource<'_> {
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.record(Call::Read(start, buf.len() as u64));
        let rest = self.bytes.get(usize::try_from(start).unwrap()..);
        let rest = rest.unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn ready(&self) -> io::Result<()> {
        self.record(Call::Ready);
        self.failure.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn scattered(&self, ranges: &mut dyn Iterator<Item = (u64, u64)>) {
        self.record(Call::Scattered(ranges.collect()));
    }

    fn settled(&self) {
        self.record(Call::Settled);
    }
}

/// The calls of opening a file, and the result.
fn opened(bytes: Vec<u8>, failure: Option<io::ErrorKind>) -> (Vec<Call>, anamnesis::Result<()>) {
    // a source must be `'static`
    let calls: &'static Mutex<Vec<Call>> = Box::leak(Box::default());
    let source = HintedSource {
        bytes,
        failure,
        calls,
    };
    let result = Checkpoint::from_source(source).map(drop);
    (calls.lock().unwrap().clone(), result)
}

#[test]
fn an_error_of_becoming_ready_is_the_error_of_opening() {
    let (calls, result) = opened(Vec::new(), Some(io::ErrorKind::ConnectionRefused));
    let error = result.unwrap_err();
    let ErrorKind::Io(e) = error.kind() else {
        panic!("{error}")
    };
    assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(calls, [Call::Ready]);
}

#[test]
fn every_format_reports_the_end_of_its_header_once_and_reads_nothing_behind_it() {
    for name in [
        "safetensors/all_dtypes.safetensors",
        "gguf/plain_v3.gguf",
        "npy/bf16.npy",
        "npz/all_le.npz",
        "pth/state_dict.pth",
    ] {
        let path = fixture(name);
        let Ok(bytes) = std::fs::read(&path) else {
            panic!("{}", path.display())
        };
        let (calls, result) = opened(bytes, None);
        result.unwrap();
        assert_eq!(calls.first(), Some(&Call::Ready), "{name}");
        assert_eq!(calls.last(), Some(&Call::Settled), "{name}");
        let settled = calls.iter().filter(|call| **call == Call::Settled);
        assert_eq!(settled.count(), 1, "{name}");
    }
}

/// A zip archive of 20 arrays of 20 KB.
fn archive(method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for i in 0..20 {
        zip.start_file(format!("a{i}.npy"), options).unwrap();
        let mut array = npy_header("'|u1'", false, &[20_000]);
        array.extend(random_bytes(i, 20_000));
        zip.write_all(&array).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn the_members_of_an_archive_are_announced_before_they_are_read() {
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let (calls, result) = opened(archive(method), None);
        result.unwrap();
        let announced = |call: &Call| matches!(call, Call::Scattered(_));
        let at = calls.iter().position(announced).expect("an announcement");
        let Call::Scattered(ranges) = &calls[at] else {
            unreachable!()
        };
        let mut reads = 0;
        for call in &calls[at + 1..] {
            if let Call::Read(start, len) = call {
                let inside = |(from, n): &(u64, u64)| *from <= *start && start + len <= from + n;
                assert!(ranges.iter().any(inside), "{call:?} is not in {ranges:?}");
                reads += 1;
            }
        }
        assert!(reads >= 19, "{method}: {reads} reads"); // the last member is read with the directory
    }
}
