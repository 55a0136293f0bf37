#![allow(unsafe_code)] // fcntl(F_SETLEASE): no safe API exists; see CONVENTIONS.md

//! A lease of a file: no other process has it open or mapped, and none opens it before the lease ends.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `F_SETSIG`, which the `libc` crate has for one architecture only. All that Rust supports have this number.
const SET_SIGNAL: libc::c_int = 10;

/// A write lease (`fcntl(F_SETLEASE, F_WRLCK)`), held until it is dropped.
///
/// The kernel grants it only if this descriptor is the only one of the file in any process, and if no process has a mapping of it,
/// also one whose descriptor is closed. A process that opens the file while the lease is held waits until it ends, at
/// most `/proc/sys/fs/lease-break-time` (45 s).
#[derive(Debug)]
pub struct WriteLease(File);

impl WriteLease {
    /// Takes a lease of an open file, without waiting. `None` if the file is open or mapped elsewhere, belongs to another user, or is
    /// on a file system without leases.
    ///
    /// ```
    /// use anamnesis_os::lease::WriteLease;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let file = std::fs::File::create(directory.path().join("model"))?;
    /// let other = std::fs::File::open(directory.path().join("model"))?;
    /// assert!(WriteLease::take(&file).is_none());
    /// drop(other);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take(file: &File) -> Option<Self> {
        // the same open file to the kernel, and no further one
        let file = file.try_clone().ok()?;
        // The kernel notifies the holder of a lease that another process waits. Its default, SIGIO, would end this process;
        // SIGURG is ignored unless a program handles it.
        set(&file, SET_SIGNAL, libc::SIGURG).ok()?;
        // an enum on some systems, and an integer on others
        set(&file, libc::F_SETLEASE, libc::F_WRLCK as libc::c_int).ok()?;
        Some(Self(file))
    }
}

impl Drop for WriteLease {
    fn drop(&mut self) {
        // one that was broken has ended already
        let _ = set(&self.0, libc::F_SETLEASE, libc::F_UNLCK as libc::c_int);
    }
}

fn set(file: &File, command: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the command has an integer as its argument, and the descriptor is open for as long as the borrow of the file.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, value) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_lease_is_refused_while_the_file_is_open_and_delays_those_who_open_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let file = file.unwrap();
        let Some(lease) = WriteLease::take(&file) else {
            eprintln!(
                "SKIPPED: the file system of {} has no leases",
                path.display()
            );
            return;
        };
        let opening = std::thread::spawn(move || {
            let start = Instant::now();
            (File::open(path).unwrap(), start.elapsed())
        });
        std::thread::sleep(Duration::from_millis(150));
        drop(lease);
        let (other, waited) = opening.join().unwrap();
        assert!(waited > Duration::from_millis(50), "{waited:?}");
        assert!(WriteLease::take(&file).is_none());
        drop(other);
        assert!(WriteLease::take(&file).is_some());
    }
}
