//! Runs one child process to its end and returns its output and resource usage.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval at which the child's memory is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(3);

/// The output and the resources of a process.
#[derive(Clone, Debug, Default)]
pub struct ProcessUsage {
    /// When it was started, in nanoseconds of [`monotonic`].
    pub started: u64,
    pub wall: Duration,
    /// User and system time.
    pub cpu: Duration,
    /// `ru_maxrss`: the value of `VmHWM` at exit.
    pub peak_rss_kib: u64,
    /// The highest sampled `RssAnon`; 0 without sampling.
    pub anonymous_kib: u64,
    /// The highest sampled `RssFile` (mapped pages of the page cache); 0 without sampling.
    pub file_backed_kib: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub stdout: Vec<u8>,
}

/// Runs the command. Fails with the last line of its standard error if it exits with another status than 0.
pub fn run(command: &mut Command, sample_memory: bool) -> Result<ProcessUsage, String> {
    let (started, began) = (Instant::now(), monotonic());
    // without a backtrace the last line of a panic is its message
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("RUST_BACKTRACE", "0");
    // reasons are committed with the results, so they name the program without its directory
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let mut child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
    let (out, err) = (
        child.stdout.take().expect("stdout is piped"),
        child.stderr.take().expect("stderr is piped"),
    );
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = sample_memory.then(|| scope.spawn(|| sample(child.id(), &ended)));
        let stderr = scope.spawn(move || read_all(err));
        let stdout = read_all(out);
        let (usage, succeeded) = wait(child.id())?;
        let wall = started.elapsed();
        ended.store(true, Ordering::Relaxed);
        let (anonymous_kib, file_backed_kib) = sampler.map_or((0, 0), |sampler| {
            sampler.join().expect("the sampler does not panic")
        });
        let stderr = stderr.join().expect("reading a pipe does not panic");
        if !succeeded {
            let text = String::from_utf8_lossy(&stderr);
            let last = text
                .lines()
                .map(str::trim)
                .rfind(|line| !line.is_empty() && !line.starts_with("note:"));
            return Err(last.unwrap_or("failed without a message").to_owned());
        }
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        Ok(ProcessUsage {
            started: began,
            wall,
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            peak_rss_kib: usage.ru_maxrss as u64,
            anonymous_kib,
            file_backed_kib,
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            stdout,
        })
    })
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes share; `Instant` does not tell them.
pub fn monotonic() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local that outlives the call
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn read_all(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("a pipe can be read");
    bytes
}

/// Reaps the process: its resource usage, and whether it exited with status 0. The standard library's `wait` returns no
/// resource usage, hence `wait4`.
fn wait(pid: u32) -> Result<(libc::rusage, bool), String> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to locals that outlive the call
    let reaped = unsafe { libc::wait4(pid as libc::pid_t, &mut status, 0, usage.as_mut_ptr()) };
    // SAFETY: all zeros is a valid `rusage`, whether or not the call wrote one
    let usage = unsafe { usage.assume_init() };
    if reaped == pid as libc::pid_t {
        Ok((usage, status == 0))
    } else {
        Err("wait4 failed".to_owned())
    }
}

/// The highest `RssAnon` and `RssFile` until the process has ended.
fn sample(pid: u32, ended: &AtomicBool) -> (u64, u64) {
    let mut peaks = (0, 0);
    while !ended.load(Ordering::Relaxed) {
        if let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) {
            peaks.0 = field(&status, "RssAnon:").max(peaks.0);
            peaks.1 = field(&status, "RssFile:").max(peaks.1);
        }
        std::thread::sleep(SAMPLE_INTERVAL);
    }
    peaks
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_child_returns_its_last_line_of_stderr() {
        let mut shell = Command::new("sh");
        assert_eq!(
            run(
                shell.args(["-c", "echo one >&2; echo why >&2; exit 3"]),
                false
            )
            .unwrap_err(),
            "why"
        );
        let usage = run(Command::new("sh").args(["-c", "echo out"]), true).unwrap();
        assert_eq!(usage.stdout, b"out\n");
        assert!(usage.peak_rss_kib > 0 && usage.minor_faults > 0);
    }
}
