//! Files of a few pages are read once, by the calling thread.

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::fixture;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::source::FnSource;
use anamnesis::{Checkpoint, Dtype, load, remember};

fn file(bytes: usize) -> Vec<u8> {
    safetensors(
        &[StoredTensor::new(
            "a",
            "U8",
            &[bytes as u64],
            random_bytes(1, bytes),
        )],
        &[],
    )
}

#[test]
fn a_single_request_is_read_by_the_calling_thread() {
    for (bytes, by_others) in [(100, false), (200_000, false), (1 << 20, true)] {
        let (file, readers) = (file(bytes), Arc::new(Mutex::new(Vec::new())));
        let (len, noted) = (file.len() as u64, Arc::clone(&readers));
        let read = move |start: u64, out: &mut [u8]| {
            noted.lock().unwrap().push(thread::current().id());
            let start = usize::try_from(start).unwrap();
            out.copy_from_slice(&file[start..start + out.len()]);
            Ok(())
        };
        let checkpoint = Checkpoint::from_source(FnSource::new(len, read)).unwrap();
        let chosen = load(&checkpoint).run().unwrap();
        assert_eq!(chosen.get("a").unwrap().bytes(), random_bytes(1, bytes));
        let alone = readers
            .lock()
            .unwrap()
            .drain(..)
            .all(|reader| reader == thread::current().id());
        assert!(alone, "{bytes} bytes");
        let pieces = load(&checkpoint)
            .loader(anamnesis::load::PreadLoader::new().request_size(512 << 10))
            .run()
            .unwrap();
        assert_eq!(pieces.get("a").unwrap().bytes(), random_bytes(1, bytes));
        let others = readers
            .lock()
            .unwrap()
            .iter()
            .any(|reader| *reader != thread::current().id());
        assert_eq!(others, by_others, "{bytes} bytes");
    }
}

#[test]
fn a_file_of_a_few_pages_is_read_when_it_is_opened() {
    let scratch = ScratchDir::new("small");
    for (bytes, kept) in [(4000, true), (12_000, true), (40_000, false)] {
        let path = scratch.path("model.safetensors");
        fs::write(&path, file(bytes)).unwrap();
        for map in [true, false] {
            let checkpoint = anamnesis::OpenOptions::new().mmap(map).open(&path).unwrap();
            // what replaces it is another file
            fs::remove_file(&path).unwrap();
            fs::write(&path, b"gone").unwrap();
            for load in [load(&checkpoint), load(&checkpoint).borrow_mapped()] {
                let loaded = load.run().unwrap();
                assert_eq!(loaded.get("a").unwrap().bytes(), random_bytes(1, bytes));
            }
            assert_eq!(
                checkpoint.sources()[0].in_memory().is_some(),
                kept,
                "{bytes} bytes"
            );
            fs::remove_file(&path).unwrap();
            fs::write(&path, file(bytes)).unwrap();
        }
    }
}

#[test]
fn small_weights_are_the_same_by_one_thread_and_by_many() {
    let checkpoint = Checkpoint::open(fixture("model/scribe-Q8_0.gguf")).unwrap();
    let by = |threads| {
        let remembered = remember(&checkpoint)
            .dtype(Dtype::BF16)
            .threads(threads)
            .all()
            .unwrap();
        remembered
            .into_iter()
            .map(|tensor| tensor.bytes)
            .collect::<Vec<_>>()
    };
    assert_eq!(by(0), by(3));
}
