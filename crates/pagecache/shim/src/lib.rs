//! Reports which bytes of files a program reads: a library for `LD_PRELOAD`. The README documents its use and the message
//! format.
//!
//! Each function replaces the libc function of its name: it calls that function and reports the access. The functions may be
//! called from any thread, from signal handlers, and before this library is initialised; they only forward calls then. For
//! this reason nothing here allocates or takes a lock.
#![allow(unsafe_code)]

mod real_libc;
mod report;

use libc::{c_char, c_int, c_void, iovec, mode_t, off_t, size_t, ssize_t};
use report::{MessageKind, ReadOffset, report};

/// Makes the dynamic linker call `init` when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

/// Makes the dynamic linker call `report_dropped` when the program exits.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = report::report_dropped;

extern "C" fn init() {
    real_libc::resolve();
    report::open_pipe();
}

/// Defines replacements of libc functions. Each evaluates `$before`, calls libc's function, and evaluates `$after` with its
/// result.
macro_rules! interpose {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty { $before:expr; $next:ident; |$result:ident| $after:expr })*) => {$(
        /// Replaces libc's function of this name.
        ///
        /// # Safety
        ///
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $out {
            let () = $before;
            // SAFETY: the arguments are the caller's, who fulfils the conditions of libc's function.
            let $result = unsafe { real_libc::$next($($arg),*) };
            let () = $after;
            $result
        }
    )*};
}

// `open` has a third argument only if it creates a file. Reading it in any case is harmless: it is an integer in a
// register, and libc ignores it without O_CREAT.
interpose! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { (); open; |fd| report_open(fd) }
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { (); open64; |fd| report_open(fd) }
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { (); openat; |fd| report_open(fd) }
    openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { (); openat64; |fd| report_open(fd) }
}

// Reported before the call: the report of a miss arrives while the read waits for the device.
interpose! {
    read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t { report(MessageKind::Read, fd, ReadOffset::Position, len); read; |_done| () }
    pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        report(MessageKind::Read, fd, ReadOffset::Byte(at), len); pread; |_done| ()
    }
    pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        report(MessageKind::Read, fd, ReadOffset::Byte(at), len); pread64; |_done| ()
    }
}

// Reported after the call: the number of bytes is the sum over the list, and only the kernel can check whether the list
// may be read.
interpose! {
    preadv2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        (); preadv2; |done| report_read(fd, ReadOffset::of(at), done)
    }
    preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        (); preadv64v2; |done| report_read(fd, ReadOffset::of(at), done)
    }
    readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t { (); readv; |done| report_read(fd, ReadOffset::Position, done) }
    preadv(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
        (); preadv; |done| report_read(fd, ReadOffset::Byte(at), done)
    }
    preadv64(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
        (); preadv64; |done| report_read(fd, ReadOffset::Byte(at), done)
    }
}

interpose! {
    mmap(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void {
        (); mmap; |map| report_map(map, fd, flags, from, len)
    }
    mmap64(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void {
        (); mmap64; |map| report_map(map, fd, flags, from, len)
    }
}

fn report_open(fd: c_int) {
    if fd >= 0 {
        report(MessageKind::Open, fd, ReadOffset::Byte(0), 0);
    }
}

fn report_read(fd: c_int, at: ReadOffset, done: ssize_t) {
    if let Ok(len) = size_t::try_from(done)
        && len > 0
    {
        // the call advanced the position by the number of bytes that it read
        let at = if let ReadOffset::Position = at {
            ReadOffset::BeforePosition(len)
        } else {
            at
        };
        report(MessageKind::Read, fd, at, len);
    }
}

fn report_map(map: *mut c_void, fd: c_int, flags: c_int, from: off_t, len: size_t) {
    if map != libc::MAP_FAILED && flags & libc::MAP_ANONYMOUS == 0 {
        report(MessageKind::Map, fd, ReadOffset::Byte(from), len);
    }
}
