#![allow(unsafe_code)] // a signal handler; see the register in CONVENTIONS.md

//! SIGBUS, which the system sends to a thread that touches a page of a mapped file which cannot be read: another process
//! has truncated the file, or its storage failed.
//!
//! The thread cannot continue, and a signal handler may neither lock nor allocate. So the handler writes the message of a
//! failure and ends the process with the status of one, as if it were killed: what is left is described in
//! `docs/untrusted.md`, "Written files". A program that is started by the command has the default handler again.

use std::fmt::{self, Write};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use anamnesis::quote::is_hidden;

/// Installs a handler of SIGBUS for the whole process, which reports the mapped file that cannot be read and ends the process
/// with status 1. Without it the signal ends the process, and the failure is not reported.
pub fn report_bus_errors() {
    // SAFETY: all fields of the structure are integers or nullable pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus_error as *const () as usize;
    // on the thread's own stack: the other one, for overflows, which are another signal, is smaller than the texts below
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the action is initialised, its function has the signature that `SA_SIGINFO` requires, and that function
    // calls nothing that locks or allocates.
    unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
}

/// Lets a write beyond the limit of `ulimit -f` fail, as one to a full disk does; the signal would end the process, and leave
/// what is half-written. A handler, since a program that is started inherits a signal that is ignored.
pub fn report_size_limits() {
    extern "C" fn on_size_limit(_signal: libc::c_int) {}
    // SAFETY: all fields of the structure are integers or nullable pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_size_limit as *const () as usize;
    // SAFETY: the action is initialised, and its function does nothing.
    unsafe { libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut()) };
}

extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the system passes a valid pointer to a handler that was installed with `SA_SIGINFO`.
    let info = unsafe { &*info };
    if info.si_code != libc::BUS_ADRERR {
        // sent by a process, an unaligned access or damaged memory: ends the process as without this handler
        // SAFETY: `signal` may be called in a handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // SAFETY: `raise` may be called in a handler. The signal is delivered when the handler returns.
        unsafe { libc::raise(signal) };
        return;
    }
    static REPORTED: AtomicBool = AtomicBool::new(false);
    // several threads may touch missing pages at once: one reports, and ends all of them
    if !REPORTED.swap(true, Ordering::Relaxed) {
        // SAFETY: the signal is SIGBUS with this code, for which the system has set the address.
        let address = unsafe { info.si_addr() };
        write_report(address as u64);
        // SAFETY: `_exit` may be called in a handler, and runs no destructor of this process.
        unsafe { libc::_exit(1) };
    }
    loop {
        // SAFETY: `pause` may be called in a handler.
        unsafe { libc::pause() };
    }
}

/// Writes the message to standard error with one system call.
fn write_report(address: u64) {
    let mut report = FixedText::<{ 5 << 10 }>::new();
    let stderr = rustix::stdio::stderr();
    // a progress bar may be on the line
    let clear = if stderr.is_terminal() {
        "\r\x1b[2K"
    } else {
        ""
    };
    let mut maps = FixedText::<4352>::new();
    let place = Mapping::containing(address, &mut maps);
    // a report that does not fit is cut off; there is nowhere to report it
    let _ = match place {
        Some(Mapping { path, offset }) => writeln!(
            report,
            "{clear}anamnesis: {}: a page of the mapped file cannot be read: the file was truncated, or its storage failed (at byte {offset})",
            EscapedPath(path)
        ),
        None => writeln!(
            report,
            "{clear}anamnesis: a page of mapped memory cannot be read (SIGBUS at {address:#x})"
        ),
    };
    let _ = writeln!(report, "  help: read files that others write with --no-map");
    let _ = rustix::io::write(stderr, report.as_bytes());
}

/// The file that is mapped at an address.
#[derive(Debug, PartialEq)]
struct Mapping<'l> {
    path: &'l [u8],
    /// Offset of the address in the file.
    offset: u64,
}

impl<'l> Mapping<'l> {
    /// Searches the system's list of mappings; `line` is the memory for one line of it. `None` for memory that is no file's,
    /// and where there is no such list.
    fn containing<const N: usize>(address: u64, line: &'l mut FixedText<N>) -> Option<Self> {
        // `open` and `read` are system calls; std neither locks nor allocates for a path of this length
        let mut maps = File::open("/proc/self/maps").ok()?;
        let mut window = [0; 1024];
        loop {
            let read = maps.read(&mut window).ok().filter(|&n| n > 0)?;
            for &byte in &window[..read] {
                if byte != b'\n' {
                    line.push(&[byte]);
                } else if Mapping::parse(line.as_bytes(), address).is_some() {
                    return Mapping::parse(line.as_bytes(), address);
                } else {
                    line.clear();
                }
            }
        }
    }

    /// A line such as `7f00-7f80 r--s 00000000 fd:00 123    /path`, if it contains the address.
    fn parse(line: &'l [u8], address: u64) -> Option<Self> {
        let hex = |bytes: &[u8]| u64::from_str_radix(std::str::from_utf8(bytes).ok()?, 16).ok();
        let mut fields = line.splitn(6, |&b| b == b' ');
        let mut range = fields.next()?.split(|&b| b == b'-');
        let (start, end) = (hex(range.next()?)?, hex(range.next()?)?);
        let start_in_file = hex(fields.nth(1)?)?;
        let path = fields.nth(2)?.trim_ascii_start();
        let is_inside = (start..end).contains(&address) && path.starts_with(b"/");
        is_inside.then(|| Self {
            path,
            offset: start_in_file.saturating_add(address - start),
        })
    }
}

/// A path with what a terminal acts on as escapes, without an allocation.
struct EscapedPath<'p>(&'p [u8]);

impl fmt::Display for EscapedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_hidden(c) {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Text of at most `N` bytes; more is dropped.
struct FixedText<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> FixedText<N> {
    fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn clear(&mut self) {
        self.len = 0;
    }

    fn push(&mut self, bytes: &[u8]) {
        let free = &mut self.bytes[self.len..];
        let len = bytes.len().min(free.len());
        free[..len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }
}

impl<const N: usize> Write for FixedText<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapped_file_is_found_by_its_address() {
        let line = b"7f0000-7f3000 r--s 00002000 fd:00 123                    /a b\xff\x1b.gguf";
        let mapping = Mapping::parse(line, 0x7f_1004).unwrap();
        assert_eq!(mapping.offset, 0x3004);
        assert_eq!(
            EscapedPath(mapping.path).to_string(),
            "/a b\\xff\\u{1b}.gguf"
        );
        assert_eq!(Mapping::parse(line, 0x7f_3000), None);
        let stack = b"7f0000-7f3000 rw-p 00000000 00:00 0                          [stack]";
        assert_eq!(Mapping::parse(stack, 0x7f_1004), None);
        assert_eq!(Mapping::parse(b"7f0000-7f3000 rw-p 0 0 0", 0x7f_1004), None);
    }

    #[test]
    fn what_does_not_fit_is_dropped() {
        let mut text = FixedText::<4>::new();
        text.write_str("abc").unwrap();
        text.write_str("def").unwrap();
        assert_eq!(text.as_bytes(), b"abcd");
    }
}
