//! One child process, and what it took.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the child's memory is looked at.
const EVERY: Duration = Duration::from_millis(3);

/// Memory in KiB.
pub struct Usage {
    pub wall: Duration,
    /// User and system time.
    pub cpu: Duration,
    /// `ru_maxrss`, which is what `VmHWM` was at the end.
    pub peak_rss: u64,
    /// The peak of `RssAnon`, as far as it was seen.
    pub anonymous: u64,
    /// The peak of `RssFile`, as far as it was seen: mapped pages of the page cache.
    pub of_files: u64,
    pub faults: u64,
}

/// Runs it to its end; `None` if it cannot start or fails.
pub fn run(command: &mut Command) -> Option<Usage> {
    let began = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().ok()?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(child.id(), &ended));
        let reaped = wait(child.id());
        let wall = began.elapsed();
        ended.store(true, Ordering::Relaxed);
        let (anonymous, of_files) = watcher.join().expect("it only reads");
        let usage = reaped?;
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        Some(Usage {
            wall,
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            peak_rss: usage.ru_maxrss as u64,
            anonymous,
            of_files,
            faults: usage.ru_minflt as u64,
        })
    })
}

fn wait(pid: u32) -> Option<libc::rusage> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both point to memory of this function's that lives through the call
    let reaped = unsafe { libc::wait4(pid as libc::pid_t, &mut status, 0, usage.as_mut_ptr()) };
    // SAFETY: all zeros is a `rusage`, whether or not the call wrote one
    let usage = unsafe { usage.assume_init() };
    (reaped == pid as libc::pid_t && status == 0).then_some(usage)
}

/// Peaks of `RssAnon` and `RssFile` until the process has ended.
fn watch(pid: u32, ended: &AtomicBool) -> (u64, u64) {
    let mut peaks = (0, 0);
    while !ended.load(Ordering::Relaxed) {
        if let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) {
            peaks.0 = field(&status, "RssAnon:").max(peaks.0);
            peaks.1 = field(&status, "RssFile:").max(peaks.1);
        }
        std::thread::sleep(EVERY);
    }
    peaks
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
