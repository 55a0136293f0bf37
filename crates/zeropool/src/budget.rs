//! The byte budget: the ledger of what a pool holds, and the default limit.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;

use crate::class::Class;
use crate::sync::AtomicUsize;

/// Bytes that a pool holds, in use and free, counted in capacities, and their limit.
#[derive(Debug)]
pub(crate) struct Ledger {
    limit: usize,
    held: AtomicUsize,
    by_class: Box<[AtomicUsize]>,
}

impl Ledger {
    pub(crate) fn new(limit: usize) -> Self {
        let by_class = Class::all().map(|_| AtomicUsize::new(0)).collect();
        Self {
            limit,
            held: AtomicUsize::new(0),
            by_class,
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(SeqCst)
    }

    /// Bytes held in objects of this class.
    pub(crate) fn held_in(&self, class: Class) -> usize {
        self.by_class[class.index()].load(SeqCst)
    }

    /// Bytes that must be released before `more` fits; zero if it fits now.
    pub(crate) fn shortfall(&self, more: usize) -> usize {
        self.held().saturating_add(more).saturating_sub(self.limit)
    }

    /// Charges one object of this class, or returns false if it does not fit.
    pub(crate) fn reserve(&self, class: Class) -> bool {
        let bytes = class.capacity();
        let more = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= self.limit);
        let fits = self.held.fetch_update(SeqCst, SeqCst, more).is_ok();
        if fits {
            // after `held`, and subtracted before it: the classes never sum up to more than `held`. No object of a
            // class exists while its count is zero, so searches skip such classes
            self.by_class[class.index()].fetch_add(bytes, SeqCst);
        }
        fits
    }

    /// Reverses one [`reserve`](Self::reserve).
    pub(crate) fn release(&self, class: Class) {
        let bytes = class.capacity();
        self.by_class[class.index()].fetch_sub(bytes, SeqCst);
        self.held.fetch_sub(bytes, SeqCst);
    }
}

/// Three quarters of the memory of this machine or of this process's control groups; unlimited where that cannot be read.
pub(crate) fn of_machine() -> usize {
    let read = |path: &PathBuf| std::fs::read_to_string(path).ok();
    let machine = read(&"/proc/meminfo".into());
    // where the process's groups cannot be read, the limits of the root
    let groups =
        read(&"/proc/self/cgroup".into()).unwrap_or_else(|| "0::/\n1:memory:/\n".to_owned());
    let limits = limit_files(&groups)
        .iter()
        .filter_map(read)
        .collect::<Vec<_>>();
    three_quarters(machine.as_deref().unwrap_or_default(), &limits)
}

/// The files with the limits of these groups (the text of `/proc/self/cgroup`) and of their ancestors, for both versions
/// of control groups. In a container the path may be the host's, of which only the root exists inside.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for group in groups.lines() {
        let mut fields = group.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (root, file) = if (number, controllers) == ("0", "") {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers
            .split(',')
            .any(|controller| controller == "memory")
        {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let path = Path::new(path.trim_start_matches('/'));
        files.extend(
            path.ancestors()
                .map(|group| Path::new(root).join(group).join(file)),
        );
    }
    files
}

/// Three quarters of the smallest of `MemTotal` and the limits, which are bytes or `max`. Computed in 64 bits, as the
/// machine may have more memory than a 32-bit process can address.
fn three_quarters(meminfo: &str, limits: &[String]) -> usize {
    let machine = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let machine = machine.and_then(|line| {
        line.split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()?
            .checked_mul(1024)
    });
    let limits = limits
        .iter()
        .filter_map(|limit| limit.trim().parse::<u64>().ok());
    let least = machine.into_iter().chain(limits).min();
    least.map_or(usize::MAX, |bytes| {
        usize::try_from(bytes / 4 * 3).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_files_of_a_control_group_include_its_ancestors() {
        let files = limit_files(
            "4:cpu,memory:/old\n3:cpuset,memoryless:/x\n1:name=systemd:/y\n0::/user.slice/a:b\nbad\n",
        );
        let expected = [
            "/sys/fs/cgroup/memory/old/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/user.slice/a:b/memory.max",
            "/sys/fs/cgroup/user.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
        assert_eq!(
            limit_files("0::/\n"),
            [PathBuf::from("/sys/fs/cgroup/memory.max")]
        );
        assert!(limit_files("").is_empty());
    }

    #[test]
    fn the_budget_is_three_quarters_of_the_smallest_limit() {
        let meminfo = "MemTotal:        8000 kB\nMemFree:         10 kB\n";
        let budget = |limits: &[&str]| {
            three_quarters(
                meminfo,
                &limits
                    .iter()
                    .map(|&text| text.to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(budget(&[]), 6000 * 1024);
        assert_eq!(budget(&["max\n", "9223372036854771712\n"]), 6000 * 1024);
        assert_eq!(budget(&["4000\n", "max\n", "1000\n", "2000\n"]), 750);
        assert_eq!(three_quarters("", &["max\n".to_owned()]), usize::MAX);
        let more_than_32_bits = usize::try_from(3u64 << 40).unwrap_or(usize::MAX);
        assert_eq!(
            three_quarters("", &[(4u64 << 40).to_string()]),
            more_than_32_bits
        );
    }
}
