//! Every loader gives the bytes that reading each tensor gives, for any source, size and number of tensors, pool and number of
//! consuming threads.

use std::fs;
use std::sync::Arc;

use crate::support::loaders::all_loaders;
use crate::support::open_modes::OpenMode;
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::{
    large_tensors, odd_sized_tensors, tensor_bytes, write_and_open,
};
use crate::support::{fixtures, skip};
use anamnesis::load::{Chunk, LoadContext, Loader, MAX_GAP, MmapLoader, PreadLoader, load};
use anamnesis::{ByteRange, Checkpoint, CheckpointHandle, Error, ErrorKind};
use proptest::prelude::*;
use zeropool::BufferPool;

/// The bytes of all tensors, loaded with this loader from a checkpoint that is borrowed or shared.
fn load_all<'c>(
    checkpoint: impl Into<CheckpointHandle<'c>>,
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
fn loading_and_reading_give_the_same_bytes() {
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
        for mode in [
            OpenMode::Mapped,
            OpenMode::Private,
            OpenMode::Read,
            OpenMode::Bytes,
        ] {
            let Ok(checkpoint) = mode.open(&path, None) else {
                continue;
            };
            let checkpoint = Arc::new(checkpoint);
            let handles = [CheckpointHandle::from(&*checkpoint), (&checkpoint).into()];
            for ((name, loader), handle) in loaders
                .iter()
                .flat_map(|loader| handles.iter().map(move |handle| (loader, handle)))
            {
                let what = format!("{} {mode:?} {name}", path.display());
                match (
                    &expected,
                    load_all(handle.clone(), loader, mode != OpenMode::Read),
                ) {
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
    assert!(loaded > 3000, "{loaded}");
}

#[test]
fn large_tensors_are_loaded_by_several_requests() {
    let scratch = ScratchDir::new("load-large");
    let checkpoint = write_and_open(&scratch, &large_tensors());
    let expected = tensor_bytes(&checkpoint);
    for (name, loader) in all_loaders()
        .iter()
        .filter(|(name, _)| !name.contains("one page"))
    {
        let found = load_all(&checkpoint, loader, true).unwrap();
        assert!(found == expected, "{name}");
    }
}

#[test]
fn ten_thousand_tiny_tensors_share_few_buffers() {
    let scratch = ScratchDir::new("load-tiny");
    let checkpoint = write_and_open(&scratch, &odd_sized_tensors(10_000, 40));
    let expected = tensor_bytes(&checkpoint);
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
        // borrowable ranges that are not mapped are read one by one, each into its buffer
        let is_unmerged = name.contains("mapped") && !cfg!(feature = "mmap");
        assert!(
            stats.hits + stats.misses < 10 || is_unmerged,
            "{name}: {stats:?}"
        );
        assert_eq!(loaded.get("t00001").unwrap().bytes(), expected[1]);
        assert!(loaded.get("t").is_none());
    }
}

#[test]
fn buffers_are_returned_to_the_pool_and_reused() {
    let scratch = ScratchDir::new("load-reuse");
    let checkpoint = write_and_open(&scratch, &large_tensors());
    let pool = BufferPool::new();
    let mut misses = 0;
    for round in 0..3 {
        let loaded = load(&checkpoint)
            .pool(&pool)
            .loader(PreadLoader::new())
            .run()
            .unwrap();
        assert!(pool.stats().in_use > 0);
        let tensor = loaded.tensors()[0].clone();
        drop(loaded);
        assert_eq!(
            tensor.bytes(),
            &*checkpoint.tensor("t0").unwrap().bytes().unwrap()
        );
        drop(tensor);
        assert_eq!(pool.stats().in_use, 0);
        if round == 0 {
            misses = pool.stats().misses;
        }
    }
    assert_eq!(pool.stats().misses, misses);
}

#[test]
fn a_tensor_of_8_gib_is_loaded_and_borrowed() {
    let scratch = ScratchDir::new("load-8g");
    let path = scratch.path("in.safetensors");
    let header = br#"{"t":{"dtype":"U8","shape":[8589934592],"data_offsets":[0,8589934592]}}"#;
    let mut file_start = (header.len() as u64).to_le_bytes().to_vec();
    file_start.extend_from_slice(header);
    fs::write(&path, &file_start).unwrap();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(file_start.len() as u64 + (8 << 30))
        .unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    // a budget that cannot hold it is an error; borrowed tensors need no memory of the pool
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
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text
            .lines()
            .find(|line| line.starts_with("MemAvailable:"))?
            .to_owned();
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    if available.is_none_or(|kib| kib < 12 << 20) {
        return skip("8 GiB in memory: fewer than 12 GiB are available");
    }
    let loaded = load(&checkpoint)
        .loader(PreadLoader::new().direct(true))
        .run()
        .unwrap();
    let bytes = loaded.tensors()[0].bytes();
    assert!(bytes.len() == 8 << 30 && bytes.iter().step_by(4099).all(|byte| *byte == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Threads share the list of reads and get each in the order of the list, with any bound of read-ahead.
    #[test]
    fn any_reads_are_consumed_by_any_threads(
        reads in prop::collection::vec((0u64..200_000, 0u64..30_000), 1..60),
        threads in 1usize..4,
        read_ahead in prop_oneof![Just(0u64), 1u64..100_000, Just(u64::MAX)],
    ) {
        let scratch = ScratchDir::new("load-any");
        let file = odd_sized_tensors(3, 100_000);
        let len = file.len() as u64;
        let checkpoint = write_and_open(&scratch, &file);
        let reads: Vec<_> = reads.iter().map(|&(start, n)| {
            let start = start % len;
            ByteRange { file: 0, start, len: n.min(len - start) }
        }).collect();
        for (name, loader) in all_loaders() {
            let pool = BufferPool::new();
            let context = LoadContext { checkpoint: &checkpoint, pool, read_ahead, max_gap: MAX_GAP, into_memory: false };
            let next = std::sync::atomic::AtomicUsize::new(0);
            let mut consumed = 0;
            loader.run(&context, &reads, &mut |feed| {
                let counts: Vec<usize> = std::thread::scope(|scope| {
                    let consume = || {
                        let mut count = 0;
                        loop {
                            let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            let Some(read) = reads.get(i) else { return count };
                            let chunk: Chunk<'_> = feed.get(i).unwrap();
                            let start = usize::try_from(read.start).unwrap();
                            assert!(*chunk == file[start..][..usize::try_from(read.len).unwrap()], "{name}, read {i}");
                            count += 1;
                        }
                    };
                    let workers: Vec<_> = (0..threads).map(|_| scope.spawn(consume)).collect();
                    workers.into_iter().map(|worker| worker.join().unwrap()).collect()
                });
                consumed = counts.iter().sum();
                Ok(())
            }).unwrap();
            prop_assert_eq!(consumed, reads.len());
        }
    }
}
