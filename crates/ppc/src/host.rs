//! Policies in shared libraries, each in a process of its own: one that crashes, hangs or eats memory loses its
//! registration, and nothing else.

mod confine;
mod foreign;
#[cfg(test)]
mod hostile;
mod kept;
mod message;
mod output;
mod running;
mod seccomp;
mod sent;
mod serve;
mod wire;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use kept::Kept;
use message::{Init, List, Reply, Request, Told};
pub use running::HostCommand;
use running::{Running, Wrong};
pub use serve::serve;

use crate::abi::{WANTS_EVICT, WANTS_PREFETCH, WANTS_TOUCH};
use crate::guard::Call;
use crate::{Access, Context, Ios, Kind, Limits, Namespace, Policy, Prefetch, Wants};

/// A policy in a shared library (`include/ppc.h`), in a host process that starts with
/// [`init`](Policy::init) and ends when this is dropped.
#[derive(Debug)]
pub struct Library {
    command: HostCommand,
    path: PathBuf,
    limits: Limits,
    running: Option<Hosted>,
    wants: Wants,
    starts: bool,
    failed: Option<String>,
}

/// The process, and what it sent.
#[derive(Debug)]
struct Hosted {
    process: Running,
    namespace: Arc<Namespace>,
    kept: Kept,
}

impl Library {
    /// The policy in this file. Nothing is started yet.
    ///
    /// The deadlines are the same as those of the [`Guarded`](crate::Guarded) that it will be registered with.
    pub fn new(command: HostCommand, path: impl Into<PathBuf>, limits: Limits) -> Self {
        let path = path.into();
        Self {
            command,
            path,
            limits,
            running: None,
            wants: Wants::default(),
            starts: false,
            failed: None,
        }
    }

    /// The host process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.process.id())
    }

    /// Asks the host, and waits until the deadline. What goes wrong ends the host, and is why the policy failed.
    fn ask(&mut self, call: Call, request: impl FnOnce(&Namespace) -> Request) -> Vec<Prefetch> {
        let Some(running) = &mut self.running else {
            return Vec::new();
        };
        let request = request(&running.namespace);
        let until = Instant::now() + call.deadline(&self.limits);
        let answer = running
            .process
            .exchange(&request, until)
            .and_then(|reply| match reply {
                Reply::Lists(lists) => lists
                    .into_iter()
                    .map(|list: List| running.kept.take(list).map_err(Wrong::Said))
                    .collect(),
                Reply::Failed(what) => {
                    Err(Wrong::Said(String::from_utf8_lossy(&what).into_owned()))
                }
                Reply::Ready { .. } => Err(Wrong::Nonsense),
            });
        answer.unwrap_or_else(|wrong| {
            self.failed = Some(self.end(call, wrong));
            Vec::new()
        })
    }

    /// Ends the host process and says why.
    fn end(&mut self, call: Call, wrong: Wrong) -> String {
        let Some(running) = self.running.take() else {
            return "its process has ended".into();
        };
        match wrong {
            Wrong::Said(what) => format!("{}: {what}", call.name()),
            Wrong::Nonsense => format!("{}: its process answered what is no message", call.name()),
            Wrong::Io(error) if error.kind() == io::ErrorKind::TimedOut => call.late(&self.limits),
            Wrong::Io(error) => match running.process.ended() {
                Some(how) => format!("{}: its process ended ({how})", call.name()),
                None => format!(
                    "{}: its process closed the connection ({error})",
                    call.name()
                ),
            },
        }
    }
}

fn told(access: &Access, namespace: &Namespace) -> Told {
    let kind = match access.kind {
        Kind::Miss => 0,
        Kind::Touch => 1,
        Kind::Open => 2,
    };
    let path = access.path.as_os_str().as_bytes().to_vec();
    let file = namespace.get(&access.path).map_or(0, |entry| entry.len);
    let Access {
        start,
        len,
        pid,
        tid,
        time,
        ..
    } = *access;
    Told {
        path,
        start,
        len,
        file,
        pid,
        tid,
        kind,
        time,
    }
}

impl Policy for Library {
    fn wants(&self) -> Wants {
        self.wants
    }

    fn init(&mut self, context: &Context) -> Result<(), String> {
        let until = Instant::now() + self.limits.begin;
        let file = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let path = std::path::absolute(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // started here, on the policy's thread: the host ends with the thread that started it
        let process = self.command.start(&name)?;
        let namespace = Arc::clone(&context.namespace);
        let kept = Kept::new(Arc::clone(&namespace), self.limits.entries);
        let running = self.running.insert(Hosted {
            process,
            namespace,
            kept,
        });
        let request = Request::Init(Init {
            library: file(&path),
            config: context.config.clone().into_bytes(),
            root: file(context.namespace.root()),
            cache: context.memory,
            memory: self.limits.memory,
            entries: self.limits.entries as u64,
        });
        let wrong = match running.process.exchange(&request, until) {
            Ok(Reply::Ready { wants, start }) => {
                let has = |bit| wants & bit != 0;
                let (prefetch, evict, touch) =
                    (has(WANTS_PREFETCH), has(WANTS_EVICT), has(WANTS_TOUCH));
                self.wants = Wants {
                    prefetch,
                    evict,
                    touch,
                    recording: false,
                };
                self.starts = start;
                return Ok(());
            }
            Ok(Reply::Failed(what)) => Wrong::Said(String::from_utf8_lossy(&what).into_owned()),
            Ok(Reply::Lists(_)) => Wrong::Nonsense,
            Err(wrong) => wrong,
        };
        Err(format!("{name}: {}", self.end(Call::Init, wrong)))
    }

    fn exit(&mut self) {
        self.ask(Call::Exit, |_| Request::Exit);
        self.running = None;
    }

    fn renew(&mut self, context: &Context) -> Result<(), String> {
        // the library has no call for it; it hears of new files when they are asked for
        if let Some(running) = &mut self.running {
            running.namespace = Arc::clone(&context.namespace);
            running.kept.renew(Arc::clone(&context.namespace));
        }
        Ok(())
    }

    fn start(&mut self) -> Vec<Prefetch> {
        if self.starts {
            self.ask(Call::Start, |_| Request::Start)
        } else {
            Vec::new()
        }
    }

    fn prefetch(&mut self, miss: &Access) -> Option<Prefetch> {
        self.ask(Call::Prefetch, |namespace| {
            Request::Prefetch(told(miss, namespace))
        })
        .pop()
    }

    fn evict(&mut self, miss: Option<&Access>) -> Option<Ios> {
        let request =
            |namespace: &Namespace| Request::Evict(miss.map(|miss| told(miss, namespace)));
        self.ask(Call::Evict, request).pop().map(|list| list.ios)
    }

    fn touch(&mut self, access: &Access) -> Option<Prefetch> {
        self.ask(Call::Touch, |namespace| {
            Request::Touch(told(access, namespace))
        })
        .pop()
    }

    fn failed(&mut self) -> Option<String> {
        self.failed.take()
    }
}
