//! Policies in shared libraries. Each runs in a process of its own, so that a policy that crashes, hangs or exceeds
//! its memory limit only loses its registration.
//!
//! | module | runs in | content |
//! |---|---|---|
//! | this one | daemon | [`LibraryPolicy`]: a [`Policy`] that forwards each call to the host process |
//! | `process` | daemon | starts a host process, and ends it |
//! | `session` | daemon | sends requests, receives their replies |
//! | `received_lists` | daemon | resolves the lists that a host sends |
//! | `output`, `printable` | daemon | logs what a policy prints |
//! | `message`, `wire` | both | requests and replies, and their encoding |
//! | `serve` | host | the loop that answers requests |
//! | `fuzzing` | tests | both sides without processes |
//! | `confine`, `seccomp` | host | restrictions of the process before it loads a policy |
//! | `foreign`, `sent_lists` | host | calls through the C ABI, and the lists that they return |
//!
//! Neither side trusts the other's messages. A reply of *n* bytes costs the daemon at most 16 *n* bytes of memory and
//! 1 MiB, and a message has at most 32 MiB (`tests/hostile/fuzz`, target `host`). A malformed message, a reply that is not the
//! one to the last request, and a deadline that passes end the process and deregister the policy with one error.

mod confine;
mod foreign;
#[doc(hidden)]
pub mod fuzzing;
mod message;
mod output;
mod printable;
mod process;
#[cfg(test)]
mod protocol_tests;
mod received_lists;
mod seccomp;
mod sent_lists;
mod serve;
mod session;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;

use message::{Init, Request};
pub use process::HostCommand;
use process::{HostProcess, StartedHost};
pub use serve::serve;
use session::{HostFailure, HostSession, HostedCallbacks, file_name};

use crate::supervisor::PolicyCall;
use crate::{
    FileAccess, Interests, Policy, PolicyContext, PolicyLimits, PrefetchRequest, RangeList,
};

/// A policy in a shared library (`include/ppc.h`). Its host process starts with [`init`](Policy::init) and ends when
/// this is dropped.
#[derive(Debug)]
pub struct LibraryPolicy {
    command: HostCommand,
    path: PathBuf,
    limits: PolicyLimits,
    host: Option<ActiveHost>,
    callbacks: HostedCallbacks,
    failed: Option<String>,
}

/// A running host process, and the conversation with it.
#[derive(Debug)]
struct ActiveHost {
    process: HostProcess,
    session: HostSession,
}

impl LibraryPolicy {
    /// Why no policy in a shared library runs in this build, as a clause; `None` if they do. A program that is built for musl
    /// runs none.
    pub const UNAVAILABLE: Option<&str> = crate::library::UNAVAILABLE;

    /// The policy in this file. The host process is started by [`init`](Policy::init).
    ///
    /// `limits` must equal the limits of the [`Supervisor`](crate::Supervisor) that runs the policy.
    pub fn new(command: HostCommand, path: impl Into<PathBuf>, limits: PolicyLimits) -> Self {
        let path = path.into();
        Self {
            command,
            path,
            limits,
            host: None,
            callbacks: HostedCallbacks::default(),
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
        request: impl FnOnce(&HostSession) -> Request,
    ) -> Vec<PrefetchRequest> {
        let Some(host) = &mut self.host else {
            return Vec::new();
        };
        let request = request(&host.session);
        let lists = host.session.call(&request, call.limit(&self.limits));
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
            HostFailure::Late(exceeded) => call.timeout_message(exceeded),
            // the connection closes because the process ends: its exit status says why, and the socket's error does not
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

impl Policy for LibraryPolicy {
    fn interests(&self) -> Interests {
        self.callbacks.interests
    }

    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        // the host has a working directory of its own
        let path = std::path::absolute(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // started on the policy's thread: the parent-death signal ends the host when the thread that started it ends
        let StartedHost {
            process,
            stream,
            identity,
        } = self.command.start(&name)?;
        let namespace = Arc::clone(&context.namespace);
        let session = HostSession::new(stream, identity, namespace, self.limits.list_entries);
        let host = self.host.insert(ActiveHost { process, session });
        let init = Init {
            library: file_name(&path),
            config: context.config.clone().into_bytes(),
            root: file_name(context.namespace.root()),
            cache_memory: context.memory,
            process_memory: self.limits.host_memory,
            max_entries: self.limits.list_entries as u64,
        };
        match host
            .session
            .init(init, PolicyCall::Init.limit(&self.limits))
        {
            Ok(callbacks) => {
                self.callbacks = callbacks;
                Ok(())
            }
            Err(failure) => Err(format!("{name}: {}", self.end(PolicyCall::Init, failure))),
        }
    }

    fn exit(&mut self) {
        self.call(PolicyCall::Exit, |_| Request::Exit);
        // also where the call succeeded: dropping it ends and reaps the process
        self.host = None;
    }

    fn files_changed(&mut self, context: &PolicyContext) -> Result<(), String> {
        // the C ABI has no call for this: the library receives a new file at its first miss
        if let Some(host) = &mut self.host {
            host.session
                .update_namespace(Arc::clone(&context.namespace));
        }
        Ok(())
    }

    fn start(&mut self) -> Vec<PrefetchRequest> {
        // an absent callback is not worth a message
        if self.callbacks.start {
            self.call(PolicyCall::Start, |_| Request::Start)
        } else {
            Vec::new()
        }
    }

    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        self.call(PolicyCall::Prefetch, |session| {
            Request::Prefetch(session.access(miss))
        })
        .pop()
    }

    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        let request = |session: &HostSession| Request::Evict(miss.map(|miss| session.access(miss)));
        self.call(PolicyCall::Evict, request)
            .pop()
            .map(|list| list.ranges)
    }

    fn touch(&mut self, access: &FileAccess) -> Option<PrefetchRequest> {
        self.call(PolicyCall::Touch, |session| {
            Request::Touch(session.access(access))
        })
        .pop()
    }

    fn failed(&mut self) -> Option<String> {
        self.failed.take()
    }
}
