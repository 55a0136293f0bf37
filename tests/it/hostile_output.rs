//! Outputs where links, pipes, devices, long names and full disks are.
#![cfg(unix)]

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::support::mounted::MountedTmpfs;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::{Checkpoint, Error, ErrorKind, remember};

fn checkpoint() -> Checkpoint {
    let tensor = |name: &str| StoredTensor::new(name, "U8", &[4], vec![7; 4]);
    let file = safetensors(&[tensor("a"), tensor("b"), tensor("c")], &[]);
    Checkpoint::from_bytes(file).unwrap()
}

fn is_invalid_argument(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidArgument(_))
}

#[test]
fn a_link_is_replaced_and_not_written_through() {
    let (checkpoint, scratch) = (checkpoint(), ScratchDir::new("links"));
    let victim = scratch.path("victim");
    fs::write(&victim, "mine").unwrap();
    let (out, dir) = (scratch.path("out"), scratch.path("dir"));
    symlink(&victim, &out).unwrap();
    assert!(remember(&checkpoint).to_file(&out).is_err());
    let replacing = remember(&checkpoint).overwrite(true);
    replacing.to_file(&out).unwrap();
    fs::create_dir(&dir).unwrap();
    for name in [
        "model.safetensors",
        "model.safetensors.index.json",
        "model-00001-of-00003.safetensors",
        "model-2-00002-of-00003.safetensors",
    ] {
        symlink(&victim, dir.join(name)).unwrap();
    }
    assert!(remember(&checkpoint).to_dir(&dir, 4).is_err());
    replacing.to_dir(&dir, 4).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
    let mut files = vec![out.clone()];
    files.extend(fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()));
    assert_eq!(files.len(), 5, "{files:?}");
    assert!(files.iter().all(|file| !file.is_symlink()), "{files:?}");
    for path in [&out, &dir] {
        assert_eq!(Checkpoint::open(path).unwrap().tensors().len(), 3);
    }
}

#[test]
fn nothing_is_created_behind_a_link_to_nothing() {
    let (checkpoint, scratch) = (checkpoint(), ScratchDir::new("dangling"));
    let (absent, link, cycle) = (
        scratch.path("absent"),
        scratch.path("link"),
        scratch.path("cycle"),
    );
    symlink(&cycle, &cycle).unwrap();
    symlink(&absent, &link).unwrap();
    for path in [&link, &cycle] {
        assert!(remember(&checkpoint).to_file(path).is_err(), "{path:?}");
        for overwrite in [false, true] {
            let written = remember(&checkpoint).overwrite(overwrite).to_dir(path, 4);
            assert!(written.is_err(), "{path:?}");
        }
        assert!(path.is_symlink(), "{path:?}");
    }
    // links in a directory, where the names of the checkpoint would be
    let dir = scratch.path("dir");
    fs::create_dir(&dir).unwrap();
    for name in [
        "model.safetensors.index.json",
        "model-00002-of-00003.safetensors",
    ] {
        symlink(&absent, dir.join(name)).unwrap();
    }
    assert!(remember(&checkpoint).to_dir(&dir, 4).is_err());
    remember(&checkpoint)
        .overwrite(true)
        .to_dir(&dir, 4)
        .unwrap();
    assert_eq!(Checkpoint::open(&dir).unwrap().tensors().len(), 3);
    assert!(!absent.exists());
}

#[test]
fn pipes_sockets_and_devices_are_refused() {
    let (checkpoint, scratch) = (checkpoint(), ScratchDir::new("special"));
    let (pipe, socket) = (scratch.path("pipe"), scratch.path("socket"));
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // an address of a socket has at most 108 bytes
    let _listener = UnixListener::bind(&socket).ok();
    for (number, target) in [
        &*pipe,
        &*socket,
        Path::new("/dev/null"),
        Path::new("/dev/full"),
    ]
    .into_iter()
    .filter(|target| target.exists())
    .enumerate()
    {
        let link = scratch.path(&format!("link-{number}"));
        symlink(target, &link).unwrap();
        let dir = scratch.path(&format!("dir-{number}"));
        fs::create_dir(&dir).unwrap();
        for overwrite in [false, true] {
            let remember = remember(&checkpoint).overwrite(overwrite);
            for path in [target, &link] {
                let error = remember.to_file(path).unwrap_err();
                assert!(is_invalid_argument(&error), "{error}");
            }
            for name in ["model.safetensors", "model.safetensors.index.json"] {
                symlink(target, dir.join(name)).unwrap();
                for shard in [4, 1 << 20] {
                    let error = remember.to_dir(&dir, shard).unwrap_err();
                    assert!(is_invalid_argument(&error), "{error}");
                }
                fs::remove_file(dir.join(name)).unwrap();
            }
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        }
    }
    // where a shard would be: refused, or another name is used
    let dir = scratch.path("shards");
    fs::create_dir(&dir).unwrap();
    let name = "model-00002-of-00003.safetensors";
    fs::rename(&pipe, dir.join(name)).unwrap();
    let error = remember(&checkpoint).to_dir(&dir, 4).unwrap_err();
    assert!(is_invalid_argument(&error), "{error}");
    remember(&checkpoint)
        .overwrite(true)
        .to_dir(&dir, 4)
        .unwrap();
    assert_eq!(Checkpoint::open(&dir).unwrap().tensors().len(), 3);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 5);
}

#[test]
fn names_of_every_length_are_written_or_refused() {
    let (checkpoint, scratch) = (checkpoint(), ScratchDir::new("lengths"));
    for len in [1, 200, 243, 244, 245, 250, 254, 255] {
        let out = scratch.path(&"n".repeat(len));
        remember(&checkpoint).to_file(&out).unwrap();
        remember(&checkpoint).overwrite(true).to_file(&out).unwrap();
        assert_eq!(scratch.names().len(), 1);
        fs::remove_file(&out).unwrap();
        remember(&checkpoint).to_dir(&out, 4).unwrap();
        assert_eq!(scratch.names().len(), 1);
        fs::remove_dir_all(&out).unwrap();
    }
    let error = remember(&checkpoint)
        .to_file(scratch.path(&"n".repeat(256)))
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Io(e) if e.kind() == io::ErrorKind::InvalidFilename),
        "{error}"
    );
    assert!(scratch.names().is_empty());
}

/// There is space for bytes, but not for files: the shards fail one after another, and the names too.
#[test]
fn a_file_system_without_inodes_is_left_as_it_was() {
    let checkpoint = checkpoint();
    for inodes in 2..8 {
        let options = format!("size=1m,nr_inodes={inodes}");
        let Some(disk) = MountedTmpfs::new("inodes", &options) else {
            return;
        };
        let out = disk.path().join("out");
        match remember(&checkpoint).to_dir(&out, 4) {
            Ok(()) => assert_eq!(fs::read_dir(&out).unwrap().count(), 4),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Io(e) if e.kind() == io::ErrorKind::StorageFull),
                    "{error}"
                );
                assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0, "{inodes}");
            }
        }
    }
}
