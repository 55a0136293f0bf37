//! Runs that fail or are cancelled: the error is returned, and no file is left.

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{SHARDINGS, gguf_checkpoint, gguf_file, io_kind, remember_f32, write_files};
use crate::support::fn_sources::{DISCONNECTED, disconnecting_source};
use crate::support::mounted::MountedTmpfs;
use crate::support::scratch_dir::ScratchDir;
use anamnesis::plan::TensorSpec;
use anamnesis::sink::{Sharding, Sink};
use anamnesis::{CancelToken, Checkpoint, ErrorKind, OpenOptions, Result};

#[test]
fn cancel_at_any_progress_report_leaves_no_file() {
    let (checkpoint, scratch) = (gguf_checkpoint(), ScratchDir::new("cancel"));
    for threads in [1, 3] {
        for sharding in &SHARDINGS {
            let remember = remember_f32(&checkpoint).threads(threads);
            for at in 0.. {
                let mut reports = 0;
                let outcome = write_files(
                    &remember,
                    &scratch.path("new/deep/out"),
                    sharding,
                    &mut |_| {
                        reports += 1;
                        if reports > at {
                            ControlFlow::Break(())
                        } else {
                            ControlFlow::Continue(())
                        }
                    },
                );
                if matches!(sharding, Sharding::SingleFile) {
                    // parent directories of a single file are not created
                    assert_eq!(
                        io_kind(&outcome.unwrap_err()),
                        Some(io::ErrorKind::NotFound)
                    );
                    break;
                }
                if outcome.is_ok() {
                    assert!(at > 3, "only {reports} progress reports");
                    fs::remove_dir_all(scratch.path("new")).unwrap();
                    break;
                }
                assert!(matches!(outcome.unwrap_err().kind(), ErrorKind::Cancelled));
                assert!(
                    scratch.names().is_empty(),
                    "{sharding:?} after {at}: {:?}",
                    scratch.names()
                );
            }
        }
        let outcome = write_files(
            &remember_f32(&checkpoint).threads(threads),
            &scratch.path("out"),
            &Sharding::SingleFile,
            &mut |p| {
                if p.done > 9 << 20 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        assert!(matches!(outcome.unwrap_err().kind(), ErrorKind::Cancelled));
        assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    }
}

#[test]
fn a_sink_can_be_reused_after_a_cancelled_run() {
    let (checkpoint, scratch) = (gguf_checkpoint(), ScratchDir::new("again"));
    for sharding in &SHARDINGS {
        let remember = remember_f32(&checkpoint);
        let plan = remember.plan().unwrap();
        let mut sink = remember
            .safetensors(scratch.path("out"), sharding.clone())
            .unwrap();
        let token = CancelToken::new();
        let cancelled = remember.clone().cancel(&token).progress(|_| token.cancel());
        cancelled.run(&plan, &mut sink).unwrap_err();
        remember.run(&plan, &mut sink).unwrap();
        drop(sink);
        let found = Checkpoint::open(scratch.path("out")).unwrap();
        for expected in remember.all().unwrap() {
            assert!(
                found.tensor(&expected.spec.name).unwrap().bytes().unwrap() == expected.bytes,
                "{sharding:?}: {}",
                expected.spec
            );
        }
        let out = scratch.path("out");
        if out.is_dir() {
            fs::remove_dir_all(out)
        } else {
            fs::remove_file(out)
        }
        .unwrap();
    }
}

/// A sink that fails after this many writes.
struct FailingSink(AtomicU64);

impl Sink for FailingSink {
    fn begin(&mut self, _: &[TensorSpec]) -> Result<()> {
        Ok(())
    }

    fn put(&self, _: usize, _: u64, _: &[u8]) -> Result<()> {
        match self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            }) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("the sink is full").into()),
        }
    }

    fn end(&mut self) -> Result<()> {
        panic!("a failed run is not completed")
    }
}

#[test]
fn an_error_of_the_sink_is_the_error_of_the_run() {
    let checkpoint = gguf_checkpoint();
    for threads in [1, 2, 8] {
        for writes in [0, 1, 5, 20] {
            let remember = remember_f32(&checkpoint).threads(threads);
            let plan = remember.plan().unwrap();
            let mut sink = FailingSink(writes.into());
            let error = remember.run(&plan, &mut sink).unwrap_err();
            assert!(error.to_string().contains("the sink is full"), "{error}");
        }
    }
}

#[test]
fn an_error_of_the_source_leaves_no_file() {
    let (bytes, scratch) = (gguf_file(), ScratchDir::new("source"));
    let half = bytes.len() as u64 / 2;
    let checkpoint = Checkpoint::from_source(disconnecting_source(bytes, half)).unwrap();
    for sharding in &SHARDINGS {
        let error = write_files(
            &remember_f32(&checkpoint),
            &scratch.path("out"),
            sharding,
            &mut |_| ControlFlow::Continue(()),
        );
        assert!(error.unwrap_err().to_string().contains(DISCONNECTED));
        assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    }
}

#[test]
fn a_truncated_input_is_an_error_with_path_and_offset() {
    let scratch = ScratchDir::new("truncated-input");
    let from = scratch.path("in.gguf");
    fs::write(&from, gguf_file()).unwrap();
    let checkpoint = OpenOptions::new().mmap(false).open(&from).unwrap();
    fs::File::options()
        .write(true)
        .open(&from)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let error = remember_f32(&checkpoint)
        .to_file(scratch.path("out"))
        .unwrap_err();
    assert_eq!(io_kind(&error), Some(io::ErrorKind::UnexpectedEof));
    assert!(
        error.path() == Some(&*from) && error.offset().is_some(),
        "{error}"
    );
    assert_eq!(scratch.names(), ["in.gguf"]);
}

#[test]
fn a_full_disk_is_refused_before_writing() {
    let checkpoint = gguf_checkpoint();
    let Some(disk) = MountedTmpfs::new("full", "size=1m") else {
        return;
    };
    for sharding in &SHARDINGS {
        let error = write_files(
            &remember_f32(&checkpoint),
            &disk.path().join("out"),
            sharding,
            &mut |_| panic!("outputs were written"),
        );
        let error = error.unwrap_err();
        assert_eq!(io_kind(&error), Some(io::ErrorKind::StorageFull));
        assert!(error.to_string().contains("are needed"), "{error}");
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    }
}

/// The space of all files is allocated at the start of the run.
#[test]
fn a_disk_that_is_filled_during_a_run_does_not_fail_it() {
    let checkpoint = gguf_checkpoint();
    let Some(disk) = MountedTmpfs::new("filled", "size=24m") else {
        return;
    };
    for sharding in &SHARDINGS {
        let other = disk.path().join("other");
        let out = disk.path().join("out");
        write_files(&remember_f32(&checkpoint), &out, sharding, &mut |_| {
            let mut other = fs::File::create(&other).unwrap();
            while other.write_all(&[1; 4096]).is_ok() {}
            ControlFlow::Continue(())
        })
        .unwrap();
        fs::remove_file(&other).unwrap();
        match sharding {
            Sharding::SingleFile => fs::remove_file(&out).unwrap(),
            Sharding::Shards(_) => fs::remove_dir_all(&out).unwrap(),
        }
        #[cfg(unix)]
        disk.wait_for_space(20 << 20);
    }
}

#[test]
fn a_read_only_disk_is_an_error() {
    let checkpoint = gguf_checkpoint();
    let Some(disk) = MountedTmpfs::new("read-only", "ro,size=64m") else {
        return;
    };
    for sharding in &SHARDINGS {
        let error = write_files(
            &remember_f32(&checkpoint),
            &disk.path().join("out"),
            sharding,
            &mut |_| panic!("outputs were written"),
        );
        assert!(error.is_err());
    }
    let error = remember_f32(&checkpoint)
        .to_file(disk.path().join("out"))
        .unwrap_err();
    assert_eq!(
        io_kind(&error),
        Some(io::ErrorKind::ReadOnlyFilesystem),
        "{error}"
    );
}
