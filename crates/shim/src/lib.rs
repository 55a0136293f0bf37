//! Tells which bytes of files a program reads: a library for `LD_PRELOAD`. See the README.
//!
//! Every function here has the name of one of libc's, does what that does, and tells it. They may be called while a
//! signal is dealt with, from any thread, and before this library was initialised: then they pass the call on and tell nothing.
#![allow(unsafe_code)]

mod next;
mod tell;

use libc::{c_char, c_int, c_void, iovec, mode_t, off_t, size_t, ssize_t};
use tell::{At, Kind, told};

/// Initialises the library when it is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

/// Says what was dropped when the program ends.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = tell::last;

extern "C" fn init() {
    next::find();
    tell::begin();
}

/// Defines functions with the names of libc's, which tell `$before`, pass the call on, and tell `$after` of its result.
macro_rules! stand_in {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty { $before:expr; $next:ident; |$result:ident| $after:expr })*) => {$(
        /// Stands in for libc's function of this name.
        ///
        /// # Safety
        ///
        /// That of libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $out {
            let () = $before;
            // SAFETY: the caller keeps to libc's conditions, and the arguments are the caller's.
            let $result = unsafe { next::$next($($arg),*) };
            let () = $after;
            $result
        }
    )*};
}

// libc's `open` takes a third argument only where it makes a file; one that was not given is passed on unseen
stand_in! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { (); open; |fd| opened(fd) }
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { (); open64; |fd| opened(fd) }
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { (); openat; |fd| opened(fd) }
    openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { (); openat64; |fd| opened(fd) }
}

// told before they wait
stand_in! {
    read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t { told(Kind::Read, fd, At::Position, len); read; |_done| () }
    pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        told(Kind::Read, fd, At::Byte(at), len); pread; |_done| ()
    }
    pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        told(Kind::Read, fd, At::Byte(at), len); pread64; |_done| ()
    }
}

// told afterwards: only the kernel can tell whether the list may be read
stand_in! {
    preadv2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        (); preadv2; |done| was_read(fd, At::of(at), done)
    }
    preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        (); preadv64v2; |done| was_read(fd, At::of(at), done)
    }
    readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t { (); readv; |done| was_read(fd, At::Position, done) }
    preadv(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
        (); preadv; |done| was_read(fd, At::Byte(at), done)
    }
    preadv64(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
        (); preadv64; |done| was_read(fd, At::Byte(at), done)
    }
}

stand_in! {
    mmap(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void {
        (); mmap; |map| mapped(map, fd, flags, from, len)
    }
    mmap64(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void {
        (); mmap64; |map| mapped(map, fd, flags, from, len)
    }
}

fn opened(fd: c_int) {
    if fd >= 0 {
        told(Kind::Open, fd, At::Byte(0), 0);
    }
}

fn was_read(fd: c_int, at: At, done: ssize_t) {
    if let Ok(len) = size_t::try_from(done)
        && len > 0
    {
        // the position has moved by what was read
        let at = if let At::Position = at {
            At::Behind(len)
        } else {
            at
        };
        told(Kind::Read, fd, at, len);
    }
}

fn mapped(map: *mut c_void, fd: c_int, flags: c_int, from: off_t, len: size_t) {
    if map != libc::MAP_FAILED && flags & libc::MAP_ANONYMOUS == 0 {
        told(Kind::Map, fd, At::Byte(from), len);
    }
}
