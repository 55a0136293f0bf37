//! One child process, what it said, and what it took.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the child's memory is looked at.
const EVERY: Duration = Duration::from_millis(3);

/// Memory in KiB.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pub wall: Duration,
    /// User and system time.
    pub cpu: Duration,
    /// `ru_maxrss`, which is what `VmHWM` was at the end.
    pub peak_rss: u64,
    /// The peak of `RssAnon`, as far as it was seen; 0 if nobody watched.
    pub anonymous: u64,
    /// The peak of `RssFile`, as far as it was seen: mapped pages of the page cache.
    pub of_files: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// Its standard output.
    pub said: Vec<u8>,
}

/// Runs it to its end; says why if it cannot start or fails. Its memory is looked at only where that is asked for.
pub fn run(command: &mut Command, watched: bool) -> Result<Usage, String> {
    let began = Instant::now();
    // a panic's last words are why, not where
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("RUST_BACKTRACE", "0");
    // its name, not where it is: reasons are kept with the results
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let mut child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
    let (out, err) = (
        child.stdout.take().expect("piped"),
        child.stderr.take().expect("piped"),
    );
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = watched.then(|| scope.spawn(|| watch(child.id(), &ended)));
        let complaint = scope.spawn(move || all_of(err));
        let said = all_of(out);
        let (usage, succeeded) = wait(child.id())?;
        let wall = began.elapsed();
        ended.store(true, Ordering::Relaxed);
        let (anonymous, of_files) =
            watcher.map_or((0, 0), |watcher| watcher.join().expect("it only reads"));
        let complaint = complaint.join().expect("it only reads");
        if !succeeded {
            let text = String::from_utf8_lossy(&complaint);
            let last = text
                .lines()
                .map(str::trim)
                .rfind(|line| !line.is_empty() && !line.starts_with("note:"));
            return Err(last.unwrap_or("it failed without a word").to_owned());
        }
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        Ok(Usage {
            wall,
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            peak_rss: usage.ru_maxrss as u64,
            anonymous,
            of_files,
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            said,
        })
    })
}

fn all_of(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("a pipe");
    bytes
}

/// What it used, and whether it succeeded.
fn wait(pid: u32) -> Result<(libc::rusage, bool), String> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both point to memory of this function's that lives through the call
    let reaped = unsafe { libc::wait4(pid as libc::pid_t, &mut status, 0, usage.as_mut_ptr()) };
    // SAFETY: all zeros is a `rusage`, whether or not the call wrote one
    let usage = unsafe { usage.assume_init() };
    if reaped == pid as libc::pid_t {
        Ok((usage, status == 0))
    } else {
        Err("it cannot be waited for".to_owned())
    }
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
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_fails_says_why() {
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
        assert_eq!(usage.said, b"out\n");
        assert!(usage.peak_rss > 0 && usage.minor_faults > 0);
    }
}
