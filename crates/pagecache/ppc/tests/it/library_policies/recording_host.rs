//! A host process that records or replays a conversation, which the tests start instead of `ppc-host`.
//!
//! `recording_host record HOST DIRECTORY` starts HOST and copies what is sent to the files `requests` and `replies` in
//! DIRECTORY. `recording_host replay FILE` sends the bytes of FILE: each part, preceded by its length (u32), after one
//! request. It ends after the last part, or when a request is late.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// How long a replay waits for a request. A mutated length makes both sides wait for the other.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(100);

fn main() -> io::Result<()> {
    let daemon = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["record", host, directory] => record(daemon, host, Path::new(directory)),
        ["replay", file] => replay(daemon, &std::fs::read(file)?),
        other => Err(io::Error::other(format!("unknown arguments {other:?}"))),
    }
}

fn record(daemon: UnixStream, host: &str, directory: &Path) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut host = Command::new(host)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    let requests = File::create(directory.join("requests"))?;
    let replies = File::create(directory.join("replies"))?;
    let (from_daemon, to_host) = (daemon.try_clone()?, ours.try_clone()?);
    // not joined: it waits until the daemon, which waits for the end of this process, closes its connection
    thread::spawn(move || {
        let copied = copy(&from_daemon, &to_host, requests);
        to_host.shutdown(std::net::Shutdown::Write).and(copied)
    });
    copy(&ours, &daemon, replies)?;
    host.wait()?;
    Ok(())
}

fn copy(mut from: &UnixStream, mut to: &UnixStream, mut record: File) -> io::Result<()> {
    let mut buffer = [0; 1 << 16];
    loop {
        let len = from.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        // recorded first: the daemon reads the records as soon as it has the last reply
        record.write_all(&buffer[..len])?;
        to.write_all(&buffer[..len])?;
    }
}

fn replay(mut daemon: UnixStream, mut parts: &[u8]) -> io::Result<()> {
    daemon.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    while let Some((len, rest)) = parts.split_first_chunk() {
        let mut header = [0; 8];
        daemon.read_exact(&mut header)?;
        let [a, b, c, d, ..] = header;
        let mut request = vec![0; u32::from_ne_bytes([a, b, c, d]) as usize];
        daemon.read_exact(&mut request)?;
        let (part, rest) = rest.split_at(u32::from_ne_bytes(*len) as usize);
        daemon.write_all(part)?;
        parts = rest;
    }
    Ok(())
}
