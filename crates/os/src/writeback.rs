#![allow(unsafe_code)] // sync_file_range(2): no safe API exists; see CONVENTIONS.md

//! Early write-back of files that are synced later.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Begins to write the dirty pages of a file to its device, and returns before they are there (`sync_file_range` with
/// `SYNC_FILE_RANGE_WRITE`). A later `fsync` has less to wait for. It may wait while the device's queue is full.
///
/// # Errors
///
/// `ESPIPE` for what is not a file; I/O.
pub fn start(file: &File) -> io::Result<()> {
    // SAFETY: the call has no pointers, and the descriptor is open for as long as the borrow of the file.
    let result =
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::start;

    #[test]
    fn a_file_is_written_back_and_a_pipe_refused() {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        start(&file).unwrap();
        let (_reader, writer) = std::io::pipe().unwrap();
        let writer = std::os::fd::OwnedFd::from(writer).into();
        assert_eq!(
            start(&writer).unwrap_err().raw_os_error(),
            Some(libc::ESPIPE)
        );
    }
}
