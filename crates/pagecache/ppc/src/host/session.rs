//! Daemon side of a conversation: sends requests, receives their replies, and resolves the lists in them.
//!
//! The host process is untrusted. A reply that is not the next one, not of the kind that its request has, or not within
//! the limits ends the conversation with an error.

use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::message::{Init, MAX_QUEUES, Reply, Request, WireAccess};
use super::printable::printable;
use super::received_lists::ReceivedLists;
use super::wire::{self, Deadline, HostIdentity};
use crate::abi::{WANTS_EVICT, WANTS_PREFETCH, WANTS_TOUCH};
use crate::supervisor::call_clock::{CallClock, CallLimit, ExceededLimit};
use crate::{EventKind, FileAccess, Interests, Namespace, PrefetchRequest};

/// Limit on the bytes of a reason that a host process gives for a failure; the rest is cut off.
const MAX_REASON: usize = 4000;

/// Failure of a conversation with a host process.
#[derive(Debug)]
pub(super) enum HostFailure {
    /// The connection failed.
    Io(io::Error),
    /// The process had its time.
    Late(ExceededLimit),
    /// The reply is not a valid message, or not a reply to the request.
    Malformed,
    /// The policy failed, or returned an invalid list.
    Policy(String),
}

/// The result of a policy's initialisation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostedCallbacks {
    pub(super) interests: Interests,
    /// Whether the library has a `ppc_start`.
    pub(super) start: bool,
}

/// A connection to a host process, and the lists that it sent.
#[derive(Debug)]
pub(super) struct HostSession {
    stream: UnixStream,
    process: Option<HostIdentity>,
    /// The number of the last request.
    number: u32,
    namespace: Arc<Namespace>,
    lists: ReceivedLists,
}

impl HostSession {
    /// `max_entries` limits the entries of one list.
    pub(super) fn new(
        stream: UnixStream,
        process: Option<HostIdentity>,
        namespace: Arc<Namespace>,
        max_entries: usize,
    ) -> Self {
        Self {
            stream,
            process,
            number: 0,
            lists: ReceivedLists::new(Arc::clone(&namespace), max_entries),
            namespace,
        }
    }

    /// The request for an access: with the length that its file has now.
    pub(super) fn access(&self, access: &FileAccess) -> WireAccess {
        let kind = match access.kind {
            EventKind::Miss => 0,
            EventKind::Touch => 1,
            EventKind::Open => 2,
        };
        let file_len = self
            .namespace
            .get(&access.path)
            .map_or(0, |entry| entry.len);
        let FileAccess {
            start,
            len,
            pid,
            tid,
            time,
            ..
        } = *access;
        WireAccess {
            path: file_name(&access.path),
            start,
            len,
            file_len,
            pid,
            tid,
            kind,
            time,
        }
    }

    /// Makes the first request, which loads the policy.
    pub(super) fn init(
        &mut self,
        init: Init,
        limit: CallLimit,
    ) -> Result<HostedCallbacks, HostFailure> {
        match self.exchange(&Request::Init(init), limit)? {
            Reply::Ready { wants, start } => {
                let has = |bit| wants & bit != 0;
                let interests = Interests {
                    prefetch: has(WANTS_PREFETCH),
                    evict: has(WANTS_EVICT),
                    touch: has(WANTS_TOUCH),
                    // the C ABI has no bits for the others
                    ..Interests::default()
                };
                Ok(HostedCallbacks { interests, start })
            }
            Reply::Failed(what) => Err(HostFailure::Policy(reason(&what))),
            Reply::Lists(_) => Err(HostFailure::Malformed),
        }
    }

    /// Makes another request and returns the lists of its reply.
    pub(super) fn call(
        &mut self,
        request: &Request,
        limit: CallLimit,
    ) -> Result<Vec<PrefetchRequest>, HostFailure> {
        let max_lists = match request {
            // no list is asked of them, and a list that comes all the same is no reply
            Request::Init(_) | Request::Exit => 0,
            Request::Start => MAX_QUEUES,
            Request::Prefetch(_) | Request::Evict(_) | Request::Touch(_) => 1,
        };
        match self.exchange(request, limit)? {
            Reply::Lists(lists) if lists.len() <= max_lists => {
                let mut resolved = Vec::with_capacity(lists.len());
                for list in lists {
                    resolved.push(self.lists.resolve(list).map_err(HostFailure::Policy)?);
                }
                Ok(resolved)
            }
            Reply::Failed(what) => Err(HostFailure::Policy(reason(&what))),
            Reply::Lists(_) | Reply::Ready { .. } => Err(HostFailure::Malformed),
        }
    }

    /// Replaces the files that paths are looked up in.
    pub(super) fn update_namespace(&mut self, namespace: Arc<Namespace>) {
        self.lists.update_namespace(Arc::clone(&namespace));
        self.namespace = namespace;
    }

    /// Sends a request and receives its reply before the deadline.
    fn exchange(&mut self, request: &Request, limit: CallLimit) -> Result<Reply, HostFailure> {
        let (clock, exceeded) = (Cell::new(CallClock::start(limit)), Cell::new(None));
        let deadline = Deadline {
            clock: &clock,
            process: self.process.as_ref(),
            exceeded: &exceeded,
        };
        let failed = |error: io::Error| match (exceeded.get(), error.kind()) {
            // the deadline first: the error of the socket only follows from it
            (Some(exceeded), _) => HostFailure::Late(exceeded),
            (None, io::ErrorKind::InvalidData) => HostFailure::Malformed,
            (None, _) => HostFailure::Io(error),
        };
        self.number = self.number.wrapping_add(1);
        wire::send(&self.stream, self.number, &request.encode(), Some(deadline)).map_err(failed)?;
        let reply = wire::receive(&self.stream, Some(deadline)).map_err(failed)?;
        // a reply that was sent before its request, twice or too late would be the answer to another call
        if reply.number != self.number {
            return Err(HostFailure::Malformed);
        }
        Reply::decode(&reply.message).map_err(|_| HostFailure::Malformed)
    }
}

/// A path as it is sent.
pub(super) fn file_name(path: &std::path::Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

/// The reason of a failure, for the log and the status: the bytes are the policy's.
fn reason(what: &[u8]) -> String {
    printable(&String::from_utf8_lossy(
        &what[..what.len().min(MAX_REASON)],
    ))
}
