//! Binding of a thread to the cores and the memory of a NUMA node.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cache::NumaNode;
use anamnesis_os as os;

/// The node that a thread is bound to. It may run on all cores of the node instead of a single one: the service loads
/// on these cores too, and a thread bound to a core that the service keeps busy would be delayed.
#[derive(Debug, Default)]
pub(super) struct ThreadPlacement {
    node: Option<u32>,
    /// The cores on which the thread could run at first.
    initial_cores: Option<CpuSet>,
}

impl ThreadPlacement {
    /// Binds this thread to a node; `None` restores its initial placement. The kernel allocates pages of the page
    /// cache on the node of the reading thread. If this process may not run on the node's cores, the memory policy of
    /// the thread is set to prefer the node instead. No system call is made if the thread is bound to the node
    /// already.
    pub(super) fn bind(&mut self, node: Option<&NumaNode>) {
        if self.node == node.map(|node| node.id) {
            return;
        }
        if self.initial_cores.is_none() {
            self.initial_cores = sched_getaffinity(None).ok();
        }
        let Some(initial) = &self.initial_cores else {
            return;
        };
        // within the cores that the process may use: an affinity set by an administrator is kept
        let cores = node.and_then(|node| intersection(initial, &node.cores));
        // a failure costs speed, not correctness
        let moved = sched_setaffinity(None, cores.as_ref().unwrap_or(initial)).is_ok();
        let preferred = node
            .filter(|_| cores.is_none() || !moved)
            .map(|node| node.id);
        if let Err(error) = os::numa::prefer_node_for_thread(preferred) {
            tracing::debug!("the memory of a NUMA node cannot be preferred: {error}");
        }
        self.node = node.map(|node| node.id);
    }
}

/// The cores that are also in `allowed`; `None` if there are none.
fn intersection(allowed: &CpuSet, cores: &[usize]) -> Option<CpuSet> {
    let mut both = CpuSet::new();
    for &core in cores {
        if core < CpuSet::MAX_CPU && allowed.is_set(core) {
            both.set(core);
        }
    }
    (both.count() > 0).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_to_the_allowed_cores_of_a_node_and_released() {
        let all = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&core| all.is_set(core)).unwrap();
        let mut placement = ThreadPlacement::default();
        placement.bind(Some(&NumaNode {
            id: 0,
            cores: vec![first, 100_000],
        }));
        let now = sched_getaffinity(None).unwrap();
        assert!(now.count() == 1 && now.is_set(first));
        // cores on which this process may not run
        placement.bind(Some(&NumaNode {
            id: 1,
            cores: vec![1000],
        }));
        assert_eq!(sched_getaffinity(None).unwrap(), all);
        placement.bind(Some(&NumaNode {
            id: 0,
            cores: vec![first],
        }));
        placement.bind(None);
        assert_eq!(sched_getaffinity(None).unwrap(), all);
    }
}
