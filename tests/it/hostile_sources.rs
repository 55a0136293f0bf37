//! Sources and readers of a caller's that break the contract, below every fixture: an error or the bytes of the file, after
//! a bounded number of calls.
#![cfg(unix)]

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::loaders::all_loaders;
use crate::support::testing::ThreadTime;
use crate::support::{fixture, fixtures, sha256};
use anamnesis::load::load;
use anamnesis::sink::NullSink;
use anamnesis::{Checkpoint, OpenOptions, Source, remember};

/// A fault of a source in a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Returns one byte more than the buffer has.
    OneTooMany,
    /// Returns the largest number.
    LargestCount,
    /// Reads half of what was requested.
    Half,
    /// Reads nothing.
    Nothing,
    /// Reads another part of what was requested at each call.
    Varying,
    /// Is interrupted at each call.
    Interrupted,
    /// Is interrupted at each call but every twentieth, which reads one byte.
    OneByteInTwenty,
    /// States another length at each call.
    LengthVaries,
    /// States the largest length.
    LargestLength,
    /// States no length, and a wrong one at the end.
    LengthDiffersAtEnd,
    /// Borrows another part of its bytes at each call.
    BorrowsVarying,
    /// Has the descriptor of a pipe that has a writer and no bytes.
    DescriptorOfPipe,
    /// Has the descriptor of a file without bytes.
    DescriptorOfEmptyFile,
}

const FAULTS: [Fault; 13] = [
    Fault::OneTooMany,
    Fault::LargestCount,
    Fault::Half,
    Fault::Nothing,
    Fault::Varying,
    Fault::Interrupted,
    Fault::OneByteInTwenty,
    Fault::LengthVaries,
    Fault::LargestLength,
    Fault::LengthDiffersAtEnd,
    Fault::BorrowsVarying,
    Fault::DescriptorOfPipe,
    Fault::DescriptorOfEmptyFile,
];

/// The most calls of one operation; beyond them, the operation is taken to be endless and its source fails.
const MOST_CALLS: u64 = 2_000_000;

/// The most processor time of one operation.
const MOST_TIME: Duration = Duration::from_secs(2);

/// The switch and the counter of a source, which the test keeps.
#[derive(Default)]
struct FaultControl {
    active: AtomicBool,
    calls: AtomicU64,
}

impl FaultControl {
    /// The number of calls of this operation. Fails once an operation seems endless.
    fn count(&self) -> io::Result<u64> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if calls > MOST_CALLS {
            return Err(io::Error::other("an endless operation"));
        }
        Ok(calls)
    }

    /// Runs an operation and checks what it cost.
    fn bounded<T>(&self, place: &str, operation: impl FnOnce() -> T) -> T {
        self.calls.store(0, Ordering::Relaxed);
        let began = ThreadTime::start();
        let result = operation();
        let (calls, time) = (self.calls.load(Ordering::Relaxed), began.elapsed());
        assert!(calls <= MOST_CALLS, "{place}: endless");
        assert!(time < MOST_TIME, "{place}: {time:?}, {calls} calls");
        result
    }
}

/// Bytes behind a fault, which begins when the control is active.
struct FaultySource {
    bytes: Vec<u8>,
    fault: Fault,
    control: Arc<FaultControl>,
    descriptor: Option<std::os::fd::OwnedFd>,
    /// Keeps a pipe open.
    _writer: Option<io::PipeWriter>,
}

impl FaultySource {
    fn new(bytes: Vec<u8>, fault: Fault, control: Arc<FaultControl>) -> Self {
        let (descriptor, writer) = match fault {
            Fault::DescriptorOfPipe => {
                let (reader, writer) = io::pipe().unwrap();
                (Some(reader.into()), Some(writer))
            }
            Fault::DescriptorOfEmptyFile => {
                let empty = tempfile_without_bytes();
                (Some(empty.into()), None)
            }
            _ => (None, None),
        };
        Self {
            bytes,
            fault,
            control,
            descriptor,
            _writer: writer,
        }
    }

    fn is_faulty(&self) -> bool {
        self.control.active.load(Ordering::Relaxed)
    }

    fn varying(&self, most: usize) -> usize {
        let calls = self.control.calls.fetch_add(1, Ordering::Relaxed);
        usize::try_from(calls.wrapping_mul(0x9e37_79b9) % (most as u64 + 1)).unwrap()
    }
}

fn tempfile_without_bytes() -> std::fs::File {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("hostile-{}-{number}", std::process::id()));
    std::fs::write(&path, b"").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

fn copy_at(bytes: &[u8], start: u64, buf: &mut [u8]) -> usize {
    let rest = usize::try_from(start).map_or(&[][..], |at| bytes.get(at..).unwrap_or_default());
    let n = rest.len().min(buf.len());
    buf[..n].copy_from_slice(&rest[..n]);
    n
}

impl Source for FaultySource {
    fn len(&self) -> Option<u64> {
        let len = self.bytes.len() as u64;
        match self.fault {
            Fault::LengthVaries => Some(len - self.varying(self.bytes.len().min(3)) as u64),
            Fault::LargestLength => Some(u64::MAX),
            Fault::LengthDiffersAtEnd => None,
            _ => Some(len),
        }
    }

    fn finish(&self) -> io::Result<u64> {
        match self.fault {
            Fault::LengthDiffersAtEnd => Ok(self.bytes.len() as u64 / 2),
            Fault::Interrupted if self.is_faulty() => {
                self.control.count()?;
                Err(io::ErrorKind::Interrupted.into())
            }
            _ => Ok(self.len().unwrap()),
        }
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let calls = self.control.count()?;
        if !self.is_faulty() {
            return Ok(copy_at(&self.bytes, start, buf));
        }
        let whole = buf.len();
        match self.fault {
            Fault::OneTooMany => {
                copy_at(&self.bytes, start, buf);
                Ok(whole + 1)
            }
            Fault::LargestCount => Ok(usize::MAX),
            Fault::Half => Ok(copy_at(&self.bytes, start, &mut buf[..whole / 2])),
            Fault::Nothing => Ok(0),
            Fault::Varying => {
                let n = self.varying(whole);
                Ok(copy_at(&self.bytes, start, &mut buf[..n]))
            }
            Fault::Interrupted => Err(io::ErrorKind::Interrupted.into()),
            Fault::OneByteInTwenty if !calls.is_multiple_of(20) => {
                Err(io::ErrorKind::Interrupted.into())
            }
            Fault::OneByteInTwenty => Ok(copy_at(&self.bytes, start, &mut buf[..whole.min(1)])),
            _ => Ok(copy_at(&self.bytes, start, buf)),
        }
    }

    fn in_memory(&self) -> Option<&[u8]> {
        (self.fault == Fault::BorrowsVarying && self.is_faulty())
            .then(|| &self.bytes[..self.varying(self.bytes.len())])
    }

    fn as_fd(&self) -> Option<anamnesis::source::SourceFd<'_>> {
        let fd = self.descriptor.as_ref()?;
        Some(std::os::fd::AsFd::as_fd(fd).into())
    }
}

/// Faults that no read survives.
fn is_fatal(fault: Fault) -> bool {
    use Fault::{Interrupted, LargestCount, Nothing, OneTooMany};
    matches!(fault, OneTooMany | LargestCount | Nothing | Interrupted)
}

/// Tensors that are read of each file: more would only repeat the same calls.
const TENSORS: usize = 4;

#[test]
fn opening_a_faulty_source_ends_in_an_error_or_the_catalog() {
    for (path, format) in fixtures() {
        let bytes = std::fs::read(&path).unwrap();
        let options = OpenOptions::new().single(true).format(format);
        let expected = options.from_bytes(bytes.clone());
        for fault in FAULTS {
            let place = format!("{fault:?}: {}", path.display());
            let control = Arc::new(FaultControl::default());
            control.active.store(true, Ordering::Relaxed);
            let source = FaultySource::new(bytes.clone(), fault, control.clone());
            let opened = control.bounded(&place, || options.from_source(source));
            match (opened, &expected) {
                (Ok(opened), Ok(expected)) => {
                    assert!(!is_fatal(fault), "{place}");
                    let tensors = |checkpoint: &Checkpoint| checkpoint.catalog().tensors().to_vec();
                    assert_eq!(tensors(&opened), tensors(expected), "{place}");
                }
                // a part of a file may be a file: what is listed then is inside of the bytes that were read
                (Ok(opened), Err(_)) => drop(opened.inspect()),
                (Err(error), _) => assert!(!error.to_string().is_empty(), "{place}"),
            }
        }
    }
}

#[test]
fn tensors_of_a_faulty_source_end_in_an_error_or_their_bytes() {
    for (path, format) in fixtures() {
        let bytes = std::fs::read(&path).unwrap();
        let options = OpenOptions::new().single(true).format(format);
        let Ok(expected) = options.from_bytes(bytes.clone()) else {
            continue;
        };
        for fault in FAULTS {
            let control = Arc::new(FaultControl::default());
            let source = FaultySource::new(bytes.clone(), fault, control.clone());
            let Ok(checkpoint) = options.from_source(source) else {
                continue; // the length is wrong before the fault begins
            };
            control.active.store(true, Ordering::Relaxed);
            for tensor in checkpoint.tensors().take(TENSORS) {
                let name = &tensor.info().name;
                let place = format!("{fault:?}: {}: {name}", path.display());
                let true_tensor = expected.tensor(name).unwrap();
                let hash = control.bounded(&place, || sha256(&tensor));
                let read = control.bounded(&place, || tensor.bytes());
                let has_bytes = tensor.info().nbytes() > 0;
                if is_fatal(fault) && has_bytes {
                    assert!(hash.is_err() && read.is_err(), "{place}");
                }
                if let Ok(hash) = hash {
                    assert_eq!(hash, sha256(&true_tensor).unwrap(), "{place}");
                }
                if let Ok(read) = read {
                    assert_eq!(read, true_tensor.bytes().unwrap(), "{place}");
                }
                if let Ok(stored) = control.bounded(&place, || tensor.stored()) {
                    assert_eq!(stored, true_tensor.stored().unwrap(), "{place}");
                }
            }
        }
    }
}

/// One file of each format, whose tensors are larger than a window.
fn one_of_each_format() -> Vec<std::path::PathBuf> {
    [
        "safetensors/many.safetensors",
        "gguf/mixed_tokenizer.gguf",
        "npy/v1.npy",
        "npz/all_le.npz",
        "npz/all_le_compressed.npz",
        "pth/checkpoint.pth",
        "pth/checkpoint.legacy.pth",
    ]
    .map(fixture)
    .to_vec()
}

#[test]
fn loads_from_a_faulty_source_end_in_an_error_or_the_bytes() {
    for path in one_of_each_format() {
        let bytes = std::fs::read(&path).unwrap();
        let expected = Checkpoint::from_bytes(bytes.clone()).unwrap();
        for fault in FAULTS {
            let control = Arc::new(FaultControl::default());
            let source = FaultySource::new(bytes.clone(), fault, control.clone());
            let Ok(checkpoint) = Checkpoint::from_source(source) else {
                continue;
            };
            control.active.store(true, Ordering::Relaxed);
            let names: Vec<&str> = expected
                .tensors()
                .filter(|tensor| tensor.bytes().is_ok())
                .take(TENSORS)
                .map(|tensor| &*tensor.info().name)
                .collect();
            for (loader, with) in all_loaders() {
                let place = format!("{fault:?}: {loader}: {}", path.display());
                let load = load(&checkpoint)
                    .loader(with)
                    .filter(|name| names.contains(&name));
                let loaded = control.bounded(&place, || load.run());
                // the descriptors' loaders read the file behind the descriptor
                let Ok(loaded) = loaded else { continue };
                assert!(!is_fatal(fault), "{place}");
                for &name in &names {
                    let tensor = loaded.get(name).expect("selected");
                    let true_bytes = expected.tensor(name).unwrap().bytes().unwrap();
                    assert_eq!(tensor.bytes(), &*true_bytes, "{place}: {name}");
                }
            }
            let place = format!("{fault:?}: remember: {}", path.display());
            let written = control.bounded(&place, || {
                let remember = remember(&checkpoint).threads(1);
                remember.run(&remember.plan()?, &mut NullSink)
            });
            if let Err(error) = written {
                assert!(!error.to_string().is_empty(), "{place}");
            }
        }
    }
}

/// A reader behind a fault.
struct FaultyReader(FaultySource, u64);

impl Read for FaultyReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read_at(self.1, buf)?;
        self.1 = self.1.saturating_add(n.min(buf.len()) as u64);
        Ok(n)
    }
}

impl Seek for FaultyReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let len = self.0.len().unwrap_or(u64::MAX);
        self.1 = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(back) => len.saturating_add_signed(back),
            SeekFrom::Current(by) => self.1.saturating_add_signed(by),
        };
        Ok(self.1)
    }
}

#[test]
fn faulty_readers_end_in_an_error_or_the_catalog() {
    for (path, format) in fixtures() {
        let bytes = std::fs::read(&path).unwrap();
        let options = OpenOptions::new().single(true).format(format);
        let expected = options.from_bytes(bytes.clone());
        for fault in FAULTS {
            // a stream of this fault is read to its end, a byte at a time
            if fault == Fault::OneByteInTwenty && bytes.len() > 8 << 10 {
                continue;
            }
            let control = Arc::new(FaultControl::default());
            control.active.store(true, Ordering::Relaxed);
            let reader =
                || FaultyReader(FaultySource::new(bytes.clone(), fault, control.clone()), 0);
            type Opened = anamnesis::Result<Checkpoint>;
            let check = |what: &str, open: &dyn Fn() -> Opened| {
                let place = format!("{what}: {fault:?}: {}", path.display());
                if let Ok(opened) = control.bounded(&place, open) {
                    assert!(!is_fatal(fault), "{place}");
                    if let Ok(expected) = &expected {
                        let tensors = |c: &Checkpoint| c.catalog().tensors().to_vec();
                        assert_eq!(tensors(&opened), tensors(expected), "{place}");
                    }
                    for tensor in opened.tensors().take(TENSORS) {
                        let _ = control.bounded(&place, || sha256(&tensor));
                    }
                }
            };
            check("from_reader", &|| options.from_reader(reader()));
            check("from_stream", &|| options.from_stream(reader()));
        }
    }
}

#[test]
fn errors_name_the_fault() {
    let bytes = std::fs::read(fixture("safetensors/all_dtypes.safetensors")).unwrap();
    let error = |fault| {
        let control = Arc::new(FaultControl::default());
        control.active.store(true, Ordering::Relaxed);
        let source = FaultySource::new(bytes.clone(), fault, control);
        Checkpoint::from_source(source).unwrap_err().to_string()
    };
    assert!(error(Fault::Interrupted).contains("interrupted 65536 times"));
    assert!(error(Fault::OneTooMany).contains("the source returned "));
}
