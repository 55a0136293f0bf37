//! What can be seen of files before they are read.

use crate::checkpoint::Checkpoint;

/// Where a file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On a device of this machine.
    Local(&'static str),
    /// In memory: tmpfs, ramfs, hugetlbfs.
    Memory(&'static str),
    /// On another machine, or behind a process: maps of it are slow, and may fault when it goes away.
    Network(&'static str),
    /// A file system that is not in our table, taken as local.
    Other(i64),
    /// No file: bytes, a reader, a closure.
    None,
}

/// What can be seen of a checkpoint's files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Bytes of all files.
    pub bytes: u64,
    /// Which share of them the page cache holds; `None` where the system does not say: outside Linux, and before Linux 6.5
    /// of files that the caller neither owns nor may write.
    pub resident: Option<f64>,
    /// Where they lie: the slowest of them.
    pub kind: Kind,
    /// Whether all are lent without a system call: mapped, or in memory.
    pub lent: bool,
}

/// `f_type` of `statfs(2)`, from the kernel's `magic.h` and those of the file systems.
#[cfg(target_os = "linux")]
static KINDS: &[(i64, Kind)] = &[
    (0xef53, Kind::Local("ext4")),
    (0x5846_5342, Kind::Local("xfs")),
    (0x9123_683e, Kind::Local("btrfs")),
    (0xf2f5_2010, Kind::Local("f2fs")),
    (0x2fc1_2fc1, Kind::Local("zfs")),
    (0xca45_1a4e, Kind::Local("bcachefs")),
    (0x794c_7630, Kind::Local("overlay")),
    (0x7371_7368, Kind::Local("squashfs")),
    (0xe0f5_e1e2, Kind::Local("erofs")),
    (0x4d44, Kind::Local("vfat")),
    (0x2011_bab0, Kind::Local("exfat")),
    (0x7366_746e, Kind::Local("ntfs3")),
    (0x0102_1994, Kind::Memory("tmpfs")),
    (0x8584_58f6, Kind::Memory("ramfs")),
    (0x9584_58f6, Kind::Memory("hugetlbfs")),
    (0x6969, Kind::Network("nfs")),
    (0x6573_5546, Kind::Network("fuse")),
    (0x0bd0_0bd0, Kind::Network("lustre")),
    (0xff53_4d42, Kind::Network("cifs")),
    (0xfe53_4d42, Kind::Network("smb2")),
    (0x00c3_6400, Kind::Network("ceph")),
    (0x0102_1997, Kind::Network("9p")),
    (0x4750_4653, Kind::Network("gpfs")),
    (0x1983_0326, Kind::Network("beegfs")),
    (0x0116_1970, Kind::Network("gfs2")),
    (0x7461_636f, Kind::Network("ocfs2")),
    (0x6a65_6a63, Kind::Network("fakeowner")),
    (0x5346_414f, Kind::Network("afs")),
    (0x517b, Kind::Network("smb")),
    (0x786f_4256, Kind::Network("vboxsf")),
    (0xbacb_acbc, Kind::Network("vmhgfs")),
    (0xaad7_aaea, Kind::Network("panfs")),
];

impl Facts {
    /// Looks at the files of a checkpoint: a few system calls for each.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let sources = checkpoint.sources();
        let bytes = sources
            .iter()
            .filter_map(|source| source.len())
            .fold(0, u64::saturating_add);
        let lent = sources.iter().all(|source| source.mapped().is_some());
        let mut facts = Self {
            bytes,
            resident: None,
            kind: Kind::None,
            lent,
        };
        #[cfg(not(target_os = "linux"))]
        if sources
            .iter()
            .any(|source| source.in_memory().is_none() && source.mapped().is_some())
        {
            facts.kind = Kind::Other(0);
        }
        #[cfg(target_os = "linux")]
        for source in sources {
            let Some(fd) = source.as_fd() else { continue };
            let kind = kind(fd);
            // one slow file is waited for by all
            let slower = match (facts.kind, kind) {
                (Kind::None, _) | (_, Kind::Network(_)) => true,
                (Kind::Memory(_), other) => !matches!(other, Kind::Memory(_)),
                _ => false,
            };
            if slower {
                facts.kind = kind;
            }
        }
        #[cfg(target_os = "linux")]
        {
            let len = |source: &dyn crate::Source| source.len().unwrap_or(0);
            let here =
                |source: &dyn crate::Source| crate::source::resident(source.as_fd()?, len(source));
            let all: Option<u64> = sources
                .iter()
                .filter(|source| source.as_fd().is_some())
                .map(|s| here(&**s))
                .sum();
            let files: u64 = sources
                .iter()
                .filter(|source| source.as_fd().is_some())
                .map(|s| len(&**s))
                .sum();
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            let share = |all: u64| (all as f64 / files.max(1) as f64).min(1.0);
            facts.resident = all.filter(|_| files > 0).map(share);
        }
        facts
    }
}

#[cfg(target_os = "linux")]
pub(super) fn kind(fd: std::os::fd::BorrowedFd<'_>) -> Kind {
    let Ok(stat) = rustix::fs::fstatfs(fd) else {
        return Kind::Other(0);
    };
    #[expect(clippy::allow_attributes, reason = "the type differs between targets")]
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    let magic = stat.f_type as i64 & 0xffff_ffff;
    KINDS
        .iter()
        .find(|row| row.0 == magic)
        .map_or(Kind::Other(magic), |row| row.1)
}
