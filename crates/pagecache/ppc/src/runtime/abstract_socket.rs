//! The knowledge that both sides of a status socket share: its name, and how it is connected to.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

/// Prefix of the socket's name; the process id follows, and a number if another process has bound that name.
pub(super) const NAME_PREFIX: &str = "anamnesis-ppc/";

/// Connects to an abstract name. Does not block: a listener that accepts nothing, and whose queue is full, would hold a
/// blocking `connect` without end.
pub(super) fn connect(name: &[u8]) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(UnixStream::from(socket))
}

/// Whether an operation of a socket that does not block can be tried again.
pub(super) fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}
