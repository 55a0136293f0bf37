#![allow(unsafe_code)] // ioctl(FICLONERANGE): no safe API exists; see CONVENTIONS.md

//! Ranges of files that change without being copied: room that is inserted in front of the bytes of a file, and extents that
//! two files share.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{FallocateFlags, fallocate, fstatfs};

/// A file system whose abilities are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileSystemKind {
    /// Inserts room (also ext2 and ext3, which have the same number and refuse it).
    Ext4,
    /// Inserts room and, if it was made so, shares extents.
    Xfs,
    /// Any other.
    Other,
}

/// The file system of a file, and the bytes of its blocks, which ranges are multiples of.
///
/// # Errors
///
/// The errors of `fstatfs`.
pub fn file_system(file: &File) -> io::Result<(FileSystemKind, u64)> {
    let found = fstatfs(file)?;
    let kind = match u64::try_from(found.f_type) {
        Ok(0xef53) => FileSystemKind::Ext4,
        Ok(0x5846_5342) => FileSystemKind::Xfs,
        _ => FileSystemKind::Other,
    };
    // the blocks of the file system; `st_blksize` is a proposal for reads
    Ok((kind, u64::try_from(found.f_bsize).unwrap_or(0)))
}

/// Inserts `len` zeros in front of the bytes of a file, by a change of its extents (`FALLOC_FL_INSERT_RANGE`). The pages of the
/// file are written, and dropped from the page cache.
///
/// # Errors
///
/// `EINVAL` for a length that is no multiple of the blocks, or an empty file; `EOPNOTSUPP` of file systems, and of files, that cannot;
/// `EFBIG` for a file that would be too long.
pub fn insert_front(file: &File, len: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::INSERT_RANGE, 0, len)?)
}

/// Lets `to` have the bytes of `from` that begin at `start`, to its end, from `at` on, as extents that both files share
/// (`FICLONERANGE`).
///
/// # Errors
///
/// `EINVAL` for offsets that are no multiples of the blocks; `EOPNOTSUPP`, `ENOTTY` or `EXDEV` where extents cannot be shared.
pub fn share_to_end(from: &File, start: u64, to: &File, at: u64) -> io::Result<()> {
    let range = libc::file_clone_range {
        src_fd: from.as_raw_fd().into(),
        src_offset: start,
        // to the end
        src_length: 0,
        dest_offset: at,
    };
    // SAFETY: both descriptors are open for as long as the borrows of the files, and the kernel reads the structure that the
    // request is defined for.
    let result = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};

    use super::*;

    #[test]
    fn inserted_room_is_in_front_of_the_bytes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let (kind, block) = file_system(&file).unwrap();
        match insert_front(&file, block) {
            Ok(()) => {}
            Err(e) => {
                assert_ne!(kind, FileSystemKind::Xfs, "{e}");
                eprintln!("SKIPPED: {kind:?}: {e}");
                return;
            }
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let room = usize::try_from(block).unwrap();
        assert_eq!(bytes.len(), room + 10_000);
        assert!(bytes[..room].iter().all(|&b| b == 0) && bytes[room..] == [7; 10_000]);
        assert!(insert_front(&file, 1).is_err());
    }

    #[test]
    fn shared_bytes_are_equal_where_they_can_be_shared() {
        let (mut from, mut to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        from.write_all(&[1; 8192]).unwrap();
        from.write_all(&[2; 5000]).unwrap();
        to.write_all(&[0; 4096]).unwrap();
        if let Err(e) = share_to_end(&from, 8192, &to, 4096) {
            eprintln!("SKIPPED: {e}");
            return;
        }
        let mut bytes = Vec::new();
        to.seek(SeekFrom::Start(4096)).unwrap();
        to.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [2; 5000]);
    }
}
