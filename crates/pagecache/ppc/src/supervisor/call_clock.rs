//! The time that a call of a policy has taken: its own time, and not the time of a busy machine.
//!
//! A call has its limit as time on the clock. Once that is over, it has the limit again in processor time of its thread, so that a
//! thread that the machine does not run loses nothing. A call that does not use the processor (it waits for a disk or a lock, or
//! for ever) has a limit of its own, which counts only while the thread that looks at the clock is run itself: the time during
//! which the whole program is stopped belongs to no call.

use std::path::Path;
use std::time::{Duration, Instant};

/// The shortest time until the clock is looked at again. The kernel updates the processor time of a running thread every few
/// milliseconds.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// The limits of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallLimit {
    /// Limit on its own time.
    pub(crate) own: Duration,
    /// How much longer it may take while it does not use the processor.
    pub(crate) stall: Duration,
}

/// The limit that a call has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    /// It used the processor for this long, beyond the same time on the clock.
    Processor(Duration),
    /// It took this long.
    Elapsed(Duration),
}

/// The clock of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallClock {
    limit: CallLimit,
    /// When the clock was looked at last, and when it has to be looked at again.
    last: Instant,
    next: Instant,
    /// The time up to `last`, without times during which nothing looked.
    elapsed: Duration,
    /// The thread's processor time when the limit was over on the clock.
    baseline: Option<Duration>,
}

impl CallClock {
    /// The clock of a call that begins now.
    pub(crate) fn start(limit: CallLimit) -> Self {
        let now = Instant::now();
        Self {
            limit,
            last: now,
            next: now + limit.own,
            elapsed: Duration::ZERO,
            baseline: None,
        }
    }

    /// When the clock has to be looked at again. Not before it can have exceeded a limit.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// From now on the call may not go on beyond its limit while it does not use the processor.
    pub(crate) fn end_stall(&mut self) {
        self.limit.stall = Duration::ZERO;
    }

    /// Looks at the clock. Returns how long the call may go on at least, before it is looked at again. `processor_time` was
    /// used by the call's thread; `None` if it is not known, which counts as if the call had used the processor all the
    /// time.
    ///
    /// # Errors
    ///
    /// The call has exceeded a limit.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        processor_time: impl FnOnce() -> Option<Duration>,
    ) -> Result<Duration, ExceededLimit> {
        let CallLimit { own, stall } = self.limit;
        if let Some(left) = self
            .next
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())
        {
            return Ok(left);
        }
        // a look is late if the thread was not run, and the call's thread may not have been, either
        let planned = self.next.saturating_duration_since(self.last);
        self.elapsed += now.saturating_duration_since(self.last).min(2 * planned);
        let longest = own.saturating_add(stall);
        if self.elapsed >= longest {
            return Err(ExceededLimit::Elapsed(longest));
        }
        let Some(used) = processor_time() else {
            return Err(ExceededLimit::Elapsed(own));
        };
        let used = used.saturating_sub(*self.baseline.get_or_insert(used));
        if used >= own {
            return Err(ExceededLimit::Processor(own));
        }
        let left = (own - used).min(longest - self.elapsed).max(MIN_INTERVAL);
        (self.last, self.next) = (now, now + left);
        Ok(left)
    }
}

/// The processor time of a thread, from its file `schedstat` in `/proc`. `None` if the kernel does not have it.
pub(crate) fn processor_time(schedstat: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(schedstat).ok()?;
    let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LIMIT: CallLimit = CallLimit {
        own: Duration::from_millis(100),
        stall: Duration::from_secs(5),
    };

    /// Runs a clock, looked at when it says so or `late` after that, with the processor time at each time. Returns when the call
    /// exceeds a limit.
    fn run(
        late: Duration,
        used: impl Fn(Duration) -> Option<Duration>,
    ) -> (Duration, ExceededLimit) {
        let begun = Instant::now();
        let mut clock = CallClock {
            limit: LIMIT,
            last: begun,
            next: begun + LIMIT.own,
            elapsed: Duration::ZERO,
            baseline: None,
        };
        loop {
            let now = clock.next() + late;
            if let Err(exceeded) = clock.look(now, || used(now - begun)) {
                return (now - begun, exceeded);
            }
            assert!(now - begun < Duration::from_secs(3600));
        }
    }

    #[test]
    fn a_call_has_its_limit_in_processor_time() {
        let processor = ExceededLimit::Processor(LIMIT.own);
        // all the time: the limit once on the clock, and once more
        let (at, exceeded) = run(Duration::ZERO, Some);
        assert_eq!((at, exceeded), (200 * MS, processor));
        // a tenth of the time, as on a machine with ten busy threads for each processor
        let (at, exceeded) = run(Duration::ZERO, |elapsed| Some(elapsed / 10));
        assert!(at > 1000 * MS && exceeded == processor, "{at:?}");
        // a thread that waits uses no processor
        let longest = LIMIT.own + LIMIT.stall;
        let (at, exceeded) = run(Duration::ZERO, |_| Some(MS));
        assert_eq!((at, exceeded), (longest, ExceededLimit::Elapsed(longest)));
        // without the processor time, the clock decides
        let (at, exceeded) = run(Duration::ZERO, |_| None);
        assert_eq!(
            (at, exceeded),
            (LIMIT.own, ExceededLimit::Elapsed(LIMIT.own))
        );
    }

    #[test]
    fn the_time_while_nothing_runs_does_not_count() {
        let longest = LIMIT.own + LIMIT.stall;
        // stopped for a minute at each look
        let (at, exceeded) = run(Duration::from_secs(60), |_| Some(MS));
        assert_eq!(exceeded, ExceededLimit::Elapsed(longest));
        assert!(at > Duration::from_secs(120), "{at:?}");
    }

    #[test]
    fn the_processor_time_of_a_thread_is_that_which_it_uses() {
        let tid = rustix::thread::gettid().as_raw_nonzero();
        let schedstat = format!("/proc/self/task/{tid}/schedstat");
        let Some(before) = processor_time(Path::new(&schedstat)) else {
            return eprintln!("SKIPPED: the kernel has no {schedstat}");
        };
        let begun = Instant::now();
        while processor_time(Path::new(&schedstat)).unwrap() < before + 20 * MS {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        let before = processor_time(Path::new(&schedstat)).unwrap();
        std::thread::sleep(100 * MS);
        assert!(processor_time(Path::new(&schedstat)).unwrap() < before + 50 * MS);
    }
}
