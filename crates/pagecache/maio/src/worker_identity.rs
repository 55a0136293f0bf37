//! Finds which worker of the service a process is. Threads of a process are one worker.
//!
//! Rules that examine the process come first: an environment variable, then the accelerator that it
//! holds. A process that no rule identifies is numbered by its first appearance. Where workers read
//! different bytes, the bytes that the process reads override all of these. Each rule has a file in
//! `worker_identity/`.

mod accelerator;
mod appearance_order;
mod bytes_read;
mod environment;

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::Path;

pub(crate) use accelerator::Accelerators;
use appearance_order::AppearanceOrder;
use bytes_read::BytesRead;
use environment::RankVariable;

use crate::config::{RANK_VARIABLES, WorkerRule};

/// Number of processes that each map remembers. It bounds memory: short-lived processes that touch
/// a file would fill it.
const MAX_PROCESSES: usize = 1 << 16;

/// A rule that finds the worker of a process from the process alone.
trait IdentityRule: Debug + Send {
    /// Returns the worker's rank; `None` if the rule does not apply to this process.
    fn rank(&mut self, pid: u32) -> Option<u32>;
}

/// Known facts about a process.
#[derive(Clone, Copy, Debug)]
struct KnownProcess {
    group: usize,
    /// Whether a rule that examines the process found the group, rather than the order of
    /// appearance.
    certain: bool,
    seen: u32,
}

/// Maps processes to workers.
#[derive(Debug)]
pub(crate) struct WorkerIdentifier {
    rules: Vec<Box<dyn IdentityRule>>,
    order: AppearanceOrder,
    bytes: Option<BytesRead>,
    known: HashMap<u32, KnownProcess>,
}

impl WorkerIdentifier {
    /// Identifies by `rule`. `differ` says that the groups of the template read different bytes;
    /// `proc` is the directory of processes.
    pub(crate) fn new(
        rule: &WorkerRule,
        differ: bool,
        proc: &Path,
        accelerators: &Accelerators,
    ) -> Self {
        let environment =
            |names: &[String]| Box::new(RankVariable::new(proc, names)) as Box<dyn IdentityRule>;
        let accelerator = || Box::new(accelerators.clone()) as Box<dyn IdentityRule>;
        let rules = match rule {
            WorkerRule::Auto => vec![
                environment(&RANK_VARIABLES.map(String::from)),
                accelerator(),
            ],
            WorkerRule::Env(names) => vec![environment(names)],
            WorkerRule::Accelerator => vec![accelerator()],
            WorkerRule::Order | WorkerRule::Bytes => Vec::new(),
        };
        let by_bytes = differ && matches!(rule, WorkerRule::Auto | WorkerRule::Bytes);
        Self {
            rules,
            order: AppearanceOrder::default(),
            bytes: by_bytes.then(BytesRead::default),
            known: HashMap::new(),
        }
    }

    /// Returns the index of the group, among those with these ranks, to which an access of a
    /// process belongs. `has` returns whether a group has the accessed bytes; it is called only if
    /// that decides.
    pub(crate) fn group(
        &mut self,
        pid: u32,
        ranks: &[u32],
        has: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        if ranks.len() < 2 {
            return (!ranks.is_empty()).then_some(0);
        }
        let rank = self.rank_index(pid, ranks);
        match &mut self.bytes {
            Some(bytes) => Some(bytes.group(pid, rank, ranks.len(), has)),
            None => Some(rank),
        }
    }

    /// Returns the rank of a process during a recording, where there are no groups.
    pub(crate) fn rank(&mut self, pid: u32) -> u32 {
        self.identify(pid, |rank| usize::try_from(rank).unwrap_or(0))
            .try_into()
            .unwrap_or(0)
    }

    fn rank_index(&mut self, pid: u32, ranks: &[u32]) -> usize {
        // Ranks as the template has them; ranks of another machine are counted from the first of
        // this one.
        let index = |rank: u32| ranks.iter().position(|&other| other == rank);
        let modulo = |rank: u32| usize::try_from(rank).unwrap_or(0) % ranks.len();
        self.identify(pid, |rank| index(rank).unwrap_or_else(|| modulo(rank)))
    }

    fn identify(&mut self, pid: u32, group_of: impl Fn(u32) -> usize) -> usize {
        if let Some(known) = self.known.get_mut(&pid) {
            known.seen = known.seen.saturating_add(1);
            // A process may open its accelerator after its first read. Repeating the search after
            // 2, 4, 8, … events finds it at little cost.
            if known.certain || self.rules.is_empty() || !known.seen.is_power_of_two() {
                return known.group;
            }
        }
        let found = self.rules.iter_mut().find_map(|rule| rule.rank(pid));
        let seen = self.known.get(&pid).map_or(1, |known| known.seen);
        let group = match (found, self.known.get(&pid)) {
            (None, Some(known)) => known.group,
            (found, _) => group_of(found.or_else(|| self.order.rank(pid)).unwrap_or(0)),
        };
        // cleared as a whole: processes that still read are identified again at their next event
        if self.known.len() >= MAX_PROCESSES {
            self.known.clear();
        }
        self.known.insert(
            pid,
            KnownProcess {
                group,
                certain: found.is_some(),
                seen,
            },
        );
        group
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn process(root: &Path, pid: u32, environ: &[u8], fds: &[&str]) {
        let dir = root.join("proc").join(pid.to_string());
        fs::create_dir_all(dir.join("fd")).unwrap();
        fs::write(dir.join("environ"), environ).unwrap();
        for (i, fd) in fds.iter().enumerate() {
            symlink(fd, dir.join("fd").join(i.to_string())).unwrap();
        }
    }

    fn identifier(root: &Path, rule: &str, differ: bool) -> WorkerIdentifier {
        let accelerators = Accelerators::new(root, None);
        WorkerIdentifier::new(
            &rule.parse().unwrap(),
            differ,
            &root.join("proc"),
            &accelerators,
        )
    }

    #[test]
    fn the_environment_identifies_a_worker() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 10, b"A=1\0LOCAL_RANK=1\0", &[]);
        process(root.path(), 11, b"LOCAL_RANK=0\0", &[]);
        process(root.path(), 12, b"LOCAL_RANK=none\0MINE=1\0", &[]);
        for rule in ["env", "env:LOCAL_RANK", "auto"] {
            let mut identifier = identifier(root.path(), rule, false);
            let groups = [10, 11, 10].map(|pid| identifier.group(pid, &[0, 1], |_| true).unwrap());
            assert_eq!(groups, [1, 0, 1], "{rule}");
        }
        let mut identifier = identifier(root.path(), "env:MINE", false);
        assert_eq!(identifier.group(12, &[0, 1], |_| true), Some(1));
        // ranks of another machine are counted from the first group
        assert_eq!(identifier.group(12, &[8, 9], |_| true), Some(1));
    }

    #[test]
    fn the_accelerator_identifies_a_worker_once_it_is_open() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        for i in 0..4 {
            fs::write(root.path().join(format!("dev/nvidia{i}")), b"").unwrap();
        }
        process(
            root.path(),
            20,
            b"",
            &["/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia3"],
        );
        process(root.path(), 21, b"", &["/dev/null", "socket:[1]"]);
        process(root.path(), 22, b"", &["/dev/nvidia0", "/dev/nvidia1"]);
        let mut identifier = identifier(root.path(), "accelerator", false);
        let ranks = [0, 1, 2, 3];
        assert_eq!(identifier.group(20, &ranks, |_| true), Some(3));
        assert_eq!(
            identifier.group(22, &ranks, |_| true),
            Some(0),
            "a process that holds several accelerators is identified by its order"
        );
        assert_eq!(identifier.group(21, &ranks, |_| true), Some(1));
        symlink("/dev/nvidia2", root.path().join("proc/21/fd/7")).unwrap();
        let groups: Vec<_> = (0..4)
            .map(|_| identifier.group(21, &ranks, |_| true).unwrap())
            .collect();
        assert_eq!(groups.last(), Some(&2));
    }

    #[test]
    fn processes_are_counted_in_order_of_appearance() {
        let root = tempfile::tempdir().unwrap();
        let mut identifier = identifier(root.path(), "order", true);
        let groups = [7, 5, 7, 9].map(|pid| identifier.group(pid, &[0, 1], |_| true).unwrap());
        assert_eq!(groups, [0, 1, 0, 0]);
        assert_eq!([7, 5, 11].map(|pid| identifier.rank(pid)), [0, 1, 3]);
    }

    #[test]
    fn short_lived_processes_change_no_order_and_are_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let mut identifier = identifier(root.path(), "order", true);
        assert_eq!([7, 5].map(|pid| identifier.rank(pid)), [0, 1]);
        for pid in 0..5 * u32::try_from(MAX_PROCESSES).unwrap() {
            assert_eq!(identifier.rank(100 + pid), 2 + pid);
            if pid % 1000 == 0 {
                assert_eq!([5, 7].map(|pid| identifier.rank(pid)), [1, 0], "{pid}");
            }
        }
        assert!(identifier.order.remembered() <= 2 * MAX_PROCESSES);
        assert!(identifier.known.len() <= MAX_PROCESSES);
    }

    #[test]
    fn bytes_override_the_order_of_appearance() {
        let root = tempfile::tempdir().unwrap();
        let mut identifier = identifier(root.path(), "auto", true);
        let mut group = |pid, holders: [bool; 2]| {
            identifier
                .group(pid, &[0, 1], |group| holders[group])
                .unwrap()
        };
        // Both read the header; the first process to appear is the second worker.
        assert_eq!((group(1, [true, true]), group(2, [true, true])), (0, 1));
        assert_eq!((group(1, [false, true]), group(2, [true, false])), (1, 0));
        // One access to another group's bytes changes nothing, repeated ones do.
        for _ in 0..8 {
            group(1, [false, true]);
        }
        assert_eq!(group(1, [true, false]), 1);
        assert_eq!((0..64).map(|_| group(1, [true, false])).last(), Some(0));
    }
}
