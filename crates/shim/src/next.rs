//! The functions that ours stand in for: those of the next library, or the system call until they are found.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void, iovec, mode_t, off_t, size_t, ssize_t};

/// Defines a place for each function, a function that calls what is there, and `find`, which looks them up.
macro_rules! nexts {
    ($($name:ident $place:ident $text:literal ($($arg:ident: $type:ty),*) -> $out:ty = $instead:expr;)*) => {
        $(
            static $place: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

            /// Libc's function of this name.
            ///
            /// # Safety
            ///
            /// That of libc's.
            pub(crate) unsafe fn $name($($arg: $type),*) -> $out {
                let place = $place.load(Ordering::Relaxed);
                if place.is_null() {
                    return $instead;
                }
                // SAFETY: `find` put a function of this name and so of this type here.
                let next = unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $out>(place) };
                // SAFETY: the caller keeps to its conditions.
                unsafe { next($($arg),*) }
            }
        )*

        /// Looks the functions up.
        pub(crate) fn find() {
            $($place.store(symbol($text), Ordering::Relaxed);)*
        }
    };
}

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a NUL.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// A system call, with libc's way to tell errors.
macro_rules! call {
    ($number:ident, $($arg:expr),*) => {
        // SAFETY: the caller keeps to the conditions of the function that stands for this system call.
        unsafe { libc::syscall(libc::$number, $($arg),*) }
    };
}

// what the system calls return fits into what libc's functions return: both are the kernel's
fn fd(result: i64) -> c_int {
    c_int::try_from(result).unwrap_or(-1)
}

fn size(result: i64) -> ssize_t {
    ssize_t::try_from(result).unwrap_or(-1)
}

fn place(result: i64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(usize::try_from(result).unwrap_or(usize::MAX))
}

nexts! {
    open OPEN c"open" (path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = fd(call!(SYS_openat, libc::AT_FDCWD, path, flags, mode));
    open64 OPEN64 c"open64" (path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = fd(call!(SYS_openat, libc::AT_FDCWD, path, flags | libc::O_LARGEFILE, mode));
    openat OPENAT c"openat" (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = fd(call!(SYS_openat, dir, path, flags, mode));
    openat64 OPENAT64 c"openat64" (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = fd(call!(SYS_openat, dir, path, flags | libc::O_LARGEFILE, mode));
    read READ c"read" (fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = size(call!(SYS_read, fd, to, len));
    pread PREAD c"pread" (fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t
        = size(call!(SYS_pread64, fd, to, len, at));
    pread64 PREAD64 c"pread64" (fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t
        = size(call!(SYS_pread64, fd, to, len, at));
    readv READV c"readv" (fd: c_int, list: *const iovec, count: c_int) -> ssize_t
        = size(call!(SYS_readv, fd, list, count));
    preadv PREADV c"preadv" (fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t
        = size(call!(SYS_preadv, fd, list, count, at, 0));
    preadv64 PREADV64 c"preadv64" (fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t
        = size(call!(SYS_preadv, fd, list, count, at, 0));
    preadv2 PREADV2 c"preadv2" (fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = size(call!(SYS_preadv2, fd, list, count, at, 0, flags));
    preadv64v2 PREADV64V2 c"preadv64v2" (fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = size(call!(SYS_preadv2, fd, list, count, at, 0, flags));
    mmap MMAP c"mmap" (at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void
        = place(call!(SYS_mmap, at, len, prot, flags, fd, from));
    mmap64 MMAP64 c"mmap64" (at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, from: off_t)
        -> *mut c_void = place(call!(SYS_mmap, at, len, prot, flags, fd, from));
}
