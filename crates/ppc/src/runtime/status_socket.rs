//! Serves the status of a runtime on a Unix socket.
//!
//! The socket is in the abstract namespace, which needs no file: nothing is left behind when the process is killed, and
//! `/proc/net/unix` lists all runtimes of the machine. Any user can bind any name there, so that a name proves nothing: both
//! sides compare the user of the other one with their own, and accept that user and root.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::time::Timespec;

use super::peer;
use crate::Waker;

/// Prefix of the socket's name; the process id follows, and a number if another process has bound that name.
const NAME_PREFIX: &str = "anamnesis-ppc/";
/// Maximum length of a status document.
const MAX_DOCUMENT: usize = 16 << 20;
/// How long a client waits for a connection and for the whole answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
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

/// Receives all of it before the deadline, which is one for all bytes: a server that sends a byte at a time is cut off.
fn receive(mut stream: &UnixStream, until: Instant) -> io::Result<String> {
    let (mut document, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        wait(stream, PollFlags::IN, until)?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) if document.len() + n > MAX_DOCUMENT => {
                let what = "a status of more than 16 MiB";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            Ok(n) => document.extend_from_slice(&chunk[..n]),
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(document)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a status that is not UTF-8"))
}

fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
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

/// Connects to an abstract name. Does not block: a listener that accepts nothing, and whose queue is full, would hold a
/// blocking `connect` without end.
fn connect(name: &[u8]) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(UnixStream::from(socket))
}

/// A status socket in `/proc/net/unix`, of any user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListedSocket {
    pid: u32,
    name: Vec<u8>,
}

/// The status sockets among the lines of `/proc/net/unix`. Names are any bytes, not necessarily UTF-8.
fn listed_sockets(lines: &[u8]) -> BTreeSet<ListedSocket> {
    let listed = |line: &[u8]| {
        // the name is the eighth column, and starts with `@` in the abstract namespace
        let name = line
            .split(|&byte| byte == b' ')
            .rfind(|word| !word.is_empty())?;
        let name = name.strip_prefix(b"@")?;
        let rest = name.strip_prefix(NAME_PREFIX.as_bytes())?;
        let digits = rest.split(|&byte| byte == b'/').next()?;
        let pid = str::from_utf8(digits).ok()?.parse().ok()?;
        let name = name.to_vec();
        Some(ListedSocket { pid, name })
    };
    lines
        .split(|&byte| byte == b'\n')
        .filter_map(listed)
        .collect()
}

/// The runtimes that serve their status to this user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningRuntimes {
    /// The processes and their status: a [`RuntimeStatus`](super::RuntimeStatus) as JSON
    /// ([`document`](super::RuntimeStatus::document)).
    pub documents: Vec<(u32, String)>,
    /// Number of status sockets of other users, which were not read. Their names may be false.
    pub untrusted: usize,
}

/// Queries all runtimes of this machine whose user is that of this process, or root. A runtime that does not answer
/// within a second is left out.
///
/// # Errors
///
/// `/proc/net/unix` cannot be read.
pub fn query_all() -> io::Result<RunningRuntimes> {
    Ok(query(listed_sockets(&std::fs::read("/proc/net/unix")?)))
}

/// Queries the status of a process's runtime, as in [`RunningRuntimes::documents`].
///
/// # Errors
///
/// The process serves no status, or does not answer within a second. [`io::ErrorKind::PermissionDenied`]: another user
/// has bound its name.
pub fn query_status(pid: u32) -> io::Result<String> {
    let mut sockets = listed_sockets(&std::fs::read("/proc/net/unix")?);
    sockets.retain(|socket| socket.pid == pid);
    let mut found = query(sockets);
    match found.documents.pop() {
        Some((_, document)) => Ok(document),
        None if found.untrusted > 0 => Err(io::ErrorKind::PermissionDenied.into()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Queries these sockets. Full queues are waited for together, so that many of them cost no more than one.
fn query(mut sockets: BTreeSet<ListedSocket>) -> RunningRuntimes {
    let mut found = RunningRuntimes::default();
    let until = Instant::now() + QUERY_TIMEOUT;
    loop {
        sockets.retain(|socket| match connect(&socket.name) {
            Ok(stream) if peer::is_trusted(&stream) => {
                if let Ok(document) = receive(&stream, Instant::now() + QUERY_TIMEOUT) {
                    found.documents.push((socket.pid, document));
                }
                false
            }
            Ok(_) => {
                found.untrusted += 1;
                false
            }
            // the queue is full
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        if sockets.is_empty() || Instant::now() >= until {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    found.documents.sort();
    found
}

#[cfg(test)]
#[path = "status_socket_tests.rs"]
mod tests;
