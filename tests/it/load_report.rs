//! A loader reports how it really read, whatever it was configured to do.

use std::fs;

use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::skip;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::load::{
    Backend, DirectIo, IoReport, Loader, MmapLoader, PreadLoader, RecordingLoader, StorageInfo,
    StorageKind, load,
};
use anamnesis::{Checkpoint, OpenOptions};

fn file() -> Vec<u8> {
    safetensors(
        &[StoredTensor::new(
            "t",
            "U8",
            &[5_000_001],
            random_bytes(1, 5_000_001),
        )],
        &[],
    )
}

fn report(checkpoint: &Checkpoint, loader: impl Loader + 'static) -> IoReport {
    let loaded = load(checkpoint)
        .loader(loader)
        .borrow_mapped()
        .run()
        .unwrap();
    assert_eq!(loaded.tensors()[0].bytes(), random_bytes(1, 5_000_001));
    loaded
        .report()
        .expect("every loader of this crate reports")
        .clone()
}

/// Asserts that there was no fallback.
fn no_fallback(report: &IoReport, backend: Backend, direct: DirectIo) {
    assert!(
        (report.backend, report.direct) == (backend, direct) && report.fallback.is_none(),
        "{report}"
    );
}

/// Asserts a fallback whose reason contains `why`.
fn fell_back(report: &IoReport, backend: Backend, direct: DirectIo, why: &str) {
    let said = report.fallback.as_deref().unwrap_or_default();
    assert!(
        (report.backend, report.direct) == (backend, direct) && said.contains(why),
        "{report}"
    );
}

#[test]
fn through_the_page_cache() {
    let scratch = ScratchDir::new("report-through");
    let path = scratch.path("in.safetensors");
    fs::write(&path, file()).unwrap();
    let mapped = Checkpoint::open(&path).unwrap();
    let read = OpenOptions::new().mmap(false).open(&path).unwrap();
    no_fallback(
        &report(&mapped, PreadLoader::new()),
        Backend::Threads,
        DirectIo::No,
    );
    no_fallback(
        &report(&mapped, RecordingLoader::new(PreadLoader::new())),
        Backend::Threads,
        DirectIo::No,
    );
    if cfg!(feature = "mmap") {
        no_fallback(
            &report(&mapped, MmapLoader::new()),
            Backend::Mmap,
            DirectIo::No,
        );
    }
    fell_back(
        &report(&read, MmapLoader::new()),
        Backend::Threads,
        DirectIo::No,
        "not mapped",
    );
    let bytes = Checkpoint::from_bytes(file()).unwrap();
    no_fallback(
        &report(&bytes, MmapLoader::new()),
        Backend::Mmap,
        DirectIo::No,
    );
}

#[cfg(target_os = "linux")]
#[test]
fn direct_io_where_the_file_system_supports_it() {
    let scratch = ScratchDir::new("report-past");
    let path = scratch.path("in.safetensors");
    fs::write(&path, file()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let threads = report(&checkpoint, PreadLoader::new().threads(2).direct(true));
    match threads.direct {
        DirectIo::All => no_fallback(&threads, Backend::Threads, DirectIo::All),
        other => {
            fell_back(&threads, Backend::Threads, other, "direct read");
            skip(&format!("direct reads: {threads}"));
        }
    }
    let bytes = Checkpoint::from_bytes(file()).unwrap();
    fell_back(
        &report(&bytes, PreadLoader::new().direct(true)),
        Backend::Threads,
        DirectIo::No,
        "no descriptor",
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_system_in_memory_has_no_direct_io() {
    let root = std::path::Path::new("/dev/shm");
    if !root.is_dir() {
        return skip("no tmpfs at /dev/shm");
    }
    let path = root.join(format!(
        "anamnesis-report-{}.safetensors",
        std::process::id()
    ));
    fs::write(&path, file()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    fs::remove_file(&path).unwrap(); // it stays open
    assert_eq!(
        StorageInfo::of(&checkpoint).kind,
        StorageKind::Memory("tmpfs")
    );
    fell_back(
        &report(&checkpoint, PreadLoader::new().direct(true)),
        Backend::Threads,
        DirectIo::No,
        "tmpfs",
    );
}

#[cfg(all(target_os = "linux", feature = "uring"))]
#[test]
fn io_uring_or_threads() {
    use anamnesis::load::UringLoader;

    let bytes = Checkpoint::from_bytes(file()).unwrap();
    fell_back(
        &report(&bytes, UringLoader::new().direct(true)),
        Backend::Threads,
        DirectIo::No,
        "no descriptor",
    );
    let scratch = ScratchDir::new("report-ring");
    let path = scratch.path("in.safetensors");
    fs::write(&path, file()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let (buffered, direct) = (
        report(&checkpoint, UringLoader::new()),
        report(&checkpoint, UringLoader::new().direct(true)),
    );
    if buffered.backend == Backend::Threads {
        fell_back(&buffered, Backend::Threads, DirectIo::No, "io_uring");
        return skip("this machine has no io_uring");
    }
    no_fallback(&buffered, Backend::IoUring, DirectIo::No);
    // as threads do on the same files
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
