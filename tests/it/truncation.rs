//! Every small fixture, truncated at every byte: it is refused, or the tensors that it still lists can be read.

use std::io::Cursor;
use std::time::Duration;

use crate::support::testing::ThreadTime;
use crate::support::{fixtures, object_references};
use anamnesis::source::{MemorySource, StreamSource};
use anamnesis::{Checkpoint, ErrorKind, OpenOptions};

/// Longer files are truncated at about 1500 lengths instead of all.
const ALL_LENGTHS: usize = 12 << 10;

/// The lengths at which a file is cut.
fn lengths(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let step = if bytes.len() <= ALL_LENGTHS {
        1
    } else {
        bytes.len() / 1500 + 1
    };
    (0..bytes.len()).step_by(step)
}

fn truncate_fixtures_of(name: &str) {
    let mut tried = 0u64;
    for (path, format) in fixtures()
        .into_iter()
        .filter(|(_, format)| format.name == name)
    {
        let bytes = std::fs::read(&path).unwrap();
        let options = OpenOptions::new().format(format);
        let whole = options.from_source(MemorySource::new(bytes.clone()));
        let started = ThreadTime::start();
        for len in lengths(&bytes) {
            let opened = options.from_source(MemorySource::new(bytes[..len].to_vec()));
            let stream = StreamSource::new(Cursor::new(bytes[..len].to_vec()));
            let streamed = options.from_source(stream);
            tried += 1;
            match (&opened, &whole) {
                // a truncated file that is accepted lists no more tensors than the whole one
                (Ok(truncated), Ok(whole)) => {
                    assert!(truncated.catalog().tensors().len() <= whole.catalog().tensors().len());
                    for tensor in truncated.tensors() {
                        let _ = tensor.bytes();
                    }
                }
                (Ok(_), Err(e)) => panic!(
                    "{} is refused whole ({e}) and accepted with {len} bytes",
                    path.display()
                ),
                (Err(e), _) => assert!(
                    !matches!(e.kind(), ErrorKind::Io(_)),
                    "{} with {len} bytes: {e}",
                    path.display()
                ),
            }
            if let (Ok(a), Ok(b)) = (&opened, &streamed) {
                assert_eq!(
                    a.inspect().unwrap(),
                    b.inspect().unwrap(),
                    "{} with {len} bytes",
                    path.display()
                );
            }
        }
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{} took {:?}",
            path.display(),
            started.elapsed()
        );
    }
    assert!(tried > 0);
    println!("{name}: {tried} truncated files");
}

#[test]
fn truncated_safetensors_are_refused_or_readable() {
    truncate_fixtures_of("safetensors");
}

#[test]
fn truncated_gguf_is_refused_or_readable() {
    truncate_fixtures_of("gguf");
}

#[test]
fn truncated_npy_is_refused_or_readable() {
    truncate_fixtures_of("npy");
}

#[test]
fn truncated_npz_is_refused_or_readable() {
    truncate_fixtures_of("npz");
}

#[test]
fn truncated_pth_is_refused_or_readable() {
    truncate_fixtures_of("pth");
}

/// The object of every PyTorch file, cut at the same lengths: alone, and of the checkpoint where it can be opened.
#[test]
fn objects_of_truncated_pth_are_refused_or_whole() {
    let (mut tried, mut made) = (0u64, 0u64);
    for (path, format) in fixtures() {
        if format.name != "pth" {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let options = OpenOptions::new().format(format);
        let whole = options.objects_from_bytes(bytes.clone()).is_ok();
        for len in lengths(&bytes) {
            let place = format!("{} with {len} bytes", path.display());
            let alone = options.objects_from_bytes(bytes[..len].to_vec());
            tried += 1;
            match alone {
                // too short for the first bytes of either container
                Ok(None) => assert!(len < 4, "{place} is no PyTorch file"),
                Ok(Some(objects)) => {
                    assert!(whole, "{place} is accepted, and refused whole");
                    object_references::check(&objects, 0);
                    made += 1;
                }
                Err(e) => assert!(!matches!(e.kind(), ErrorKind::Io(_)), "{place}: {e}"),
            }
            let opened = options.from_source(MemorySource::new(bytes[..len].to_vec()));
            if let Ok(checkpoint) = opened {
                let objects = checkpoint
                    .objects()
                    .expect("what can be opened has an object");
                let rows = checkpoint.catalog().tensors().len();
                object_references::check(&objects.expect("a PyTorch file"), rows);
            }
        }
    }
    assert!(tried > 0);
    println!("{tried} truncated files, {made} objects");
}

/// The tensors of a safetensors file end where it ends, so every shorter file must be refused.
#[test]
fn every_truncated_safetensors_is_refused() {
    for (path, _) in fixtures()
        .iter()
        .filter(|(_, format)| format.name == "safetensors")
    {
        let bytes = std::fs::read(path).unwrap();
        for len in 0..bytes.len() {
            assert!(
                Checkpoint::from_bytes(bytes[..len].to_vec()).is_err(),
                "{} with {len} bytes",
                path.display()
            );
        }
    }
}
