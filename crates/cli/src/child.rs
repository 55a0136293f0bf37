//! The child process of `ppc run` and `record`, and the runtime that runs alongside it.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anamnesis::quote::escape;
use anamnesis_ppc::{EventSource, Runtime};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;

use crate::exit::Completion;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// A child process, which is terminated and reaped when this value is dropped.
pub(crate) struct ChildCommand(Child);

impl ChildCommand {
    /// Starts a command; `None` for an empty one.
    pub(crate) fn start(command: &[OsString]) -> Result<Option<Self>, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Ok(None);
        };
        let child = Command::new(program).args(arguments).spawn();
        child.map(|child| Some(Self(child))).map_err(|e| {
            let program = program.to_string_lossy();
            Failure::new(
                "io",
                format!("{}: {e}", escape(&program)),
                "check the command after `--`",
            )
        })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends SIGTERM.
    fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // fails only if the process has ended, which is the aim
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

impl Drop for ChildCommand {
    fn drop(&mut self) {
        // reached on an error of the runtime: a server that was started for this run must not outlive it
        if matches!(self.0.try_wait(), Ok(None)) {
            self.terminate();
            let _ = self.0.wait();
        }
    }
}

/// Runs the runtime on the events of `source` until `wait` returns.
///
/// `wait` runs on another thread. Its argument is set once the source has ended and no more events will arrive. The second value
/// is the error of a source that failed meanwhile, after which a child process continues without events.
pub(crate) fn run_until(
    runtime: &Runtime,
    source: Box<dyn EventSource>,
    wait: impl FnOnce(&AtomicBool) -> Completion + Send,
) -> (Completion, anamnesis_ppc::Result<()>) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let completion = wait(&stop);
            stop.store(true, Ordering::Relaxed);
            runtime.wake();
            completion
        });
        let result = runtime.run(source, &stop);
        // the end of the source ends the wait only without a child process: a child continues without events
        stop.store(true, Ordering::Relaxed);
        (waiting.join().unwrap_or(Completion::Failed), result)
    })
}

/// Waits until the child process ends. An interrupt sends it SIGTERM. Without a child, waits until an interrupt or until
/// `source_ended` is set.
pub(crate) fn wait(
    interrupt: &Interrupt,
    mut child: Option<ChildCommand>,
    source_ended: &AtomicBool,
) -> Completion {
    // becomes readable when the process ends; `None` before Linux 5.3
    let pidfd = child.as_ref().and_then(|child_command| {
        rustix::process::pidfd_open(
            rustix::process::Pid::from_child(&child_command.0),
            PidfdFlags::empty(),
        )
        .ok()
    });
    let mut terminated = false;
    loop {
        if let Some(child_command) = &mut child {
            match child_command.0.try_wait() {
                Ok(Some(status)) => return Completion::Child(status),
                Ok(None) => {}
                // the process was reaped elsewhere, so that its status is lost
                Err(_) => return Completion::Failed,
            }
        }
        // a replay or a log ends; a child process is waited for to its own end
        if child.is_none() && source_ended.load(Ordering::Relaxed) {
            return Completion::Done;
        }
        // once: a terminal sends Ctrl-C to the child as well, and repeated SIGTERM would cut its shutdown short
        if interrupt.requested() && !terminated {
            let Some(child_command) = &child else {
                return Completion::Done;
            };
            child_command.terminate();
            terminated = true;
        }
        pause(pidfd.as_ref());
    }
}

/// Sleeps until the process ends, for at most 20 ms so that interrupts are noticed.
fn pause(pidfd: Option<&OwnedFd>) {
    // short enough that Ctrl-C feels immediate, long enough that waiting costs nothing
    const INTERVAL: Duration = Duration::from_millis(20);
    let timeout = Timespec::try_from(INTERVAL).ok();
    match pidfd {
        // an error, such as EINTR, only shortens the pause
        Some(fd) => drop(rustix::event::poll(
            &mut [PollFd::new(fd, PollFlags::IN)],
            timeout.as_ref(),
        )),
        None => std::thread::sleep(INTERVAL),
    }
}
