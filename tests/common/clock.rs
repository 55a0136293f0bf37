//! Bounds on time that hold on a busy machine.
#![allow(dead_code, missing_docs, unreachable_pub)] // each test uses its part

use std::time::Duration;

/// What this thread has worked since it was started. The time in which it waits, or in which others have the processor,
/// does not count.
pub struct Clock(Duration);

impl Clock {
    pub fn start() -> Self {
        Self(worked())
    }

    pub fn elapsed(&self) -> Duration {
        worked().saturating_sub(self.0)
    }
}

fn worked() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.try_into()
        .expect("a thread has worked for no time or for some")
}
