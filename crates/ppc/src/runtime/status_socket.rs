//! Serves the status of a runtime on a Unix socket.
//!
//! The socket is in the abstract namespace, which needs no file: nothing is left behind when the process is killed, and
//! `/proc/net/unix` lists all runtimes of the machine.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Prefix of the socket's name; the process id follows.
const NAME_PREFIX: &str = "anamnesis-ppc/";
/// Maximum length of a status document.
const MAX_DOCUMENT: u64 = 16 << 20;

/// The socket of this process and the thread that serves it, until it is dropped.
#[derive(Debug)]
pub(super) struct StatusSocket {
    closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl StatusSocket {
    /// Binds the socket of this process. Each connection receives the result of `document` and is closed.
    pub(super) fn bind(document: impl Fn() -> String + Send + 'static) -> io::Result<Self> {
        let pid = std::process::id();
        // the name has the process id, so that it is unique and `running_pids` needs no other registry
        let listener = UnixListener::bind_addr(&address(pid)?)?;
        let closed = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&closed);
        let thread = std::thread::Builder::new()
            .name("ppc-status".into())
            .spawn(move || {
                // one after the other: a status is short, and a slow client is cut off below
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(mut stream) = stream else { continue };
                    // a client that does not read must not block the others
                    let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
                    let _ = stream.write_all(document().as_bytes());
                }
            })?;
        Ok(Self {
            closed,
            thread: Some(thread),
            pid,
        })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // a connection ends the blocking `accept`, after which the thread reads `closed`
        let connected = address(self.pid).and_then(|address| UnixStream::connect_addr(&address));
        if let Some(thread) = self.thread.take().filter(|_| connected.is_ok()) {
            let _ = thread.join();
        }
    }
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{NAME_PREFIX}{pid}"))
}

/// The processes of this machine whose runtimes serve their status.
///
/// # Errors
///
/// `/proc/net/unix` cannot be read.
pub fn running_pids() -> io::Result<Vec<u32>> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let name = format!("@{NAME_PREFIX}");
    let mut pids: Vec<u32> = sockets
        .lines()
        .filter_map(|line| line.rsplit_once(name.as_str())?.1.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Queries the status of a process's runtime: a [`RuntimeStatus`](super::RuntimeStatus) as JSON
/// ([`document`](super::RuntimeStatus::document)).
///
/// # Errors
///
/// The process serves no status, or does not answer within a second.
pub fn query_status(pid: u32) -> io::Result<String> {
    let stream = UnixStream::connect_addr(&address(pid)?)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut document = String::new();
    stream.take(MAX_DOCUMENT).read_to_string(&mut document)?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_served_until_the_socket_is_dropped() {
        let socket = StatusSocket::bind(|| "document".into()).unwrap();
        let pid = std::process::id();
        assert!(running_pids().unwrap().contains(&pid));
        assert_eq!(query_status(pid).unwrap(), "document");
        assert_eq!(query_status(pid).unwrap(), "document");
        drop(socket);
        assert!(query_status(pid).is_err());
        assert!(!running_pids().unwrap().contains(&pid));
    }
}
