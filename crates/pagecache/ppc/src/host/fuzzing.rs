//! Both sides of a conversation without processes, for the fuzz target `host` and `tests/message_memory.rs`. Not part of the
//! API.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::message::{Init, Request};
use super::serve::answer_requests;
use super::session::{HostFailure, HostSession};
use crate::abi::{Abi, Operation};
use crate::library::LoadedLibrary;
use crate::supervisor::call_clock::CallLimit;
use crate::{EventKind, FileAccess, Namespace, PolicyLimits, Result};

/// Initialises a policy whose host process is at the other end of `stream`, and makes the calls that `calls` selects, each
/// by a number. `files` are the states of the directory that follow each other. Returns how many lists were received.
///
/// # Errors
///
/// The failure that ended the conversation.
pub fn call_host(
    stream: UnixStream,
    files: &[Arc<Namespace>],
    calls: impl IntoIterator<Item = u8>,
) -> Result<usize, String> {
    let mut states = files.iter().cycle();
    let namespace = states.next().ok_or("no files")?;
    let limits = PolicyLimits::default();
    let mut session = HostSession::new(stream, None, Arc::clone(namespace), limits.list_entries);
    let limit = CallLimit {
        own: Duration::from_secs(1),
        stall: Duration::ZERO,
    };
    let failed = |failure: HostFailure| format!("{failure:?}");
    let init = Init {
        library: b"policy.so".to_vec(),
        config: Vec::new(),
        root: b"/".to_vec(),
        cache_memory: 1 << 30,
        process_memory: limits.host_memory,
        max_entries: limits.list_entries as u64,
    };
    session.init(init, limit).map_err(failed)?;
    let access = FileAccess {
        kind: EventKind::Miss,
        path: Path::new("a").into(),
        start: 4096,
        len: 4096,
        pid: 1,
        tid: 1,
        time: 0,
    };
    let mut lists = 0;
    for call in calls {
        let request = match call % 6 {
            0 => Request::Start,
            1 => Request::Prefetch(session.access(&access)),
            2 => Request::Evict(None),
            3 => Request::Evict(Some(session.access(&access))),
            4 => Request::Touch(session.access(&access)),
            _ => {
                if let Some(namespace) = states.next() {
                    session.update_namespace(Arc::clone(namespace));
                }
                continue;
            }
        };
        lists += session.call(&request, limit).map_err(failed)?.len();
    }
    session.call(&Request::Exit, limit).map_err(failed)?;
    Ok(lists)
}

/// Answers the requests on `stream` as a host process does that has loaded a policy with these callbacks.
///
/// # Errors
///
/// If a request is malformed, or the connection fails.
pub fn answer_daemon(stream: &UnixStream, operation: Operation) -> Result<()> {
    answer_requests(stream, |_| {
        Ok(LoadedLibrary {
            operation,
            abi: Abi::CURRENT,
        })
    })
}
