//! Where files are written: existing files, other checkpoints in the directory, names that cannot be files, permissions.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use super::{gguf_checkpoint, gguf_file, io_kind, remember_f32, write_files};
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::catalog::Shape;
use anamnesis::plan::TensorSpec;
use anamnesis::sink::{SafetensorsSink, Sharding, Sink};
use anamnesis::{Checkpoint, Dtype, ErrorKind, Limits, OpenOptions};

#[test]
fn existing_files_are_kept() {
    let (checkpoint, scratch) = (gguf_checkpoint(), ScratchDir::new("exists"));
    let remember = remember_f32(&checkpoint);
    let to = scratch.path("out");
    fs::write(&to, "existing").unwrap();
    let error = remember.to_file(&to).unwrap_err();
    assert_eq!(io_kind(&error), Some(io::ErrorKind::AlreadyExists));
    assert_eq!(error.path(), Some(&*to));
    // a cancelled run with `overwrite` does not remove it either
    let cancelled = write_files(
        &remember.clone().overwrite(true),
        &to,
        &Sharding::SingleFile,
        &mut |_| ControlFlow::Break(()),
    );
    assert!(matches!(
        cancelled.unwrap_err().kind(),
        ErrorKind::Cancelled
    ));
    assert_eq!(fs::read(&to).unwrap(), b"existing");
    assert_eq!(scratch.names(), ["out"]);
    remember.clone().overwrite(true).to_file(&to).unwrap();
    assert_eq!(Checkpoint::open(&to).unwrap().tensors().len(), 3);
    fs::remove_file(&to).unwrap();
    // a file that is created during the run
    let outcome = write_files(&remember, &to, &Sharding::SingleFile, &mut |_| {
        fs::write(&to, "concurrent").unwrap();
        ControlFlow::Continue(())
    });
    assert_eq!(
        io_kind(&outcome.unwrap_err()),
        Some(io::ErrorKind::AlreadyExists)
    );
    assert_eq!(fs::read(&to).unwrap(), b"concurrent");
    assert_eq!(scratch.names(), ["out"]);
    fs::remove_file(&to).unwrap();
    // if one of several files exists, none is written
    let shards = scratch.path("shards");
    let outcome = write_files(&remember, &shards, &Sharding::Shards(8 << 20), &mut |_| {
        fs::write(
            shards.join("model-00002-of-00003.safetensors"),
            "concurrent",
        )
        .unwrap();
        ControlFlow::Continue(())
    });
    assert_eq!(
        io_kind(&outcome.unwrap_err()),
        Some(io::ErrorKind::AlreadyExists)
    );
    let names: Vec<_> = fs::read_dir(&shards)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["model-00002-of-00003.safetensors"]);
}

#[test]
fn files_of_another_checkpoint_are_not_mixed_with_the_output() {
    let (checkpoint, scratch) = (gguf_checkpoint(), ScratchDir::new("stale"));
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
    remember_f32(&checkpoint).to_dir(&to, 8 << 20).unwrap();
    assert_eq!(names().len(), 4);
    // a single file and an index in one directory: readers would open the index
    assert_eq!(
        io_kind(&remember_f32(&small).to_dir(&to, 8 << 20).unwrap_err()),
        Some(io::ErrorKind::AlreadyExists)
    );
    remember_f32(&small)
        .overwrite(true)
        .to_dir(&to, 8 << 20)
        .unwrap();
    assert_eq!(Checkpoint::open(&to).unwrap().tensors().len(), 1);
    assert!(
        !names().contains(&"model.safetensors.index.json".into()),
        "{:?}",
        names()
    );
    // an index and a single file: some readers would open the file
    assert_eq!(
        io_kind(&remember_f32(&checkpoint).to_dir(&to, 8 << 20).unwrap_err()),
        Some(io::ErrorKind::AlreadyExists)
    );
    remember_f32(&checkpoint)
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
    let (checkpoint, scratch) = (gguf_checkpoint(), ScratchDir::new("targets"));
    for overwrite in [false, true] {
        let remember = remember_f32(&checkpoint).overwrite(overwrite);
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
            "the directory is a file"
        );
    }
    assert_eq!(scratch.names(), ["folder"]);
}

#[test]
fn two_outputs_of_one_name_are_refused() {
    let scratch = ScratchDir::new("twice");
    let spec = |name: &str| TensorSpec::new(name, Shape::from_slice(&[2]), Dtype::U8);
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
fn the_limit_of_tensor_bytes_applies_to_outputs_in_memory() {
    let limits = Limits {
        tensor_bytes: 1 << 20,
        ..Limits::default()
    };
    let scratch = ScratchDir::new("limits");
    let path = scratch.path("in.gguf");
    fs::write(&path, gguf_file()).unwrap();
    let checkpoint = OpenOptions::new().limits(limits).open(&path).unwrap();
    let error = remember_f32(&checkpoint).all().unwrap_err();
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
    assert_eq!(
        remember_f32(&checkpoint).tensor("n").unwrap().bytes.len(),
        8
    );
    // files are written tile by tile, so the limit does not apply
    remember_f32(&checkpoint)
        .to_file(scratch.path("out"))
        .unwrap();
}

#[cfg(unix)]
#[test]
fn files_have_the_permissions_of_new_files() {
    use std::os::unix::fs::PermissionsExt;
    let (checkpoint, scratch) = (gguf_checkpoint(), ScratchDir::new("mode"));
    fs::File::create(scratch.path("new-file")).unwrap();
    let mode = |path: std::path::PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    remember_f32(&checkpoint)
        .to_file(scratch.path("out"))
        .unwrap();
    remember_f32(&checkpoint)
        .to_dir(scratch.path("dir"), 8 << 20)
        .unwrap();
    let expected = mode(scratch.path("new-file"));
    assert_eq!(mode(scratch.path("out")), expected);
    for file in fs::read_dir(scratch.path("dir")).unwrap() {
        assert_eq!(mode(file.unwrap().path()), expected);
    }
}
