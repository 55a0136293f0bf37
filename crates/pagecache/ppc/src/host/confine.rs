//! Restrictions that a host process applies to itself before it loads a policy.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

/// Returns the connection to the daemon from standard input. Afterwards the process ends with the daemon, holds none
/// of its other descriptors, and cannot gain privileges or create processes.
pub(super) fn enter() -> io::Result<UnixStream> {
    // moved away from descriptor 0, which the policy may read or close as its standard input
    let connection = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let stream = UnixStream::from(connection);
    if stream.peer_addr().is_err() {
        let what = "standard input is not a socket; this command is started by the daemon";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let null = openat(
        CWD,
        "/dev/null",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&null)?;
    drop(null);
    let stream = close_others(stream)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // a set-user-id program that the policy executes gains nothing; also what seccomp requires of an unprivileged
    // process
    rustix::thread::set_no_new_privs(true)?;
    if let Err(error) = super::seccomp::forbid_processes() {
        eprintln!("<4>the policy can create processes, because seccomp is not available: {error}");
    }
    // a daemon that ended before the death signal was set raises no signal
    let mut daemon = [PollFd::new(&stream, PollFlags::RDHUP)];
    poll(
        &mut daemon,
        Some(&rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )?;
    if daemon[0]
        .revents()
        .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    Ok(stream)
}

/// Limits memory and descriptors, disables core dumps, and makes this process the first that the kernel kills when
/// the machine runs out of memory.
pub(super) fn set_limits(memory: u64) -> io::Result<()> {
    let limit = |value: u64| Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    // data and not address space, which mapped models and libraries would count against
    setrlimit(Resource::Data, limit(memory))?;
    setrlimit(Resource::Core, limit(0))?;
    setrlimit(Resource::Nofile, limit(256))?;
    std::fs::write("/proc/self/oom_score_adj", "1000").or(Ok(())) // /proc may not be mounted
}

/// Closes all descriptors except the standard ones and the connection.
fn close_others(stream: UnixStream) -> io::Result<UnixStream> {
    let at: RawFd = OwnedFd::from(stream).into_raw_fd();
    let at = u32::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    if at > 3 {
        close_range(3, at - 1)?;
    }
    close_range(at + 1, u32::MAX)?;
    let at = RawFd::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `into_raw_fd` passed the ownership to `at`, which neither call closed.
    Ok(UnixStream::from(unsafe { OwnedFd::from_raw_fd(at) }))
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: no pointers are passed. No object of this process owns another descriptor: it has just started and only
    // serves a policy.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
