//! Files that are written: whole, or not at all.

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::skip;
use crate::support::writers::{StoredTensor, gguf, safetensors};
use anamnesis::catalog::Shape;
use anamnesis::plan::TensorSpec;
use anamnesis::sink::{SafetensorsSink, Sharding, Sink};
use anamnesis::source::FnSource;
use anamnesis::{
    CancelToken, Checkpoint, Dtype, Error, ErrorKind, Limits, OpenOptions, Progress, Remember,
    Result, remember,
};

/// 20 MB of output in F32: progress is reported several times, and each shard of 8 MiB holds a weight.
fn file() -> Vec<u8> {
    let weight = |name: &str| {
        StoredTensor::new(
            name,
            "2",
            &[64, 32 << 10],
            random_bytes(1, (2 << 20) / 32 * 18),
        )
    };
    gguf(
        false,
        &[],
        &[
            weight("a.weight"),
            weight("b.weight"),
            StoredTensor::new("n", "0", &[2], vec![0; 8]),
        ],
    )
}

fn open() -> Checkpoint {
    Checkpoint::from_bytes(file()).unwrap()
}

fn quick(checkpoint: &Checkpoint) -> Remember<'_> {
    remember(checkpoint).dtype(Dtype::F32).threads(2)
}

/// Runs into a file or a directory, with a word at each progress.
fn run(
    remember: &Remember<'_>,
    to: &Path,
    extent: &Sharding,
    watch: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
) -> Result<()> {
    let token = CancelToken::new();
    let remember = remember.clone().cancel(&token).progress(|progress| {
        if watch(progress).is_break() {
            token.cancel();
        }
    });
    let mut sink = remember.safetensors(to, extent.clone())?;
    remember.run(&remember.plan()?, &mut sink)
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    match error.kind() {
        ErrorKind::Io(e) => Some(e.kind()),
        _ => None,
    }
}

const EXTENTS: [Sharding; 3] = [
    Sharding::SingleFile,
    Sharding::Shards(1 << 30),
    Sharding::Shards(8 << 20),
];

#[test]
fn cancelling_at_any_point_leaves_nothing() {
    let (checkpoint, scratch) = (open(), ScratchDir::new("cancel"));
    for threads in [1, 3] {
        for extent in &EXTENTS {
            let remember = quick(&checkpoint).threads(threads);
            for at in 0.. {
                let mut told = 0;
                let outcome = run(
                    &remember,
                    &scratch.path("new/deep/out"),
                    extent,
                    &mut |_| {
                        told += 1;
                        if told > at {
                            ControlFlow::Break(())
                        } else {
                            ControlFlow::Continue(())
                        }
                    },
                );
                if matches!(extent, Sharding::SingleFile) {
                    // its parents are not made
                    assert_eq!(
                        io_kind(&outcome.unwrap_err()),
                        Some(io::ErrorKind::NotFound)
                    );
                    break;
                }
                if outcome.is_ok() {
                    assert!(at > 3, "progress was told {told} times only");
                    fs::remove_dir_all(scratch.path("new")).unwrap();
                    break;
                }
                assert!(matches!(outcome.unwrap_err().kind(), ErrorKind::Cancelled));
                assert!(
                    scratch.names().is_empty(),
                    "{extent:?} after {at}: {:?}",
                    scratch.names()
                );
            }
        }
        let outcome = run(
            &quick(&checkpoint).threads(threads),
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
fn a_sink_may_be_used_again_after_a_run_that_failed() {
    let (checkpoint, scratch) = (open(), ScratchDir::new("again"));
    for extent in &EXTENTS {
        let remember = quick(&checkpoint);
        let plan = remember.plan().unwrap();
        let mut sink = remember
            .safetensors(scratch.path("out"), extent.clone())
            .unwrap();
        let token = CancelToken::new();
        let cancelled = remember.clone().cancel(&token).progress(|_| token.cancel());
        cancelled.run(&plan, &mut sink).unwrap_err();
        remember.run(&plan, &mut sink).unwrap();
        drop(sink);
        let found = Checkpoint::open(scratch.path("out")).unwrap();
        for one in remember.all().unwrap() {
            assert!(
                found.tensor(&one.spec.name).unwrap().bytes().unwrap() == one.bytes,
                "{extent:?}: {}",
                one.spec
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

/// Accepts this many pieces.
struct Failing(AtomicU64);

impl Sink for Failing {
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
            Err(_) => Err(io::Error::other("enough").into()),
        }
    }

    fn end(&mut self) -> Result<()> {
        panic!("not all outputs came")
    }
}

#[test]
fn a_sink_that_fails_is_heard() {
    let checkpoint = open();
    for threads in [1, 2, 8] {
        for pieces in [0, 1, 5, 20] {
            let remember = quick(&checkpoint).threads(threads);
            let plan = remember.plan().unwrap();
            let mut sink = Failing(pieces.into());
            let error = remember.run(&plan, &mut sink).unwrap_err();
            assert!(error.to_string().contains("enough"), "{error}");
        }
    }
}

#[test]
fn a_source_that_fails_leaves_nothing() {
    let (bytes, scratch) = (file(), ScratchDir::new("source"));
    let half = bytes.len() as u64 / 2;
    let checkpoint = Checkpoint::from_source(FnSource::new(
        bytes.len() as u64,
        move |start, buf: &mut [u8]| {
            if start > half {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    "the line is dead",
                ));
            }
            let start = usize::try_from(start).unwrap();
            buf.copy_from_slice(&bytes[start..start + buf.len()]);
            Ok(())
        },
    ))
    .unwrap();
    for extent in &EXTENTS {
        let error = run(
            &quick(&checkpoint),
            &scratch.path("out"),
            extent,
            &mut |_| ControlFlow::Continue(()),
        );
        assert!(error.unwrap_err().to_string().contains("the line is dead"));
        assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    }
}

#[test]
fn a_file_that_shrinks_is_an_error_with_its_name() {
    let scratch = ScratchDir::new("shrink");
    let from = scratch.path("in.gguf");
    fs::write(&from, file()).unwrap();
    let checkpoint = OpenOptions::new().mmap(false).open(&from).unwrap();
    fs::File::options()
        .write(true)
        .open(&from)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let error = quick(&checkpoint).to_file(scratch.path("out")).unwrap_err();
    assert_eq!(io_kind(&error), Some(io::ErrorKind::UnexpectedEof));
    assert!(
        error.path() == Some(&*from) && error.offset().is_some(),
        "{error}"
    );
    assert_eq!(scratch.names(), ["in.gguf"]);
}

#[test]
fn what_exists_is_kept() {
    let (checkpoint, scratch) = (open(), ScratchDir::new("exists"));
    let remember = quick(&checkpoint);
    let to = scratch.path("out");
    fs::write(&to, "mine").unwrap();
    let error = remember.to_file(&to).unwrap_err();
    assert_eq!(io_kind(&error), Some(io::ErrorKind::AlreadyExists));
    assert_eq!(error.path(), Some(&*to));
    // nor does a run that fails take it away
    let stop = run(
        &remember.clone().overwrite(true),
        &to,
        &Sharding::SingleFile,
        &mut |_| ControlFlow::Break(()),
    );
    assert!(matches!(stop.unwrap_err().kind(), ErrorKind::Cancelled));
    assert_eq!(fs::read(&to).unwrap(), b"mine");
    assert_eq!(scratch.names(), ["out"]);
    remember.clone().overwrite(true).to_file(&to).unwrap();
    assert_eq!(Checkpoint::open(&to).unwrap().tensors().len(), 3);
    fs::remove_file(&to).unwrap();
    // one that appears while it runs
    let late = run(&remember, &to, &Sharding::SingleFile, &mut |_| {
        fs::write(&to, "theirs").unwrap();
        ControlFlow::Continue(())
    });
    assert_eq!(
        io_kind(&late.unwrap_err()),
        Some(io::ErrorKind::AlreadyExists)
    );
    assert_eq!(fs::read(&to).unwrap(), b"theirs");
    assert_eq!(scratch.names(), ["out"]);
    fs::remove_file(&to).unwrap();
    // of several files, all or none
    let shards = scratch.path("shards");
    let late = run(&remember, &shards, &Sharding::Shards(8 << 20), &mut |_| {
        fs::write(shards.join("model-00002-of-00003.safetensors"), "theirs").unwrap();
        ControlFlow::Continue(())
    });
    assert_eq!(
        io_kind(&late.unwrap_err()),
        Some(io::ErrorKind::AlreadyExists)
    );
    let names: Vec<_> = fs::read_dir(&shards)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["model-00002-of-00003.safetensors"]);
}

#[test]
fn another_checkpoint_in_the_directory_is_not_mixed_with_this_one() {
    let (checkpoint, scratch) = (open(), ScratchDir::new("stale"));
    let to = scratch.path("out");
    let small = safetensors(&[StoredTensor::new("only", "U8", &[3], vec![1, 2, 3])], &[]);
    let small = Checkpoint::from_bytes(small).unwrap();
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&to)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    quick(&checkpoint).to_dir(&to, 8 << 20).unwrap();
    assert_eq!(names().len(), 4);
    // a single file beside an index: readers would take the index
    assert_eq!(
        io_kind(&quick(&small).to_dir(&to, 8 << 20).unwrap_err()),
        Some(io::ErrorKind::AlreadyExists)
    );
    quick(&small).overwrite(true).to_dir(&to, 8 << 20).unwrap();
    assert_eq!(Checkpoint::open(&to).unwrap().tensors().len(), 1);
    assert!(
        !names().contains(&"model.safetensors.index.json".into()),
        "{:?}",
        names()
    );
    // an index beside a single file: some readers would take the file
    assert_eq!(
        io_kind(&quick(&checkpoint).to_dir(&to, 8 << 20).unwrap_err()),
        Some(io::ErrorKind::AlreadyExists)
    );
    quick(&checkpoint)
        .overwrite(true)
        .to_dir(&to, 8 << 20)
        .unwrap();
    assert_eq!(Checkpoint::open(&to).unwrap().tensors().len(), 3);
    assert!(
        !names().contains(&"model.safetensors".into()),
        "{:?}",
        names()
    );
}

#[test]
fn targets_that_cannot_be_files_are_refused() {
    let (checkpoint, scratch) = (open(), ScratchDir::new("odd"));
    for overwrite in [false, true] {
        let remember = quick(&checkpoint).overwrite(overwrite);
        let fails = |to: &Path, kind: io::ErrorKind| {
            let error = remember.to_file(to).unwrap_err();
            assert_eq!(io_kind(&error), Some(kind), "{error}");
            assert_eq!(error.path(), Some(to), "{error}");
        };
        fs::create_dir_all(scratch.path("folder")).unwrap();
        fails(&scratch.path("folder"), io::ErrorKind::IsADirectory);
        fails(&scratch.path("missing/out"), io::ErrorKind::NotFound);
        fails(
            &scratch.path(&"x".repeat(300)),
            io::ErrorKind::InvalidFilename,
        );
        assert!(
            remember.to_file("").is_err()
                && remember.to_file("..").is_err()
                && remember.to_file("/").is_err()
        );
        if cfg!(unix) {
            let device = Path::new("/dev/null");
            let error = remember.to_file(device).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::InvalidArgument(_)),
                "{error}"
            );
            assert_eq!(error.path(), Some(device), "{error}");
        }
        fs::write(scratch.path("folder/file"), "").unwrap();
        fails(
            &scratch.path("folder/file/out"),
            io::ErrorKind::NotADirectory,
        );
        assert!(
            remember
                .to_dir(scratch.path("folder/file"), 1 << 20)
                .is_err(),
            "a directory where a file is"
        );
    }
    assert_eq!(scratch.names(), ["folder"]);
}

#[test]
fn two_outputs_of_one_name_are_refused() {
    let scratch = ScratchDir::new("twice");
    let spec = |name: &str| TensorSpec {
        name: name.into(),
        shape: Shape::from_slice(&[2]),
        dtype: Dtype::U8,
    };
    let mut sink = SafetensorsSink::new(scratch.path("out"), Sharding::SingleFile);
    let error = sink.begin(&[spec("a"), spec("b"), spec("a")]).unwrap_err();
    assert!(error.to_string().contains("`a`"), "{error}");
    drop(sink);
    let mut sink = SafetensorsSink::new(scratch.path("out"), Sharding::Shards(2));
    let twice = sink.begin(&[spec("a"), spec("b"), spec("a")]).unwrap_err();
    assert!(twice.to_string().contains("`a`"), "{twice}");
    drop(sink);
    assert!(scratch.names().is_empty());
}

#[test]
fn limits_bound_what_is_kept_in_memory() {
    let limits = Limits {
        tensor_bytes: 1 << 20,
        ..Limits::default()
    };
    let scratch = ScratchDir::new("limits");
    let path = scratch.path("in.gguf");
    fs::write(&path, file()).unwrap();
    let checkpoint = OpenOptions::new().limits(limits).open(&path).unwrap();
    let error = quick(&checkpoint).all().unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Limit {
                limit: "tensor_bytes",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("`a.weight`"), "{error}");
    assert_eq!(quick(&checkpoint).tensor("n").unwrap().bytes.len(), 8);
    // a file is written tile by tile
    quick(&checkpoint).to_file(scratch.path("out")).unwrap();
}

#[cfg(unix)]
#[test]
fn files_are_made_with_the_mode_of_new_files() {
    use std::os::unix::fs::PermissionsExt;
    let (checkpoint, scratch) = (open(), ScratchDir::new("mode"));
    fs::File::create(scratch.path("like")).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    quick(&checkpoint).to_file(scratch.path("out")).unwrap();
    quick(&checkpoint)
        .to_dir(scratch.path("dir"), 8 << 20)
        .unwrap();
    let wanted = mode(scratch.path("like"));
    assert_eq!(mode(scratch.path("out")), wanted);
    for file in fs::read_dir(scratch.path("dir")).unwrap() {
        assert_eq!(mode(file.unwrap().path()), wanted);
    }
}

/// A file system in memory that goes with the test; `None`, said aloud, where it cannot be had.
struct Mounted(ScratchDir);

impl Mounted {
    fn new(name: &str, options: &str) -> Option<Self> {
        let scratch = ScratchDir::new(name);
        fs::create_dir(scratch.path("disk")).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(scratch.path("disk"))
            .output();
        if mount.is_ok_and(|out| out.status.success()) {
            return Some(Self(scratch));
        }
        skip(&format!("{name}: only root mounts a file system"));
        None
    }

    fn path(&self) -> PathBuf {
        self.0.path("disk")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

#[test]
fn a_full_disk_is_reported_before_writing() {
    let checkpoint = open();
    let Some(disk) = Mounted::new("full", "size=1m") else {
        return;
    };
    for extent in &EXTENTS {
        let error = run(
            &quick(&checkpoint),
            &disk.path().join("out"),
            extent,
            &mut |_| panic!("it was begun"),
        );
        let error = error.unwrap_err();
        assert_eq!(io_kind(&error), Some(io::ErrorKind::StorageFull));
        assert!(error.to_string().contains("are needed"), "{error}");
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    }
    let Some(disk) = Mounted::new("filled", "size=24m") else {
        return;
    };
    for extent in &EXTENTS {
        let other = disk.path().join("other");
        // room was taken for all of it, so others that fill the disk meanwhile do not matter
        let out = disk.path().join("out");
        run(&quick(&checkpoint), &out, extent, &mut |_| {
            let mut other = fs::File::create(&other).unwrap();
            while other.write_all(&[1; 4096]).is_ok() {}
            ControlFlow::Continue(())
        })
        .unwrap();
        fs::remove_file(&other).unwrap();
        match extent {
            Sharding::SingleFile => fs::remove_file(&out).unwrap(),
            Sharding::Shards(_) => fs::remove_dir_all(&out).unwrap(),
        }
    }
}

#[test]
fn a_disk_that_cannot_be_written_is_an_error() {
    let checkpoint = open();
    let Some(disk) = Mounted::new("read-only", "ro,size=64m") else {
        return;
    };
    for extent in &EXTENTS {
        let error = run(
            &quick(&checkpoint),
            &disk.path().join("out"),
            extent,
            &mut |_| panic!("it was begun"),
        );
        assert!(error.is_err());
    }
    let error = quick(&checkpoint)
        .to_file(disk.path().join("out"))
        .unwrap_err();
    assert_eq!(
        io_kind(&error),
        Some(io::ErrorKind::ReadOnlyFilesystem),
        "{error}"
    );
}
