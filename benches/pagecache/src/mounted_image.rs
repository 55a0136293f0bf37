//! Names the file system of a directory, and mounts file systems in image files, so that several can be measured.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::subprocess::stdout_of;

/// The name of the directory's file system, or its magic number if the name is unknown.
pub fn filesystem_name(dir: &Path) -> Result<String, Failure> {
    let kind = rustix::fs::statfs(dir)?.f_type as u64;
    let known = [
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x0102_1994, "tmpfs"),
    ];
    let name = known
        .iter()
        .find(|(number, _)| *number == kind)
        .map(|(_, name)| (*name).to_owned());
    Ok(name.unwrap_or_else(|| format!("{kind:#x}")))
}

/// Where the image of a mounted file system is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ImageLocation {
    /// In a file on the device that is measured.
    OnDevice,
    /// In a file in memory, the fastest possible device.
    InMemory,
}

impl ImageLocation {
    /// Suffix of the file system's name in the table.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::OnDevice => "",
            Self::InMemory => " in memory",
        }
    }
}

/// A file system in an image file, mounted until the value is dropped.
pub struct MountedImage {
    /// Holds the image and the mount point; a tmpfs for an image in memory.
    root: PathBuf,
    device: String,
    pub dir: PathBuf,
}

impl MountedImage {
    /// Creates an `ext4` or `xfs` below `dir` with room for a file of `bytes`.
    pub fn new(
        kind: &str,
        location: ImageLocation,
        dir: &Path,
        bytes: u64,
    ) -> Result<Self, Failure> {
        let root = dir.join("mounted");
        // from here on, dropping the value undoes what has been done
        let mut mounted = Self {
            device: String::new(),
            dir: root.join(kind),
            root,
        };
        fs::create_dir_all(&mounted.root)?;
        if location == ImageLocation::InMemory {
            run(
                "mount",
                &["-t", "tmpfs", "-o", "size=90%", "none"].map(Path::new),
                &[&mounted.root],
            )?;
        }
        let image = mounted.root.join("image");
        File::create(&image)?.set_len(bytes + (1 << 30))?;
        fs::create_dir_all(&mounted.dir)?;
        run(&format!("mkfs.{kind}"), &["-q".as_ref()], &[&image])?;
        // direct I/O on the image, so that its file is cached once, by the mounted file system
        mounted.device = run(
            "losetup",
            &["--find", "--show", "--direct-io=on"].map(Path::new),
            &[&image],
        )?;
        run("mount", &[mounted.device.as_ref()], &[&mounted.dir])?;
        Ok(mounted)
    }
}

impl Drop for MountedImage {
    fn drop(&mut self) {
        // errors are ignored: after a failure in `new` not all of these steps apply
        let _ = run("umount", &[], &[&self.dir]);
        let _ = run("losetup", &["--detach".as_ref()], &[self.device.as_ref()]);
        let _ = run("umount", &[], &[&self.root]);
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Runs a system program and returns its output.
fn run(program: &str, options: &[&Path], paths: &[&Path]) -> Result<String, Failure> {
    stdout_of(Command::new(program).args(options).args(paths))
}
