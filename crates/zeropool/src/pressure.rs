//! Memory pressure as Linux reports it (pressure stall information, PSI), and the optional thread that watches it.
//!
//! Format: <https://docs.kernel.org/accounting/psi.html>. `some avg10` is the share of the last ten seconds, in per cent, in
//! which at least one task waited for memory.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use anamnesis_os::memory::MemoryScope;
use anamnesis_os::pressure::MemoryPressure;

use crate::engine::Engine;

/// The result of [`trim_under_pressure`](crate::BufferPool::trim_under_pressure).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PressureTrim {
    /// Share of the last ten seconds, in per cent, in which some task waited for memory.
    pub pressure: f32,
    /// Bytes of free buffers released to the system.
    pub trimmed: usize,
}

/// Reads the pressure of this process's control group, or of the machine where the group has no pressure file.
pub(crate) fn read() -> io::Result<f32> {
    // the control group cannot be looked up where procfs is incomplete
    let pressure = MemoryPressure::of(&MemoryScope::Own)
        .or_else(|_| MemoryPressure::of(&MemoryScope::Machine))?;
    Ok(pressure.some)
}

/// Releases all free memory if the pressure is at least `threshold` per cent.
pub(crate) fn trim_under_pressure(
    engine: &Arc<Engine>,
    threshold: f32,
) -> io::Result<PressureTrim> {
    let pressure = read()?;
    let trimmed = if pressure >= threshold {
        engine.trim_to(0)
    } else {
        0
    };
    Ok(PressureTrim { pressure, trimmed })
}

/// The minimum time between two readings. More is pointless: the kernel updates its average every two seconds.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Whether successive readings rise or fall. A reading is an average over ten seconds, so it stays high for a while after
/// the pressure has ended. Trimming while it falls would release buffers that were mapped since.
#[derive(Debug, Default)]
struct PressureTrend {
    last: f32,
    falling: bool,
}

impl PressureTrend {
    /// Whether the pressure is at least `threshold` and not falling. A reading equal to the last keeps its trend.
    fn exceeds(&mut self, pressure: f32, threshold: f32) -> bool {
        if pressure < self.last {
            self.falling = true;
        } else if pressure > self.last {
            self.falling = false;
        }
        self.last = pressure;
        pressure >= threshold && !self.falling
    }
}

/// The watching thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct PressureWatch(Arc<(Mutex<bool>, Condvar)>);

impl PressureWatch {
    /// Starts a thread that reads the pressure every `interval`, but not more often than every [`MIN_INTERVAL`]. It holds
    /// the pool weakly, so it does not keep the pool alive.
    pub(crate) fn start(
        engine: Weak<Engine>,
        threshold: f32,
        interval: Duration,
    ) -> io::Result<Self> {
        // a system that does not report pressure is an error now, which the thread could not return
        read()?;
        let (interval, mut trend) = (interval.max(MIN_INTERVAL), PressureTrend::default());
        let stopped = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped_in_thread = Arc::clone(&stopped);
        std::thread::Builder::new()
            .name("zeropool-pressure".to_owned())
            .spawn(move || {
                let (stopped, changed) = &*stopped_in_thread;
                loop {
                    let guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
                    let waited = changed.wait_timeout_while(guard, interval, |stopped| !*stopped);
                    if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                        return;
                    }
                    let Some(engine) = engine.upgrade() else {
                        return;
                    };
                    // a failed reading is skipped; the next may succeed
                    if read().is_ok_and(|pressure| trend.exceeds(pressure, threshold)) {
                        engine.trim_to(0);
                    }
                }
            })?;
        Ok(Self(stopped))
    }
}

impl Drop for PressureWatch {
    fn drop(&mut self) {
        let (stopped, changed) = &*self.0;
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_falling_pressure_does_not_exceed_the_threshold() {
        let mut trend = PressureTrend::default();
        let readings = [0.5, 1.0, 1.0, 3.0, 2.0, 2.0, 1.5, 1.6, 1.6, 0.2, 0.4, 1.0];
        let exceeded = readings.map(|pressure| trend.exceeds(pressure, 1.0));
        assert_eq!(
            exceeded,
            [
                false, true, true, true, false, false, false, true, true, false, false, true
            ]
        );
        assert!(PressureTrend::default().exceeds(0.0, 0.0));
    }
}
