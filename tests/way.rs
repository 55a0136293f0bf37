//! A loader says how it really read, whatever it was asked for.

mod common;

use std::fs;

use anamnesis::load::{By, Direct, Facts, Kind, Loader, Mapped, Pread, Recording, Way, load};
use anamnesis::{Checkpoint, OpenOptions};
use common::scratch::{Scratch, random};
use common::skip;
use common::write::{Stored, safetensors};

fn file() -> Vec<u8> {
    safetensors(
        &[Stored::new("t", "U8", &[5_000_001], random(1, 5_000_001))],
        &[],
    )
}

fn way(checkpoint: &Checkpoint, loader: impl Loader + 'static) -> Way {
    let loaded = load(checkpoint).loader(loader).own(false).run().unwrap();
    assert_eq!(loaded.tensors()[0].bytes(), random(1, 5_000_001));
    loaded.way().expect("all of ours say it").clone()
}

/// As it was asked for.
fn as_asked(way: &Way, by: By, direct: Direct) {
    assert!(
        (way.by, way.direct) == (by, direct) && way.instead.is_none(),
        "{way}"
    );
}

/// In another way, for a reason with this in it.
fn instead(way: &Way, by: By, direct: Direct, why: &str) {
    let said = way.instead.as_deref().unwrap_or_default();
    assert!(
        (way.by, way.direct) == (by, direct) && said.contains(why),
        "{way}"
    );
}

#[test]
fn through_the_page_cache() {
    let scratch = Scratch::new("way-through");
    let path = scratch.path("in.safetensors");
    fs::write(&path, file()).unwrap();
    let mapped = Checkpoint::open(&path).unwrap();
    let read = OpenOptions::new().map(false).open(&path).unwrap();
    as_asked(&way(&mapped, Pread::new()), By::Threads, Direct::No);
    as_asked(
        &way(&mapped, Recording::new(Pread::new())),
        By::Threads,
        Direct::No,
    );
    if cfg!(feature = "mmap") {
        as_asked(&way(&mapped, Mapped::new()), By::Map, Direct::No);
    }
    instead(
        &way(&read, Mapped::new()),
        By::Threads,
        Direct::No,
        "not mapped",
    );
    let bytes = Checkpoint::from_bytes(file()).unwrap();
    as_asked(&way(&bytes, Mapped::new()), By::Map, Direct::No);
}

#[cfg(target_os = "linux")]
#[test]
fn past_it_where_the_file_system_can() {
    let scratch = Scratch::new("way-past");
    let path = scratch.path("in.safetensors");
    fs::write(&path, file()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let threads = way(&checkpoint, Pread::new().threads(2).direct(true));
    match threads.direct {
        Direct::All => as_asked(&threads, By::Threads, Direct::All),
        other => {
            instead(&threads, By::Threads, other, "direct read");
            skip(&format!("direct reads: {threads}"));
        }
    }
    let bytes = Checkpoint::from_bytes(file()).unwrap();
    instead(
        &way(&bytes, Pread::new().direct(true)),
        By::Threads,
        Direct::No,
        "no descriptor",
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_system_in_memory_reads_nothing_directly() {
    let root = std::path::Path::new("/dev/shm");
    if !root.is_dir() {
        return skip("no tmpfs at /dev/shm");
    }
    let path = root.join(format!("anamnesis-way-{}.safetensors", std::process::id()));
    fs::write(&path, file()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    fs::remove_file(&path).unwrap(); // it stays open
    assert_eq!(Facts::of(&checkpoint).kind, Kind::Memory("tmpfs"));
    instead(
        &way(&checkpoint, Pread::new().direct(true)),
        By::Threads,
        Direct::No,
        "tmpfs",
    );
}

#[cfg(all(target_os = "linux", feature = "uring"))]
#[test]
fn a_ring_or_threads() {
    use anamnesis::load::Uring;

    let bytes = Checkpoint::from_bytes(file()).unwrap();
    instead(
        &way(&bytes, Uring::new().direct(true)),
        By::Threads,
        Direct::No,
        "no descriptor",
    );
    let scratch = Scratch::new("way-ring");
    let path = scratch.path("in.safetensors");
    fs::write(&path, file()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let (through, past) = (
        way(&checkpoint, Uring::new()),
        way(&checkpoint, Uring::new().direct(true)),
    );
    if through.by == By::Threads {
        instead(&through, By::Threads, Direct::No, "io_uring");
        return skip("this machine has no io_uring");
    }
    as_asked(&through, By::Ring, Direct::No);
    // as threads do on the same files
    assert_eq!(
        past.direct,
        way(&checkpoint, Pread::new().direct(true)).direct,
        "{past}"
    );
    assert!(
        past.by == By::Ring && past.instead.is_some() == (past.direct != Direct::All),
        "{past}"
    );
}
