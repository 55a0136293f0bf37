//! Messages into the pipe. No allocation, no lock, and `errno` is what it was.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libc::{c_int, off_t, size_t};

/// Begins every message.
const MAGIC: u32 = 0x616e_7331;
/// Descriptors below this are left to the program.
const ABOVE: c_int = 200;

/// The pipe's descriptor, or −1.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// Which pipe that is: the program may have closed the descriptor and got it for a file of its own.
static PIPE_DEV: AtomicU64 = AtomicU64::new(0);
static PIPE_INO: AtomicU64 = AtomicU64::new(0);
/// Messages that did not fit since the last that did.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// What happened.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Kind {
    Open = 1,
    Read = 2,
    Map = 3,
    /// Nothing; the message says what was dropped.
    Last = 4,
}

/// Where in the file.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Byte(off_t),
    /// Where the descriptor reads next.
    Position,
    /// So far before that.
    Behind(size_t),
}

impl At {
    /// As `preadv2` is told: −1 for the descriptor's position.
    pub(crate) fn of(at: off_t) -> Self {
        if at == -1 {
            Self::Position
        } else {
            Self::Byte(at)
        }
    }

    fn byte(self, fd: c_int) -> Option<u64> {
        match self {
            Self::Byte(at) => u64::try_from(at).ok(),
            Self::Position => position(fd),
            Self::Behind(len) => position(fd)?.checked_sub(u64::try_from(len).ok()?),
        }
    }
}

/// Opens the pipe that the environment names.
pub(crate) fn begin() {
    // SAFETY: no other thread runs yet that could change the environment.
    let path = unsafe { libc::getenv(c"ANAMNESIS_SHIM".as_ptr()) };
    if path.is_null() {
        return;
    }
    // for reading too, so that writing never signals when the reader has gone
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: the environment's strings end with a NUL.
    let opened = unsafe { super::next::open(path, flags, 0) };
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::fcntl(opened, libc::F_DUPFD_CLOEXEC, ABOVE) };
    // SAFETY: `opened` is ours, or −1.
    unsafe { libc::close(opened) };
    if let Some(stat) = stat(fd).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFIFO) {
        PIPE_DEV.store(stat.st_dev, Ordering::Relaxed);
        PIPE_INO.store(stat.st_ino, Ordering::Relaxed);
        PIPE.store(fd, Ordering::Release);
    }
}

/// Says what was dropped, if nothing did yet.
pub(crate) extern "C" fn last() {
    let pipe = PIPE.load(Ordering::Acquire);
    if pipe >= 0 && DROPPED.load(Ordering::Relaxed) > 0 {
        send(pipe, Kind::Last, (0, 0), (0, 0));
    }
}

/// Tells that bytes of a file are asked for.
pub(crate) fn told(kind: Kind, fd: c_int, at: At, len: size_t) {
    let pipe = PIPE.load(Ordering::Acquire);
    if pipe < 0 {
        return;
    }
    // SAFETY: always a place, this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: see above.
    let before = unsafe { *errno };
    if let Some(file) = stat(fd).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG)
        && let (Some(at), Ok(len)) = (at.byte(fd), u64::try_from(len))
    {
        send(pipe, kind, (file.st_dev, file.st_ino), (at, len));
    }
    // SAFETY: see above.
    unsafe { *errno = before };
}

/// Where a descriptor reads next.
fn position(fd: c_int) -> Option<u64> {
    // SAFETY: takes numbers only, and moves nothing.
    let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    u64::try_from(at).ok()
}

fn send(pipe: c_int, kind: Kind, (dev, ino): (u64, u64), (at, len): (u64, u64)) {
    let ours = (
        PIPE_DEV.load(Ordering::Relaxed),
        PIPE_INO.load(Ordering::Relaxed),
    );
    if stat(pipe).is_none_or(|stat| (stat.st_dev, stat.st_ino) != ours) {
        return;
    }
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
    // SAFETY: the message lives through the call; a pipe takes so few bytes whole or not at all.
    let sent = unsafe { libc::write(pipe, words.as_ptr().cast(), size_of_val(&words)) };
    if sent < 0 {
        DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
    }
}

fn stat(fd: c_int) -> Option<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: the kernel writes a `stat`, for which there is room.
    let done = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    // SAFETY: it did.
    (done == 0).then(|| unsafe { stat.assume_init() })
}

fn monotonic() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time to `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec
        .cast_unsigned()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec.cast_unsigned())
}
