//! Memory pressure, as the kernel measures it (pressure stall information, PSI).
//!
//! Outside of Linux there are no pressure files, and every query returns an error.

use std::io;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
pub use trigger::MemoryPressureTrigger;

use crate::error::{Error, Result};
use crate::memory::{MemoryMeter, MemoryScope};

/// Shares of the last ten seconds, in per cent, in which tasks stalled because they waited for memory.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemoryPressure {
    /// At least one task stalled.
    pub some: f32,
    /// All tasks that were not idle stalled.
    pub full: f32,
}

impl MemoryPressure {
    /// Reads the pressure of the scope's group under cgroup v2, or of the machine if the scope has no such group.
    ///
    /// # Errors
    ///
    /// There is no such process or group, the kernel lacks PSI (`CONFIG_PSI`), or the file has an unknown form.
    pub fn of(scope: &MemoryScope) -> Result<Self> {
        let path = pressure_file(scope)?;
        let text = std::fs::read_to_string(&path).map_err(|error| Error::new(&path, error))?;
        parse(&text).ok_or_else(|| {
            Error::message(
                &path,
                io::ErrorKind::InvalidData,
                "no line `some avg10=…` in the pressure file",
            )
        })
    }
}

fn pressure_file(scope: &MemoryScope) -> Result<PathBuf> {
    let meter = MemoryMeter::of(scope)?;
    let group = meter
        .unified()
        .map(|dir| dir.join("memory.pressure"))
        // absent where the kernel measures the pressure of the machine only
        .filter(|file| file.exists());
    Ok(group.unwrap_or_else(|| Path::new("/proc/pressure/memory").to_owned()))
}

fn parse(text: &str) -> Option<MemoryPressure> {
    let average = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace()
            .find_map(|word| word.strip_prefix("avg10="))?
            .parse()
            .ok()
    };
    Some(MemoryPressure {
        some: average("some ")?,
        // absent for the machine on kernels before 5.13
        full: average("full ").unwrap_or(0.0),
    })
}

#[cfg(target_os = "linux")]
mod trigger {
    use std::fs::{File, OpenOptions};
    use std::io::{self, Write};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::pressure_file;
    use crate::error::{Error, Result};
    use crate::memory::MemoryScope;

    /// A pressure file that becomes readable when tasks stall for memory.
    #[derive(Debug)]
    pub struct MemoryPressureTrigger(File);

    impl MemoryPressureTrigger {
        /// Fires when some task stalled for `stall` within `window`. The window is between 0.5 and 10 seconds; without
        /// `CAP_SYS_RESOURCE` it must be a multiple of 2 seconds.
        ///
        /// # Errors
        ///
        /// The errors of [`MemoryPressure::of`](super::MemoryPressure::of); the process may not write the pressure file, or
        /// the kernel rejects the window.
        pub fn new(scope: &MemoryScope, stall: Duration, window: Duration) -> Result<Self> {
            let path = pressure_file(scope)?;
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(|error| Error::new(&path, error))?;
            // the last byte that is written to `/proc/pressure/memory` is overwritten with a NUL: without one of its
            // own, the window would lose its last digit
            let text = format!("some {} {}\0", stall.as_micros(), window.as_micros());
            file.write_all(text.as_bytes())
                .map_err(|error| Error::new(&path, error))?;
            Ok(Self(file))
        }

        /// Waits until the trigger fires; `false` after `timeout`.
        ///
        /// # Errors
        ///
        /// The control group was removed.
        pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
            let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
            // a trigger is signalled as priority data, not as input
            let mut fds = [PollFd::new(&self.0, PollFlags::PRI)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
                Ok(_) if fds[0].revents().contains(PollFlags::ERR) => {
                    Err(io::Error::other("the control group was removed"))
                }
                Ok(_) => Ok(true),
                Err(error) => Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_files_are_parsed() {
        let text = "some avg10=1.25 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=6\n";
        let pressure = |some, full| Some(MemoryPressure { some, full });
        assert_eq!(parse(text), pressure(1.25, 0.5));
        assert_eq!(parse("some avg10=2.00\n"), pressure(2.0, 0.0));
        assert_eq!(parse("full avg10=9.00\n"), None);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn the_pressure_of_this_machine_is_read() {
        use std::time::Duration;
        match MemoryPressure::of(&MemoryScope::Machine) {
            Ok(pressure) => assert!((0.0..=100.0).contains(&pressure.some)),
            Err(error) => return eprintln!("SKIPPED: pressure: {error}"),
        }
        // a stall of one second out of two does not occur in a test
        let (stall, window) = (Duration::from_secs(1), Duration::from_secs(2));
        match MemoryPressureTrigger::new(&MemoryScope::Machine, stall, window) {
            Ok(trigger) => assert!(!trigger.wait(Duration::from_millis(1)).unwrap()),
            Err(error) => eprintln!("SKIPPED: pressure trigger: {error}"),
        }
    }
}
