//! Counting instructions by single-stepping a process with ptrace: slow, and the only way for AVX-512, which valgrind does
//! not have.

use std::path::Path;

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::case::{Case, Counter, Counts, Metric, measured_call};
use crate::{environment, process};

/// An upper limit far above any case, which ends a runaway process.
const MAX_STEPS: u64 = 50_000_000;

/// Runs in the process of the case: stops itself before and after the call, so that the parent counts the steps in between.
pub(crate) fn stepped(call: &mut dyn FnMut()) -> Result<(), String> {
    let stop = || raise(Signal::SIGSTOP).map_err(|e| e.to_string());
    ptrace::traceme().map_err(|e| format!("ptrace: {e}"))?;
    stop()?;
    measured_call(call);
    stop()
}

/// Whether processes can be single-stepped here, tried on one that does nothing.
pub(crate) fn allowed(files: &Path) -> Result<(), String> {
    of(files, environment::NOTHING)
        .map(drop)
        .map_err(|why| format!("processes cannot be single-stepped here: {why}"))
}

/// Counts the instructions of a case.
pub(crate) fn count(case: &Case, files: &Path) -> Result<Counts, String> {
    Ok(vec![(Metric::Steps, of(files, &case.name)?)])
}

fn of(files: &Path, name: &str) -> Result<u64, String> {
    // ptrace accepts requests only from the thread that is the tracer, which is the one that starts the process
    let mut running = process::of(files, None, Counter::Steps, name)
        .spawn()
        .map_err(|e| e.to_string())?;
    let pid = Pid::from_raw(i32::try_from(running.id()).map_err(|e| e.to_string())?);
    let counted = between(pid);
    let _ = kill(pid, Signal::SIGKILL); // it may have ended already
    running.wait().map_err(|e| e.to_string())?;
    counted
}

/// The number of steps from the first stop to the second.
fn between(pid: Pid) -> Result<u64, String> {
    let wait = || match waitpid(pid, None) {
        Ok(WaitStatus::Stopped(_, signal)) => Ok(signal),
        Ok(other) => Err(format!("the process ended: {other:?}")),
        Err(e) => Err(e.to_string()),
    };
    let step = || ptrace::step(pid, None).map_err(|e| format!("ptrace: {e}"));
    if wait()? != Signal::SIGSTOP {
        return Err("the process stopped by another signal than its own SIGSTOP".to_owned());
    }
    let (mut count, mut last) = (0, 0);
    while count < MAX_STEPS {
        // a repeated instruction (`rep movsb`) traps once per iteration at the same address; it counts once
        let address = instruction_pointer(pid)?;
        count += u64::from(address != last);
        last = address;
        step()?;
        match wait()? {
            Signal::SIGTRAP => {}
            Signal::SIGSTOP => return Ok(count),
            other => return Err(format!("stopped by {other}")),
        }
    }
    Err(format!("the call takes more than {MAX_STEPS} steps"))
}

/// The address of the next instruction.
#[cfg(target_arch = "x86_64")]
fn instruction_pointer(pid: Pid) -> Result<u64, String> {
    ptrace::getregs(pid)
        .map(|registers| registers.rip)
        .map_err(|e| format!("ptrace: {e}"))
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction_pointer(_: Pid) -> Result<u64, String> {
    Err("steps are counted on x86-64 only".to_owned())
}
