//! Loads that fail: over the budget, a source that fails or panics, a truncated file, a cancel. Each ends in its error, and
//! every buffer is returned to the pool.

use std::fs;
use std::io;

use crate::support::fn_sources::{DISCONNECTED, disconnecting_source};
use crate::support::loaders::all_loaders;
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::{large_tensors, odd_sized_tensors, write_and_open};
use anamnesis::load::{PreadLoader, load};
use anamnesis::source::FnSource;
use anamnesis::{CancelToken, Checkpoint, ErrorKind, OpenOptions};
use zeropool::BufferPool;

#[test]
fn a_load_larger_than_the_budget_is_refused_before_it_reads() {
    let checkpoint = Checkpoint::from_bytes(large_tensors()).unwrap();
    let pool = BufferPool::builder().budget(8 << 20).build().unwrap();
    let error = load(&checkpoint).pool(&pool).run().unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Limit {
                limit: "budget",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(pool.stats().hits + pool.stats().misses, 0);
    // borrowed tensors need no memory
    assert!(load(&checkpoint).pool(&pool).borrow_mapped().run().is_ok());
}

/// The caller's other buffers count against the budget. If they are never returned, the load ends in an error after its
/// timeout.
#[test]
fn a_load_waits_for_buffers_of_a_full_pool() {
    let checkpoint = Checkpoint::from_bytes(odd_sized_tensors(10, 1 << 20)).unwrap();
    let pool = BufferPool::builder().budget(16 << 20).build().unwrap();
    let held = pool.get(12 << 20);
    let error = load(&checkpoint)
        .pool(&pool)
        .loader(PreadLoader::new().threads(1))
        .run()
        .unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Limit {
                limit: "budget",
                ..
            }
        ),
        "{error}"
    );
    let returns_buffer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(held);
    });
    load(&checkpoint)
        .pool(&pool)
        .loader(PreadLoader::new().threads(1))
        .run()
        .unwrap();
    returns_buffer.join().unwrap();
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_source_that_fails_in_the_middle_is_an_error() {
    let bytes = large_tensors();
    let half = bytes.len() as u64 / 2;
    let checkpoint = Checkpoint::from_source(disconnecting_source(bytes, half)).unwrap();
    for (name, loader) in all_loaders()
        .iter()
        .filter(|(name, _)| !name.contains("page"))
    {
        let pool = BufferPool::new();
        let error = load(&checkpoint)
            .loader(loader.clone())
            .pool(&pool)
            .run()
            .unwrap_err();
        assert!(
            error.to_string().contains(DISCONNECTED) && error.offset() > Some(half),
            "{name}: {error}"
        );
        assert_eq!(pool.stats().in_use, 0, "{name}");
    }
}

#[test]
fn a_source_that_panics_is_an_error() {
    let bytes = large_tensors();
    let len = bytes.len() as u64;
    let checkpoint = Checkpoint::from_source(FnSource::new(len, move |start, buf: &mut [u8]| {
        assert!(start < 20 << 20, "a read behind 20 MiB");
        let start = usize::try_from(start).unwrap();
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    }))
    .unwrap();
    for threads in [1, 2] {
        let error = load(&checkpoint)
            .loader(PreadLoader::new().threads(threads))
            .run()
            .unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}

#[test]
fn a_truncated_file_is_an_error_with_path_and_offset() {
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("mapped"))
    {
        let scratch = ScratchDir::new("load-truncated");
        let path = scratch.path("in.safetensors");
        fs::write(&path, large_tensors()).unwrap();
        let checkpoint = OpenOptions::new().mmap(false).open(&path).unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len((6 << 20) + 77)
            .unwrap();
        let error = load(&checkpoint).loader(loader).run().unwrap_err();
        let ErrorKind::Io(io) = error.kind() else {
            panic!("{name}: {error}")
        };
        assert_eq!(io.kind(), io::ErrorKind::UnexpectedEof, "{name}");
        assert!(
            error.path() == Some(&*path) && error.offset().is_some(),
            "{name}: {error}"
        );
    }
}

#[test]
fn a_cancelled_load_returns_its_buffers_and_can_be_repeated() {
    let scratch = ScratchDir::new("load-cancel");
    let checkpoint = write_and_open(&scratch, &large_tensors());
    for (name, loader) in all_loaders() {
        let pool = BufferPool::new();
        let token = CancelToken::new();
        let load = load(&checkpoint).loader(loader).pool(&pool);
        let error = load
            .clone()
            .cancel(&token)
            .progress(|_| token.cancel())
            .run()
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Cancelled),
            "{name}: {error}"
        );
        assert_eq!(pool.stats().in_use, 0, "{name}");
        let mut reported = Vec::new();
        load.progress(|progress| reported.push(progress.done))
            .run()
            .unwrap();
        assert!(
            reported.is_sorted() && reported.last() == Some(&checkpoint.catalog().nbytes()),
            "{name}: {reported:?}"
        );
    }
}
