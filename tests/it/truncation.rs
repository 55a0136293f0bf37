//! Every small fixture, cut at every byte: an error or a shorter truth, never a panic.

use std::time::Duration;

use crate::support::fixtures;
use crate::support::testing::ThreadTime;
use anamnesis::source::{MemorySource, StreamSource};
use anamnesis::{Checkpoint, ErrorKind, OpenOptions};

/// Files longer than this are cut at a sample of places instead of all.
const SMALL: usize = 12 << 10;

fn cut_everywhere(name: &str) {
    let mut cuts = 0u64;
    for (path, format) in fixtures()
        .into_iter()
        .filter(|(_, format)| format.name == name)
    {
        let bytes: &'static [u8] = std::fs::read(&path).unwrap().leak();
        let options = OpenOptions::new().format(format);
        let whole = options.from_source(MemorySource::new(bytes));
        let step = if bytes.len() <= SMALL {
            1
        } else {
            bytes.len() / 1500 + 1
        };
        let started = ThreadTime::start();
        for cut in (0..bytes.len()).step_by(step) {
            let opened = options.from_source(MemorySource::new(&bytes[..cut]));
            let streamed = options.from_source(StreamSource::new(&bytes[..cut]));
            cuts += 1;
            match (&opened, &whole) {
                // what is accepted although cut must be readable, and no more than the whole
                (Ok(cut_off), Ok(whole)) => {
                    assert!(cut_off.catalog().tensors().len() <= whole.catalog().tensors().len());
                    for tensor in cut_off.tensors() {
                        let _ = tensor.bytes();
                    }
                }
                (Ok(_), Err(e)) => panic!(
                    "{} is refused whole ({e}) and accepted cut at {cut}",
                    path.display()
                ),
                (Err(e), _) => assert!(
                    !matches!(e.kind(), ErrorKind::Io(_)),
                    "{} at {cut}: {e}",
                    path.display()
                ),
            }
            if let (Ok(a), Ok(b)) = (&opened, &streamed) {
                assert_eq!(
                    a.inspect().unwrap(),
                    b.inspect().unwrap(),
                    "{} at {cut}",
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
    assert!(cuts > 0);
    println!("{name}: {cuts} cuts");
}

#[test]
fn safetensors() {
    cut_everywhere("safetensors");
}

#[test]
fn gguf() {
    cut_everywhere("gguf");
}

#[test]
fn npy() {
    cut_everywhere("npy");
}

#[test]
fn npz() {
    cut_everywhere("npz");
}

#[test]
fn pth() {
    cut_everywhere("pth");
}

/// safetensors forbids bytes behind the last tensor, so every cut of it must be refused.
#[test]
fn no_cut_safetensors_is_accepted() {
    for (path, _) in fixtures()
        .iter()
        .filter(|(_, format)| format.name == "safetensors")
    {
        let bytes = std::fs::read(path).unwrap();
        for cut in 0..bytes.len() {
            assert!(
                Checkpoint::from_bytes(bytes[..cut].to_vec()).is_err(),
                "{} at {cut}",
                path.display()
            );
        }
    }
}
