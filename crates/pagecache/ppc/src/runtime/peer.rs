//! The user at the other end of a Unix socket (`SO_PEERCRED`).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The credentials of the peer when it connected, or called `listen`.
///
/// Not rustix's `socket_peercred`: its process id is never 0, while the kernel reports 0 for a process of another PID
/// namespace, whose abstract sockets are in this one.
pub(super) fn credentials(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let expected = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("a few bytes");
    let mut len = expected;
    // SAFETY: `peer` and `len` are valid for writes of these types, and `len` is the size of `peer`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if len != expected {
        return Err(io::Error::other("credentials of another size"));
    }
    Ok(peer)
}

/// Why the peer may not change policies. A policy may be a shared library, which runs with the capabilities of this process: they
/// are not given to a process of the same user that has none. Nor are they to a container, whose root may be this user as well: its
/// processes have another PID namespace.
pub(super) fn may_change_policies(stream: &UnixStream) -> Result<(), &'static str> {
    let peer = credentials(stream).map_err(|_| "the user of the connection is not known")?;
    if peer.pid == 0 {
        return Err("the request is from another PID namespace, such as that of a container");
    }
    if peer.uid == 0 {
        return Ok(());
    }
    if peer.uid != rustix::process::geteuid().as_raw() {
        return Err("the request is from another user");
    }
    let own = rustix::thread::capabilities(None);
    if own.is_ok_and(|own| own.permitted.is_empty()) {
        Ok(())
    } else {
        Err("the runtime has capabilities: only root may change its policies")
    }
}

/// Whether the peer is of this process's user, or root.
pub(super) fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    credentials(stream).is_ok_and(|peer| peer.uid == own || peer.uid == 0)
}
