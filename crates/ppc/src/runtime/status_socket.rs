//! Serves the status of a runtime on a Unix socket.
//!
//! The socket is in the abstract namespace, which needs no file: nothing is left behind when the process is killed, and
//! `/proc/net/unix` lists all runtimes of the machine. Any user can bind any name there, so that a name proves nothing: both
//! sides compare the user of the other one with their own, and accept that user and root.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::abstract_socket::{NAME_PREFIX, connect, is_transient};
use super::peer;
use crate::Waker;

/// How long the whole answer may take to send: clients are served one after the other.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);
/// How often a name that another process has bound is replaced by a random one.
const MAX_NAMES: usize = 8;

/// The socket of this process and the thread that serves it, until it is dropped.
#[derive(Debug)]
pub(super) struct StatusSocket {
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// Binds the socket of this process. Each connection of this user or root receives the result of `document` and is
    /// closed.
    pub(super) fn bind(document: impl Fn() -> String + Send + 'static) -> io::Result<Self> {
        let listener = bind_name(std::process::id())?;
        // a client that disconnects between `poll` and `accept` must not block the thread
        listener.set_nonblocking(true)?;
        let (stop, stopped) = Waker::new()?;
        let thread = std::thread::Builder::new()
            .name("ppc-status".into())
            .spawn(move || serve(&listener, &stopped, &document))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Binds the name of this process, or another one if it is taken.
fn bind_name(pid: u32) -> io::Result<UnixListener> {
    let plain = format!("{NAME_PREFIX}{pid}");
    let bind = |name: &str| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
    let taken = match bind(&plain) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
        bound => return bound,
    };
    // two runtimes of one process: the caller's mistake, and not an attack
    let holder = connect(plain.as_bytes()).and_then(|stream| peer::credentials(&stream));
    let own = rustix::process::geteuid().as_raw();
    if holder.is_ok_and(|holder| holder.uid == own && u32::try_from(holder.pid) == Ok(pid)) {
        return Err(taken);
    }
    tracing::warn!(
        "another process has bound the name of the status socket; a random name is used"
    );
    for attempt in 0..MAX_NAMES {
        let random = RandomState::new().hash_one(attempt);
        match bind(&format!("{plain}/{random:016x}")) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    Err(taken)
}

/// Serves clients one after the other: a status is short, and a slow client is cut off.
fn serve(listener: &UnixListener, stopped: &OwnedFd, document: &dyn Fn() -> String) {
    loop {
        let mut both = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        match poll(&mut both, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !both[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        match listener.accept() {
            Ok((stream, _)) if peer::is_trusted(&stream) => {
                let until = Instant::now() + SEND_TIMEOUT;
                let _ = send(&stream, document().as_bytes(), until);
            }
            // another user's connection is closed without an answer
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // such as a process without free descriptors; the connection stays pending, and `poll` returns at once
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Sends all of it before the deadline.
fn send(mut stream: &UnixStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    while !bytes.is_empty() {
        wait(stream, PollFlags::OUT, until)?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the socket is ready.
fn wait(stream: &UnixStream, ready: PollFlags, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(&stream.as_fd(), ready)], Some(&left)) {
            Err(Errno::INTR) | Ok(0) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "status_socket_tests.rs"]
mod tests;
