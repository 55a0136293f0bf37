//! Time limits of tests that hold on a busy machine. The integration tests include this file too.
#![allow(dead_code, missing_docs, unreachable_pub)] // not every test binary uses all of it

use std::time::Duration;

/// Processor time of this thread since `start`. Time spent waiting or preempted is not counted, so a limit on it does
/// not depend on what else the machine runs.
pub struct ThreadTime(Duration);

impl ThreadTime {
    pub fn start() -> Self {
        Self(thread_cpu_time())
    }

    pub fn elapsed(&self) -> Duration {
        thread_cpu_time().saturating_sub(self.0)
    }
}

/// The time of an interpreter says nothing, and Miri does not know this clock.
#[cfg(miri)]
fn thread_cpu_time() -> Duration {
    Duration::ZERO
}

#[cfg(all(unix, not(miri)))]
fn thread_cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.try_into()
        .expect("the processor time of a thread is not negative")
}

/// Without a safe API for the processor time of a thread, the time that passes.
#[cfg(not(any(unix, miri)))]
fn thread_cpu_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}
