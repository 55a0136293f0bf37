//! Every fixture through every kind of source: the same result.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use crate::support::{fixture, fixtures, sha256, skip};
use anamnesis::source::{FnSource, MemorySource, StreamSource};
use anamnesis::{Checkpoint, ErrorKind, Format, OpenOptions, Result, Summary};

/// A reader that gives one byte, then two, then three …, as a slow pipe would.
struct Trickle<R>(R, usize);

impl<R: Read> Read for Trickle<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1 % 13 + 1;
        let n = buf.len().min(self.1);
        self.0.read(&mut buf[..n])
    }
}

fn through(kind: &str, path: &Path, format: &'static Format) -> Result<Checkpoint> {
    let bytes = || std::fs::read(path).unwrap();
    // a path tells the format by its extension where the bytes do not; for the other sources it is given
    let options = OpenOptions::new().single(true).format(format);
    match kind {
        "mapped" => options.open(path),
        "file" => options.mmap(false).open(path),
        "memory" => options.from_source(MemorySource::new(bytes())),
        "reader" => options.from_reader(File::open(path).unwrap()),
        "cursor" => options.from_reader(Cursor::new(bytes())),
        "func" => {
            let bytes = bytes();
            let len = bytes.len() as u64;
            let read = move |start, buf: &mut [u8]| {
                let start = usize::try_from(start).unwrap();
                buf.copy_from_slice(&bytes[start..start + buf.len()]);
                Ok(())
            };
            options.from_source(FnSource::new(len, read))
        }
        "stream" => options.from_source(StreamSource::new(Cursor::new(bytes()))),
        "trickle" => options.from_source(StreamSource::new(Trickle(Cursor::new(bytes()), 0))),
        other => panic!("{other}"),
    }
}

/// A summary without what a path adds to it.
fn anonymous(mut summary: Summary) -> Summary {
    summary.path = None;
    summary.files.iter_mut().for_each(|f| f.path = None);
    summary.warnings.retain(|w| !w.starts_with("one part of"));
    summary
}

/// The summary, or the kind of the refusal and its offset.
fn outcome(kind: &str, path: &Path, format: &'static Format) -> Result<Summary, String> {
    let opened = through(kind, path, format).map(|c| anonymous(c.inspect()));
    opened.map_err(|e| format!("{} at {:?}", e.kind().name(), e.offset()))
}

#[test]
fn every_source_gives_the_same_summary() {
    for (path, format) in fixtures() {
        let outcome = |kind| outcome(kind, &path, format);
        let expected = outcome("mapped");
        for kind in ["file", "memory", "reader", "cursor", "func"] {
            assert_eq!(outcome(kind), expected, "{kind}: {}", path.display());
        }
        let bytes = std::fs::read(&path).unwrap();
        // an archive is read from its end on, which is at hand if it came with the first bytes
        let zip = bytes.len() > 4096 && (format.name == "npz" || bytes.starts_with(b"PK"));
        for kind in ["stream", "trickle"] {
            let found = outcome(kind);
            if zip {
                assert!(
                    found.unwrap_err().starts_with("unsupported"),
                    "{}",
                    path.display()
                );
            } else {
                assert_eq!(found, expected, "{kind}: {}", path.display());
            }
        }
    }
}

#[test]
fn every_source_gives_the_same_bytes() {
    for (path, format) in fixtures() {
        let through = |kind| through(kind, &path, format);
        let Ok(mapped) = through("mapped") else {
            continue;
        };
        let others = ["file", "memory", "reader", "func"].map(|kind| through(kind).unwrap());
        for tensor in mapped.tensors() {
            let name = &tensor.info().name;
            let expected = sha256(&tensor).map_err(|e| e.kind().name());
            let whole = tensor.bytes().map(|b| b.into_owned()).ok();
            for other in &others {
                let tensor = other.tensor(name).unwrap();
                assert_eq!(
                    sha256(&tensor).map_err(|e| e.kind().name()),
                    expected,
                    "{}: {name}",
                    path.display()
                );
                assert_eq!(
                    tensor.bytes().map(|b| b.into_owned()).ok(),
                    whole,
                    "{}: {name}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn a_stream_cannot_give_tensor_bytes() {
    let checkpoint =
        Checkpoint::from_stream(File::open(fixture("safetensors/all_dtypes.safetensors")).unwrap())
            .unwrap();
    // small files stay in the window; what has left it is refused, never wrong
    for tensor in checkpoint.tensors() {
        match tensor.bytes() {
            Ok(bytes) => assert_eq!(bytes.len() as u64, tensor.info().nbytes()),
            Err(e) => assert!(matches!(e.kind(), ErrorKind::Io(_)), "{e}"),
        }
    }
}

#[test]
fn a_pipe_behind_a_path_is_streamed() {
    let path = std::env::temp_dir().join(format!("anamnesis-fifo-{}", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if !made.is_ok_and(|s| s.success()) {
        return skip("mkfifo is not to be had");
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

/// A safetensors header of 640 bytes has the length 0x280, and a pickle begins with 0x80 0x02.
#[test]
fn a_header_as_long_as_a_pickle_begins_is_safetensors() {
    for len in [640usize, 0x1_0280] {
        let header = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
        let header = header.to_owned() + &" ".repeat(len - header.len());
        let file = [&(len as u64).to_le_bytes(), header.as_bytes(), b"\x07"].concat();
        let checkpoint = anamnesis::Checkpoint::from_bytes(file).unwrap();
        assert_eq!(checkpoint.tensor("a").unwrap().bytes().unwrap()[..], [7]);
    }
}
