//! A command beside which the page cache is listened to.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anamnesis_ppc::{EventSource, Runtime};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;

use crate::exit::{Code, Failure};
use crate::interrupt;
use crate::output::text::clean;

/// A command that ends with this program.
pub(crate) struct Started(Child);

impl Started {
    /// Starts a command, if there is one.
    pub(crate) fn new(command: &[OsString]) -> Result<Option<Self>, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Ok(None);
        };
        let child = Command::new(program).args(arguments).spawn();
        child.map(|child| Some(Self(child))).map_err(|e| {
            let program = program.to_string_lossy();
            Failure::new(
                "io",
                format!("{}: {e}", clean(&program)),
                "check the command behind --",
            )
        })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to end.
    fn end(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.end();
            let _ = self.0.wait();
        }
    }
}

/// Lets a runtime listen to a source until `watch` has ended, which is told when there will be no more events.
pub(crate) fn beside(
    runtime: &Runtime,
    source: Box<dyn EventSource>,
    watch: impl FnOnce(&AtomicBool) -> Code + Send,
) -> anamnesis_ppc::Result<Code> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let code = watch(&stop);
            stop.store(true, Ordering::Relaxed);
            code
        });
        let ran = runtime.run(source, &stop);
        // a command goes on without; if there is none this is the end
        stop.store(true, Ordering::Relaxed);
        ran.map(|()| watching.join().unwrap_or(Code::Failed))
    })
}

/// Waits for the command's end, or for an interrupt; without a command also for `over`: there will be no more events.
pub(crate) fn watch(mut child: Option<Started>, over: &AtomicBool) -> Code {
    // readable when the command has ended, from Linux 5.3 on
    let ended = child.as_ref().and_then(|started| {
        rustix::process::pidfd_open(
            rustix::process::Pid::from_child(&started.0),
            PidfdFlags::empty(),
        )
        .ok()
    });
    let mut told = false;
    loop {
        if let Some(started) = &mut child {
            match started.0.try_wait() {
                Ok(Some(status)) => return Code::Of(status),
                Ok(None) => {}
                Err(_) => return Code::Failed,
            }
        }
        if child.is_none() && over.load(Ordering::Relaxed) {
            return Code::Done;
        }
        if interrupt::asked() && !told {
            let Some(started) = &child else {
                return Code::Done;
            };
            started.end();
            told = true;
        }
        pause(ended.as_ref());
    }
}

/// Until a process has ended, or an interrupt is looked for again.
fn pause(ended: Option<&OwnedFd>) {
    const LOOK: Duration = Duration::from_millis(100);
    let look = Timespec::try_from(LOOK).ok();
    match ended {
        // an error says no more than that it is too soon
        Some(fd) => drop(rustix::event::poll(
            &mut [PollFd::new(fd, PollFlags::IN)],
            look.as_ref(),
        )),
        None => std::thread::sleep(LOOK),
    }
}
