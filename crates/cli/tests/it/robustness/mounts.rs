//! File systems that a test mounts.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mount point, unmounted when this is dropped.
pub(crate) struct MountPoint(pub(crate) PathBuf);

impl MountPoint {
    /// Mounts with these arguments of mount(8), at an existing directory. Prints a message and returns `None` if that fails.
    pub(crate) fn new(arguments: &[&str], path: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        succeeds(mount.args(arguments).arg(path)).then(|| Self(path.to_owned()))
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        // a process that has ended may hold the file system for a moment
        for _ in 0..50 {
            if succeeds(Command::new("umount").arg(&self.0)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        succeeds(Command::new("umount").arg("-l").arg(&self.0));
    }
}

/// Runs a program. Prints a message and returns `false` if it fails.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let why = match command.output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    eprintln!("SKIPPED: {:?}: {why}", command.get_program());
    false
}
