//! Properties of a checkpoint's files that decide how to load them: size, residency and file system.

use std::collections::BTreeMap;
use std::ops::Range;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;

#[cfg(target_os = "linux")]
use anamnesis_os::residency::resident_bytes;

use crate::read::catalog::ByteRange;
use crate::read::checkpoint::Checkpoint;
use crate::read::source::Source;

/// The kind of storage that a file lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageKind {
    /// A file system on a device of this machine, by name.
    Local(&'static str),
    /// A file system in memory: tmpfs, ramfs, hugetlbfs.
    Memory(&'static str),
    /// A network file system, or one that a process serves. Page faults of its mappings are slow, and fail with `SIGBUS`
    /// when the server becomes unreachable.
    Network(&'static str),
    /// Another file system, with its `f_type`; treated as local.
    Other(i64),
    /// Files that a request is needed for, at URLs: sources with [concurrent reads](crate::source::ConcurrentReads).
    Remote,
    /// Not a file: bytes, a reader or a closure.
    NotAFile,
}

/// Properties of a checkpoint's files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StorageInfo {
    /// Bytes of all files.
    pub bytes: u64,
    /// The share of them that is in the page cache, 0 to 1. `None` where the system does not report it: outside of Linux,
    /// and before Linux 6.5 for files that the caller neither owns nor may write.
    pub resident: Option<f64>,
    /// The storage of the slowest file.
    pub kind: StorageKind,
    /// Whether the bytes of all files can be borrowed: mapped, or in memory.
    pub is_borrowable: bool,
}

/// `f_type` of `statfs(2)`, from the kernel's `magic.h` and the headers of the file systems.
#[cfg(target_os = "linux")]
static KINDS: &[(i64, StorageKind)] = &[
    (0xef53, StorageKind::Local("ext4")),
    (0x5846_5342, StorageKind::Local("xfs")),
    (0x9123_683e, StorageKind::Local("btrfs")),
    (0xf2f5_2010, StorageKind::Local("f2fs")),
    (0x2fc1_2fc1, StorageKind::Local("zfs")),
    (0xca45_1a4e, StorageKind::Local("bcachefs")),
    (0x794c_7630, StorageKind::Local("overlay")),
    (0x7371_7368, StorageKind::Local("squashfs")),
    (0xe0f5_e1e2, StorageKind::Local("erofs")),
    (0x4d44, StorageKind::Local("vfat")),
    (0x2011_bab0, StorageKind::Local("exfat")),
    (0x7366_746e, StorageKind::Local("ntfs3")),
    (0x0102_1994, StorageKind::Memory("tmpfs")),
    (0x8584_58f6, StorageKind::Memory("ramfs")),
    (0x9584_58f6, StorageKind::Memory("hugetlbfs")),
    (0x6969, StorageKind::Network("nfs")),
    (0x6573_5546, StorageKind::Network("fuse")),
    (0x0bd0_0bd0, StorageKind::Network("lustre")),
    (0xff53_4d42, StorageKind::Network("cifs")),
    (0xfe53_4d42, StorageKind::Network("smb2")),
    (0x00c3_6400, StorageKind::Network("ceph")),
    (0x0102_1997, StorageKind::Network("9p")),
    (0x4750_4653, StorageKind::Network("gpfs")),
    (0x1983_0326, StorageKind::Network("beegfs")),
    (0x0116_1970, StorageKind::Network("gfs2")),
    (0x7461_636f, StorageKind::Network("ocfs2")),
    (0x6a65_6a63, StorageKind::Network("fakeowner")),
    (0x5346_414f, StorageKind::Network("afs")),
    (0x517b, StorageKind::Network("smb")),
    (0x786f_4256, StorageKind::Network("vboxsf")),
    (0xbacb_acbc, StorageKind::Network("vmhgfs")),
    (0xaad7_aaea, StorageKind::Network("panfs")),
];

impl StorageInfo {
    /// Queries the files of a checkpoint, with a few system calls for each.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let sources = checkpoint.sources().iter();
        let whole = sources.map(|source| (&**source, 0..source.len().unwrap_or(0)));
        Self::of_ranges(&whole.collect::<Vec<_>>())
    }

    /// Like [`of`](Self::of), for the files that these ranges are in, from the first range in each to the last: pages are
    /// counted one by one, and a load of one tensor needs no others.
    pub(super) fn of_reads(checkpoint: &Checkpoint, reads: &[ByteRange]) -> Self {
        let mut files: BTreeMap<u32, Range<u64>> = BTreeMap::new();
        for read in reads {
            let end = read.start.saturating_add(read.len);
            let file = files.entry(read.file).or_insert(read.start..end);
            *file = file.start.min(read.start)..file.end.max(end);
        }
        if files.is_empty() {
            return Self::of(checkpoint);
        }
        let ranges = files.into_iter();
        let ranges = ranges.map(|(file, range)| (checkpoint.source(file), range));
        Self::of_ranges(&ranges.collect::<Vec<_>>())
    }

    fn of_ranges(ranges: &[(&dyn Source, Range<u64>)]) -> Self {
        let sources = || ranges.iter().map(|(source, _)| *source);
        let bytes = |ranges: &mut dyn Iterator<Item = &(&dyn Source, Range<u64>)>| {
            let lens = ranges.map(|(_, range)| range.end - range.start);
            lens.fold(0, u64::saturating_add)
        };
        let mut info = Self {
            bytes: bytes(&mut ranges.iter()),
            resident: None,
            kind: StorageKind::NotAFile,
            // this maps the files: whether a file can be mapped is known only by trying
            is_borrowable: sources().all(|source| source.mapped().is_some()),
        };
        #[cfg(not(target_os = "linux"))]
        if sources().any(|source| source.in_memory().is_none() && source.mapped().is_some()) {
            info.kind = StorageKind::Other(0);
        }
        #[cfg(target_os = "linux")]
        for source in sources() {
            let Some(fd) = source.as_fd() else { continue };
            let kind = storage_kind(fd.as_fd());
            // the load waits for the slowest file
            // network before local before memory
            let slower = match (info.kind, kind) {
                (StorageKind::NotAFile, _) | (_, StorageKind::Network(_)) => true,
                (StorageKind::Memory(_), other) => !matches!(other, StorageKind::Memory(_)),
                _ => false,
            };
            if slower {
                info.kind = kind;
            }
        }
        #[cfg(target_os = "linux")]
        {
            let is_file = |(source, _): &&(&dyn Source, Range<u64>)| source.as_fd().is_some();
            let resident = |(source, range): &(&dyn Source, Range<u64>)| {
                let fd = source.as_fd()?;
                resident_bytes(fd.as_fd(), range.start, range.end - range.start)
            };
            let total_resident: Option<u64> = ranges.iter().filter(is_file).map(resident).sum();
            let files = bytes(&mut ranges.iter().filter(is_file));
            // more pages than the ranges have bytes are counted at their ends
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            let share = |bytes: u64| (bytes as f64 / files.max(1) as f64).min(1.0);
            info.resident = total_resident.filter(|_| files > 0).map(share);
        }
        // slower than any file
        if sources().any(|source| source.concurrent().is_some()) {
            info.kind = StorageKind::Remote;
        }
        info
    }
}

#[cfg(target_os = "linux")]
pub(super) fn storage_kind(fd: std::os::fd::BorrowedFd<'_>) -> StorageKind {
    let Ok(stat) = rustix::fs::fstatfs(fd) else {
        return StorageKind::Other(0);
    };
    // the field is signed on some targets, so that magic numbers above 2³¹ arrive sign-extended
    #[expect(clippy::allow_attributes, reason = "the type differs between targets")]
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    let magic = stat.f_type as i64 & 0xffff_ffff;
    KINDS
        .iter()
        .find(|row| row.0 == magic)
        .map_or(StorageKind::Other(magic), |row| row.1)
}
