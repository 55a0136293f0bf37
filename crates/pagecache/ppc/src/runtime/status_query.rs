//! The client's side of status sockets: which runtimes there are, and what they answer.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::abstract_socket::{NAME_PREFIX, connect, is_transient};
use super::{peer, prometheus};

/// Maximum length of an answer.
pub(super) const MAX_DOCUMENT: usize = 16 << 20;
/// How long a client waits for connections and for the status of all runtimes together.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client waits for a change of policies. Their deadlines are shorter.
pub(super) const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a connection to a full queue is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The runtimes that serve their status to this user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningRuntimes {
    /// The processes and their status: a [`RuntimeStatus`](super::RuntimeStatus) as JSON
    /// ([`document`](super::RuntimeStatus::document)).
    pub documents: Vec<(u32, String)>,
    /// The processes that have a status socket and sent no status within a second, such as those that are stopped.
    pub unresponsive: Vec<u32>,
    /// Number of status sockets of other users, which were not read. Their names may be false.
    pub untrusted: usize,
}

impl RunningRuntimes {
    /// The counters of all of them in the [exposition format](https://prometheus.io/docs/instrumenting/exposition_formats/) of
    /// Prometheus: of each runtime with its process as a label, of each policy with its directory, and of each model. Text
    /// in labels comes from the documents, which other processes wrote.
    pub fn prometheus(&self) -> String {
        // a runtime that ended meanwhile has sent a part of its status
        let parsed = self.documents.iter().filter_map(|(pid, document)| {
            let document = serde_json::from_str(document).ok()?;
            Some((*pid, document))
        });
        prometheus::exposition(&parsed.collect::<Vec<_>>(), &self.unresponsive)
    }
}

/// Queries all runtimes of this machine whose user is this process's, or root.
///
/// # Errors
///
/// `/proc/net/unix` cannot be read.
pub fn query_all() -> io::Result<RunningRuntimes> {
    let sockets = listed_sockets(&std::fs::read("/proc/net/unix")?);
    Ok(query(sockets, &[], QUERY_TIMEOUT))
}

/// Queries the status of a process's runtime, as in [`RunningRuntimes::documents`].
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`]: the process serves no status. [`io::ErrorKind::TimedOut`]: it does not answer within a second.
/// [`io::ErrorKind::PermissionDenied`]: another user has bound its name.
pub fn query_status(pid: u32) -> io::Result<String> {
    query_process(pid, &[], QUERY_TIMEOUT)
}

/// Sends a request to the runtime of a process, and returns the answer. An empty request is one for the status.
pub(super) fn query_process(pid: u32, request: &[u8], timeout: Duration) -> io::Result<String> {
    let mut sockets = listed_sockets(&std::fs::read("/proc/net/unix")?);
    sockets.retain(|socket| socket.pid == pid);
    let mut found = query(sockets, request, timeout);
    match found.documents.pop() {
        Some((_, document)) => Ok(document),
        None if !found.unresponsive.is_empty() => Err(io::ErrorKind::TimedOut.into()),
        None if found.untrusted > 0 => Err(io::ErrorKind::PermissionDenied.into()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// A status socket in `/proc/net/unix`, of any user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListedSocket {
    pub(super) pid: u32,
    pub(super) name: Vec<u8>,
}

/// The status sockets among the lines of `/proc/net/unix`. Names are any bytes, not necessarily UTF-8.
pub(super) fn listed_sockets(lines: &[u8]) -> BTreeSet<ListedSocket> {
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

/// A connection whose answer has not ended.
#[derive(Debug)]
pub(super) struct PendingAnswer {
    pid: u32,
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl PendingAnswer {
    /// The stream must not block.
    pub(super) fn new(pid: u32, stream: UnixStream) -> Self {
        let bytes = Vec::new();
        Self { pid, stream, bytes }
    }

    /// Reads once. Returns whether the answer has ended.
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<bool> {
        match self.stream.read(chunk) {
            Ok(0) => Ok(true),
            Ok(n) if self.bytes.len() + n > MAX_DOCUMENT => {
                let what = "a status of more than 16 MiB";
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
            Ok(n) => {
                self.bytes.extend_from_slice(&chunk[..n]);
                Ok(false)
            }
            Err(error) if is_transient(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Waits until one of the answers has more bytes, for at most `timeout`, and reads them. Answers that end are added to `found`.
pub(super) fn receive_ready(
    pending: &mut Vec<PendingAnswer>,
    timeout: Duration,
    found: &mut RunningRuntimes,
) {
    let mut streams: Vec<PollFd<'_>> = pending
        .iter()
        .map(|answer| PollFd::new(&answer.stream, PollFlags::IN))
        .collect();
    let timeout = Timespec::try_from(timeout).ok();
    // an interrupted wait only ends early
    let _ = poll(&mut streams, timeout.as_ref());
    let is_ready: Vec<bool> = streams
        .iter()
        .map(|stream| !stream.revents().is_empty())
        .collect();
    let mut chunk = vec![0; 64 << 10];
    let mut is_ready = is_ready.into_iter();
    pending.retain_mut(|answer| {
        if is_ready.next() != Some(true) {
            return true;
        }
        let ended = answer.read(&mut chunk);
        let text = match ended {
            Ok(false) => return true,
            Ok(true) => String::from_utf8(std::mem::take(&mut answer.bytes)).ok(),
            Err(_) => None,
        };
        match text {
            Some(document) => found.documents.push((answer.pid, document)),
            None => found.unresponsive.push(answer.pid),
        }
        false
    });
}

/// Sends a request, and ends the sending direction behind it. Does not block: a request fits into the socket.
fn send_request(mut stream: &UnixStream, request: &[u8]) -> io::Result<()> {
    stream.write_all(request)?;
    stream.shutdown(Shutdown::Write)
}

/// Sends these sockets a request, and receives their answers. All of them are waited for together, so that many that do not answer cost no more than one.
fn query(
    mut sockets: BTreeSet<ListedSocket>,
    request: &[u8],
    timeout: Duration,
) -> RunningRuntimes {
    let mut found = RunningRuntimes::default();
    let mut pending = Vec::new();
    let until = Instant::now() + timeout;
    loop {
        sockets.retain(|socket| match connect(&socket.name) {
            Ok(stream) if peer::is_trusted(&stream) => {
                // one that has ended sends no answer, either
                let _ = send_request(&stream, request);
                pending.push(PendingAnswer::new(socket.pid, stream));
                false
            }
            Ok(_) => {
                found.untrusted += 1;
                false
            }
            // the queue is full
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        let left = until.saturating_duration_since(Instant::now());
        if (sockets.is_empty() && pending.is_empty()) || left.is_zero() {
            break;
        }
        let timeout = if sockets.is_empty() {
            left
        } else {
            left.min(RETRY_INTERVAL)
        };
        receive_ready(&mut pending, timeout, &mut found);
    }
    found
        .unresponsive
        .extend(pending.iter().map(|answer| answer.pid));
    // the user who has bound the name of a full queue is not known: the user of the process that it names decides
    for socket in sockets {
        if is_trusted_process(socket.pid) {
            found.unresponsive.push(socket.pid);
        } else {
            found.untrusted += 1;
        }
    }
    found.documents.sort();
    found.unresponsive.sort_unstable();
    found.unresponsive.dedup();
    found
}

/// Whether the process is of this process's user, or of root.
fn is_trusted_process(pid: u32) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::metadata(format!("/proc/{pid}"))
        .is_ok_and(|process| process.uid() == own || process.uid() == 0)
}
