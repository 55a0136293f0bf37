//! A cancel token stops a load or the execution of a plan in the middle of a tensor, with every loader. The resident pages of
//! the file bound how much was read by then.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::loaders::all_loaders;
use crate::support::scratch_dir::ScratchDir;
use crate::support::skip;
use crate::support::sparse_file::SparseFile;
use crate::support::writers::npy_header;
use anamnesis::execute::Executor;
use anamnesis::load::{PreadLoader, StorageInfo, StorageKind, load};
use anamnesis::sink::NullSink;
use anamnesis::source::FnSource;
use anamnesis::{CancelToken, Checkpoint, ErrorKind, OpenOptions, remember};
use zeropool::BufferPool;

const TENSOR_BYTES: u64 = 2 << 30;
/// Bytes that may have been read when the first progress callback cancels.
const MAX_READ: u64 = 256 << 20;

/// A safetensors file with one tensor of zeros, which are holes on disk.
fn sparse_tensor(dtype: &str, item_bytes: u64) -> SparseFile {
    let columns = TENSOR_BYTES / 1024 / item_bytes;
    let header = format!(
        r#"{{"t":{{"dtype":"{dtype}","shape":[1024,{columns}],"data_offsets":[0,{TENSOR_BYTES}]}}}}"#
    );
    let mut file = SparseFile::default();
    file.append([&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat());
    file.append_zeros(TENSOR_BYTES);
    file
}

/// Writes the file without making the pages of its tensor resident.
fn write_sparse(scratch: &ScratchDir, name: &str, file: &SparseFile) -> std::path::PathBuf {
    let path = scratch.path(name);
    file.write(&path).unwrap();
    path
}

/// Resident bytes of the file; `None` where the file is in memory or the kernel does not report residency.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // a share of 2 GiB
fn resident_bytes(checkpoint: &Checkpoint) -> Option<u64> {
    let storage = StorageInfo::of(checkpoint);
    let share = storage
        .resident
        .filter(|_| !matches!(storage.kind, StorageKind::Memory(_)))?;
    Some((share * storage.bytes as f64) as u64)
}

#[test]
fn cancel_stops_every_loader_inside_a_tensor() {
    let scratch = ScratchDir::new("cancel-load");
    let mut measured = 0;
    for (i, (name, loader)) in all_loaders().into_iter().enumerate() {
        for map in [true, false] {
            let path = write_sparse(
                &scratch,
                &format!("{i}-{map}.safetensors"),
                &sparse_tensor("U8", 1),
            );
            let checkpoint = OpenOptions::new().mmap(map).open(&path).unwrap();
            let pool = BufferPool::new();
            let (token, mut reports) = (CancelToken::new(), Vec::new());
            let error = load(&checkpoint)
                .loader(loader.clone())
                .pool(&pool)
                .cancel(&token)
                .progress(|progress| {
                    reports.push(progress);
                    token.cancel();
                })
                .run()
                .unwrap_err();
            let what = format!("{name}, mapped: {map}");
            assert!(
                matches!(error.kind(), ErrorKind::Cancelled),
                "{what}: {error}"
            );
            assert_eq!(
                reports.len(),
                1,
                "{what}: progress reports after the cancellation"
            );
            assert!(
                reports[0].done < MAX_READ && reports[0].total == TENSOR_BYTES,
                "{what}: {:?}",
                reports
            );
            assert_eq!(pool.stats().in_use, 0, "{what}");
            if let Some(read) = resident_bytes(&checkpoint) {
                assert!(read < MAX_READ, "{what}: {read} bytes were read");
                measured += 1;
            }
            fs::remove_file(path).unwrap();
        }
    }
    if measured == 0 {
        skip(
            "the bound on what was read: the scratch directory is in memory or residency is unknown",
        );
    }
}

#[test]
fn progress_is_reported_inside_a_tensor() {
    let scratch = ScratchDir::new("cancel-progress");
    let nbytes = 200 << 20;
    let path = scratch.path("in.safetensors");
    let header =
        format!(r#"{{"t":{{"dtype":"U8","shape":[{nbytes}],"data_offsets":[0,{nbytes}]}}}}"#);
    let mut file = SparseFile::default();
    file.append([&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat());
    file.append_zeros(nbytes);
    file.write(&path).unwrap();
    for map in [true, false] {
        let checkpoint = OpenOptions::new().mmap(map).open(&path).unwrap();
        for (name, loader) in all_loaders() {
            let mut reported = vec![0];
            load(&checkpoint)
                .loader(loader)
                .progress(|progress| reported.push(progress.done))
                .run()
                .unwrap();
            assert!(
                reported.is_sorted() && reported.last() == Some(&nbytes),
                "{name}: {reported:?}"
            );
            // the start, the end of the tensor, the end of the load, and at least one report in between
            assert!(reported.len() > 3, "{name}: {reported:?}");
        }
    }
}

/// The source blocks every read of the tensor until the load is cancelled.
#[test]
fn progress_is_reported_while_a_read_blocks() {
    let stopped = Arc::new(AtomicBool::new(false));
    let header = sparse_tensor("U8", 1).segments.remove(0).1;
    let (header_bytes, blocked_reads) = (header.len() as u64, Arc::new(AtomicU64::new(0)));
    let (stop, blocked) = (stopped.clone(), blocked_reads.clone());
    let source = FnSource::new(header_bytes + TENSOR_BYTES, move |start, buf: &mut [u8]| {
        if start < header_bytes {
            let start = usize::try_from(start).unwrap();
            let n = buf.len().min(header.len() - start);
            buf[..n].copy_from_slice(&header[start..start + n]);
            return Ok(());
        }
        blocked.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if since.elapsed() > Duration::from_secs(30) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    let checkpoint = Checkpoint::from_source(source).unwrap();
    let token = CancelToken::new();
    let error = load(&checkpoint)
        .loader(PreadLoader::new().threads(2))
        .cancel(&token)
        .progress(|_| {
            // cancels once a read is blocked
            if blocked_reads.load(Ordering::Relaxed) > 0 {
                stopped.store(true, Ordering::Relaxed);
                token.cancel();
            }
        })
        .run()
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
}

/// Big-endian and Fortran-order arrays are converted while they are read, without a loader.
#[test]
fn cancel_stops_a_byte_swapped_or_transposed_read() {
    let scratch = ScratchDir::new("cancel-converted");
    for fortran_order in [false, true] {
        let mut file = SparseFile::default();
        file.append(npy_header("'>f4'", fortran_order, &[16384, 32768]));
        file.append_zeros(TENSOR_BYTES);
        for map in [true, false] {
            let path = write_sparse(&scratch, &format!("{fortran_order}-{map}.npy"), &file);
            let checkpoint = OpenOptions::new().mmap(map).open(&path).unwrap();
            let token = CancelToken::new();
            let error = load(&checkpoint)
                .cancel(&token)
                .progress(|_| token.cancel())
                .run()
                .unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Cancelled),
                "Fortran order: {fortran_order}, mapped: {map}: {error}"
            );
            assert!(
                resident_bytes(&checkpoint).is_none_or(|read| read < MAX_READ),
                "Fortran order: {fortran_order}, mapped: {map}"
            );
        }
    }
}

#[test]
fn cancel_stops_a_plan_inside_a_weight() {
    let scratch = ScratchDir::new("cancel-remember");
    for (i, (name, loader)) in all_loaders().into_iter().enumerate() {
        let path = write_sparse(
            &scratch,
            &format!("{i}.safetensors"),
            &sparse_tensor("F16", 2),
        );
        let checkpoint = Checkpoint::open(&path).unwrap();
        let plan = remember(&checkpoint).cast(true).plan().unwrap();
        assert_eq!(plan.nbytes(), TENSOR_BYTES);
        let (token, mut reports) = (CancelToken::new(), Vec::new());
        let error = Executor::new(&checkpoint, &plan)
            .loader(loader)
            .threads(2)
            .cancel(&token)
            .progress(|progress| {
                reports.push(progress);
                token.cancel();
            })
            .run(&mut NullSink)
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Cancelled),
            "{name}: {error}"
        );
        assert!(reports[0].done < MAX_READ, "{name}");
        assert!(
            resident_bytes(&checkpoint).is_none_or(|read| read < MAX_READ),
            "{name}: {:?}",
            resident_bytes(&checkpoint)
        );
        fs::remove_file(path).unwrap();
    }
}
