//! Encoding of messages, and their transfer over a socket: a length and a number of four bytes each, then that many bytes.
//! Integers are in native byte order, because both processes run on one machine.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustix::time::Timespec;

use crate::supervisor::call_clock::{CallClock, ExceededLimit, processor_time};

/// Limit on the bytes of one message.
pub(super) const MAX_MESSAGE: usize = 32 << 20;
/// Bytes that are allocated for a message before any of it is received. Later allocations double what was received, so
/// that a message that states a false length costs no more than twice its actual bytes.
const FIRST_CHUNK: usize = 64 << 10;

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
    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
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
            // bytes that are left mean that the two sides differ about the message
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}

/// A message, and the number by which a reply names its request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) number: u32,
    pub(super) message: Vec<u8>,
}

/// The process at the other end of a connection.
#[derive(Debug)]
pub(super) struct HostIdentity {
    /// Becomes readable when the process ends. The end of the connection does not suffice: a child may keep it open.
    pub(super) pidfd: OwnedFd,
    /// The file with the processor time of its main thread.
    pub(super) schedstat: PathBuf,
}

/// When a transfer ends at the latest: when the process at the other end has ended, or has had its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline<'a> {
    pub(super) clock: &'a Cell<CallClock>,
    /// Without it, time on the clock counts.
    pub(super) process: Option<&'a HostIdentity>,
    /// The limit that the process has exceeded.
    pub(super) exceeded: &'a Cell<Option<ExceededLimit>>,
}

impl Deadline<'_> {
    /// How long to wait, before this is called again.
    fn left(&self) -> io::Result<Duration> {
        let mut clock = self.clock.get();
        let schedstat = self.process.map(|process| &process.schedstat);
        let left = clock.look(Instant::now(), || processor_time(schedstat?));
        self.clock.set(clock);
        left.map_err(|exceeded| {
            self.exceeded.set(Some(exceeded));
            io::ErrorKind::TimedOut.into()
        })
    }
}

/// Sends a message.
///
/// # Errors
///
/// The errors of [`receive`]; [`io::ErrorKind::InvalidInput`] for a message beyond the limit.
pub(super) fn send(
    stream: &UnixStream,
    number: u32,
    message: &[u8],
    deadline: Option<Deadline<'_>>,
) -> io::Result<()> {
    let len = u32::try_from(message.len())
        .ok()
        .filter(|_| message.len() <= MAX_MESSAGE);
    let len = len.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the message exceeds the limit of 32 MiB",
        )
    })?;
    let (len, number) = (len.to_ne_bytes(), number.to_ne_bytes());
    let mut parts = [&len[..], &number, message].map(IoSlice::new);
    let mut unsent = &mut parts[..];
    // `DONTWAIT`: a timeout of the socket would begin again with each piece that a slow receiver makes room for.
    // `NOSIGNAL`: a program whose main function is not Rust's does not ignore SIGPIPE
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::DONTWAIT, deadline.is_some());
    while !unsent.is_empty() {
        let sent = sendmsg(stream, unsent, &mut SendAncillaryBuffer::default(), flags);
        match (sent, deadline) {
            (Ok(sent), _) => IoSlice::advance_slices(&mut unsent, sent),
            (Err(Errno::INTR), _) => {}
            (Err(Errno::AGAIN), Some(deadline)) => wait(stream, PollFlags::OUT, deadline)?,
            (Err(errno), _) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Receives a message.
///
/// # Errors
///
/// [`io::ErrorKind::TimedOut`] after the deadline, [`io::ErrorKind::UnexpectedEof`] if the process or the connection
/// ended, [`io::ErrorKind::InvalidData`] for a message beyond the limit.
pub(super) fn receive(stream: &UnixStream, deadline: Option<Deadline<'_>>) -> io::Result<Frame> {
    let mut header = [0; 8];
    fill(stream, &mut header, deadline)?;
    let [a, b, c, d, number @ ..] = header;
    let len = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if len > MAX_MESSAGE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {len} bytes, allowed are {MAX_MESSAGE}"),
        ));
    }
    let mut message = Vec::new();
    while message.len() < len {
        let at = message.len();
        let next = len.min((2 * at).max(FIRST_CHUNK));
        // exactly, since `resize` alone would reserve more
        message.reserve_exact(next - at);
        message.resize(next, 0);
        fill(stream, &mut message[at..], deadline)?;
    }
    Ok(Frame {
        number: u32::from_ne_bytes(number),
        message,
    })
}

fn fill(
    stream: &UnixStream,
    mut into: &mut [u8],
    deadline: Option<Deadline<'_>>,
) -> io::Result<()> {
    while !into.is_empty() {
        // the socket blocks: `recv` alone would wait beyond the deadline
        if let Some(deadline) = deadline {
            wait(stream, PollFlags::IN, deadline)?;
        }
        match recv(stream, &mut *into, RecvFlags::empty()) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, received)) => into = &mut into[received..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Waits until the socket is ready. A message that was sent before the process ended is still received.
fn wait(stream: &UnixStream, ready: PollFlags, deadline: Deadline<'_>) -> io::Result<()> {
    let process = deadline.process.map(|process| process.pidfd.as_fd());
    loop {
        let left = Timespec::try_from(deadline.left()?).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut both = [
            PollFd::new(stream, ready),
            PollFd::from_borrowed_fd(process.unwrap_or(stream.as_fd()), PollFlags::IN),
        ];
        let polled = if process.is_some() { 2 } else { 1 };
        match poll(&mut both[..polled], Some(&left)) {
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
