//! Overwriting a directory whose `config.json` changes: the directory is exchanged for a new one where that changes only
//! files, and stays itself elsewhere.
#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::support::mounted::MountedTmpfs;
use crate::support::scratch_dir::ScratchDir;
use crate::support::skip;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::{Checkpoint, remember};

/// A directory with tensors of this value, and a configuration that names it.
fn write_source(path: &Path, value: u8) {
    fs::create_dir(path).unwrap();
    let tensor = |name: &str| StoredTensor::new(name, "U8", &[4], vec![value; 4]);
    let file = safetensors(&[tensor("a"), tensor("b"), tensor("c")], &[]);
    fs::write(path.join("model.safetensors"), file).unwrap();
    fs::write(path.join("config.json"), format!("{{\"value\": {value}}}")).unwrap();
}

/// Two sources, and a directory that an output of the first one is in.
struct Outputs {
    scratch: ScratchDir,
    out: PathBuf,
}

impl Outputs {
    fn new(name: &str) -> Self {
        let scratch = ScratchDir::new(name);
        fs::create_dir(scratch.path("parent")).unwrap();
        let out = scratch.path("parent/out");
        Self::at(scratch, out)
    }

    fn at(scratch: ScratchDir, out: PathBuf) -> Self {
        for value in [1, 2] {
            write_source(&scratch.path(&value.to_string()), value);
        }
        let outputs = Self { scratch, out };
        outputs.write_from("1", &outputs.out);
        outputs
    }

    fn write_from(&self, source: &str, out: &Path) {
        let checkpoint = Checkpoint::open(self.scratch.path(source)).unwrap();
        let remember = remember(&checkpoint).overwrite(true);
        remember.to_dir(out, 4).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    /// Overwrites the directory, and checks what is in it; whether it is a new one.
    fn is_exchanged(&self) -> bool {
        let inode = || fs::metadata(&self.out).unwrap().ino();
        let before = inode();
        self.write_from("2", &self.out);
        let checkpoint = Checkpoint::open(&self.out).unwrap();
        assert_eq!(checkpoint.tensors().len(), 3);
        for tensor in checkpoint.tensors() {
            assert_eq!(*tensor.bytes().unwrap(), [2; 4]);
        }
        let config = fs::read_to_string(self.path("config.json")).unwrap();
        assert!(config.contains('2'), "{config}");
        for directory in [&self.out, self.out.parent().unwrap()] {
            for entry in fs::read_dir(directory).unwrap() {
                let name = entry.unwrap().file_name();
                assert!(!name.to_string_lossy().starts_with('.'), "{name:?}");
            }
        }
        inode() != before
    }
}

#[test]
fn files_that_are_not_replaced_stay_the_same_files() {
    let outputs = Outputs::new("kept");
    let (readme, link) = (outputs.path("README.md"), outputs.path("link"));
    fs::write(&readme, "mine").unwrap();
    symlink("../nothing", &link).unwrap();
    let second_name = outputs.scratch.path("second-name");
    fs::hard_link(&readme, &second_name).unwrap();
    let before = fs::metadata(&readme).unwrap();
    assert!(outputs.is_exchanged());
    let after = fs::metadata(&readme).unwrap();
    assert_eq!((after.ino(), after.nlink()), (before.ino(), 2));
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../nothing"));
    // three shards, their index, the configuration, and the two
    assert_eq!(fs::read_dir(&outputs.out).unwrap().count(), 7);
}

#[test]
fn mode_and_group_of_the_directory_are_carried_over() {
    let outputs = Outputs::new("attributes");
    if chown(&outputs.out, None, Some(54_321)).is_err() {
        skip("attributes: another group needs a privilege");
    }
    fs::set_permissions(&outputs.out, Permissions::from_mode(0o2751)).unwrap();
    let attributes = || {
        let meta = fs::metadata(&outputs.out).unwrap();
        (meta.mode(), meta.uid(), meta.gid())
    };
    let before = attributes();
    assert!(outputs.is_exchanged());
    assert_eq!(attributes(), before);
    assert_eq!(before.0 & 0o7777, 0o2751);
}

#[test]
fn a_link_to_the_directory_stays_a_link() {
    let mut outputs = Outputs::new("linked");
    let (real, link) = (outputs.out.clone(), outputs.scratch.path("link"));
    symlink(&real, &link).unwrap();
    outputs.out = link.clone();
    assert!(outputs.is_exchanged());
    assert_eq!(fs::read_link(&link).unwrap(), real);
    let parent = fs::read_dir(outputs.scratch.path("parent")).unwrap();
    assert_eq!(parent.count(), 1);
}

#[test]
fn a_directory_that_contains_more_than_files_stays_itself() {
    let outputs = Outputs::new("directory");
    fs::create_dir(outputs.path("directory")).unwrap();
    fs::write(outputs.path("directory/file"), "mine").unwrap();
    assert!(!outputs.is_exchanged());
    assert_eq!(fs::read(outputs.path("directory/file")).unwrap(), b"mine");

    let outputs = Outputs::new("socket");
    // an address of a socket has at most 108 bytes
    match UnixListener::bind(outputs.path("s")) {
        Ok(_listener) => {
            assert!(!outputs.is_exchanged());
            assert!(outputs.path("s").exists());
        }
        Err(e) => skip(&format!("socket: {e}")),
    }
}

#[test]
fn a_directory_of_another_owner_stays_itself() {
    let outputs = Outputs::new("owner");
    if chown(&outputs.out, Some(54_321), None).is_err() {
        return skip("owner: changing it needs a privilege");
    }
    assert!(!outputs.is_exchanged());
    assert_eq!(fs::metadata(&outputs.out).unwrap().uid(), 54_321);
}

#[test]
fn a_directory_with_attributes_stays_itself() {
    let outputs = Outputs::new("xattr");
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(&outputs.out, "user.origin", b"hub", flags) {
        Ok(()) => assert!(!outputs.is_exchanged()),
        Err(e) => skip(&format!("xattr: no extended attributes: {e}")),
    }
}

/// In a directory like this, without the sticky bit of `/tmp`, other users could put a link where the new directory is.
#[test]
fn a_directory_in_one_that_all_users_write_to_stays_itself() {
    for (mode, exchanges) in [(0o777, false), (0o1777, true), (0o775, true)] {
        let outputs = Outputs::new("parent-mode");
        let parent = outputs.out.parent().unwrap();
        fs::set_permissions(parent, Permissions::from_mode(mode)).unwrap();
        assert_eq!(outputs.is_exchanged(), exchanges, "{mode:o}");
    }
}

#[test]
fn the_root_of_a_mount_stays_itself() {
    let Some(disk) = MountedTmpfs::new("mount-root", "size=1m,mode=755") else {
        return;
    };
    let outputs = Outputs::at(ScratchDir::new("mount-root-sources"), disk.path());
    assert!(!outputs.is_exchanged());
    // and a directory on it is exchanged
    let outputs = Outputs::at(
        ScratchDir::new("mounted-sources"),
        disk.path().join("directory"),
    );
    assert!(outputs.is_exchanged());
}

/// A mount of the same file system has its number too.
#[test]
fn the_root_of_a_bind_mount_stays_itself() {
    let outputs = Outputs::new("bind-mount");
    let mount = |args: &[&str]| {
        let mounted = std::process::Command::new(args[0])
            .args(&args[1..])
            .arg(&outputs.out)
            .output();
        mounted.is_ok_and(|out| out.status.success())
    };
    if !mount(&["mount", "--bind", outputs.out.to_str().unwrap()]) {
        return skip("bind-mount: only root mounts a directory");
    }
    let exchanged =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| outputs.is_exchanged()));
    assert!(mount(&["umount"]));
    assert!(!exchanged.unwrap());
}
