//! A host process: started, asked, ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::message::{Reply, Request};
use super::{output, wire};

/// How long the end of a process is waited for that closed its connection.
const ENDING: Duration = Duration::from_millis(200);

/// How a host process is started: an executable that calls [`serve`](super::serve) and does nothing else. The environment is that of
/// the daemon.
#[derive(Clone, Debug)]
pub struct HostCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl HostCommand {
    /// This executable.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
        }
    }

    /// With this argument, after those before.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Starts a host. It ends with the thread that calls this.
    pub(super) fn start(&self, name: &str) -> Result<Running, String> {
        self.spawn(name).map_err(|error| {
            format!(
                "the host process {} cannot be started: {error}",
                self.program.display()
            )
        })
    }

    fn spawn(&self, name: &str) -> io::Result<Running> {
        let (ours, theirs) = UnixStream::pair()?;
        let (reader, writer) = io::pipe()?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0) // it ends with its children, and not by the terminal's Ctrl-C
            .spawn()?;
        let mut running = Running {
            child,
            end: None,
            stream: ours,
            over: false,
        };
        if let Some(pid) = running.pid() {
            running.end = Some(pidfd_open(pid, PidfdFlags::empty())?);
        }
        output::follow(reader, name);
        Ok(running)
    }
}

/// A host process, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// Becomes readable when the process ends. The connection need not: others may have it by then.
    end: Option<OwnedFd>,
    stream: UnixStream,
    /// The process was waited for.
    over: bool,
}

/// What goes wrong with a host.
pub(super) enum Wrong {
    Io(io::Error),
    Nonsense,
    Said(String),
}

impl Running {
    pub(super) fn exchange(&self, request: &Request, until: Instant) -> Result<Reply, Wrong> {
        // a host that reads nothing: what is sent is small, but it may be slow
        let left = until
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let sent = self
            .stream
            .set_write_timeout(Some(left))
            .and_then(|()| wire::send(&self.stream, &request.encode()));
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Wrong::Io(io::ErrorKind::TimedOut.into()),
            _ => Wrong::Io(error),
        })?;
        let reply = wire::receive(
            &self.stream,
            self.end.as_ref().map(|end| (end.as_fd(), until)),
        )
        .map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Wrong::Nonsense,
            _ => Wrong::Io(error),
        })?;
        Reply::decode(&reply).map_err(|_| Wrong::Nonsense)
    }

    /// How the process ended, if it did by itself.
    pub(super) fn ended(mut self) -> Option<String> {
        let until = Instant::now() + ENDING;
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

    /// Ends the process and what it started. Once: afterwards its number may be another's.
    fn kill(&mut self) -> Option<ExitStatus> {
        if !std::mem::replace(&mut self.over, true) {
            if let Some(group) = self.pid() {
                let _ = kill_process_group(group, Signal::KILL); // gone already
            }
            return self.child.wait().ok();
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
