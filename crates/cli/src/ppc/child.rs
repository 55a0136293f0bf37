//! A command beside which the page cache is listened to.

use std::ffi::{OsStr, OsString};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exit::{Code, Failure};
use crate::interrupt;
use crate::output::text::clean;

/// A command that ends with this program.
pub(crate) struct Started(Child);

impl Started {
    pub(crate) fn new(program: &OsStr, arguments: &[OsString]) -> Result<Self, Failure> {
        let child = Command::new(program).args(arguments).spawn();
        child.map(Self).map_err(|e| {
            let program = program.to_string_lossy();
            Failure::new("io", format!("{}: {e}", clean(&program)), "check the command behind --")
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

/// Waits for the command's end, or for an interrupt; without a command also for `over`: there will be no more events.
pub(crate) fn watch(mut child: Option<Started>, over: &AtomicBool) -> Code {
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
            let Some(started) = &child else { return Code::Done };
            started.end();
            told = true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
