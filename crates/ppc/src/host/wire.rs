//! Encoding of messages, and their transfer over a socket: a length of four bytes, then that many bytes. Integers are
//! in native byte order, because both processes run on one machine.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

/// Limit on the bytes of one message.
pub(super) const MAX_MESSAGE: usize = 32 << 20;
/// Bytes read, and therefore allocated, at once. A message that states a false length causes no larger allocation.
const CHUNK: usize = 1 << 20;

/// Encodes a message.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_ne_bytes());
    }
    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_ne_bytes());
    }
    pub(super) fn bytes(&mut self, value: &[u8]) {
        // a longer value exceeds `MAX_MESSAGE`, and is refused by `send`
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend(value);
    }
}

/// Decodes a message. Its sender is untrusted: every length is checked.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

/// A message that is truncated or contains an invalid value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = tail;
        Ok(*head)
    }
    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.take::<1>().map(|[byte]| byte)
    }
    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_ne_bytes)
    }
    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_ne_bytes)
    }
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        let (head, tail) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = tail;
        Ok(head)
    }
    /// The number of items that follow, at most `max`. Each takes at least `min_bytes`, so a count that the rest of
    /// the message cannot contain is refused before anything is allocated.
    pub(super) fn count(&mut self, min_bytes: usize, max: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        if count > max.min(self.0.len() / min_bytes) {
            Err(Malformed)
        } else {
            Ok(count)
        }
    }
    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}

/// Sends a message.
pub(super) fn send(mut stream: &UnixStream, message: &[u8]) -> io::Result<()> {
    let len = u32::try_from(message.len())
        .ok()
        .filter(|_| message.len() <= MAX_MESSAGE);
    let len = len.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the message exceeds the limit of 32 MiB",
        )
    })?;
    stream.write_all(&len.to_ne_bytes())?;
    stream.write_all(message)
}

/// Receives a message. `sender` is a descriptor of the sending process and a deadline. The process is watched in
/// addition to the socket, because a child of it may keep the socket open after its end.
///
/// # Errors
///
/// [`io::ErrorKind::TimedOut`] after the deadline, [`io::ErrorKind::UnexpectedEof`] if the process or the connection
/// ended, [`io::ErrorKind::InvalidData`] for a message beyond the limit.
pub(super) fn receive(
    stream: &UnixStream,
    sender: Option<(BorrowedFd<'_>, Instant)>,
) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    fill(stream, &mut len, sender)?;
    let len = usize::try_from(u32::from_ne_bytes(len)).unwrap_or(usize::MAX);
    if len > MAX_MESSAGE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {len} bytes, allowed are {MAX_MESSAGE}"),
        ));
    }
    let mut message = Vec::new();
    while message.len() < len {
        let at = message.len();
        message.resize(len.min(at + CHUNK), 0);
        fill(stream, &mut message[at..], sender)?;
    }
    Ok(message)
}

fn fill(
    mut stream: &UnixStream,
    mut into: &mut [u8],
    sender: Option<(BorrowedFd<'_>, Instant)>,
) -> io::Result<()> {
    while !into.is_empty() {
        if let Some((process, until)) = sender {
            wait(stream, process, until)?;
        }
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => into = &mut into[read..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the socket is readable. A message that was sent before the process ended is still received.
fn wait(stream: &UnixStream, process: BorrowedFd<'_>, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut both = [
            PollFd::new(stream, PollFlags::IN),
            PollFd::new(&process, PollFlags::IN),
        ];
        match poll(&mut both, Some(&left)) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            // the socket before the process: a reply that was sent before the end is read
            Ok(_) if !both[0].revents().is_empty() => return Ok(()),
            Ok(_) if !both[1].revents().is_empty() => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(_) => {}
        }
    }
}
