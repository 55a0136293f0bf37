//! Where a thread runs and takes its memory from.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cache::sys;
use crate::cache::topology::Node;

/// A thread's place. It may run on all cores of the node and not on one only: the service loads on these cores too,
/// and the one that it keeps busy would be late.
#[derive(Debug, Default)]
pub(super) struct Cores {
    at: Option<u32>,
    /// Where the thread could run at first.
    all: Option<CpuSet>,
}

impl Cores {
    /// Moves this thread beside a node; `None`: wherever it was at first. The page cache takes its pages from the node
    /// that its reader runs on. If this process may not run there, the node is preferred by name. Costs nothing
    /// if the thread is there.
    pub(super) fn bind(&mut self, node: Option<&Node>) {
        if self.at == node.map(|node| node.id) {
            return;
        }
        if self.all.is_none() {
            self.all = sched_getaffinity(None).ok();
        }
        let Some(all) = &self.all else { return };
        let near = node.and_then(|node| among(all, &node.cores));
        // a place that is not to be had makes it slower and not wrong
        let moved = sched_setaffinity(None, near.as_ref().unwrap_or(all)).is_ok();
        let by_name = node
            .filter(|_| near.is_none() || !moved)
            .map(|node| node.id);
        if let Err(error) = sys::prefer_node(by_name) {
            tracing::debug!("memory of a node cannot be preferred: {error}");
        }
        self.at = node.map(|node| node.id);
    }
}

/// Those of these cores that are in `all`, if any.
fn among(all: &CpuSet, cores: &[usize]) -> Option<CpuSet> {
    let mut near = CpuSet::new();
    for &core in cores {
        if core < CpuSet::MAX_CPU && all.is_set(core) {
            near.set(core);
        }
    }
    (near.count() > 0).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_a_node_and_back() {
        let all = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&core| all.is_set(core)).unwrap();
        let mut cores = Cores::default();
        cores.bind(Some(&Node {
            id: 0,
            cores: vec![first, 100_000],
        }));
        let now = sched_getaffinity(None).unwrap();
        assert!(now.count() == 1 && now.is_set(first));
        // cores that we may not use
        cores.bind(Some(&Node {
            id: 1,
            cores: vec![1000],
        }));
        assert_eq!(sched_getaffinity(None).unwrap(), all);
        cores.bind(Some(&Node {
            id: 0,
            cores: vec![first],
        }));
        cores.bind(None);
        assert_eq!(sched_getaffinity(None).unwrap(), all);
    }
}
