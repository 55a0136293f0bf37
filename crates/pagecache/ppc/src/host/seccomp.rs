//! A seccomp filter that keeps a host process from creating processes, because those would survive when the daemon is
//! killed: the parent-death signal only ends the host process itself.
#![allow(unsafe_code)]

use std::io;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, sock_filter,
};

/// The architecture as `AUDIT_ARCH_…`, and the numbers of its system calls that always create a process.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<(u32, &[libc::c_long])> =
    Some((0xc000_003e, &[libc::SYS_fork, libc::SYS_vfork]));
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<(u32, &[libc::c_long])> = Some((0xc000_00b7, &[]));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<(u32, &[libc::c_long])> = None;

/// Offset of the system call's number in `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
/// Offset of the architecture.
const ARCH_OFFSET: u32 = 4;
/// Offset of the first argument. A load reads its low half, because both architectures are little-endian.
const ARGUMENT_OFFSET: u32 = 16;

/// Loads a word of `struct seccomp_data`.
fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

/// Ends the filter with an action.
fn return_action(action: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, action, 0, 0)
}

/// An instruction with operand `k`. A jump skips `jt` instructions if its condition holds, and `jf` otherwise.
fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k,
    }
}

/// Makes system calls that create a process fail with `EPERM`. Threads can be created. Requires `no_new_privs`.
///
/// # Errors
///
/// The system's error of installing the filter.
pub(super) fn forbid_processes() -> io::Result<()> {
    let Some((arch, fork_calls)) = ARCHITECTURE else {
        return Ok(());
    };
    let number = |value: libc::c_long| u32::try_from(value).unwrap_or(u32::MAX);
    let error = |errno: i32| return_action(SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap_or(0));
    // if the loaded word differs from `value`, skips `count` instructions
    let unless_skip = |value, count| instruction(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count);
    // calls of another architecture (32 bit) are allowed, because their numbers mean other calls
    let is_native = instruction(BPF_JMP | BPF_JEQ | BPF_K, arch, 1, 0);
    let mut program = vec![
        load(ARCH_OFFSET),
        is_native,
        return_action(SECCOMP_RET_ALLOW),
        load(NUMBER_OFFSET),
    ];
    for &fork in fork_calls {
        program.extend([unless_skip(number(fork), 1), error(libc::EPERM)]);
    }
    // the flags of `clone3` are in memory, which a filter cannot read. The C library falls back to `clone` on
    // `ENOSYS`.
    program.extend([
        unless_skip(number(libc::SYS_clone3), 1),
        error(libc::ENOSYS),
    ]);
    let thread = u32::try_from(libc::CLONE_THREAD).unwrap_or(0);
    program.extend([
        unless_skip(number(libc::SYS_clone), 3),
        load(ARGUMENT_OFFSET),
        instruction(BPF_JMP | BPF_JSET | BPF_K, thread, 1, 0),
        error(libc::EPERM),
        return_action(SECCOMP_RET_ALLOW),
    ]);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(0),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `filter` refers to a program of this length, which the kernel verifies and copies.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
