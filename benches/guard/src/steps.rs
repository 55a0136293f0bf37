//! Counting instructions by taking them one at a time: slow, and the only way to count what callgrind does not know.

use std::path::Path;

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::case::{Case, Counts, Metric, Way, measured_call};
use crate::{process, setting};

/// More than any case has: something runs away.
const MOST: u64 = 50_000_000;

/// In the process of the case: stops before and behind the call, for the parent to count what is between.
pub(crate) fn stepped(call: &mut dyn FnMut()) -> Result<(), String> {
    let stop = || raise(Signal::SIGSTOP).map_err(|e| e.to_string());
    ptrace::traceme().map_err(|e| format!("ptrace: {e}"))?;
    stop()?;
    measured_call(call);
    stop()
}

/// Whether a process may be traced here, by taking the steps of one that does nothing.
pub(crate) fn allowed(files: &Path) -> Result<(), String> {
    of(files, setting::NOTHING)
        .map(drop)
        .map_err(|why| format!("a process cannot be stepped through here: {why}"))
}

/// The instructions of a case.
pub(crate) fn count(case: &Case, files: &Path) -> Result<Counts, String> {
    Ok(vec![(Metric::Steps, of(files, &case.name)?)])
}

fn of(files: &Path, name: &str) -> Result<u64, String> {
    // a process is traced by the thread that started it: this one
    let mut running = process::of(files, None, Way::Steps, name)
        .spawn()
        .map_err(|e| e.to_string())?;
    let pid = Pid::from_raw(i32::try_from(running.id()).map_err(|e| e.to_string())?);
    let counted = between(pid);
    let _ = kill(pid, Signal::SIGKILL); // it may have ended
    running.wait().map_err(|e| e.to_string())?;
    counted
}

/// Steps from the first stop to the second.
fn between(pid: Pid) -> Result<u64, String> {
    let wait = || match waitpid(pid, None) {
        Ok(WaitStatus::Stopped(_, signal)) => Ok(signal),
        Ok(other) => Err(format!("the process ended: {other:?}")),
        Err(e) => Err(e.to_string()),
    };
    let step = || ptrace::step(pid, None).map_err(|e| format!("ptrace: {e}"));
    if wait()? != Signal::SIGSTOP {
        return Err("another stop than the one that was asked for".to_owned());
    }
    let (mut count, mut last) = (0, 0);
    while count < MOST {
        // a repeated instruction (`rep movsb`) traps again and again where it is, and counts once
        let place = place(pid)?;
        count += u64::from(place != last);
        last = place;
        step()?;
        match wait()? {
            Signal::SIGTRAP => {}
            Signal::SIGSTOP => return Ok(count),
            other => return Err(format!("stopped by {other}")),
        }
    }
    Err(format!("more than {MOST} steps"))
}

/// Where the next instruction is.
#[cfg(target_arch = "x86_64")]
fn place(pid: Pid) -> Result<u64, String> {
    ptrace::getregs(pid)
        .map(|registers| registers.rip)
        .map_err(|e| format!("ptrace: {e}"))
}

#[cfg(not(target_arch = "x86_64"))]
fn place(_: Pid) -> Result<u64, String> {
    Err("steps are counted on x86-64 only".to_owned())
}
