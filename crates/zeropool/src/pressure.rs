//! Memory pressure as the kernel measures it (PSI), and a thread that watches it if the builder asks for one.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::engine::Engine;

/// What [`trim_under_pressure`](crate::BufferPool::trim_under_pressure) found and did.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Relief {
    /// Share of the last ten seconds, in per cent, in which some task waited for memory.
    pub pressure: f32,
    /// Bytes of free buffers given back to the system.
    pub trimmed: usize,
}

/// Reads the pressure of this process's control group, or of the machine where groups have none.
pub(crate) fn read() -> io::Result<f32> {
    let group = std::fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|groups| of_group(&groups));
    let text = match group.map(std::fs::read_to_string) {
        Some(Ok(text)) => text,
        _ => std::fs::read_to_string("/proc/pressure/memory")?,
    };
    parse(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "no `some avg10=` in the pressure file",
        )
    })
}

/// The pressure file of the unified hierarchy's group.
fn of_group(groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(
        PathBuf::from("/sys/fs/cgroup")
            .join(group)
            .join("memory.pressure"),
    )
}

fn parse(text: &str) -> Option<f32> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace()
        .find_map(|word| word.strip_prefix("avg10="))?
        .parse()
        .ok()
}

/// Gives free memory back if the pressure is at least `threshold` per cent.
pub(crate) fn relieve(engine: &Arc<Engine>, threshold: f32) -> io::Result<Relief> {
    let pressure = read()?;
    let trimmed = if pressure >= threshold {
        engine.trim_to(0)
    } else {
        0
    };
    Ok(Relief { pressure, trimmed })
}

/// The least time between two looks: the kernel's average moves every two seconds.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);

/// Where the readings go. They are averages over ten seconds, so they stay high for a while after the pressure ended;
/// while they fall, nothing is gained by trimming what the pool has been filled with since.
#[derive(Debug, Default)]
struct Trend {
    last: f32,
    falling: bool,
}

impl Trend {
    /// Whether this reading says that there is pressure now. One that is as the last goes where that one went.
    fn presses(&mut self, pressure: f32, threshold: f32) -> bool {
        if pressure < self.last {
            self.falling = true;
        } else if pressure > self.last {
            self.falling = false;
        }
        self.last = pressure;
        pressure >= threshold && !self.falling
    }
}

/// Ends the watching thread when dropped.
#[derive(Debug)]
pub(crate) struct Watch(Arc<(Mutex<bool>, Condvar)>);

impl Watch {
    /// A thread that looks every `interval`, but not more often than makes sense. It keeps no pool alive.
    pub(crate) fn start(
        engine: Weak<Engine>,
        threshold: f32,
        interval: Duration,
    ) -> io::Result<Self> {
        read()?;
        let (interval, mut trend) = (interval.max(LEAST_INTERVAL), Trend::default());
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = Arc::clone(&over);
        std::thread::Builder::new()
            .name("zeropool-pressure".to_owned())
            .spawn(move || {
                let (over, changed) = &*seen;
                loop {
                    let guard = over.lock().unwrap_or_else(PoisonError::into_inner);
                    let waited = changed.wait_timeout_while(guard, interval, |over| !*over);
                    if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                        return;
                    }
                    let Some(engine) = engine.upgrade() else {
                        return;
                    };
                    // a reading that fails now may succeed the next time
                    if read().is_ok_and(|pressure| trend.presses(pressure, threshold)) {
                        engine.trim_to(0);
                    }
                }
            })?;
        Ok(Self(over))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let (over, changed) = &*self.0;
        *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_files() {
        let text = "some avg10=1.25 avg60=0.00 avg300=0.00 total=1\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=6\n";
        assert_eq!(parse(text), Some(1.25));
        assert_eq!(parse("full avg10=9.00\n"), None);
    }

    #[test]
    fn falling_readings_are_no_pressure() {
        let mut trend = Trend::default();
        let readings = [0.5, 1.0, 1.0, 3.0, 2.0, 2.0, 1.5, 1.6, 1.6, 0.2, 0.4, 1.0];
        let pressed = readings.map(|pressure| trend.presses(pressure, 1.0));
        assert_eq!(
            pressed,
            [
                false, true, true, true, false, false, false, true, true, false, false, true
            ]
        );
        assert!(Trend::default().presses(0.0, 0.0));
    }

    #[test]
    fn groups() {
        let path = of_group("4:memory:/old\n0::/user.slice/x\n").unwrap();
        assert_eq!(
            path,
            PathBuf::from("/sys/fs/cgroup/user.slice/x/memory.pressure")
        );
        assert_eq!(of_group("4:memory:/old\n"), None);
    }
}
