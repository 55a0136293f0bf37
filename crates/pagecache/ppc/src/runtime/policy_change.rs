//! Changes of the policies of a runtime, requested by other processes over its socket.
//!
//! A request is a [`PolicyChange`] as JSON, and the answer a [`ChangeAnswer`]. A change runs on a thread of its own, because a policy
//! may take seconds to begin or to end and the status is served meanwhile; one at a time.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::status_query;

/// Limit on the bytes of a request.
pub(super) const MAX_REQUEST: usize = 64 << 10;

/// A change of the policies of a running runtime: the paper's `reg_policy` and `rm_policy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PolicyChange {
    /// Registers a policy, in place of the one that the directory has.
    Register {
        /// The directory, absolute.
        directory: PathBuf,
        /// The policy, in the words of the runtime's program. Paths in it are absolute.
        policy: String,
    },
    /// Removes the policy of a directory. Its files then belong to the policy of a directory above it, if there is one.
    Unregister {
        /// The directory, absolute.
        directory: PathBuf,
    },
}

/// Makes a change. An error says why it was not made.
pub type ChangeCallback = Arc<dyn Fn(&PolicyChange) -> Result<(), String> + Send + Sync>;

/// The answer of a runtime to a change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangeAnswer {
    /// Why the change was not made; `None` if it was.
    pub(super) error: Option<String>,
}

impl ChangeAnswer {
    /// As bytes to send.
    pub(super) fn encode(result: Result<(), String>) -> Vec<u8> {
        let answer = Self {
            error: result.err(),
        };
        serde_json::to_vec(&answer).unwrap_or_default()
    }
}

/// Changes the policies of the runtime in a process, and waits until that is done. The inner result is the runtime's: its error says
/// why the change was not made.
///
/// The runtime accepts changes from root, and from its own user unless it has capabilities: a policy may be a shared
/// library, which runs with the capabilities of the runtime.
///
/// # Errors
///
/// The errors of [`query_status`](super::query_status), where the time is a minute; [`io::ErrorKind::PermissionDenied`] also
/// if the runtime closes the connection, as it does to other users. [`io::ErrorKind::InvalidInput`]: a path is no UTF-8, or
/// the request has more than 64 KiB. [`io::ErrorKind::InvalidData`]: the answer is no answer to a change.
pub fn change_policies(pid: u32, change: &PolicyChange) -> io::Result<Result<(), String>> {
    let request = serde_json::to_vec(change)
        .ok()
        .filter(|request| request.len() <= MAX_REQUEST)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let answer = status_query::query_process(pid, &request, status_query::CHANGE_TIMEOUT)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let answer: ChangeAnswer =
        serde_json::from_str(&answer).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(answer.error.map_or(Ok(()), Err))
}
