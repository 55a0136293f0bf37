//! How long tasks wait for memory, as the kernel measures it (PSI).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::cache::memory::{Memory, Scope};
use crate::error::{Error, ErrorKind, Result};

/// Shares of the last ten seconds, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pressure {
    /// In which some task waited for memory.
    pub some: f32,
    /// In which all tasks that could have run did.
    pub full: f32,
}

impl Pressure {
    /// Of the scope's group under cgroup v2, and of the machine where there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] on kernels without PSI. As [`Memory::of`].
    pub fn of(scope: &Scope) -> Result<Self> {
        let path = file(scope)?;
        let text = std::fs::read_to_string(&path).map_err(|error| unavailable(&error, &path))?;
        parse(&text).ok_or_else(|| unavailable(&io::ErrorKind::InvalidData.into(), &path))
    }
}

/// Wakes up when tasks wait for memory.
#[derive(Debug)]
pub struct PressureTrigger(File);

impl PressureTrigger {
    /// When some task waited for `stall` within `window`, which is from half a second to ten, and whole pairs of seconds
    /// for those who are not root.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] where the kernel lacks it or does not permit it. As [`Memory::of`].
    pub fn new(scope: &Scope, stall: Duration, window: Duration) -> Result<Self> {
        let path = file(scope)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| unavailable(&e, &path))?;
        let text = format!("some {} {}\0", stall.as_micros(), window.as_micros());
        file.write_all(text.as_bytes())
            .map_err(|error| unavailable(&error, &path))?;
        Ok(Self(file))
    }

    /// Waits until it happens; `false`: not in `timeout`.
    ///
    /// # Errors
    ///
    /// The group is gone.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.0, PollFlags::PRI)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            Ok(_) if fds[0].revents().contains(PollFlags::ERR) => {
                Err(io::Error::other("the group is gone"))
            }
            Ok(_) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

fn file(scope: &Scope) -> Result<PathBuf> {
    let memory = Memory::of(scope)?;
    let group = memory
        .unified()
        .map(|dir| dir.join("memory.pressure"))
        .filter(|file| file.exists());
    Ok(group.unwrap_or_else(|| "/proc/pressure/memory".into()))
}

fn unavailable(error: &io::Error, path: &Path) -> Error {
    let what = format!(
        "memory pressure ({error}); it takes a kernel with CONFIG_PSI, and for triggers the right to write"
    );
    Error::new(ErrorKind::Unavailable(what)).in_file(path)
}

fn parse(text: &str) -> Option<Pressure> {
    let of = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace()
            .find_map(|word| word.strip_prefix("avg10="))?
            .parse()
            .ok()
    };
    Some(Pressure {
        some: of("some ")?,
        full: of("full ").unwrap_or(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_files() {
        let text = "some avg10=1.25 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=6\n";
        assert_eq!(
            parse(text),
            Some(Pressure {
                some: 1.25,
                full: 0.5
            })
        );
        assert_eq!(
            parse("some avg10=2.00\n"),
            Some(Pressure {
                some: 2.0,
                full: 0.0
            })
        );
        assert_eq!(parse("full avg10=9.00\n"), None);
    }

    #[test]
    fn of_this_machine() {
        match Pressure::of(&Scope::Machine) {
            Ok(pressure) => assert!((0.0..=100.0).contains(&pressure.some)),
            Err(error) => return eprintln!("SKIPPED: pressure: {error}"),
        }
        // a second of two without memory is not what a test meets
        match PressureTrigger::new(
            &Scope::Machine,
            Duration::from_secs(1),
            Duration::from_secs(2),
        ) {
            Ok(trigger) => assert!(!trigger.wait(Duration::from_millis(1)).unwrap()),
            Err(error) => eprintln!("SKIPPED: pressure trigger: {error}"),
        }
    }
}
