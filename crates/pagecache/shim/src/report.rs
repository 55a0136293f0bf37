//! Writes messages into the pipe. Allocates nothing, takes no lock, and preserves `errno`.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libc::{c_int, off_t, size_t};

/// First field of each message.
const MAGIC: u32 = 0x616e_7331;
/// Lowest descriptor for the pipe. Programs expect that `open` returns the lowest free descriptor, so low ones stay free.
const MIN_DESCRIPTOR: c_int = 200;

/// The descriptor of the pipe, or −1. Stored with release ordering after the two below, which are read after an acquire
/// load of it.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// The identity of the pipe. The program may close the descriptor, and receive it again for a file of its own; it is
/// compared before each write.
static PIPE_DEV: AtomicU64 = AtomicU64::new(0);
static PIPE_INO: AtomicU64 = AtomicU64::new(0);
/// Messages dropped since the last successful write.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The content of a message.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum MessageKind {
    Open = 1,
    Read = 2,
    Map = 3,
    /// Only the number of dropped messages.
    Dropped = 4,
}

/// Where in the file an access begins.
#[derive(Clone, Copy)]
pub(crate) enum ReadOffset {
    Byte(off_t),
    /// At the descriptor's position.
    Position,
    /// This many bytes before the descriptor's position.
    BeforePosition(size_t),
}

impl ReadOffset {
    /// The offset argument of `preadv2`, where −1 stands for the descriptor's position.
    pub(crate) fn of(at: off_t) -> Self {
        if at == -1 {
            Self::Position
        } else {
            Self::Byte(at)
        }
    }

    fn resolve(self, fd: c_int) -> Option<u64> {
        match self {
            Self::Byte(at) => u64::try_from(at).ok(),
            Self::Position => position(fd),
            Self::BeforePosition(len) => position(fd)?.checked_sub(u64::try_from(len).ok()?),
        }
    }
}

/// Opens the pipe whose path is in the environment.
pub(crate) fn open_pipe() {
    // SAFETY: this runs while the library is loaded, when no other thread exists that could change the environment.
    let path = unsafe { libc::getenv(c"ANAMNESIS_SHIM".as_ptr()) };
    if path.is_null() {
        return;
    }
    // for reading, too: without a reader a write would raise SIGPIPE, and now this process is always one
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: strings of the environment end with a NUL.
    let opened = unsafe { super::real_libc::open(path, flags, 0) };
    // SAFETY: all arguments are numbers.
    let fd = unsafe { libc::fcntl(opened, libc::F_DUPFD_CLOEXEC, MIN_DESCRIPTOR) };
    // SAFETY: `opened` is owned by this function, or −1.
    unsafe { libc::close(opened) };
    // in a file of another kind messages would have no reader
    if let Some(stat) = stat(fd).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFIFO) {
        PIPE_DEV.store(stat.st_dev, Ordering::Relaxed);
        PIPE_INO.store(stat.st_ino, Ordering::Relaxed);
        PIPE.store(fd, Ordering::Release);
    }
}

/// Reports the number of dropped messages, if no later message has.
pub(crate) extern "C" fn report_dropped() {
    let pipe = PIPE.load(Ordering::Acquire);
    if pipe >= 0 && DROPPED.load(Ordering::Relaxed) > 0 {
        send(pipe, MessageKind::Dropped, (0, 0), (0, 0));
    }
}

/// Reports an access to a regular file; does nothing for other descriptors.
pub(crate) fn report(kind: MessageKind, fd: c_int, at: ReadOffset, len: size_t) {
    let pipe = PIPE.load(Ordering::Acquire);
    if pipe < 0 {
        return;
    }
    // SAFETY: always succeeds; the location belongs to this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: see above.
    let before = unsafe { *errno };
    if let Some(file) = stat(fd).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG)
        && let (Some(at), Ok(len)) = (at.resolve(fd), u64::try_from(len))
    {
        send(pipe, kind, (file.st_dev, file.st_ino), (at, len));
    }
    // SAFETY: see above.
    unsafe { *errno = before };
}

/// The position of a descriptor.
fn position(fd: c_int) -> Option<u64> {
    // SAFETY: all arguments are numbers; an offset of 0 leaves the position unchanged.
    let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    u64::try_from(at).ok()
}

fn send(pipe: c_int, kind: MessageKind, (dev, ino): (u64, u64), (at, len): (u64, u64)) {
    let expected = (
        PIPE_DEV.load(Ordering::Relaxed),
        PIPE_INO.load(Ordering::Relaxed),
    );
    if stat(pipe).is_none_or(|stat| (stat.st_dev, stat.st_ino) != expected) {
        return;
    }
    // taken before the write and put back if it fails, so that no two messages report one loss
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    // SAFETY: always succeeds.
    let pid = unsafe { libc::getpid() };
    // SAFETY: always succeeds.
    let tid = unsafe { libc::gettid() };
    let words = [
        u64::from(MAGIC) | (kind as u64) << 32,
        dev,
        ino,
        at,
        len,
        u64::from(pid.cast_unsigned()) | u64::from(tid.cast_unsigned()) << 32,
        monotonic(),
        dropped,
    ];
    // SAFETY: the message lives through the call. A pipe accepts a write of up to PIPE_BUF bytes as a whole or not at all.
    let written = unsafe { libc::write(pipe, words.as_ptr().cast(), size_of_val(&words)) };
    if written < 0 {
        DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
    }
}

fn stat(fd: c_int) -> Option<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: the kernel writes a `stat`, whose size the buffer has.
    let done = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    // SAFETY: initialised by the kernel, as the call succeeded.
    (done == 0).then(|| unsafe { stat.assume_init() })
}

fn monotonic() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes a `timespec`, the type of `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec
        .cast_unsigned()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec.cast_unsigned())
}
