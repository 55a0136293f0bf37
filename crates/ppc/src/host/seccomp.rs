//! A host process starts no others: what it started would outlive a daemon that is killed.
#![allow(unsafe_code)]

use std::io;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, sock_filter,
};

/// As the kernel names the architecture, and the calls that only older ones have.
#[cfg(target_arch = "x86_64")]
const SYSTEM: Option<(u32, &[libc::c_long])> =
    Some((0xc000_003e, &[libc::SYS_fork, libc::SYS_vfork]));
#[cfg(target_arch = "aarch64")]
const SYSTEM: Option<(u32, &[libc::c_long])> = Some((0xc000_00b7, &[]));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SYSTEM: Option<(u32, &[libc::c_long])> = None;

/// Offsets in `struct seccomp_data`, and the low half of the first argument on little-endian machines.
const CALL: u32 = 0;
const ARCH: u32 = 4;
const FIRST: u32 = 16;

fn load(at: u32) -> sock_filter {
    step(BPF_LD | BPF_W | BPF_ABS, at, 0, 0)
}

fn answer(with: u32) -> sock_filter {
    step(BPF_RET | BPF_K, with, 0, 0)
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k,
    }
}

/// Threads may be made, processes not: `fork` fails with `EPERM`. Needs `no_new_privs`.
pub(super) fn forbid_processes() -> io::Result<()> {
    let Some((arch, forks)) = SYSTEM else {
        return Ok(());
    };
    let number = |value: libc::c_long| u32::try_from(value).unwrap_or(u32::MAX);
    let error = |errno: i32| answer(SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap_or(0));
    let is = |value, otherwise| step(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise);
    // another architecture's numbers mean other calls
    let known = step(BPF_JMP | BPF_JEQ | BPF_K, arch, 1, 0);
    let mut program = vec![load(ARCH), known, answer(SECCOMP_RET_ALLOW), load(CALL)];
    for &fork in forks {
        program.extend([is(number(fork), 1), error(libc::EPERM)]);
    }
    // its flags cannot be seen; who is told that there is none takes the other
    program.extend([is(number(libc::SYS_clone3), 1), error(libc::ENOSYS)]);
    let thread = u32::try_from(libc::CLONE_THREAD).unwrap_or(0);
    program.extend([
        is(number(libc::SYS_clone), 3),
        load(FIRST),
        step(BPF_JMP | BPF_JSET | BPF_K, thread, 1, 0),
        error(libc::EPERM),
        answer(SECCOMP_RET_ALLOW),
    ]);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(0),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: a program of that length, which the kernel checks and copies.
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
