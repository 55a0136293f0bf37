//! Events reported by the program itself, through the preloaded library `libanamnesis_shim.so`.
//!
//! This needs no privileges, but the program has to be started with the library ([`ShimSource::environment`]). The
//! library's README lists which calls it intercepts and documents the message format. Messages arrive through a named
//! pipe that only this user may write to. Programs never wait for the pipe; they count messages that did not fit.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags};

use super::native_endian::{take_u32, take_u64};
use super::poll::{drain, wait_readable};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Capabilities, Event, EventKind, EventSource, Inode, Waker, page_aligned};

/// The environment variable that holds the path of the pipe.
pub const PIPE: &str = "ANAMNESIS_SHIM";

/// First field of each message.
const MAGIC: u32 = 0x616e_7331;
/// Length of a message in bytes.
const MESSAGE_LEN: usize = 64;
/// Requested capacity of the pipe in bytes: the default maximum for unprivileged users.
const PIPE_CAPACITY: usize = 1 << 20;
/// How long to wait for further messages after the first, so that a program which reads continuously does not wake this
/// process at each read.
const BATCH_DELAY: Duration = Duration::from_millis(1);

/// A source of the reads of programs that run with the preloaded library. See the [module](self).
#[derive(Debug)]
pub struct ShimSource {
    path: PathBuf,
    pipe: OwnedFd,
    files: HashSet<Inode>,
    /// The beginning of a message whose end was not read yet.
    partial: Vec<u8>,
    lost: u64,
    waker: Waker,
    wake_fd: Arc<OwnedFd>,
}

impl ShimSource {
    /// Creates a named pipe at `path` and reads messages from it. The pipe is removed when the source is dropped.
    ///
    /// # Errors
    ///
    /// A file of this name exists, or the pipe cannot be created.
    pub fn listen(path: &Path) -> Result<Self> {
        let in_file = |error: rustix::io::Errno| Error::from(error).in_file(path);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).map_err(in_file)?;
        // for writing, too: otherwise the pipe is at its end whenever no program has it open
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let pipe = rustix::fs::open(path, flags, Mode::empty()).map_err(in_file)?;
        if let Err(error) = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_CAPACITY) {
            // no error: a smaller pipe loses messages sooner, and they are counted
            tracing::debug!(%error, "the pipe of the shim keeps its default capacity");
        }
        let (waker, wake_fd) = Waker::new()?;
        Ok(Self {
            path: path.to_owned(),
            pipe,
            files: HashSet::new(),
            partial: Vec::new(),
            lost: 0,
            waker,
            wake_fd,
        })
    }

    /// Creates the pipe at the path in `argument`, or if that is empty at the path in the environment.
    pub(crate) fn open(argument: &str) -> Result<Self> {
        match (argument, std::env::var_os(PIPE)) {
            ("", None) => Err(Error::new(ErrorKind::Unavailable(format!(
                "the shim needs a path for its pipe (shim:PATH, or {PIPE}), and the program to be started with \
                 LD_PRELOAD=libanamnesis_shim.so {PIPE}=PATH"
            )))),
            ("", Some(path)) => Self::listen(Path::new(&path)),
            (path, _) => Self::listen(Path::new(path)),
        }
    }

    /// The environment variables that a program has to be started with. `library` is the path of `libanamnesis_shim.so`.
    ///
    /// # Errors
    ///
    /// The dynamic linker cannot load a library by this path: it is a list of paths to it (ld.so(8)).
    pub fn environment(&self, library: &Path) -> Result<[(&'static str, PathBuf); 2]> {
        let separates = |byte: &u8| matches!(byte, b' ' | b':' | b'$');
        if library.as_os_str().as_encoded_bytes().iter().any(separates) {
            let why = "LD_PRELOAD takes no path with a space, a colon or a dollar sign; link the library to another one";
            return Err(Error::new(ErrorKind::Invalid(why.to_owned())).in_file(library));
        }
        Ok([
            ("LD_PRELOAD", library.to_owned()),
            (PIPE, self.path.clone()),
        ])
    }

    /// Reads the messages in the pipe and appends their events.
    fn read(&mut self, into: &mut Vec<Event>) -> io::Result<()> {
        let before = into.len();
        let mut buffer = vec![0; PIPE_CAPACITY];
        // a single read: a loop until the pipe is empty might not end while a program keeps writing
        let len = match rustix::io::read(&self.pipe, &mut buffer) {
            Ok(len) => len,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        // a write of up to `PIPE_BUF` bytes is never divided, but a read may end within a message
        self.partial.extend_from_slice(&buffer[..len]);
        let mut left = &self.partial[..];
        while left.len() >= MESSAGE_LEN {
            let Some((event, lost)) = decode(&left[..MESSAGE_LEN]) else {
                left = &left[1..]; // not a message: another program wrote into the pipe; search for the next magic
                continue;
            };
            left = &left[MESSAGE_LEN..];
            self.lost = self.lost.saturating_add(lost);
            into.extend(event.filter(|event| self.files.contains(&event.inode)));
        }
        let decoded = self.partial.len() - left.len();
        self.partial.drain(..decoded);
        // threads take their time before they write, so messages may be out of order
        into[before..].sort_by_key(|event| event.time);
        Ok(())
    }
}

/// Decodes a message: its event, if it has one, and how many messages were dropped before it.
fn decode(mut from: &[u8]) -> Option<(Option<Event>, u64)> {
    let from = &mut from;
    if take_u32(from)? != MAGIC {
        return None;
    }
    let kind = take_u32(from)?;
    let (dev, ino) = (take_u64(from)?, take_u64(from)?);
    let (offset, len) = (take_u64(from)?, take_u64(from)?);
    let (pid, tid) = (take_u32(from)?, take_u32(from)?);
    let (time, lost) = (take_u64(from)?, take_u64(from)?);
    let (kind, (start, len)) = match kind {
        1 => (EventKind::Open, (0, 0)),
        2 => (EventKind::Touch, page_aligned(offset, len)),
        3 => (EventKind::Open, page_aligned(offset, len)),
        4 => return Some((None, lost)),
        _ => return None,
    };
    let event = Event {
        kind,
        inode: Inode::from_st_dev(dev, ino),
        start,
        len,
        pid,
        tid,
        time,
    };
    Some((Some(event), lost))
}

impl EventSource for ShimSource {
    fn name(&self) -> &'static str {
        "shim"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            read_misses: false,
            map_misses: false,
            reads: true,
            first_touches: false,
            limitations: "programs that were not started with it, whether bytes were cached, accesses to mapped memory, \
                          fread, io_uring, and system calls that bypass libc",
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.files = files.iter().copied().collect();
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let (before, end) = (into.len(), Instant::now().checked_add(timeout));
        loop {
            let left = end.map_or(BATCH_DELAY, |end| {
                end.saturating_duration_since(Instant::now())
            });
            wait_readable(&[&self.pipe, &self.wake_fd], left)?;
            // after the first message: only a wake-up ends this delay early
            wait_readable(&[&self.wake_fd], left.min(BATCH_DELAY))?;
            let woken = drain(&self.wake_fd);
            self.read(into)?;
            if woken || into.len() > before || left.is_zero() {
                return Ok(true);
            }
        }
    }

    fn lost(&self) -> u64 {
        self.lost
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

impl Drop for ShimSource {
    fn drop(&mut self) {
        // a destructor cannot report a failure
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn message(kind: u32, ino: u64, lost: u64) -> Vec<u8> {
        let head = [MAGIC.to_ne_bytes(), kind.to_ne_bytes()].concat();
        let numbers = [(8 << 8) | 1, ino, 4097, 1, 7 << 32 | 6, 99, lost]
            .map(u64::to_ne_bytes)
            .concat();
        [head, numbers].concat()
    }

    #[test]
    fn messages_are_found_between_bytes_that_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mut shim = ShimSource::listen(&path).unwrap();
        assert!(ShimSource::listen(&path).is_err(), "the path exists");
        let inode = Inode {
            dev: 8 << 20 | 1,
            ino: 3,
        };
        shim.watch(&[inode]).unwrap();
        let mut pipe = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let noise: Vec<u8> = (0..1000u32).map(|n| n.to_ne_bytes()[0]).collect();
        let all = [
            &noise[..],
            &message(2, 3, 1),
            b"???",
            &message(1, 3, 0),
            &message(2, 4, 0),
            &message(4, 0, 5),
            &message(2, 3, 0),
        ];
        let all = all.concat();
        let mut events = Vec::new();
        for bytes in [&all[..1100], &all[1100..]] {
            pipe.write_all(bytes).unwrap();
            shim.wait(Duration::from_millis(20), &mut events).unwrap();
        }
        let (page, touch) = (
            u64::try_from(rustix::param::page_size()).unwrap(),
            EventKind::Touch,
        );
        let event = Event {
            kind: touch,
            inode,
            start: 4097 / page * page,
            len: page,
            pid: 6,
            tid: 7,
            time: 99,
        };
        let open = Event {
            kind: EventKind::Open,
            start: 0,
            len: 0,
            ..event
        };
        assert_eq!(events, [event, open, event]);
        assert_eq!(shim.lost(), 6);
        drop(shim);
        assert!(!path.exists());
    }

    #[test]
    fn corrupt_messages_are_decoded_without_panics() {
        let good = message(2, 3, 1);
        for at in 0..MESSAGE_LEN {
            for value in 0..=255 {
                let mut corrupt = good.clone();
                corrupt[at] = value;
                if let Some((Some(event), _)) = decode(&corrupt) {
                    assert!(event.start.checked_add(event.len).is_some());
                }
            }
            assert_eq!(decode(&good[..at]), None);
        }
    }
}
