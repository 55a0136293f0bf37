//! One list of reads, the same bytes: whatever the loader, the source and the pool.

use std::fs;
use std::io;
use std::sync::Arc;

use crate::support::loaders::all_loaders;
use crate::support::open_modes::OpenMode;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};
use crate::support::{fixtures, skip};
use anamnesis::load::{
    Chunk, LoadContext, Loader, MAX_GAP, MmapLoader, PreadLoader, StorageInfo, StorageKind, choose,
    load,
};
use anamnesis::source::FnSource;
use anamnesis::{ByteRange, CancelToken, Checkpoint, Error, ErrorKind, OpenOptions};
use proptest::prelude::*;
use zeropool::BufferPool;

/// Loads with this loader, and asks for all bytes.
fn bytes(
    checkpoint: &Checkpoint,
    loader: &Arc<dyn Loader>,
    borrow: bool,
) -> Result<Vec<Vec<u8>>, Error> {
    let load = load(checkpoint).loader(loader.clone());
    let load = if borrow { load.borrow_mapped() } else { load };
    let loaded = load.run()?;
    Ok(loaded
        .tensors()
        .iter()
        .map(|tensor| tensor.bytes().to_vec())
        .collect())
}

#[test]
fn every_fixture_is_loaded_as_it_is_read() {
    let loaders = all_loaders();
    let mut loaded = 0;
    for (path, _) in fixtures() {
        let Ok(expected) = OpenMode::Mapped.open(&path, None) else {
            continue;
        };
        let expected: Result<Vec<_>, _> = expected
            .tensors()
            .map(|t| t.bytes().map(|b| b.into_owned()))
            .collect();
        for way in [OpenMode::Mapped, OpenMode::Read, OpenMode::Bytes] {
            let Ok(checkpoint) = way.open(&path, None) else {
                continue;
            };
            for (name, loader) in &loaders {
                let what = format!("{} {way:?} {name}", path.display());
                match (&expected, bytes(&checkpoint, loader, way != OpenMode::Read)) {
                    (Ok(expected), Ok(found)) => assert!(*expected == found, "{what} differs"),
                    (Err(expected), Err(found)) => {
                        assert_eq!(expected.kind().name(), found.kind().name(), "{what}")
                    }
                    (expected, found) => {
                        panic!(
                            "{what}: {:?} and {:?}",
                            expected.as_ref().map(drop),
                            found.as_ref().map(drop)
                        )
                    }
                }
                loaded += usize::from(expected.is_ok());
            }
        }
    }
    assert!(loaded > 1000, "{loaded}");
}

/// Some tensors of odd sizes, so that nothing is aligned and several share an extent.
fn odd(count: usize, size: usize) -> Vec<u8> {
    let tensors: Vec<_> = (0..count)
        .map(|i| {
            let len = if i % 7 == 3 { 0 } else { size + i * 13 % 101 };
            StoredTensor::new(
                &format!("t{i:05}"),
                "U8",
                &[len as u64],
                random_bytes(i as u64, len),
            )
        })
        .collect();
    safetensors(&tensors, &[])
}

/// Large enough for several extents and pieces of each.
fn large() -> Vec<u8> {
    let sizes = [5 << 20, 100, 23 << 20, 3, 9_999_999, 1 << 20, 0, 12 << 20];
    let tensors: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(i, &len)| {
            StoredTensor::new(
                &format!("t{i}"),
                "U8",
                &[len as u64],
                random_bytes(i as u64, len),
            )
        })
        .collect();
    safetensors(&tensors, &[])
}

fn on_disk(scratch: &ScratchDir, bytes: &[u8]) -> Checkpoint {
    let path = scratch.path("in.safetensors");
    fs::write(&path, bytes).unwrap();
    Checkpoint::open(path).unwrap()
}

#[test]
fn large_tensors_in_many_pieces() {
    let scratch = ScratchDir::new("load-large");
    let checkpoint = on_disk(&scratch, &large());
    let expected: Vec<_> = checkpoint
        .tensors()
        .map(|t| t.bytes().unwrap().into_owned())
        .collect();
    for (name, loader) in all_loaders()
        .iter()
        .filter(|(name, _)| !name.contains("one page"))
    {
        let found = bytes(&checkpoint, loader, true).unwrap();
        assert!(found == expected, "{name}");
    }
}

#[test]
fn ten_thousand_tiny_tensors_take_few_buffers() {
    let scratch = ScratchDir::new("load-tiny");
    let checkpoint = on_disk(&scratch, &odd(10_000, 40));
    let expected: Vec<_> = checkpoint
        .tensors()
        .map(|t| t.bytes().unwrap().into_owned())
        .collect();
    for (name, loader) in all_loaders() {
        let pool = BufferPool::new();
        let loaded = load(&checkpoint)
            .loader(loader.clone())
            .pool(&pool)
            .borrow_mapped()
            .run()
            .unwrap();
        assert!(
            loaded
                .tensors()
                .iter()
                .map(|t| t.bytes().to_vec())
                .eq(expected.iter().cloned()),
            "{name}"
        );
        let stats = pool.stats();
        // ranges that could be borrowed are read one by one where nothing is mapped
        let one_by_one = name.contains("mapped") && !cfg!(feature = "mmap");
        assert!(
            stats.hits + stats.misses < 10 || one_by_one,
            "{name}: {stats:?}"
        );
        assert_eq!(loaded.get("t00001").unwrap().bytes(), expected[1]);
        assert!(loaded.get("t").is_none());
    }
}

#[test]
fn memory_returns_to_the_pool_and_is_used_again() {
    let scratch = ScratchDir::new("load-again");
    let checkpoint = on_disk(&scratch, &large());
    let pool = BufferPool::new();
    let mut misses = 0;
    for round in 0..3 {
        let loaded = load(&checkpoint)
            .pool(&pool)
            .loader(PreadLoader::new())
            .run()
            .unwrap();
        assert!(pool.stats().in_use > 0);
        let one = loaded.tensors()[0].clone();
        drop(loaded);
        assert_eq!(
            one.bytes(),
            &*checkpoint.tensor("t0").unwrap().bytes().unwrap()
        );
        drop(one);
        assert_eq!(pool.stats().in_use, 0);
        if round == 0 {
            misses = pool.stats().misses;
        }
    }
    assert_eq!(pool.stats().misses, misses);
}

#[test]
fn what_cannot_fit_is_refused_before_it_is_read() {
    let checkpoint = Checkpoint::from_bytes(large()).unwrap();
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

/// A load waits for buffers that are held elsewhere; buffers that are never returned cause an error, not a hang.
#[test]
fn a_full_pool_is_waited_for() {
    let checkpoint = Checkpoint::from_bytes(odd(10, 1 << 20)).unwrap();
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
    let later = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(held);
    });
    load(&checkpoint)
        .pool(&pool)
        .loader(PreadLoader::new().threads(1))
        .run()
        .unwrap();
    later.join().unwrap();
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_reader_that_dies_half_way_is_an_error() {
    let bytes = large();
    let (len, half) = (bytes.len() as u64, bytes.len() as u64 / 2);
    let checkpoint = Checkpoint::from_source(FnSource::new(len, move |start, buf: &mut [u8]| {
        if start > half {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "the line is dead",
            ));
        }
        let start = usize::try_from(start).unwrap();
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    }))
    .unwrap();
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
            error.to_string().contains("the line is dead") && error.offset() > Some(half),
            "{name}: {error}"
        );
        assert_eq!(pool.stats().in_use, 0, "{name}");
    }
}

#[test]
fn a_reader_that_panics_is_an_error_and_no_hang() {
    let bytes = large();
    let len = bytes.len() as u64;
    let checkpoint = Checkpoint::from_source(FnSource::new(len, move |start, buf: &mut [u8]| {
        assert!(start < 20 << 20, "a reader's mistake");
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
fn a_file_that_shrinks_is_an_error_with_its_name() {
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("mapped"))
    {
        let scratch = ScratchDir::new("load-shrink");
        let path = scratch.path("in.safetensors");
        fs::write(&path, large()).unwrap();
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
fn a_load_can_be_cancelled_and_repeated() {
    let scratch = ScratchDir::new("load-stop");
    let checkpoint = on_disk(&scratch, &large());
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

/// tmpfs has had direct I/O of a kind since Linux 6.6 and refused it before; either way the bytes are right.
#[test]
fn direct_reads_of_a_file_system_in_memory() {
    let root = std::path::Path::new("/dev/shm");
    if !root.is_dir() {
        return skip("no tmpfs at /dev/shm");
    }
    let path = root.join(format!("anamnesis-load-{}.safetensors", std::process::id()));
    fs::write(&path, large()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    fs::remove_file(&path).unwrap(); // it stays open
    let expected: Vec<_> = checkpoint
        .tensors()
        .map(|t| t.bytes().unwrap().into_owned())
        .collect();
    for (name, loader) in all_loaders()
        .iter()
        .filter(|(name, _)| name.contains("direct"))
    {
        assert!(
            bytes(&checkpoint, loader, true).unwrap() == expected,
            "{name}"
        );
    }
    let facts = StorageInfo::of(&checkpoint);
    assert_eq!(facts.kind, StorageKind::Memory("tmpfs"));
    assert_eq!(choose(&facts, false).loader.name(), "pread");
}

#[test]
fn one_tensor_of_8_gib() {
    let scratch = ScratchDir::new("load-8g");
    let path = scratch.path("in.safetensors");
    let header = br#"{"t":{"dtype":"U8","shape":[8589934592],"data_offsets":[0,8589934592]}}"#;
    let mut start = (header.len() as u64).to_le_bytes().to_vec();
    start.extend_from_slice(header);
    fs::write(&path, &start).unwrap();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(start.len() as u64 + (8 << 30))
        .unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    // a budget that cannot hold it says so; borrowed tensors need none
    let pool = BufferPool::builder().budget(1 << 30).build().unwrap();
    let error = load(&checkpoint).pool(&pool).run().unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Limit { limit: "budget", needed, .. } if *needed == 8 << 30),
        "{error}"
    );
    if cfg!(feature = "mmap") {
        let loaded = load(&checkpoint)
            .pool(&pool)
            .borrow_mapped()
            .loader(MmapLoader::new())
            .run()
            .unwrap();
        assert_eq!(loaded.tensors()[0].bytes().len(), 8 << 30);
    }
    let free = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text
            .lines()
            .find(|line| line.starts_with("MemAvailable:"))?
            .to_owned();
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    if free.is_none_or(|kib| kib < 12 << 20) {
        return skip("8 GiB in memory: fewer than 12 GiB are free");
    }
    let loaded = load(&checkpoint)
        .loader(PreadLoader::new().direct(true))
        .run()
        .unwrap();
    let bytes = loaded.tensors()[0].bytes();
    assert!(bytes.len() == 8 << 30 && bytes.iter().step_by(4099).all(|byte| *byte == 0));
}

#[test]
fn facts_tell_warm_from_cold() {
    let scratch = ScratchDir::new("load-facts");
    let checkpoint = on_disk(&scratch, &large());
    let facts = StorageInfo::of(&checkpoint);
    assert!(facts.is_borrowable == cfg!(feature = "mmap") && facts.bytes > 50 << 20);
    if facts.resident.is_none() {
        return skip("this kernel has no cachestat");
    }
    // just written; once more where the kernel took some of it back meanwhile
    let is_warm = (0..20).any(|_| {
        let is_warm = StorageInfo::of(&checkpoint).resident > Some(0.95);
        if !is_warm {
            fs::read(scratch.path("in.safetensors")).unwrap();
        }
        is_warm
    });
    assert!(is_warm, "{facts:?}");
    if matches!(facts.kind, StorageKind::Memory(_)) {
        return skip("the scratch directory is in memory");
    }
    let file = fs::File::open(scratch.path("in.safetensors")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let facts = StorageInfo::of(&checkpoint);
    assert!(facts.resident.unwrap() < 0.5, "{facts:?}");
    let choice = choose(&facts, false);
    assert!(choice.loader.name().ends_with("direct"), "{choice}");
    let loaded = load(&checkpoint).run().unwrap();
    assert!(
        loaded.choice().loader.name().ends_with("direct"),
        "{}",
        loaded.choice()
    );
    assert_eq!(loaded.tensors()[0].bytes(), random_bytes(0, 5 << 20));
    // direct reads leave the page cache as it was
    assert!(StorageInfo::of(&checkpoint).resident.unwrap() < 0.5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any reads, taken by any number of threads in the order of the list: each gets its bytes, with little read_ahead.
    #[test]
    fn any_reads_taken_by_any_threads(
        reads in prop::collection::vec((0u64..200_000, 0u64..30_000), 1..60),
        threads in 1usize..4,
        read_ahead in prop_oneof![Just(0u64), 1u64..100_000, Just(u64::MAX)],
    ) {
        let scratch = ScratchDir::new("load-any");
        let file = odd(3, 100_000);
        let len = file.len() as u64;
        let checkpoint = on_disk(&scratch, &file);
        let reads: Vec<_> = reads.iter().map(|&(start, n)| {
            let start = start % len;
            ByteRange { file: 0, start, len: n.min(len - start) }
        }).collect();
        for (name, loader) in all_loaders() {
            let pool = BufferPool::new();
            let reading = LoadContext { checkpoint: &checkpoint, pool, read_ahead, max_gap: MAX_GAP };
            let next = std::sync::atomic::AtomicUsize::new(0);
            let mut seen = 0;
            loader.run(&reading, &reads, &mut |feed| {
                let takers: Vec<usize> = std::thread::scope(|scope| {
                    let taker = || {
                        let mut taken = 0;
                        loop {
                            let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            let Some(read) = reads.get(i) else { return taken };
                            let chunk: Chunk<'_> = feed.get(i).unwrap();
                            let start = usize::try_from(read.start).unwrap();
                            assert!(*chunk == file[start..][..usize::try_from(read.len).unwrap()], "{name}, read {i}");
                            taken += 1;
                        }
                    };
                    let all: Vec<_> = (0..threads).map(|_| scope.spawn(taker)).collect();
                    all.into_iter().map(|one| one.join().unwrap()).collect()
                });
                seen = takers.iter().sum();
                Ok(())
            }).unwrap();
            prop_assert_eq!(seen, reads.len());
        }
    }
}
