//! The block device of a directory: its number, its read-ahead setting, and the bytes read from it over time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{Failure, clock};

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
    fn bytes_read(sys: &Path) -> u64 {
        let stat = fs::read_to_string(sys.join("stat")).unwrap_or_default();
        stat.split_whitespace()
            .nth(2)
            .and_then(|sectors| sectors.parse::<u64>().ok())
            .unwrap_or(0)
            * 512
    }

    /// Samples the bytes read so far every 50 ms.
    pub fn start_sampling(&self) -> Sampler {
        let stop = Arc::new(AtomicBool::new(false));
        let (sys, stopped) = (self.sys.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let first = Self::bytes_read(&sys);
            let mut samples = vec![(clock::now(), 0)];
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
                samples.push((clock::now(), Self::bytes_read(&sys) - first));
            }
            samples
        });
        Sampler { stop, thread }
    }
}

/// Time of the sample, and bytes read since sampling started.
pub type Samples = Vec<(f64, u64)>;

pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Samples>,
}

impl Sampler {
    pub fn end(self) -> Samples {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
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
