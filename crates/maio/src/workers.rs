//! Which process is which worker. Threads of a process are one worker.

mod accelerator;
mod bytes;
mod environment;
mod order;

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::Path;

pub(crate) use accelerator::Accelerators;
use bytes::Bytes;
use environment::Environment;
use order::Order;

use crate::config::{RANKS, Workers as Choice};

/// Processes that are remembered; more come and go without reading a model.
const PROCESSES: usize = 1 << 16;

/// A way to tell from a process alone which worker it is.
trait Rule: Debug + Send {
    /// The worker's number, counted from the first of this service.
    fn rank(&mut self, pid: u32) -> Option<u32>;
}

/// What was found for a process.
#[derive(Clone, Copy, Debug)]
struct Known {
    group: usize,
    /// Found by a rule that asks the process, not by its order.
    firm: bool,
    seen: u32,
}

/// Maps processes to groups.
#[derive(Debug)]
pub(crate) struct Workers {
    rules: Vec<Box<dyn Rule>>,
    order: Order,
    bytes: Option<Bytes>,
    known: HashMap<u32, Known>,
}

impl Workers {
    /// By `choice`, for a template's groups; `differ`: they read different bytes. `proc` is where processes are seen.
    pub(crate) fn new(
        choice: &Choice,
        differ: bool,
        proc: &Path,
        accelerators: &Accelerators,
    ) -> Self {
        let environment =
            |names: &[String]| Box::new(Environment::new(proc, names)) as Box<dyn Rule>;
        let accelerator = || Box::new(accelerators.clone()) as Box<dyn Rule>;
        let rules = match choice {
            Choice::Auto => vec![environment(&RANKS.map(String::from)), accelerator()],
            Choice::Env(names) => vec![environment(names)],
            Choice::Accelerator => vec![accelerator()],
            Choice::Order | Choice::Bytes => Vec::new(),
        };
        let by_bytes = differ && matches!(choice, Choice::Auto | Choice::Bytes);
        Self {
            rules,
            order: Order::default(),
            bytes: by_bytes.then(Bytes::default),
            known: HashMap::new(),
        }
    }

    /// The group of a process that accesses bytes, of those with these ranks. `has` says whether a group has
    /// the bytes, and is asked only if that decides.
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

    /// The rank of a process where there are no groups yet.
    pub(crate) fn rank(&mut self, pid: u32) -> u32 {
        self.look(pid, |rank| usize::try_from(rank).unwrap_or(0))
            .try_into()
            .unwrap_or(0)
    }

    fn rank_index(&mut self, pid: u32, ranks: &[u32]) -> usize {
        // as the service numbers its workers, or else as they are counted on this machine
        let index = |rank: u32| ranks.iter().position(|&other| other == rank);
        let modulo = |rank: u32| usize::try_from(rank).unwrap_or(0) % ranks.len();
        self.look(pid, |rank| index(rank).unwrap_or_else(|| modulo(rank)))
    }

    fn look(&mut self, pid: u32, place: impl Fn(u32) -> usize) -> usize {
        if let Some(known) = self.known.get_mut(&pid) {
            known.seen = known.seen.saturating_add(1);
            // a process may open its accelerator after its first read
            if known.firm || self.rules.is_empty() || !known.seen.is_power_of_two() {
                return known.group;
            }
        }
        let told = self.rules.iter_mut().find_map(|rule| rule.rank(pid));
        let seen = self.known.get(&pid).map_or(1, |known| known.seen);
        let group = match (told, self.known.get(&pid)) {
            (None, Some(known)) => known.group,
            (told, _) => place(told.or_else(|| self.order.rank(pid)).unwrap_or(0)),
        };
        if self.known.len() >= PROCESSES {
            self.known.clear();
        }
        self.known.insert(
            pid,
            Known {
                group,
                firm: told.is_some(),
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

    fn workers(root: &Path, choice: &str, differ: bool) -> Workers {
        let accelerators = Accelerators::new(root, None);
        Workers::new(
            &choice.parse().unwrap(),
            differ,
            &root.join("proc"),
            &accelerators,
        )
    }

    #[test]
    fn the_environment_tells() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 10, b"A=1\0LOCAL_RANK=1\0", &[]);
        process(root.path(), 11, b"LOCAL_RANK=0\0", &[]);
        process(root.path(), 12, b"LOCAL_RANK=none\0MINE=1\0", &[]);
        for choice in ["env", "env:LOCAL_RANK", "auto"] {
            let mut workers = workers(root.path(), choice, false);
            let groups = [10, 11, 10].map(|pid| workers.group(pid, &[0, 1], |_| true).unwrap());
            assert_eq!(groups, [1, 0, 1], "{choice}");
        }
        let mut workers = workers(root.path(), "env:MINE", false);
        assert_eq!(workers.group(12, &[0, 1], |_| true), Some(1));
        // ranks of another machine: counted from the first
        assert_eq!(workers.group(12, &[8, 9], |_| true), Some(1));
    }

    #[test]
    fn the_accelerator_tells_as_soon_as_it_is_held() {
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
        let mut workers = workers(root.path(), "accelerator", false);
        let ranks = [0, 1, 2, 3];
        assert_eq!(workers.group(20, &ranks, |_| true), Some(3));
        assert_eq!(
            workers.group(22, &ranks, |_| true),
            Some(0),
            "holding all says nothing: by order"
        );
        assert_eq!(workers.group(21, &ranks, |_| true), Some(1));
        symlink("/dev/nvidia2", root.path().join("proc/21/fd/7")).unwrap();
        let groups: Vec<_> = (0..4)
            .map(|_| workers.group(21, &ranks, |_| true).unwrap())
            .collect();
        assert_eq!(groups.last(), Some(&2));
    }

    #[test]
    fn order_counts_processes() {
        let root = tempfile::tempdir().unwrap();
        let mut workers = workers(root.path(), "order", true);
        let groups = [7, 5, 7, 9].map(|pid| workers.group(pid, &[0, 1], |_| true).unwrap());
        assert_eq!(groups, [0, 1, 0, 0]);
        assert_eq!([7, 5, 11].map(|pid| workers.rank(pid)), [0, 1, 3]);
    }

    #[test]
    fn bytes_outvote_the_order() {
        let root = tempfile::tempdir().unwrap();
        let mut workers = workers(root.path(), "auto", true);
        let mut group =
            |pid, holders: [bool; 2]| workers.group(pid, &[0, 1], |group| holders[group]).unwrap();
        // both read the header; the first to come is the second worker
        assert_eq!((group(1, [true, true]), group(2, [true, true])), (0, 1));
        assert_eq!((group(1, [false, true]), group(2, [true, false])), (1, 0));
        // one stray access changes nothing, reading the other's bytes on and on does
        for _ in 0..8 {
            group(1, [false, true]);
        }
        assert_eq!(group(1, [true, false]), 1);
        assert_eq!((0..64).map(|_| group(1, [true, false])).last(), Some(0));
    }
}
