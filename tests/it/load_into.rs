//! Loading into memory of the caller: each tensor exactly into its memory, by every loader, whole and in slices, with checksums
//! verified, in bounded memory of the pool; and nothing is read or written where it must not be.

use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::fn_sources::{DISCONNECTED, disconnecting_source};
use crate::support::loaders::all_loaders;
use crate::support::open_modes::OpenMode;
use crate::support::random::random_bytes;
use crate::support::recording_source::RecordingSource;
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::{
    large_tensors, odd_sized_tensors, single_tensor, tensor_bytes, varied_tensors, write_and_open,
};
use crate::support::writers::{StoredTensor, npy_header, safetensors};
use crate::support::{fixture, fixtures};
use anamnesis::load::{LoadedTensor, PreadLoader, RecordingLoader};
use anamnesis::slice::TensorSlice;
use anamnesis::source::FnSource;
use anamnesis::{CancelToken, Checkpoint, ErrorKind, Load, Result, load, predict, template};
use zeropool::BufferPool;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// Memory for tensors of these lengths, filled with a byte that is unlikely in them.
fn memory(lens: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
    lens.into_iter().map(|len| vec![0xa7; len]).collect()
}

/// All tensors of the checkpoint, loaded into memory.
fn load_into(load: &Load<'_>, checkpoint: &Checkpoint) -> Result<Vec<Vec<u8>>> {
    let tensors = checkpoint.catalog().tensors();
    let mut all = memory(tensors.iter().map(|t| usize::try_from(t.nbytes()).unwrap()));
    let names = tensors.iter().map(|tensor| &*tensor.name);
    load.run_into(names.zip(all.iter_mut().map(|out| &mut out[..])))?;
    Ok(all)
}

#[test]
fn every_tensor_is_loaded_into_its_memory() {
    let loaders = all_loaders();
    let mut loaded = 0;
    for (path, _) in fixtures() {
        for mode in [OpenMode::Mapped, OpenMode::Read, OpenMode::Bytes] {
            let Ok(checkpoint) = mode.open(&path, None) else {
                continue;
            };
            let expected: Result<Vec<_>> = checkpoint
                .tensors()
                .map(|t| t.bytes().map(|b| b.into_owned()))
                .collect();
            for (name, loader) in &loaders {
                let what = format!("{} {mode:?} {name}", path.display());
                let load = load(&checkpoint).loader(loader.clone());
                match (&expected, load_into(&load, &checkpoint)) {
                    (Ok(expected), Ok(found)) => assert!(*expected == found, "{what} differs"),
                    (Err(expected), Err(found)) => {
                        assert_eq!(expected.kind().name(), found.kind().name(), "{what}")
                    }
                    (expected, found) => panic!(
                        "{what}: {:?} and {:?}",
                        expected.as_ref().map(drop),
                        found.as_ref().map(drop)
                    ),
                }
                loaded += usize::from(expected.is_ok());
            }
        }
    }
    assert!(loaded > 3000, "{loaded}");
}

/// Tensors longer than a piece, in a pool that does not hold them.
#[test]
fn large_tensors_need_no_more_of_the_pool_than_the_read_ahead() {
    let scratch = ScratchDir::new("into-large");
    let checkpoint = write_and_open(&scratch, &large_tensors());
    let expected = tensor_bytes(&checkpoint);
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("one page"))
    {
        for threads in [1, 3] {
            // the read-ahead, and for each thread one piece that it waits for and one that it copies; with the rounding of
            // size classes
            let budget = (1 + 2 * threads) * (5 << 20);
            let pool = BufferPool::builder().budget(budget).build().unwrap();
            let load = load(&checkpoint)
                .loader(loader.clone())
                .pool(&pool)
                .threads(threads)
                .read_ahead(4 << 20);
            assert!(load_into(&load, &checkpoint).unwrap() == expected, "{name}");
            let stats = pool.stats();
            assert_eq!(stats.in_use, 0, "{name}");
            // neither a map nor ordinary reads need a buffer
            let needs_none = ["mapped", "one thread", "three threads", "recorded"];
            if needs_none.iter().any(|prefix| name.starts_with(prefix)) {
                assert_eq!(stats.hits + stats.misses, 0, "{name}");
            }
        }
    }
}

/// Runs of a slice that are read together or one by one, shorter and longer than a piece.
#[test]
fn slices_are_loaded_into_memory() {
    let scratch = ScratchDir::new("into-slices");
    let tensor = |name: &str, shape: &[u64]| {
        let nbytes = usize::try_from(shape.iter().product::<u64>()).unwrap();
        StoredTensor::new(name, "U8", shape, random_bytes(nbytes as u64, nbytes))
    };
    let tensors = [
        tensor("short runs and gaps", &[20_000, 2_000]),
        tensor("long gaps", &[300, 20_000]),
        tensor("many runs", &[70_000, 8]),
        tensor("long runs", &[2, 36 << 20]),
        tensor("empty", &[4, 0]),
        tensor("three dimensions", &[3, 50, 70]),
    ];
    let checkpoint = write_and_open(&scratch, &safetensors(&tensors, &[]));
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("page"))
    {
        for slice in [
            TensorSlice::Rows(1..2),
            TensorSlice::Shard {
                axis: 1,
                rank: 1,
                of: 2,
            },
            TensorSlice::Shard {
                axis: 1,
                rank: 2,
                of: 3,
            },
        ] {
            let load = load(&checkpoint)
                .loader(loader.clone())
                .slice(move |_| slice.clone());
            let expected = load.run().unwrap();
            let mut all = memory(expected.tensors().iter().map(|t| t.bytes().len()));
            let names = expected.tensors().iter().map(LoadedTensor::name);
            load.run_into(names.zip(all.iter_mut().map(|out| &mut out[..])))
                .unwrap();
            for (tensor, found) in expected.tensors().iter().zip(&all) {
                assert!(tensor.bytes() == found, "{name}: {}", tensor.name());
            }
        }
    }
}

/// Boxes and joined ranges, whose runs have no common distance; several slices have no place in one memory.
#[test]
fn boxes_and_joined_ranges_are_loaded_into_memory() {
    let scratch = ScratchDir::new("into-boxes");
    let shape = [3, 300, 7000];
    let values = random_bytes(5, 3 * 300 * 7000);
    let tensors = [StoredTensor::new("t", "U8", &shape, values.clone())];
    let checkpoint = write_and_open(&scratch, &safetensors(&tensors, &[]));
    let at = |i: usize, j: usize, k: usize| (i * 300 + j) * 7000 + k;
    let mut boxed = Vec::new();
    let mut joined = Vec::new();
    for i in 0..3 {
        for j in 0..300 {
            if i > 0 && (5..290).contains(&j) {
                boxed.extend_from_slice(&values[at(i, j, 10)..at(i, j, 6000)]);
            }
            // the first gap is read along, the second is not
            for part in [0..100, 200..300, 6500..7000] {
                joined.extend_from_slice(&values[at(i, j, part.start)..at(i, j, part.end)]);
            }
        }
    }
    let boxes = TensorSlice::Axes(vec![1..3, 5..290, 10..6000]);
    let ranges = TensorSlice::Joined {
        axis: 2,
        ranges: vec![0..100, 200..300, 6500..7000],
    };
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("page"))
    {
        let load = load(&checkpoint).loader(loader);
        for (slice, expected) in [(&boxes, &boxed), (&ranges, &joined)] {
            let mut out = vec![0xa7; expected.len()];
            let load = load.clone().slice(|_| slice.clone());
            load.tensor_into("t", &mut out).unwrap();
            assert!(out == **expected, "{name}: {slice:?}");
        }
        let rows =
            |count: u64| move |_: &_| (0..count).map(|i| TensorSlice::Rows(i..i + 1)).collect();
        let mut out = vec![0xa7; 300 * 7000];
        load.clone()
            .slices(rows(1))
            .tensor_into("t", &mut out)
            .unwrap();
        assert!(out == values[..out.len()], "{name}");
        let error = load.clone().slices(rows(2)).tensor_into("t", &mut out);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("tensor `t`: several slices"), "{error}");
        let none = load.clone().slices(rows(0)).tensor_into("t", &mut out);
        assert!(none.is_err(), "{name}: no slice of the tensor");
    }
}

/// A checksum covers the whole tensor, also if a slice of it is loaded or pieces of it are read by several threads.
#[test]
fn checksums_of_archives_are_verified() {
    let len = 40 << 20;
    let mut member = npy_header("'|u1'", false, &[4, 10 << 20]);
    let header = member.len();
    member.extend(random_bytes(3, len));
    let whole = stored_zip("a.npy", &member);
    let start = whole.windows(6).position(|at| at == b"\x93NUMPY").unwrap() + header;
    // in the first piece, in a later one, and in none
    for damage in [Some(5), Some(39 << 20), None] {
        let scratch = ScratchDir::new("into-checksum");
        let path = scratch.path("in.npz");
        let mut bytes = whole.clone();
        if let Some(at) = damage {
            bytes[start + at] ^= 1;
        }
        std::fs::write(&path, &bytes).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        for (name, loader) in all_loaders()
            .into_iter()
            .filter(|(name, _)| !name.contains("page"))
        {
            let load = load(&checkpoint).loader(loader);
            let rows = load.clone().slice(|_| TensorSlice::Rows(1..3));
            let (mut out, mut two) = (vec![0; len], vec![0; len / 2]);
            for found in [
                load.tensor_into("a", &mut out),
                rows.tensor_into("a", &mut two),
            ] {
                match (damage, found) {
                    (None, found) => found.unwrap(),
                    (Some(_), found) => {
                        let error = found.unwrap_err();
                        assert!(error.to_string().contains("checksum"), "{name}: {error}");
                    }
                }
            }
            if damage.is_none() {
                let expected = &member[header..];
                assert!(
                    out == expected && two == expected[10 << 20..30 << 20],
                    "{name}"
                );
            }
        }
    }
}

/// A zip archive with one stored member.
fn stored_zip(name: &str, content: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    zip.start_file(name, options).unwrap();
    zip.write_all(content).unwrap();
    zip.finish().unwrap().into_inner()
}

#[test]
fn wrong_lengths_and_names_are_refused_before_anything_is_read() {
    let reads = Arc::new(Mutex::new(Vec::new()));
    let source = RecordingSource {
        bytes: varied_tensors(),
        reads: reads.clone(),
    };
    let checkpoint = Checkpoint::from_source(source).unwrap();
    reads.lock().unwrap().clear();
    let (mut bb, mut other, mut ccc) = ([0; 105], [0; 105], [0; 66]);
    let load = load(&checkpoint);
    let missing = load.run_into([("bb", &mut bb[..]), ("no.such.tensor", &mut other[..])]);
    let short = load.run_into([("bb", &mut bb[..]), ("ccc", &mut ccc[1..])]);
    let twice = load.run_into([("bb", &mut bb[..]), ("bb", &mut other[..])]);
    for (found, expected) in [
        (missing, ["no.such.tensor", ""]),
        (short, ["66", "65"]),
        (twice, ["bb", "twice"]),
    ] {
        let error = found.unwrap_err().to_string();
        assert!(expected.iter().all(|text| error.contains(text)), "{error}");
    }
    let slice = load.clone().slice(|_| TensorSlice::Rows(3..9));
    assert!(slice.run_into([("bb", &mut bb[..])]).is_err());
    assert_eq!((reads.lock().unwrap().len(), bb), (0, [0; 105]));
    // the names replace a filter, and no names are no work
    let filtered = load.filter(|name| name == "a");
    filtered.run_into([("bb", &mut bb[..])]).unwrap();
    assert_eq!(bb, *checkpoint.tensor("bb").unwrap().bytes().unwrap());
    filtered.run_into::<&str>([]).unwrap();
}

#[test]
fn progress_counts_every_byte_once() {
    let scratch = ScratchDir::new("into-progress");
    let checkpoint = write_and_open(&scratch, &large_tensors());
    for (name, loader) in all_loaders() {
        let mut reported = vec![0];
        let load = load(&checkpoint)
            .loader(loader)
            .progress(|progress| reported.push(progress.done));
        load_into(&load, &checkpoint).unwrap();
        drop(load);
        let total = checkpoint.catalog().nbytes();
        assert!(
            reported.is_sorted() && reported.last() == Some(&total) && reported.len() > 4,
            "{name}: {reported:?}"
        );
    }
}

/// After a cancellation no thread and no read of the kernel writes to the memory.
#[test]
fn a_cancelled_load_writes_nothing_afterwards() {
    let scratch = ScratchDir::new("into-cancel");
    let checkpoint = write_and_open(&scratch, &large_tensors());
    let tensors = checkpoint.catalog().tensors();
    for (name, loader) in all_loaders() {
        let (pool, token) = (BufferPool::new(), CancelToken::new());
        let load = load(&checkpoint)
            .loader(loader)
            .pool(&pool)
            .cancel(&token)
            .progress(|progress| {
                if progress.done > 0 {
                    token.cancel();
                }
            });
        let mut all = memory(tensors.iter().map(|t| usize::try_from(t.nbytes()).unwrap()));
        let names = tensors.iter().map(|tensor| &*tensor.name);
        let outs = all.iter_mut().map(|out| &mut out[..]);
        let error = load.run_into(names.zip(outs)).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Cancelled),
            "{name}: {error}"
        );
        assert_eq!(pool.stats().in_use, 0, "{name}");
        all.iter_mut().for_each(|out| out.fill(0x5c));
        std::thread::sleep(Duration::from_millis(20));
        assert!(all.iter().flatten().all(|byte| *byte == 0x5c), "{name}");
    }
}

/// Every thread is blocked in a read: the callback is invoked all the same, and cancels.
#[test]
fn progress_is_reported_while_reads_block() {
    let (released, reads) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let bytes = single_tensor(40 << 20);
    let (len, release, count) = (bytes.len() as u64, released.clone(), reads.clone());
    let source = FnSource::new(len, move |start, buf: &mut [u8]| {
        let at = usize::try_from(start).unwrap();
        buf.copy_from_slice(&bytes[at..at + buf.len()]);
        if start < 1 << 20 && buf.len() < 1 << 20 {
            return Ok(()); // the header
        }
        count.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        while !release.load(Ordering::Relaxed) {
            assert!(since.elapsed() < Duration::from_secs(60), "never released");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    let checkpoint = Checkpoint::from_source(source).unwrap();
    let token = CancelToken::new();
    let load = load(&checkpoint)
        .loader(PreadLoader::new().threads(2))
        .cancel(&token)
        .progress(|_| {
            if reads.load(Ordering::Relaxed) == 2 {
                token.cancel();
                released.store(true, Ordering::Relaxed);
            }
        });
    let error = load_into(&load, &checkpoint).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    assert_eq!(reads.load(Ordering::Relaxed), 2, "a read after the cancel");
}

#[test]
fn a_source_that_fails_is_an_error_with_its_offset() {
    let bytes = large_tensors();
    let half = bytes.len() as u64 / 2;
    let checkpoint = Checkpoint::from_source(disconnecting_source(bytes, half)).unwrap();
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("page"))
    {
        let pool = BufferPool::new();
        let load = load(&checkpoint).loader(loader).pool(&pool);
        let error = load_into(&load, &checkpoint).unwrap_err();
        assert!(
            error.to_string().contains(DISCONNECTED) && error.offset() > Some(half),
            "{name}: {error}"
        );
        assert_eq!(pool.stats().in_use, 0, "{name}");
    }
}

#[test]
fn a_recording_has_every_read() {
    let checkpoint = Checkpoint::open(fixture("safetensors/sharded")).unwrap();
    let recording = RecordingLoader::new(PreadLoader::new());
    let load = load(&checkpoint).loader(recording.clone());
    load_into(&load, &checkpoint).unwrap();
    let predicted = predict(&checkpoint).template().unwrap();
    let covered = template::coverage(&recording.template().unwrap(), &predicted);
    assert_eq!(covered.share(), 1.0);
}

/// The loader's number of threads is the number of the reads' threads.
#[test]
fn one_thread_reads_in_order() {
    let reads = Arc::new(Mutex::new(Vec::new()));
    let source = RecordingSource {
        bytes: odd_sized_tensors(40, 10_000),
        reads: reads.clone(),
    };
    let checkpoint = Checkpoint::from_source(source).unwrap();
    reads.lock().unwrap().clear();
    let load = load(&checkpoint).loader(PreadLoader::new().threads(1).request_size(4096));
    load_into(&load, &checkpoint).unwrap();
    let reads = reads.lock().unwrap();
    assert!(reads.is_sorted() && reads.iter().all(|(_, len)| *len <= 4096));
    assert!(reads.len() > 100);
}
