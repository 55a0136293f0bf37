//! File systems that tests mount.

use std::path::PathBuf;
use std::process::Command;
#[cfg(unix)]
use std::time::{Duration, Instant};

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

    /// Returns when removed files have left this many bytes: a process that another test starts has the files of this one
    /// open until its program begins.
    #[cfg(unix)]
    pub fn wait_for_space(&self, nbytes: u64) {
        let begun = Instant::now();
        loop {
            let stat = rustix::fs::statvfs(self.path()).unwrap();
            if stat.f_bavail * stat.f_frsize >= nbytes {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "the disk stays full"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for MountedTmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}
