//! Finding the processes that map files of a namespace, and unmapping pages from them.
//!
//! The kernel evicts no mapped page. `process_madvise` with `MADV_PAGEOUT` unmaps it, from each process that maps it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

use crate::{Inode, Namespace};
use anamnesis_os as os;

/// Limit on the bytes read of one `/proc/PID/maps`, about a million mappings.
const MAX_MAPS_BYTES: u64 = 64 << 20;
/// Limit on the processes of one scan.
const MAX_PROCESSES: usize = 4096;
/// Limit on the processor time of one scan.
const MAX_SCAN_CPU: Duration = Duration::from_millis(100);
/// Limit on the elapsed time of one scan.
const MAX_SCAN_TIME: Duration = Duration::from_secs(1);
/// Minimum interval between two scans, which limits them to a fifth of one processor.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// Which processes are scanned for mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MappingProcesses {
    /// All processes that this process may inspect.
    #[default]
    All,
    /// The processes with these numbers.
    Processes(Vec<u32>),
    /// The processes of the control group with this directory.
    Group(std::path::PathBuf),
    /// No process: mapped pages stay cached.
    None,
}

/// A mapping of a file in a process: `len` bytes from `offset` of the file at `address`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileMapping {
    address: u64,
    len: u64,
    offset: u64,
    inode: Inode,
}

/// The processes that map files of a namespace, as of the last scan. Scans are limited in time and frequency.
#[derive(Debug, Default)]
pub(super) struct MappingScan {
    scanned: Option<Instant>,
    pids: Vec<u32>,
}

/// Result of unmapping a range of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PagedOut {
    /// Mapped bytes of the range, summed over all processes.
    pub(super) mapped: u64,
    /// Whether the advice succeeded for at least one process.
    pub(super) advised: bool,
}

impl MappingScan {
    /// Advises the kernel to unmap this range of a file from all processes that map it.
    pub(super) fn page_out(
        &mut self,
        which: &MappingProcesses,
        namespace: &Namespace,
        inode: Inode,
        bytes: &Range<u64>,
    ) -> PagedOut {
        if self
            .scanned
            .is_none_or(|scanned| scanned.elapsed() >= SCAN_INTERVAL)
        {
            self.pids = scan(which, namespace);
            self.scanned = Some(Instant::now());
        }
        let mut done = PagedOut::default();
        for &pid in &self.pids {
            // the descriptor is opened before the mappings are read: if the number is reused for another process in
            // between, the advice fails instead of affecting that process
            let Some(process) = open(pid) else { continue };
            for_each_mapping(pid, |map| {
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

/// Address and length of the part of a mapping that covers these bytes of the file.
fn overlap(map: &FileMapping, bytes: &Range<u64>) -> Option<(u64, u64)> {
    let start = bytes.start.max(map.offset);
    let end = bytes.end.min(map.offset.saturating_add(map.len));
    (start < end).then(|| (map.address + (start - map.offset), end - start))
}

fn open(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Returns whether at least a part could be advised.
fn page_out(process: rustix::fd::BorrowedFd<'_>, address: u64, len: u64) -> bool {
    // a 32-bit process cannot name the addresses of a 64-bit one
    let (Ok(mut address), Ok(mut len)) = (usize::try_from(address), usize::try_from(len)) else {
        return false;
    };
    let mut any = false;
    // the kernel may advise a part only, when it is interrupted between two mappings
    while len > 0 {
        match os::process::page_out(process, address, len) {
            Ok(done) if done > 0 => {
                let done = done.min(len);
                (address, len, any) = (address + done, len - done, true);
            }
            Ok(_) => break,
            Err(error) => {
                tracing::debug!("pages cannot be unmapped from a process: {error}");
                break;
            }
        }
    }
    any
}

/// The processes that map a file of the namespace.
fn scan(which: &MappingProcesses, namespace: &Namespace) -> Vec<u32> {
    // both limits: processor time for a machine with many processes, elapsed time for one that is busy
    let (begun, cpu) = (Instant::now(), thread_time());
    let is_timed_out =
        || thread_time().saturating_sub(cpu) >= MAX_SCAN_CPU || begun.elapsed() >= MAX_SCAN_TIME;
    let mut pids = match which {
        MappingProcesses::None => return Vec::new(),
        MappingProcesses::Processes(pids) => pids.clone(),
        MappingProcesses::Group(dir) => {
            parse_pids(&fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default())
        }
        MappingProcesses::All => all_pids(),
    };
    if pids.len() > MAX_PROCESSES {
        tracing::warn!(
            "{} processes; only {MAX_PROCESSES} are scanned for mappings",
            pids.len()
        );
        pids.truncate(MAX_PROCESSES);
    }
    pids.retain(|&pid| {
        let mut is_mapping = false;
        if !is_timed_out() {
            for_each_mapping(pid, |map| {
                is_mapping = namespace.find(map.inode).is_some();
                !is_mapping
            });
        }
        is_mapping
    });
    if is_timed_out() {
        tracing::warn!(
            "the scan of processes for mappings was stopped after its time limit; name the processes or their control group"
        );
    }
    pids
}

/// Processor time of this thread. A limit on elapsed time alone would make a scan find less on a busy machine.
fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

/// All processes, highest number first: a service is usually among the youngest.
fn all_pids() -> Vec<u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect::<Vec<u32>>();
    pids.sort_unstable_by(|a, b| b.cmp(a));
    pids
}

fn parse_pids(text: &str) -> Vec<u32> {
    text.lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// Calls `each` with every file mapping of a process until it returns `false`. A process that cannot be inspected has
/// none.
fn for_each_mapping(pid: u32, mut each: impl FnMut(&FileMapping) -> bool) {
    let Ok(file) = File::open(Path::new("/proc").join(pid.to_string()).join("maps")) else {
        return;
    };
    let mut reader = BufReader::with_capacity(1 << 16, file.take(MAX_MAPS_BYTES));
    let mut line = Vec::new();
    // reading fails when the process ends
    while let Ok(1..) = reader.read_until(b'\n', &mut line) {
        if let Some(map) = parse(&line)
            && !each(&map)
        {
            return;
        }
        line.clear();
    }
}

/// Parses a line of `/proc/PID/maps` (proc_pid_maps(5)), as `7f0000000000-7f0000200000 r--p 00001000 fe:00 131074
/// /path`. `None` if no file is mapped.
fn parse(line: &[u8]) -> Option<FileMapping> {
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
    Some(FileMapping {
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
    fn lines_of_proc_maps_are_parsed() {
        let line =
            b"7f0000000000-7f0000200000 r--s 00001000 fe:02 131074                     /a b\n";
        let inode = Inode {
            dev: 0xfe << 20 | 2,
            ino: 131_074,
        };
        let map = FileMapping {
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
        for invalid in [
            &b"\n"[..],
            b"x",
            b"1-2",
            b"2-1 r 0 0:0 5",
            b"1-2 r 0 00 5",
            b"\xff\xff - \xff",
        ] {
            assert_eq!(parse(invalid), None);
        }
    }

    #[test]
    fn processes_that_map_a_file_of_the_namespace_are_found() {
        let path = std::env::current_exe().unwrap();
        let namespace = Namespace::scan(path.parent().unwrap()).unwrap();
        let own = std::process::id();
        assert_eq!(
            scan(&MappingProcesses::Processes(vec![own]), &namespace),
            [own]
        );
        assert!(scan(&MappingProcesses::All, &namespace).contains(&own));
        assert!(scan(&MappingProcesses::None, &namespace).is_empty());
        let empty = tempfile::tempdir().unwrap();
        assert!(
            scan(
                &MappingProcesses::All,
                &Namespace::scan(empty.path()).unwrap()
            )
            .is_empty()
        );
    }
}
