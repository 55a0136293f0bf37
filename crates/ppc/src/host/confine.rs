//! What a host process gives up before it loads a policy.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

/// Takes the connection to the daemon from standard input, and lets the process live no longer than the daemon, without
/// its descriptors and without a way to more privileges.
pub(super) fn begin() -> io::Result<UnixStream> {
    let connection = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let stream = UnixStream::from(connection);
    if stream.peer_addr().is_err() {
        let what = "standard input is no connection: this is started by the daemon, not by people";
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
    rustix::thread::set_no_new_privs(true)?;
    if let Err(error) = super::seccomp::forbid_processes() {
        eprintln!(
            "<4>a policy could leave processes behind, as this kernel has no seccomp: {error}"
        );
    }
    // the daemon may have ended before it could be noticed
    let mut gone = [PollFd::new(&stream, PollFlags::RDHUP)];
    poll(
        &mut gone,
        Some(&rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )?;
    if gone[0]
        .revents()
        .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    Ok(stream)
}

/// Memory, and no images of it on disk; the first to go when the machine has none left.
pub(super) fn limit(memory: u64) -> io::Result<()> {
    let both = |at: u64| Rlimit {
        current: Some(at),
        maximum: Some(at),
    };
    setrlimit(Resource::Data, both(memory))?;
    setrlimit(Resource::Core, both(0))?;
    setrlimit(Resource::Nofile, both(256))?;
    std::fs::write("/proc/self/oom_score_adj", "1000").or(Ok(())) // a machine without /proc
}

/// Closes all descriptors but the standard ones and the connection.
fn close_others(stream: UnixStream) -> io::Result<UnixStream> {
    let at: RawFd = OwnedFd::from(stream).into_raw_fd();
    let at = u32::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    if at > 3 {
        close_range(3, at - 1)?;
    }
    close_range(at + 1, u32::MAX)?;
    let at = RawFd::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: given up above, and not among those that were closed.
    Ok(UnixStream::from(unsafe { OwnedFd::from_raw_fd(at) }))
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: at the beginning of a process whose only purpose this is; nobody in it holds another descriptor.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
