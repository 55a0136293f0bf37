//! Serves the status of a runtime on a Unix socket, and receives changes of its policies.
//!
//! The socket is in the abstract namespace, which needs no file: nothing is left behind when the process is killed, and
//! `/proc/net/unix` lists all runtimes of the machine. Any user can bind any name there, so that a name proves nothing: both
//! sides compare the user of the other one with their own, and accept that user and root.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
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
use super::policy_change::{ChangeAnswer, ChangeCallback, MAX_REQUEST, PolicyChange};
use crate::Waker;

/// How long the whole request, and the whole answer, may take: clients are served one after the other.
const CLIENT_TIMEOUT: Duration = Duration::from_millis(500);
/// How often a name that another process has bound is replaced by a random one.
const MAX_NAMES: usize = 8;

/// The socket of this process and the thread that serves it, until it is dropped.
#[derive(Debug)]
pub(super) struct StatusSocket {
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// Binds the socket of this process. Each connection of this user or root that sends nothing receives the result of `document`
    /// and is closed. One that sends a [`PolicyChange`] has it made by `change`.
    pub(super) fn bind(
        document: impl Fn() -> String + Send + 'static,
        change: Option<ChangeCallback>,
    ) -> io::Result<Self> {
        let listener = bind_name(std::process::id())?;
        // a client that disconnects between `poll` and `accept` must not block the thread
        listener.set_nonblocking(true)?;
        let (stop, stopped) = Waker::new()?;
        let thread = std::thread::Builder::new()
            .name("ppc-status".into())
            .spawn(move || {
                let mut server = StatusServer {
                    document: &document,
                    change,
                    changing: None,
                };
                server.serve(&listener, &stopped);
            })?;
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
            // the panic hook has printed a panic of the thread
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

/// Answers clients one after the other: a status is short, and a slow client is cut off.
struct StatusServer<'a> {
    document: &'a dyn Fn() -> String,
    change: Option<ChangeCallback>,
    /// The thread of the last change.
    changing: Option<JoinHandle<()>>,
}

impl StatusServer<'_> {
    /// Returns after `stopped`, when a change in progress has ended.
    fn serve(&mut self, listener: &UnixListener, stopped: &OwnedFd) {
        loop {
            let mut both = [
                PollFd::new(listener, PollFlags::IN),
                PollFd::new(stopped, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Err(Errno::INTR) => continue,
                Err(_) => break,
                Ok(_) if !both[1].revents().is_empty() => break,
                Ok(_) => {}
            }
            match listener.accept() {
                // an error means that the client has gone, or is too slow
                Ok((stream, _)) if peer::is_trusted(&stream) => drop(self.answer(stream)),
                // another user's connection is closed without an answer
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // such as a process without free descriptors; the connection stays pending, and `poll` returns at once
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        if let Some(changing) = self.changing.take() {
            let _ = changing.join(); // the panic hook has printed a panic of the thread
        }
    }

    fn answer(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let request = receive(&stream, Instant::now() + CLIENT_TIMEOUT)?;
        if request.is_empty() {
            let document = (self.document)();
            return send(
                &stream,
                document.as_bytes(),
                Instant::now() + CLIENT_TIMEOUT,
            );
        }
        let refused = match self.begin_change(&stream, &request) {
            Ok(begun) => return begun,
            Err(reason) => ChangeAnswer::encode(Err(reason.to_owned())),
        };
        send(&stream, &refused, Instant::now() + CLIENT_TIMEOUT)
    }

    /// Makes a change on another thread, which sends the answer. An error says why it is not made.
    fn begin_change(
        &mut self,
        stream: &UnixStream,
        request: &[u8],
    ) -> Result<io::Result<()>, &'static str> {
        peer::may_change_policies(stream)?;
        let change = serde_json::from_slice::<PolicyChange>(request)
            .map_err(|_| "the request is not known to this version")?;
        let Some(make) = self.change.clone() else {
            return Err("the policies of this runtime cannot be changed");
        };
        if self
            .changing
            .as_ref()
            .is_some_and(|last| !last.is_finished())
        {
            return Err("another change of policies is in progress; try again");
        }
        // the status is served while the policies are set up
        let begin = || -> io::Result<JoinHandle<()>> {
            let stream = stream.try_clone()?;
            let thread = std::thread::Builder::new().name("ppc-change".into());
            thread.spawn(move || {
                let answer = ChangeAnswer::encode(make(&change));
                // the change is made, whether or not the client waits for it
                let _ = send(&stream, &answer, Instant::now() + CLIENT_TIMEOUT);
            })
        };
        Ok(begin().map(|changing| self.changing = Some(changing)))
    }
}

/// Receives a request, up to its end.
fn receive(mut stream: &UnixStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        wait(stream, PollFlags::IN, until)?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(request),
            Ok(n) if request.len() + n > MAX_REQUEST => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            Ok(n) => request.extend_from_slice(&chunk[..n]),
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends all of it before the deadline.
fn send(mut stream: &UnixStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
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
