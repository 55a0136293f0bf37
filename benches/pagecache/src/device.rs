//! The block device of a directory: its number, its read-ahead setting, and the bytes read from it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;

pub struct Device {
    /// `major:minor` of the whole device.
    pub number: String,
    sys: PathBuf,
}

impl Device {
    pub fn under(dir: &Path) -> Result<Self, Failure> {
        let stat = rustix::fs::stat(dir)?;
        let number = format!(
            "{}:{}",
            rustix::fs::major(stat.st_dev),
            rustix::fs::minor(stat.st_dev)
        );
        let sys = fs::canonicalize(format!("/sys/dev/block/{number}"))
            .map_err(|_| format!("{} is not on a block device", dir.display()))?;
        // a partition has the queue of the whole device, one level up
        let sys = if sys.join("queue").exists() {
            sys
        } else {
            sys.parent().ok_or("no device")?.to_owned()
        };
        let number = fs::read_to_string(sys.join("dev"))?.trim().to_owned();
        Ok(Self { number, sys })
    }

    /// Sets the kernel's read-ahead of the device until the returned value is dropped.
    pub fn read_ahead(&self, kilobytes: u64) -> Result<ReadAhead, Failure> {
        let path = self.sys.join("queue/read_ahead_kb");
        let before = fs::read_to_string(&path)?;
        fs::write(&path, kilobytes.to_string())?;
        Ok(ReadAhead { path, before })
    }

    /// Bytes read from the device since the machine started.
    pub fn bytes_read(&self) -> u64 {
        let stat = fs::read_to_string(self.sys.join("stat")).unwrap_or_default();
        stat.split_whitespace()
            .nth(2)
            .and_then(|sectors| sectors.parse::<u64>().ok())
            .unwrap_or(0)
            * 512
    }
}

pub struct ReadAhead {
    path: PathBuf,
    before: String,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let _ = fs::write(&self.path, self.before.trim());
    }
}
