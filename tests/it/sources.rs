//! Every fixture through every kind of source: the same result.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use crate::support::fn_sources::fn_source;
use crate::support::{fixture, fixtures, sha256, skip};
use anamnesis::source::{MemorySource, StreamSource};
use anamnesis::{Checkpoint, ErrorKind, Format, OpenOptions, Result, Summary};

/// A reader that returns one byte, then two, then three …, as a slow pipe would.
struct ShortReads<R>(R, usize);

impl<R: Read> Read for ShortReads<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1 % 13 + 1;
        let n = buf.len().min(self.1);
        self.0.read(&mut buf[..n])
    }
}

/// Serves the files that `RemoteSource` reads.
#[cfg(feature = "remote")]
static SERVER: std::sync::LazyLock<crate::support::web_server::TestServer> =
    std::sync::LazyLock::new(|| {
        let server = crate::support::web_server::TestServer::start();
        server.latency(std::time::Duration::ZERO);
        server
    });

type OpenThrough = fn(&Path, OpenOptions) -> Result<Checkpoint>;

/// Sources that can read any byte at any time: summaries and tensors equal the results of a mapped file.
static RANDOM_ACCESS_SOURCES: &[(&str, OpenThrough)] = &[
    ("FileSource", |path, options| options.mmap(false).open(path)),
    ("MemorySource", |path, options| {
        options.from_source(MemorySource::new(std::fs::read(path).unwrap()))
    }),
    ("ReaderSource of a file", |path, options| {
        options.from_reader(File::open(path).unwrap())
    }),
    ("ReaderSource of bytes", |path, options| {
        options.from_reader(Cursor::new(std::fs::read(path).unwrap()))
    }),
    #[cfg(feature = "remote")]
    ("RemoteSource", |path, options| {
        // fixtures of one name are in several folders
        let name = path.to_str().unwrap().to_owned();
        SERVER.put(&name, std::fs::read(path).unwrap());
        options.open(SERVER.url(&name))
    }),
    ("FnSource", |path, options| {
        options.from_source(fn_source(std::fs::read(path).unwrap()))
    }),
];

/// Sources that read forward only: summaries equal the summary of a mapped file, except that archives are refused.
static FORWARD_ONLY_SOURCES: &[(&str, OpenThrough)] = &[
    ("StreamSource", |path, options| {
        options.from_source(StreamSource::new(File::open(path).unwrap()))
    }),
    ("StreamSource of short reads", |path, options| {
        options.from_source(StreamSource::new(ShortReads(File::open(path).unwrap(), 0)))
    }),
];

fn open(through: OpenThrough, path: &Path, format: &'static Format) -> Result<Checkpoint> {
    // a path gives the format by its extension where the bytes do not; the other sources need it
    through(path, OpenOptions::new().single(true).format(format))
}

fn open_mapped(path: &Path, options: OpenOptions) -> Result<Checkpoint> {
    options.open(path)
}

/// A summary without the path and the warnings that depend on it.
fn without_path(mut summary: Summary) -> Summary {
    summary.path = None;
    summary.files.iter_mut().for_each(|f| f.path = None);
    summary.warnings.retain(|w| !w.contains("of a split GGUF"));
    // the name of a file says that it is one of several, and other sources have no name
    summary
        .warnings
        .retain(|w| !w.contains("of a checkpoint; the tensors of the others"));
    summary
}

/// The summary, or the kind of the error and its offset.
fn summary(through: OpenThrough, path: &Path, format: &'static Format) -> Result<Summary, String> {
    let opened = open(through, path, format).map(|c| without_path(c.inspect().unwrap()));
    opened.map_err(|e| format!("{} at {:?}", e.kind().name(), e.offset()))
}

#[test]
fn every_source_gives_the_same_summary() {
    for (path, format) in fixtures() {
        let expected = summary(open_mapped, &path, format);
        for (source, through) in RANDOM_ACCESS_SOURCES {
            let found = summary(*through, &path, format);
            assert_eq!(found, expected, "{source}: {}", path.display());
        }
        let bytes = std::fs::read(&path).unwrap();
        // the directory of an archive is at its end, which the first read of a stream reaches only in a small file
        let archive = bytes.len() > 4096 && (format.name == "npz" || bytes.starts_with(b"PK"));
        for (source, through) in FORWARD_ONLY_SOURCES {
            let found = summary(*through, &path, format);
            if archive {
                let error = found.unwrap_err();
                assert!(error.starts_with("unsupported"), "{}", path.display());
            } else {
                assert_eq!(found, expected, "{source}: {}", path.display());
            }
        }
    }
}

#[test]
fn every_source_gives_the_same_bytes() {
    for (path, format) in fixtures() {
        let Ok(mapped) = open(open_mapped, &path, format) else {
            continue;
        };
        let others = RANDOM_ACCESS_SOURCES
            .iter()
            .map(|(source, through)| (source, open(*through, &path, format).unwrap()))
            .collect::<Vec<_>>();
        for tensor in mapped.tensors() {
            let name = &tensor.info().name;
            let expected = sha256(&tensor).map_err(|e| e.kind().name());
            let bytes = tensor.bytes().map(|b| b.into_owned()).ok();
            for (source, checkpoint) in &others {
                let tensor = checkpoint.tensor(name).unwrap();
                let place = format!("{source}: {}: {name}", path.display());
                let hash = sha256(&tensor).map_err(|e| e.kind().name());
                assert_eq!(hash, expected, "{place}");
                let read = tensor.bytes().map(|b| b.into_owned()).ok();
                assert_eq!(read, bytes, "{place}");
            }
        }
    }
}

#[test]
fn a_stream_gives_the_bytes_in_its_window_or_refuses() {
    let checkpoint =
        Checkpoint::from_stream(File::open(fixture("safetensors/all_dtypes.safetensors")).unwrap())
            .unwrap();
    // a tensor before the window is an error
    for tensor in checkpoint.tensors() {
        match tensor.bytes() {
            Ok(bytes) => assert_eq!(bytes.len() as u64, tensor.info().nbytes()),
            Err(e) => assert!(matches!(e.kind(), ErrorKind::Io(_)), "{e}"),
        }
    }
}

#[test]
fn a_fifo_is_opened_as_a_stream() {
    let path = std::env::temp_dir().join(format!("anamnesis-fifo-{}", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if !made.is_ok_and(|s| s.success()) {
        return skip("mkfifo is not installed");
    }
    let bytes = std::fs::read(fixture("gguf/mixed_tokenizer.gguf")).unwrap();
    let writer = {
        let path = path.clone();
        std::thread::spawn(move || std::fs::write(path, bytes).unwrap())
    };
    let opened = Checkpoint::open(&path);
    writer.join().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(opened.unwrap().catalog().tensors().len(), 24);
}
