//! The I/O report of a load names the backend and the direct I/O that were used, and why they differ from the configuration.

use std::fs;

use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
#[cfg(target_os = "linux")]
use crate::support::skip;
use crate::support::tensor_files::single_tensor;
use anamnesis::load::{
    Backend, DirectIo, IoReport, Loader, MmapLoader, PreadLoader, RecordingLoader, load,
};
#[cfg(target_os = "linux")]
use anamnesis::load::{StorageInfo, StorageKind};
use anamnesis::{Checkpoint, OpenOptions};

const TENSOR_BYTES: usize = 5_000_001;

/// Loads the tensor with this loader, borrowing where it can.
fn report(checkpoint: &Checkpoint, loader: impl Loader + 'static) -> IoReport {
    let loaded = load(checkpoint)
        .loader(loader)
        .borrow_mapped()
        .run()
        .unwrap();
    assert_eq!(loaded.tensors()[0].bytes(), random_bytes(1, TENSOR_BYTES));
    loaded
        .report()
        .expect("every loader of this crate has an I/O report")
        .clone()
}

/// Asserts this backend, without a fallback.
fn assert_no_fallback(report: &IoReport, backend: Backend, direct: DirectIo) {
    assert!(
        (report.backend, report.direct) == (backend, direct) && report.fallback.is_none(),
        "{report}"
    );
}

/// Asserts a fallback to this backend, for a reason that contains `why`.
fn assert_fallback(report: &IoReport, backend: Backend, direct: DirectIo, why: &str) {
    let reason = report.fallback.as_deref().unwrap_or_default();
    assert!(
        (report.backend, report.direct) == (backend, direct) && reason.contains(why),
        "{report}"
    );
}

#[test]
fn buffered_reads_and_maps_report_their_backend() {
    let scratch = ScratchDir::new("report-buffered");
    let path = scratch.path("in.safetensors");
    fs::write(&path, single_tensor(TENSOR_BYTES)).unwrap();
    let mapped = Checkpoint::open(&path).unwrap();
    let read = OpenOptions::new().mmap(false).open(&path).unwrap();
    assert_no_fallback(
        &report(&mapped, PreadLoader::new()),
        Backend::Threads,
        DirectIo::No,
    );
    assert_no_fallback(
        &report(&mapped, RecordingLoader::new(PreadLoader::new())),
        Backend::Threads,
        DirectIo::No,
    );
    if cfg!(feature = "mmap") {
        assert_no_fallback(
            &report(&mapped, MmapLoader::new()),
            Backend::Mmap,
            DirectIo::No,
        );
    }
    assert_fallback(
        &report(&read, MmapLoader::new()),
        Backend::Threads,
        DirectIo::No,
        "not mapped",
    );
    let bytes = Checkpoint::from_bytes(single_tensor(TENSOR_BYTES)).unwrap();
    assert_no_fallback(
        &report(&bytes, MmapLoader::new()),
        Backend::Mmap,
        DirectIo::No,
    );
}

#[cfg(target_os = "linux")]
#[test]
fn direct_reads_are_reported_where_the_file_system_supports_them() {
    let scratch = ScratchDir::new("report-direct");
    let path = scratch.path("in.safetensors");
    fs::write(&path, single_tensor(TENSOR_BYTES)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let threads = report(&checkpoint, PreadLoader::new().threads(2).direct(true));
    match threads.direct {
        DirectIo::All => assert_no_fallback(&threads, Backend::Threads, DirectIo::All),
        other => {
            assert_fallback(&threads, Backend::Threads, other, "direct read");
            skip(&format!("direct reads: {threads}"));
        }
    }
    let bytes = Checkpoint::from_bytes(single_tensor(TENSOR_BYTES)).unwrap();
    assert_fallback(
        &report(&bytes, PreadLoader::new().direct(true)),
        Backend::Threads,
        DirectIo::No,
        "no descriptor",
    );
}

#[cfg(target_os = "linux")]
#[test]
fn tmpfs_falls_back_to_buffered_reads() {
    let root = std::path::Path::new("/dev/shm");
    if !root.is_dir() {
        return skip("no tmpfs at /dev/shm");
    }
    let path = root.join(format!(
        "anamnesis-report-{}.safetensors",
        std::process::id()
    ));
    fs::write(&path, single_tensor(TENSOR_BYTES)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    fs::remove_file(&path).unwrap(); // it stays open
    assert_eq!(
        StorageInfo::of(&checkpoint).kind,
        StorageKind::Memory("tmpfs")
    );
    assert_fallback(
        &report(&checkpoint, PreadLoader::new().direct(true)),
        Backend::Threads,
        DirectIo::No,
        "tmpfs",
    );
}

#[cfg(all(target_os = "linux", feature = "uring"))]
#[test]
fn io_uring_is_reported_or_falls_back_to_threads() {
    use anamnesis::load::UringLoader;

    let bytes = Checkpoint::from_bytes(single_tensor(TENSOR_BYTES)).unwrap();
    assert_fallback(
        &report(&bytes, UringLoader::new().direct(true)),
        Backend::Threads,
        DirectIo::No,
        "no descriptor",
    );
    let scratch = ScratchDir::new("report-uring");
    let path = scratch.path("in.safetensors");
    fs::write(&path, single_tensor(TENSOR_BYTES)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let (buffered, direct) = (
        report(&checkpoint, UringLoader::new()),
        report(&checkpoint, UringLoader::new().direct(true)),
    );
    if buffered.backend == Backend::Threads {
        assert_fallback(&buffered, Backend::Threads, DirectIo::No, "io_uring");
        return skip("this machine has no io_uring");
    }
    assert_no_fallback(&buffered, Backend::IoUring, DirectIo::No);
    // the same as with threads on the same file
    assert_eq!(
        direct.direct,
        report(&checkpoint, PreadLoader::new().direct(true)).direct,
        "{direct}"
    );
    assert!(
        direct.backend == Backend::IoUring
            && direct.fallback.is_some() == (direct.direct != DirectIo::All),
        "{direct}"
    );
}
