//! Events from programs that tell themselves what they read: those that run with `libanamnesis_shim.so` preloaded.
//!
//! No privileges are needed, but the program must be started so ([`Shim::environment`]). What the library sees and does
//! not see is in its README. Events come through a named pipe, which only this user may write to; programs never wait
//! for it, and count what did not fit.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags};

use super::bytes::{take_u32, take_u64};
use super::{drained, readable};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, EventSource, Inode, Kind, Sight, Waker};

/// The variable that names the pipe.
pub const PIPE: &str = "ANAMNESIS_SHIM";

/// Begins every message.
const MAGIC: u32 = 0x616e_7331;
/// Bytes of a message.
const MESSAGE: usize = 64;
/// Bytes that the pipe holds: what every user may ask for.
const ROOM: usize = 1 << 20;
/// A program that reads much would wake us at every read; messages may gather for so long.
const GATHER: Duration = Duration::from_millis(1);

/// A source of the reads of programs that run with the shim. See the [module](self).
#[derive(Debug)]
pub struct Shim {
    path: PathBuf,
    pipe: OwnedFd,
    files: HashSet<Inode>,
    /// A message that has not come whole.
    rest: Vec<u8>,
    lost: u64,
    waker: Waker,
    wake: Arc<OwnedFd>,
}

impl Shim {
    /// Makes a named pipe and listens to it; it is removed in the end.
    ///
    /// # Errors
    ///
    /// There is something of that name, or it cannot be made.
    pub fn listen(path: &Path) -> Result<Self> {
        let in_file = |error: rustix::io::Errno| Error::from(error).in_file(path);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).map_err(in_file)?;
        // for writing too, so that it is never at its end
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let pipe = rustix::fs::open(path, flags, Mode::empty()).map_err(in_file)?;
        if let Err(error) = rustix::pipe::fcntl_setpipe_size(&pipe, ROOM) {
            tracing::debug!(%error, "the shim's pipe keeps its size");
        }
        let (waker, wake) = Waker::new()?;
        let (files, rest) = (HashSet::new(), Vec::new());
        Ok(Self {
            path: path.to_owned(),
            pipe,
            files,
            rest,
            lost: 0,
            waker,
            wake,
        })
    }

    /// Listens to the pipe that an argument or the environment names.
    pub(crate) fn named(argument: &str) -> Result<Self> {
        match (argument, std::env::var_os(PIPE)) {
            ("", None) => Err(Error::new(ErrorKind::Unavailable(format!(
                "the shim needs a place for its pipe (shim:PATH, or {PIPE}), and the program to be started with \
                 LD_PRELOAD=libanamnesis_shim.so {PIPE}=PATH"
            )))),
            ("", Some(path)) => Self::listen(Path::new(&path)),
            (path, _) => Self::listen(Path::new(path)),
        }
    }

    /// What a program's environment must have, with `library` the path of `libanamnesis_shim.so`.
    pub fn environment(&self, library: &Path) -> [(&'static str, PathBuf); 2] {
        [
            ("LD_PRELOAD", library.to_owned()),
            (PIPE, self.path.clone()),
        ]
    }

    /// Reads what is in the pipe.
    fn read(&mut self, into: &mut Vec<Event>) -> io::Result<()> {
        let before = into.len();
        let mut buffer = vec![0; ROOM];
        // once: a program that reads all the time must not keep us here
        let len = match rustix::io::read(&self.pipe, &mut buffer) {
            Ok(len) => len,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        self.rest.extend_from_slice(&buffer[..len]);
        let mut left = &self.rest[..];
        while left.len() >= MESSAGE {
            let Some((event, lost)) = message(&left[..MESSAGE]) else {
                left = &left[1..]; // somebody else wrote into it: look for the next
                continue;
            };
            left = &left[MESSAGE..];
            self.lost = self.lost.saturating_add(lost);
            into.extend(event.filter(|event| self.files.contains(&event.inode)));
        }
        let parsed = self.rest.len() - left.len();
        self.rest.drain(..parsed);
        into[before..].sort_by_key(|event| event.time);
        Ok(())
    }
}

/// A message: an event, and how many were dropped before it.
fn message(mut from: &[u8]) -> Option<(Option<Event>, u64)> {
    let from = &mut from;
    if take_u32(from)? != MAGIC {
        return None;
    }
    let kind = take_u32(from)?;
    let (dev, ino, at, bytes) = (
        take_u64(from)?,
        take_u64(from)?,
        take_u64(from)?,
        take_u64(from)?,
    );
    let (pid, tid, time, lost) = (
        take_u32(from)?,
        take_u32(from)?,
        take_u64(from)?,
        take_u64(from)?,
    );
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let inode = Inode {
        dev: u64::from(major) << 20 | u64::from(minor),
        ino,
    };
    let (kind, (start, len)) = match kind {
        1 => (Kind::Open, (0, 0)),
        2 => (Kind::Touch, super::pages(at, bytes)),
        3 => (Kind::Open, super::pages(at, bytes)),
        4 => return Some((None, lost)),
        _ => return None,
    };
    Some((
        Some(Event {
            kind,
            inode,
            start,
            len,
            pid,
            tid,
            time,
        }),
        lost,
    ))
}

impl EventSource for Shim {
    fn name(&self) -> &'static str {
        "shim"
    }

    fn sight(&self) -> Sight {
        Sight {
            read_misses: false,
            map_misses: false,
            reads: true,
            maps: false,
            blind: "programs that were not started with it, whether bytes were in memory, what is touched of mapped memory, \
                    fread, io_uring, and system calls that go past libc",
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.files = files.iter().copied().collect();
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let (before, end) = (into.len(), Instant::now().checked_add(timeout));
        loop {
            let left = end.map_or(GATHER, |end| end.saturating_duration_since(Instant::now()));
            readable(&[&self.pipe, &self.wake], left)?;
            readable(&[&self.wake], left.min(GATHER))?;
            let woken = drained(&self.wake);
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

impl Drop for Shim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn bytes(kind: u32, ino: u64, lost: u64) -> Vec<u8> {
        let head = [MAGIC.to_ne_bytes(), kind.to_ne_bytes()].concat();
        let numbers = [(8 << 8) | 1, ino, 4097, 1, 7 << 32 | 6, 99, lost]
            .map(u64::to_ne_bytes)
            .concat();
        [head, numbers].concat()
    }

    #[test]
    fn messages_are_read_whatever_is_between_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mut shim = Shim::listen(&path).unwrap();
        assert!(Shim::listen(&path).is_err(), "it is somebody's");
        let inode = Inode {
            dev: 8 << 20 | 1,
            ino: 3,
        };
        shim.watch(&[inode]).unwrap();
        let mut pipe = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let noise: Vec<u8> = (0..1000u32).map(|n| n.to_ne_bytes()[0]).collect();
        let all = [
            &noise[..],
            &bytes(2, 3, 1),
            b"???",
            &bytes(1, 3, 0),
            &bytes(2, 4, 0),
            &bytes(4, 0, 5),
            &bytes(2, 3, 0),
        ];
        let all = all.concat();
        let mut events = Vec::new();
        for part in [&all[..1100], &all[1100..]] {
            pipe.write_all(part).unwrap();
            shim.wait(Duration::from_millis(20), &mut events).unwrap();
        }
        let (page, touch) = (
            u64::try_from(rustix::param::page_size()).unwrap(),
            Kind::Touch,
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
            kind: Kind::Open,
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
    fn whatever_a_message_is_nothing_panics() {
        let good = bytes(2, 3, 1);
        for at in 0..MESSAGE {
            for value in 0..=255 {
                let mut bent = good.clone();
                bent[at] = value;
                if let Some((Some(event), _)) = message(&bent) {
                    assert!(event.start.checked_add(event.len).is_some());
                }
            }
            assert_eq!(message(&good[..at]), None);
        }
    }
}
