//! Policies in shared libraries. Each runs in a process of its own, so that a policy that crashes, hangs or exceeds
//! its memory limit only loses its registration.
//!
//! | module | runs in | content |
//! |---|---|---|
//! | this one | daemon | [`LibraryPolicy`]: a [`Policy`] that forwards each call to the host process |
//! | `process` | daemon | starts a host process, exchanges messages with it, ends it |
//! | `received_lists` | daemon | resolves the lists that a host sends |
//! | `output` | daemon | logs what a policy prints |
//! | `message`, `wire` | both | requests and replies, and their encoding |
//! | `serve` | host | the loop that answers requests |
//! | `confine`, `seccomp` | host | restrictions of the process before it loads a policy |
//! | `foreign`, `sent_lists` | host | calls through the C ABI, and the lists that they return |

mod confine;
mod foreign;
mod message;
mod output;
mod process;
#[cfg(test)]
mod protocol_tests;
mod received_lists;
mod seccomp;
mod sent_lists;
mod serve;
mod wire;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use message::{Init, Reply, Request, WireAccess, WireList};
pub use process::HostCommand;
use process::{HostFailure, HostProcess};
use received_lists::ReceivedLists;
pub use serve::serve;

use crate::abi::{WANTS_EVICT, WANTS_PREFETCH, WANTS_TOUCH};
use crate::supervisor::PolicyCall;
use crate::{
    EventKind, FileAccess, Interests, Namespace, Policy, PolicyContext, PolicyLimits,
    PrefetchRequest, RangeList,
};

/// A policy in a shared library (`include/ppc.h`). Its host process starts with [`init`](Policy::init) and ends when
/// this is dropped.
#[derive(Debug)]
pub struct LibraryPolicy {
    command: HostCommand,
    path: PathBuf,
    limits: PolicyLimits,
    host: Option<ActiveHost>,
    interests: Interests,
    /// Whether the library has a `ppc_start`.
    has_start: bool,
    failed: Option<String>,
}

/// A running host process, and the lists that it sent.
#[derive(Debug)]
struct ActiveHost {
    process: HostProcess,
    namespace: Arc<Namespace>,
    lists: ReceivedLists,
}

impl LibraryPolicy {
    /// The policy in this file. The host process is started by [`init`](Policy::init).
    ///
    /// `limits` must equal those of the [`Supervisor`](crate::Supervisor) that runs the policy.
    pub fn new(command: HostCommand, path: impl Into<PathBuf>, limits: PolicyLimits) -> Self {
        let path = path.into();
        Self {
            command,
            path,
            limits,
            host: None,
            interests: Interests::default(),
            has_start: false,
            failed: None,
        }
    }

    /// The id of the host process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.host.as_ref().map(|host| host.process.id())
    }

    /// Sends a request and waits for the reply until the deadline of the call. A failure ends the host process, and
    /// is returned by [`failed`](Policy::failed).
    fn call(
        &mut self,
        call: PolicyCall,
        request: impl FnOnce(&Namespace) -> Request,
    ) -> Vec<PrefetchRequest> {
        let Some(host) = &mut self.host else {
            return Vec::new();
        };
        let request = request(&host.namespace);
        let until = Instant::now() + call.timeout(&self.limits);
        let lists = host
            .process
            .exchange(&request, until)
            .and_then(|reply| match reply {
                Reply::Lists(lists) => lists
                    .into_iter()
                    .map(|list: WireList| host.lists.resolve(list).map_err(HostFailure::Policy))
                    .collect(),
                Reply::Failed(what) => Err(HostFailure::Policy(
                    String::from_utf8_lossy(&what).into_owned(),
                )),
                Reply::Ready { .. } => Err(HostFailure::Malformed),
            });
        // a process that failed once is not called again: its state and the lists on both sides are unknown
        lists.unwrap_or_else(|failure| {
            self.failed = Some(self.end(call, failure));
            Vec::new()
        })
    }

    /// Ends the host process and returns the reason as a message.
    fn end(&mut self, call: PolicyCall, failure: HostFailure) -> String {
        let Some(host) = self.host.take() else {
            return "its process has ended".into();
        };
        match failure {
            HostFailure::Policy(what) => format!("{}: {what}", call.name()),
            HostFailure::Malformed => {
                format!("{}: its process sent a malformed message", call.name())
            }
            HostFailure::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                call.timeout_message(&self.limits)
            }
            HostFailure::Io(error) => match host.process.exit_reason() {
                Some(how) => format!("{}: its process ended ({how})", call.name()),
                None => format!(
                    "{}: its process closed the connection ({error})",
                    call.name()
                ),
            },
        }
    }
}

fn wire_access(access: &FileAccess, namespace: &Namespace) -> WireAccess {
    let kind = match access.kind {
        EventKind::Miss => 0,
        EventKind::Touch => 1,
        EventKind::Open => 2,
    };
    let path = access.path.as_os_str().as_bytes().to_vec();
    let file_len = namespace.get(&access.path).map_or(0, |entry| entry.len);
    let FileAccess {
        start,
        len,
        pid,
        tid,
        time,
        ..
    } = *access;
    WireAccess {
        path,
        start,
        len,
        file_len,
        pid,
        tid,
        kind,
        time,
    }
}

impl Policy for LibraryPolicy {
    fn interests(&self) -> Interests {
        self.interests
    }

    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        let until = Instant::now() + self.limits.init;
        let file = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let path = std::path::absolute(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // started on the policy's thread: the parent-death signal ends the host when the thread that started it ends
        let process = self.command.start(&name)?;
        let namespace = Arc::clone(&context.namespace);
        let lists = ReceivedLists::new(Arc::clone(&namespace), self.limits.list_entries);
        let host = self.host.insert(ActiveHost {
            process,
            namespace,
            lists,
        });
        let request = Request::Init(Init {
            library: file(&path),
            config: context.config.clone().into_bytes(),
            root: file(context.namespace.root()),
            cache_memory: context.memory,
            process_memory: self.limits.host_memory,
            max_entries: self.limits.list_entries as u64,
        });
        let failure = match host.process.exchange(&request, until) {
            Ok(Reply::Ready { wants, start }) => {
                let has = |bit| wants & bit != 0;
                let (prefetch, evict, touch) =
                    (has(WANTS_PREFETCH), has(WANTS_EVICT), has(WANTS_TOUCH));
                self.interests = Interests {
                    prefetch,
                    evict,
                    touch,
                    recording: false,
                };
                self.has_start = start;
                return Ok(());
            }
            Ok(Reply::Failed(what)) => {
                HostFailure::Policy(String::from_utf8_lossy(&what).into_owned())
            }
            Ok(Reply::Lists(_)) => HostFailure::Malformed,
            Err(failure) => failure,
        };
        Err(format!("{name}: {}", self.end(PolicyCall::Init, failure)))
    }

    fn exit(&mut self) {
        self.call(PolicyCall::Exit, |_| Request::Exit);
        self.host = None;
    }

    fn files_changed(&mut self, context: &PolicyContext) -> Result<(), String> {
        // the C ABI has no call for this: the library receives a new file at its first miss
        if let Some(host) = &mut self.host {
            host.namespace = Arc::clone(&context.namespace);
            host.lists.update_namespace(Arc::clone(&context.namespace));
        }
        Ok(())
    }

    fn start(&mut self) -> Vec<PrefetchRequest> {
        if self.has_start {
            self.call(PolicyCall::Start, |_| Request::Start)
        } else {
            Vec::new()
        }
    }

    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        self.call(PolicyCall::Prefetch, |namespace| {
            Request::Prefetch(wire_access(miss, namespace))
        })
        .pop()
    }

    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        let request =
            |namespace: &Namespace| Request::Evict(miss.map(|miss| wire_access(miss, namespace)));
        self.call(PolicyCall::Evict, request)
            .pop()
            .map(|list| list.ranges)
    }

    fn touch(&mut self, access: &FileAccess) -> Option<PrefetchRequest> {
        self.call(PolicyCall::Touch, |namespace| {
            Request::Touch(wire_access(access, namespace))
        })
        .pop()
    }

    fn failed(&mut self) -> Option<String> {
        self.failed.take()
    }
}
