//! Where others ask how a runtime is: a socket in the abstract namespace, of which nothing is left when it dies.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Every runtime's name begins with this; its process follows.
const NAME: &str = "anamnesis-ppc/";
/// An answer is never longer.
const ANSWER: u64 = 16 << 20;

/// Answers whoever asks, until it is dropped.
#[derive(Debug)]
pub(super) struct Door {
    closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Door {
    /// Opens the door of this process.
    pub(super) fn open(answer: impl Fn() -> String + Send + 'static) -> io::Result<Self> {
        let pid = std::process::id();
        let listener = UnixListener::bind_addr(&address(pid)?)?;
        let closed = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&closed);
        let thread = std::thread::Builder::new()
            .name("ppc-status".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(mut stream) = stream else { continue };
                    // who asks and does not listen is not waited for
                    let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
                    let _ = stream.write_all(answer().as_bytes());
                }
            })?;
        Ok(Self {
            closed,
            thread: Some(thread),
            pid,
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // somebody comes in, so that it looks
        let came = address(self.pid).and_then(|address| UnixStream::connect_addr(&address));
        if let Some(thread) = self.thread.take().filter(|_| came.is_ok()) {
            let _ = thread.join();
        }
    }
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{NAME}{pid}"))
}

/// Processes that have a runtime which can be asked.
///
/// # Errors
///
/// The system's.
pub fn runtimes() -> io::Result<Vec<u32>> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let name = format!("@{NAME}");
    let pids = sockets
        .lines()
        .filter_map(|line| line.rsplit_once(name.as_str())?.1.parse().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Asks the runtime of a process how it is: a [`Status`](super::Status) as JSON.
///
/// # Errors
///
/// The process has none, or does not answer within a second.
pub fn ask(pid: u32) -> io::Result<String> {
    let stream = UnixStream::connect_addr(&address(pid)?)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut answer = String::new();
    stream.take(ANSWER).read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_is_answered_and_nothing_is_left() {
        let door = Door::open(|| "well".into()).unwrap();
        let pid = std::process::id();
        assert!(runtimes().unwrap().contains(&pid));
        assert_eq!(ask(pid).unwrap(), "well");
        assert_eq!(ask(pid).unwrap(), "well");
        drop(door);
        assert!(ask(pid).is_err());
        assert!(!runtimes().unwrap().contains(&pid));
    }
}
