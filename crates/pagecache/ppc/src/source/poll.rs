//! Waiting for descriptors, and the clock of event times.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The current time in nanoseconds of `CLOCK_MONOTONIC`, the clock of [`Event::time`](crate::Event::time).
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Waits until one of the descriptors is readable or `timeout` has passed. A signal may end the wait earlier.
pub(crate) fn wait_readable(fds: &[&OwnedFd], timeout: Duration) -> io::Result<()> {
    let mut fds: Vec<_> = fds
        .iter()
        .map(|&fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    match poll(&mut fds, Some(&timespec(timeout))) {
        // not repeated after a signal: the callers loop until their own deadline
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Resets the eventfd of a [`Waker`](crate::Waker). Returns whether the waker was used since the last call.
pub(crate) fn drain(wake_fd: &OwnedFd) -> bool {
    rustix::io::read(wake_fd, &mut [0; 8]).is_ok()
}
