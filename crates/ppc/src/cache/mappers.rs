//! Processes that have files of a namespace mapped, and where.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

use crate::cache::sys;
use crate::{Inode, Namespace};

/// Bytes of one process's list of maps that are looked at; a million maps or so are what the kernel allows.
const MAPS: u64 = 64 << 20;
/// Processes that are looked at in one scan.
const PROCESSES: usize = 4096;
/// Time that one scan may work.
const SCAN: Duration = Duration::from_millis(100);
/// … and take, with what it waits for.
const WAIT: Duration = Duration::from_secs(1);
/// Least time between two scans.
const EVERY: Duration = Duration::from_millis(500);

/// Which processes to look at for maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mappers {
    /// All that this process may see.
    #[default]
    All,
    /// These, by number.
    Processes(Vec<u32>),
    /// Those in the control group with this directory.
    Group(std::path::PathBuf),
    /// None: what is mapped stays.
    None,
}

/// Part of a process's memory that shows part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Map {
    address: u64,
    len: u64,
    offset: u64,
    inode: Inode,
}

/// Which processes were found to have files of a namespace mapped. Looking is bounded and not done often.
#[derive(Debug, Default)]
pub(super) struct Found {
    at: Option<Instant>,
    pids: Vec<u32>,
}

/// What was done about a file's maps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PagedOut {
    /// Bytes of the range that some process has mapped, counted once for each.
    pub(super) mapped: u64,
    /// Whether any process could be advised.
    pub(super) advised: bool,
}

impl Found {
    /// Asks the kernel to take these bytes of a file out of the memory of the processes that have it mapped.
    pub(super) fn page_out(
        &mut self,
        which: &Mappers,
        namespace: &Namespace,
        inode: Inode,
        bytes: &Range<u64>,
    ) -> PagedOut {
        if self.at.is_none_or(|at| at.elapsed() >= EVERY) {
            self.pids = scan(which, namespace);
            self.at = Some(Instant::now());
        }
        let mut done = PagedOut::default();
        for &pid in &self.pids {
            // first the process, then its maps: another process of the same number is not advised
            let Some(process) = open(pid) else { continue };
            each_map(pid, |map| {
                if map.inode == inode
                    && let Some((address, len)) = overlap(map, bytes)
                {
                    done.mapped += len;
                    done.advised |= page_out(process.as_fd(), address, len);
                }
                true
            });
        }
        done
    }
}

/// The address and length of the part of a map that shows these bytes.
fn overlap(map: &Map, bytes: &Range<u64>) -> Option<(u64, u64)> {
    let start = bytes.start.max(map.offset);
    let end = bytes.end.min(map.offset.saturating_add(map.len));
    (start < end).then(|| (map.address + (start - map.offset), end - start))
}

fn open(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// `false` if nothing could be advised.
fn page_out(process: rustix::fd::BorrowedFd<'_>, address: u64, len: u64) -> bool {
    let (Ok(mut address), Ok(mut len)) = (usize::try_from(address), usize::try_from(len)) else {
        return false;
    };
    let mut any = false;
    while len > 0 {
        match sys::page_out(process, address, len) {
            Ok(done) if done > 0 => {
                let done = done.min(len);
                (address, len, any) = (address + done, len - done, true);
            }
            Ok(_) => break,
            Err(error) => {
                tracing::debug!("a process keeps what it has mapped: {error}");
                break;
            }
        }
    }
    any
}

/// Those that have a file of the namespace mapped.
fn scan(which: &Mappers, namespace: &Namespace) -> Vec<u32> {
    let (begun, work) = (Instant::now(), worked());
    let is_over = || worked().saturating_sub(work) >= SCAN || begun.elapsed() >= WAIT;
    let mut pids = match which {
        Mappers::None => return Vec::new(),
        Mappers::Processes(pids) => pids.clone(),
        Mappers::Group(dir) => {
            numbers(&fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default())
        }
        Mappers::All => all(),
    };
    if pids.len() > PROCESSES {
        tracing::warn!(
            "of {} processes only {PROCESSES} are looked at for maps",
            pids.len()
        );
        pids.truncate(PROCESSES);
    }
    // one that has been found may take all the time that it needs
    pids.retain(|&pid| {
        let mut maps = false;
        if !is_over() {
            each_map(pid, |map| {
                maps = namespace.find(map.inode).is_some();
                !maps
            });
        }
        maps
    });
    if is_over() {
        tracing::warn!("looking for maps took too long; name the processes or their group");
    }
    pids
}

/// What this thread has worked: a busy machine is no reason to find less.
fn worked() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

/// The youngest first: services start after the system does.
fn all() -> Vec<u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect::<Vec<u32>>();
    pids.sort_unstable_by(|a, b| b.cmp(a));
    pids
}

fn numbers(text: &str) -> Vec<u32> {
    text.lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// Calls `each` with every map of a file until it returns `false`.
fn each_map(pid: u32, mut each: impl FnMut(&Map) -> bool) {
    let Ok(file) = File::open(Path::new("/proc").join(pid.to_string()).join("maps")) else {
        return;
    };
    let mut reader = BufReader::with_capacity(1 << 16, file.take(MAPS));
    let mut line = Vec::new();
    // a line that cannot be read ends it, as does the end of the process
    while let Ok(1..) = reader.read_until(b'\n', &mut line) {
        if let Some(map) = parse(&line)
            && !each(&map)
        {
            return;
        }
        line.clear();
    }
}

/// A line as `7f0000000000-7f0000200000 r--p 00001000 fe:00 131074   /path`; `None` if it shows no file.
fn parse(line: &[u8]) -> Option<Map> {
    let mut words = line
        .split(|&byte| byte == b' ')
        .map(|word| std::str::from_utf8(word).unwrap_or_default());
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let offset = hex(words.nth(1)?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let ino = words.next()?.trim().parse().ok().filter(|&ino| ino != 0)?;
    let inode = Inode {
        dev: hex(major)? << 20 | hex(minor)?,
        ino,
    };
    Some(Map {
        address: start,
        len: end.checked_sub(start)?,
        offset,
        inode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line =
            b"7f0000000000-7f0000200000 r--s 00001000 fe:02 131074                     /a b\n";
        let inode = Inode {
            dev: 0xfe << 20 | 2,
            ino: 131_074,
        };
        let map = Map {
            address: 0x7f00_0000_0000,
            len: 0x20_0000,
            offset: 0x1000,
            inode,
        };
        assert_eq!(parse(line), Some(map.clone()));
        assert_eq!(
            overlap(&map, &(0..0x3000)),
            Some((0x7f00_0000_0000, 0x2000))
        );
        assert_eq!(
            overlap(&map, &(0x20_0000..u64::MAX)),
            Some((0x7f00_001f_f000, 0x1000))
        );
        assert_eq!(overlap(&map, &(0x20_1000..0x30_0000)), None);
        assert_eq!(
            parse(b"7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0          [stack]\n"),
            None
        );
        assert_eq!(
            parse(b"7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0 \n"),
            None
        );
        for nonsense in [
            &b"\n"[..],
            b"x",
            b"1-2",
            b"2-1 r 0 0:0 5",
            b"1-2 r 0 00 5",
            b"\xff\xff - \xff",
        ] {
            assert_eq!(parse(nonsense), None);
        }
    }

    #[test]
    fn our_own_program_is_found() {
        let path = std::env::current_exe().unwrap();
        let namespace = Namespace::scan(path.parent().unwrap()).unwrap();
        let own = std::process::id();
        assert_eq!(scan(&Mappers::Processes(vec![own]), &namespace), [own]);
        assert!(scan(&Mappers::All, &namespace).contains(&own));
        assert!(scan(&Mappers::None, &namespace).is_empty());
        let empty = tempfile::tempdir().unwrap();
        assert!(scan(&Mappers::All, &Namespace::scan(empty.path()).unwrap()).is_empty());
    }
}
