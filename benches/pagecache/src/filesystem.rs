//! Which file system a directory is on, and file systems of our own to measure on as well.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::program::said;

/// Its name, as far as the evaluation meets it; its number else.
pub fn name(dir: &Path) -> Result<String, Failure> {
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

/// Where a file system of our own is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// In a file on the device that is measured.
    OnDevice,
    /// In a file in memory: the quickest device there is.
    InMemory,
}

impl Kept {
    /// Said behind the name of a file system.
    pub fn words(self) -> &'static str {
        match self {
            Self::OnDevice => "",
            Self::InMemory => ", kept in memory",
        }
    }
}

/// A file system in a file, mounted until the value is dropped.
pub struct Mounted {
    /// The directory of all this, a file system in memory perhaps.
    home: PathBuf,
    device: String,
    pub dir: PathBuf,
}

impl Mounted {
    /// Makes one of this kind (`ext4`, `xfs`) below `dir` with room for a file of so many bytes.
    pub fn new(kind: &str, kept: Kept, dir: &Path, bytes: u64) -> Result<Self, Failure> {
        let home = dir.join("mounted");
        // from here on, what there is of it goes with it
        let mut mounted = Self {
            device: String::new(),
            dir: home.join(kind),
            home,
        };
        fs::create_dir_all(&mounted.home)?;
        if kept == Kept::InMemory {
            run(
                "mount",
                &["-t", "tmpfs", "-o", "size=90%", "none"].map(Path::new),
                &[&mounted.home],
            )?;
        }
        let image = mounted.home.join("image");
        File::create(&image)?.set_len(bytes + (1 << 30))?;
        fs::create_dir_all(&mounted.dir)?;
        run(&format!("mkfs.{kind}"), &["-q".as_ref()], &[&image])?;
        // past the page cache below: what is measured is cached once
        mounted.device = run(
            "losetup",
            &["--find", "--show", "--direct-io=on"].map(Path::new),
            &[&image],
        )?;
        run("mount", &[mounted.device.as_ref()], &[&mounted.dir])?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // each as far as it goes: what was never mounted cannot be unmounted
        let _ = run("umount", &[], &[&self.dir]);
        let _ = run("losetup", &["--detach".as_ref()], &[self.device.as_ref()]);
        let _ = run("umount", &[], &[&self.home]);
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// What a program of the system says.
fn run(program: &str, options: &[&Path], paths: &[&Path]) -> Result<String, Failure> {
    said(Command::new(program).args(options).args(paths))
}
