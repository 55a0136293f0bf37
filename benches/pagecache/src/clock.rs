//! The clock in which the loaders report their stages, in seconds.

/// `CLOCK_MONOTONIC`.
pub fn now() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
