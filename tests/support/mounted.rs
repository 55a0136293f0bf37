//! File systems that tests mount.

use std::path::PathBuf;
use std::process::Command;

use super::scratch_dir::ScratchDir;
use super::skip;

/// A file system in memory, unmounted when it is dropped.
pub struct MountedTmpfs(ScratchDir);

impl MountedTmpfs {
    /// Mounts one with these options; `None`, and a line of output, without the privilege.
    pub fn new(name: &str, options: &str) -> Option<Self> {
        let scratch = ScratchDir::new(name);
        std::fs::create_dir(scratch.path("disk")).unwrap();
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

    pub fn path(&self) -> PathBuf {
        self.0.path("disk")
    }
}

impl Drop for MountedTmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}
