//! A cancel token stops a run inside a tensor, with every loader.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::loaders::all_loaders;
use crate::support::scratch_dir::ScratchDir;
use crate::support::skip;
use crate::support::sparse_file::SparseFile;
use anamnesis::execute::Executor;
use anamnesis::load::{PreadLoader, StorageInfo, StorageKind, load};
use anamnesis::sink::NullSink;
use anamnesis::source::FnSource;
use anamnesis::{CancelToken, Checkpoint, ErrorKind, OpenOptions, remember};
use zeropool::BufferPool;

const TENSOR: u64 = 2 << 30;
/// Bytes that may have been read when the first callback cancels.
const MOST: u64 = 256 << 20;

/// One tensor of zeros that are not there.
fn tensor(dtype: &str, width: u64) -> SparseFile {
    let columns = TENSOR / 1024 / width;
    let header = format!(
        r#"{{"t":{{"dtype":"{dtype}","shape":[1024,{columns}],"data_offsets":[0,{TENSOR}]}}}}"#
    );
    let mut file = SparseFile::default();
    file.append([&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat());
    file.append_zeros(TENSOR);
    file
}

/// The file, of which the page cache holds nothing.
fn cold(scratch: &ScratchDir, name: &str, file: &SparseFile) -> std::path::PathBuf {
    let path = scratch.path(name);
    file.write(&path).unwrap();
    path
}

/// Bytes of the file that the page cache holds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // a share of 2 GiB
fn bytes_read(checkpoint: &Checkpoint) -> Option<u64> {
    let facts = StorageInfo::of(checkpoint);
    let share = facts
        .resident
        .filter(|_| !matches!(facts.kind, StorageKind::Memory(_)))?;
    Some((share * facts.bytes as f64) as u64)
}

#[test]
fn every_loader_stops_inside_a_tensor_of_2_gib() {
    let scratch = ScratchDir::new("cancel-load");
    let mut measured = 0;
    for (i, (name, loader)) in all_loaders().into_iter().enumerate() {
        for map in [true, false] {
            let path = cold(
                &scratch,
                &format!("{i}-{map}.safetensors"),
                &tensor("U8", 1),
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
            assert_eq!(reports.len(), 1, "{what}: invoked after the cancellation");
            assert!(
                reports[0].done < MOST && reports[0].total == TENSOR,
                "{what}: {:?}",
                reports
            );
            assert_eq!(pool.stats().in_use, 0, "{what}");
            if let Some(read) = bytes_read(&checkpoint) {
                assert!(read < MOST, "{what}: {read} bytes were read");
                measured += 1;
            }
            fs::remove_file(path).unwrap();
        }
    }
    if measured == 0 {
        skip("how much was read: the scratch directory is in memory");
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
            // the beginning here, the end of the tensor and of the load, and something between
            assert!(reported.len() > 3, "{name}: {reported:?}");
        }
    }
}

/// The source blocks every read of the tensor until the load is cancelled.
#[test]
fn progress_is_reported_while_a_read_blocks() {
    let stopped = Arc::new(AtomicBool::new(false));
    let header = tensor("U8", 1).segments.remove(0).1;
    let (head, begun) = (header.len() as u64, Arc::new(AtomicU64::new(0)));
    let (seen, count) = (stopped.clone(), begun.clone());
    let source = FnSource::new(head + TENSOR, move |start, buf: &mut [u8]| {
        if start < head {
            let start = usize::try_from(start).unwrap();
            let n = buf.len().min(header.len() - start);
            buf[..n].copy_from_slice(&header[start..start + n]);
            return Ok(());
        }
        count.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        while !seen.load(Ordering::Relaxed) {
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
            // only once a read is blocked
            if begun.load(Ordering::Relaxed) > 0 {
                stopped.store(true, Ordering::Relaxed);
                token.cancel();
            }
        })
        .run()
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
}

/// Tensors that no loader reads: byte-swapped or transposed while they are read.
#[test]
fn transformed_tensors_are_cancelled() {
    let scratch = ScratchDir::new("cancel-made");
    let mut text =
        String::from("{'descr': '>f4', 'fortran_order': False, 'shape': (16384, 32768), }");
    for order in ["False", "True"] {
        text = text.replace("False", order);
        let padded = format!("{text}{}\n", " ".repeat(117 - text.len()));
        let mut file = SparseFile::default();
        file.append(
            [
                b"\x93NUMPY\x01\0",
                &118u16.to_le_bytes()[..],
                padded.as_bytes(),
            ]
            .concat(),
        );
        file.append_zeros(TENSOR);
        for map in [true, false] {
            let path = cold(&scratch, &format!("{order}-{map}.npy"), &file);
            let checkpoint = OpenOptions::new().mmap(map).open(&path).unwrap();
            let token = CancelToken::new();
            let error = load(&checkpoint)
                .cancel(&token)
                .progress(|_| token.cancel())
                .run()
                .unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Cancelled),
                "{order} {map}: {error}"
            );
            assert!(
                bytes_read(&checkpoint).is_none_or(|read| read < MOST),
                "{order} {map}"
            );
        }
    }
}

#[test]
fn remembering_stops_inside_a_weight() {
    let scratch = ScratchDir::new("cancel-remember");
    for (i, (name, loader)) in all_loaders().into_iter().enumerate() {
        let path = cold(&scratch, &format!("{i}.safetensors"), &tensor("F16", 2));
        let checkpoint = Checkpoint::open(&path).unwrap();
        let plan = remember(&checkpoint).cast(true).plan().unwrap();
        assert_eq!(plan.nbytes(), TENSOR);
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
        assert!(reports[0].done < MOST, "{name}");
        assert!(
            bytes_read(&checkpoint).is_none_or(|read| read < MOST),
            "{name}: {:?}",
            bytes_read(&checkpoint)
        );
        fs::remove_file(path).unwrap();
    }
}
