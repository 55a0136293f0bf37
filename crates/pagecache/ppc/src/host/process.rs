//! Starting a host process, and ending it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::output;
use super::wire::HostIdentity;

/// How long a process that closed its connection may take to end, before the reason of its end is given up.
const EXIT_TIMEOUT: Duration = Duration::from_millis(200);

/// Command of a host process: an executable that only calls [`serve`](super::serve). It inherits the daemon's
/// environment, except that a panic prints no backtrace.
#[derive(Clone, Debug)]
pub struct HostCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl HostCommand {
    /// A command without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
        }
    }

    /// Appends an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Starts a host process. It ends with the calling thread. `name` is the policy's name in the log.
    pub(super) fn start(&self, name: &str) -> Result<StartedHost, String> {
        self.spawn(name).map_err(|error| {
            format!(
                "the host process {} cannot be started: {error}",
                self.program.display()
            )
        })
    }

    fn spawn(&self, name: &str) -> io::Result<StartedHost> {
        // a socket pair as standard input: no name that another process could connect to
        let (ours, theirs) = UnixStream::pair()?;
        let (reader, writer) = io::pipe()?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            // a backtrace takes longer than the deadline of a call, and the panic would be reported as a call that is late
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0) // so that Ctrl-C in a terminal does not end it, and it can be killed with its children
            .spawn()?;
        let process = HostProcess {
            child,
            reaped: false,
            output: output::log_lines(reader, name),
        };
        let pidfd = process
            .pid()
            .map(|pid| pidfd_open(pid, PidfdFlags::empty()))
            .transpose()?;
        let schedstat = format!("/proc/{}/schedstat", process.id()).into();
        Ok(StartedHost {
            process,
            stream: ours,
            identity: pidfd.map(|pidfd| HostIdentity { pidfd, schedstat }),
        })
    }
}

/// A host process, the connection to it, and what its deadlines need.
pub(super) struct StartedHost {
    pub(super) process: HostProcess,
    pub(super) stream: UnixStream,
    pub(super) identity: Option<HostIdentity>,
}

/// A host process. Dropping it kills the process and its children.
#[derive(Debug)]
pub(super) struct HostProcess {
    child: Child,
    /// Whether the process was waited for, after which its number may be reused.
    reaped: bool,
    /// The thread that logs what it prints.
    output: Option<JoinHandle<()>>,
}

impl HostProcess {
    /// The exit status or signal, if the process ended by itself.
    pub(super) fn exit_reason(mut self) -> Option<String> {
        let until = Instant::now() + EXIT_TIMEOUT;
        // `NOWAIT` leaves the process to be waited for: its number, which is also the group's, is not reused before `kill`
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = self.pid()?;
        while Instant::now() < until {
            if let Ok(Some(_)) = waitid(WaitId::Pid(pid), options) {
                return self.kill().map(|status| status.to_string());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Kills the process group and waits for the process. Only once, because its number may be reused afterwards.
    fn kill(&mut self) -> Option<ExitStatus> {
        if !std::mem::replace(&mut self.reaped, true) {
            if let Some(group) = self.pid() {
                let _ = kill_process_group(group, Signal::KILL); // fails if the group has ended
            }
            let status = self.child.wait().ok();
            // the last lines may say why it ended; a process outside of the group may keep the pipe open
            let until = Instant::now() + EXIT_TIMEOUT;
            let is_logging = |output: &JoinHandle<()>| !output.is_finished();
            while self.output.as_ref().is_some_and(is_logging) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            return status;
        }
        None
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
