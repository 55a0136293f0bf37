//! Messages as bytes: a length, then numbers in the machine's order.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

/// Bytes of the largest message.
pub(super) const FRAME: usize = 32 << 20;
/// What is read, and thus allocated, at once: a length that lies costs no more.
const CHUNK: usize = 1 << 20;

/// A message that is being written.
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
        // what is longer does not fit a message anyway
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend(value);
    }
}

/// A message that is being read; nothing in it is believed.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

/// A message that ends too early or says what no message says.
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
    /// How many things follow: each has at least `least` bytes, and there are no more than `most`.
    pub(super) fn count(&mut self, least: usize, most: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        if count > most.min(self.0.len() / least) {
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
        .filter(|_| message.len() <= FRAME);
    let len = len
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a message that is too long"))?;
    stream.write_all(&len.to_ne_bytes())?;
    stream.write_all(message)
}

/// Receives a message. With a deadline and the process at the other end, which may have given its connection to others:
/// [`io::ErrorKind::TimedOut`] says that it is too late, [`io::ErrorKind::UnexpectedEof`] that it is over.
pub(super) fn receive(
    stream: &UnixStream,
    from: Option<(BorrowedFd<'_>, Instant)>,
) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    fill(stream, &mut len, from)?;
    let len = usize::try_from(u32::from_ne_bytes(len)).unwrap_or(usize::MAX);
    if len > FRAME {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {len} bytes"),
        ));
    }
    let mut message = Vec::new();
    while message.len() < len {
        let at = message.len();
        message.resize(len.min(at + CHUNK), 0);
        fill(stream, &mut message[at..], from)?;
    }
    Ok(message)
}

fn fill(
    mut stream: &UnixStream,
    mut into: &mut [u8],
    from: Option<(BorrowedFd<'_>, Instant)>,
) -> io::Result<()> {
    while !into.is_empty() {
        if let Some((process, until)) = from {
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

/// Waits until there is something to read.
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
            Ok(_) if !both[0].revents().is_empty() => return Ok(()),
            Ok(_) if !both[1].revents().is_empty() => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(_) => {}
        }
    }
}
