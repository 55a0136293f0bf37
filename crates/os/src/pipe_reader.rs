//! Reading pipes, terminals and sockets, whose writers may keep a reader waiting for ever.
//!
//! A handler of a signal that only sets a flag does not end a `read`, which the system begins again. So the reader waits for
//! bytes in short intervals, between which it looks whether they are still wanted.

use std::fs::File;
use std::io::{self, Read};

/// A stream whose reads end with an error once they are not wanted any more.
///
/// The file may have been opened without waiting for a writer ([`files::open_without_waiting`](crate::files::open_without_waiting)):
/// a FIFO that has had none yet is waited for.
///
/// ```
/// use std::io::Read;
/// use anamnesis_os::pipe_reader::PipeReader;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("file");
/// std::fs::write(&path, "abc")?;
/// let mut reader = PipeReader::new(std::fs::File::open(path)?, || true);
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?;
/// assert_eq!(text, "abc");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PipeReader<W> {
    file: File,
    is_wanted: W,
}

/// Milliseconds between two looks. A process that is interrupted ends within 100.
#[cfg(unix)]
const LOOK: i64 = 20;

impl<W: Fn() -> bool> PipeReader<W> {
    /// A reader of an open file, for as long as `is_wanted` returns true.
    pub fn new(file: File, is_wanted: W) -> Self {
        Self { file, is_wanted }
    }

    /// Waits until a read returns at once. Not where the system cannot say.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::ConnectionAborted`] if the bytes are not wanted any more.
    fn wait(&self) -> io::Result<()> {
        loop {
            if !(self.is_wanted)() {
                // not `Interrupted`, after which readers of `std` try again
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "the bytes are not wanted any more",
                ));
            }
            #[cfg(unix)]
            {
                use rustix::event::{PollFd, PollFlags, Timespec, poll};
                let time = Timespec {
                    tv_sec: 0,
                    tv_nsec: LOOK * 1_000_000,
                };
                let mut waited = [PollFd::new(&self.file, PollFlags::IN)];
                match poll(&mut waited, Some(&time)) {
                    Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                    // an error of `poll` is no reason not to read
                    _ => {}
                }
            }
            return Ok(());
        }
    }
}

impl<W: Fn() -> bool> Read for PipeReader<W> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait()?;
            match self.file.read(buf) {
                // another reader was faster
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::cell::Cell;
    use std::io::Write;

    use super::*;

    fn pipe() -> (File, File) {
        let (reader, writer) = io::pipe().unwrap();
        let file = |fd: std::os::fd::OwnedFd| File::from(fd);
        (file(reader.into()), file(writer.into()))
    }

    #[test]
    fn a_wait_ends_when_the_bytes_are_not_wanted() {
        let (reader, mut writer) = pipe();
        let looks = Cell::new(0);
        let mut reader = PipeReader::new(reader, || {
            looks.set(looks.get() + 1);
            looks.get() < 4
        });
        writer.write_all(b"ab").unwrap();
        let mut bytes = [0; 4];
        assert_eq!(reader.read(&mut bytes).unwrap(), 2);
        let error = reader.read(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(looks.get(), 4);
    }

    #[test]
    fn the_end_of_a_pipe_is_the_end() {
        let (reader, writer) = pipe();
        drop(writer);
        let mut reader = PipeReader::new(reader, || true);
        assert_eq!(reader.read(&mut [0; 4]).unwrap(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_fifo_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let file = crate::files::open_without_waiting(&path).unwrap();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let mut fifo = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            fifo.write_all(b"late").unwrap();
        });
        let mut text = String::new();
        let mut reader = PipeReader::new(file, || true);
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "late");
        writer.join().unwrap();
    }
}
