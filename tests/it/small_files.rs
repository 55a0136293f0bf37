//! Small inputs start no thread: a single request is read by the calling thread, and a file of a few pages is read when it is
//! opened.

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::fixture;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::single_tensor;
use anamnesis::source::FnSource;
use anamnesis::{Checkpoint, Dtype, load, remember};

#[test]
fn a_single_request_is_read_by_the_calling_thread() {
    for (nbytes, by_others) in [(100, false), (200_000, false), (1 << 20, true)] {
        let (file, readers) = (single_tensor(nbytes), Arc::new(Mutex::new(Vec::new())));
        let (len, reader_ids) = (file.len() as u64, Arc::clone(&readers));
        let read = move |start: u64, out: &mut [u8]| {
            reader_ids.lock().unwrap().push(thread::current().id());
            let start = usize::try_from(start).unwrap();
            out.copy_from_slice(&file[start..start + out.len()]);
            Ok(())
        };
        let checkpoint = Checkpoint::from_source(FnSource::new(len, read)).unwrap();
        let by_default = load(&checkpoint).run().unwrap();
        assert_eq!(
            by_default.get("t").unwrap().bytes(),
            random_bytes(1, nbytes)
        );
        let is_caller_only = readers
            .lock()
            .unwrap()
            .drain(..)
            .all(|reader| reader == thread::current().id());
        assert!(is_caller_only, "{nbytes} bytes");
        let by_requests = load(&checkpoint)
            .loader(anamnesis::load::PreadLoader::new().request_size(512 << 10))
            .run()
            .unwrap();
        assert_eq!(
            by_requests.get("t").unwrap().bytes(),
            random_bytes(1, nbytes)
        );
        let is_by_others = readers
            .lock()
            .unwrap()
            .iter()
            .any(|reader| *reader != thread::current().id());
        assert_eq!(is_by_others, by_others, "{nbytes} bytes");
    }
}

#[test]
fn a_file_of_a_few_pages_is_read_when_it_is_opened() {
    let scratch = ScratchDir::new("small");
    for (nbytes, in_memory) in [(4000, true), (12_000, true), (40_000, false)] {
        let path = scratch.path("model.safetensors");
        fs::write(&path, single_tensor(nbytes)).unwrap();
        for map in [true, false] {
            let checkpoint = anamnesis::OpenOptions::new().mmap(map).open(&path).unwrap();
            // the replaced file is another one
            fs::remove_file(&path).unwrap();
            fs::write(&path, b"replaced").unwrap();
            for load in [load(&checkpoint), load(&checkpoint).borrow_mapped()] {
                let loaded = load.run().unwrap();
                assert_eq!(loaded.get("t").unwrap().bytes(), random_bytes(1, nbytes));
            }
            assert_eq!(
                checkpoint.sources()[0].in_memory().is_some(),
                in_memory,
                "{nbytes} bytes"
            );
            fs::remove_file(&path).unwrap();
            fs::write(&path, single_tensor(nbytes)).unwrap();
        }
    }
}

#[test]
fn small_weights_do_not_depend_on_the_number_of_threads() {
    let checkpoint = Checkpoint::open(fixture("model/scribe-Q8_0.gguf")).unwrap();
    let outputs = |threads| {
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
    assert_eq!(outputs(0), outputs(3));
}
