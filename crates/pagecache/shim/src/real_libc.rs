//! The replaced libc functions: found with `dlsym(RTLD_NEXT)`, or the plain system call until they are.
//!
//! [`resolve`] runs when the library is loaded, because `dlsym` is not async-signal-safe and the replacements may be called
//! from signal handlers. Calls from the initialisers of other libraries may come before it; these bypass libc.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void, iovec, mode_t, off_t, size_t, ssize_t};

/// Defines for each function a pointer to libc's function and a function that calls it or, while the pointer is null,
/// evaluates `$fallback`. Also defines `resolve`, which sets the pointers.
macro_rules! forward {
    ($($name:ident $pointer:ident $text:literal ($($arg:ident: $type:ty),*) -> $out:ty = $fallback:expr;)*) => {
        $(
            static $pointer: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

            /// Calls libc's function of this name.
            ///
            /// # Safety
            ///
            /// As for libc's function.
            pub(crate) unsafe fn $name($($arg: $type),*) -> $out {
                // relaxed: libc's code is there before any of this runs
                let pointer = $pointer.load(Ordering::Relaxed);
                if pointer.is_null() {
                    return $fallback;
                }
                // SAFETY: `resolve` stored a function of this name, which has this type.
                let function = unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $out>(pointer) };
                // SAFETY: the caller fulfils the function's conditions.
                unsafe { function($($arg),*) }
            }
        )*

        /// Looks up libc's functions.
        pub(crate) fn resolve() {
            $($pointer.store(symbol($text), Ordering::Relaxed);)*
        }
    };
}

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a NUL.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// A system call through `syscall(3)`, which sets `errno` as libc's functions do.
macro_rules! syscall {
    ($number:ident, $($arg:expr),*) => {
        // SAFETY: the caller fulfils the conditions of the libc function, which are the conditions of this system call.
        unsafe { libc::syscall(libc::$number, $($arg),*) }
    };
}

// The result of each system call fits into the type of the corresponding libc function.
fn fd(result: i64) -> c_int {
    c_int::try_from(result).unwrap_or(-1)
}

fn size(result: i64) -> ssize_t {
    ssize_t::try_from(result).unwrap_or(-1)
}

fn address(result: i64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(usize::try_from(result).unwrap_or(usize::MAX))
}

forward! {
    open OPEN c"open" (path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = fd(syscall!(SYS_openat, libc::AT_FDCWD, path, flags, mode));
    open64 OPEN64 c"open64" (path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = fd(syscall!(SYS_openat, libc::AT_FDCWD, path, flags | libc::O_LARGEFILE, mode));
    openat OPENAT c"openat" (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = fd(syscall!(SYS_openat, dir, path, flags, mode));
    openat64 OPENAT64 c"openat64" (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = fd(syscall!(SYS_openat, dir, path, flags | libc::O_LARGEFILE, mode));
    read READ c"read" (fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = size(syscall!(SYS_read, fd, to, len));
    pread PREAD c"pread" (fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t
        = size(syscall!(SYS_pread64, fd, to, len, at));
    pread64 PREAD64 c"pread64" (fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t
        = size(syscall!(SYS_pread64, fd, to, len, at));
    readv READV c"readv" (fd: c_int, list: *const iovec, count: c_int) -> ssize_t
        = size(syscall!(SYS_readv, fd, list, count));
    preadv PREADV c"preadv" (fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t
        = size(syscall!(SYS_preadv, fd, list, count, at, 0));
    preadv64 PREADV64 c"preadv64" (fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t
        = size(syscall!(SYS_preadv, fd, list, count, at, 0));
    preadv2 PREADV2 c"preadv2" (fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = size(syscall!(SYS_preadv2, fd, list, count, at, 0, flags));
    preadv64v2 PREADV64V2 c"preadv64v2" (fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = size(syscall!(SYS_preadv2, fd, list, count, at, 0, flags));
    mmap MMAP c"mmap" (at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void
        = address(syscall!(SYS_mmap, at, len, prot, flags, fd, from));
    mmap64 MMAP64 c"mmap64" (at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, from: off_t)
        -> *mut c_void = address(syscall!(SYS_mmap, at, len, prot, flags, fd, from));
}
