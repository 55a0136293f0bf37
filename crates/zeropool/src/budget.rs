//! The byte budget: what the pool holds, in use or free, in capacities.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::class::Class;
use crate::engine::Engine;
use crate::sync::AtomicUsize;

/// What is held against what may be held.
#[derive(Debug)]
pub(crate) struct Ledger {
    limit: usize,
    held: AtomicUsize,
    by_class: Box<[AtomicUsize]>,
}

impl Ledger {
    pub(crate) fn new(limit: usize) -> Self {
        let by_class = Class::all().map(|_| AtomicUsize::new(0)).collect();
        Self { limit, held: AtomicUsize::new(0), by_class }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(SeqCst)
    }

    /// Bytes held in blocks of this class.
    pub(crate) fn held_in(&self, class: Class) -> usize {
        self.by_class[class.index()].load(SeqCst)
    }

    /// How much has to go before `more` fits; zero if it does.
    pub(crate) fn lacks(&self, more: usize) -> usize {
        self.held().saturating_add(more).saturating_sub(self.limit)
    }

    fn reserve(&self, class: Class) -> bool {
        let bytes = class.capacity();
        let more = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= self.limit);
        let fits = self.held.fetch_update(SeqCst, SeqCst, more).is_ok();
        if fits {
            self.by_class[class.index()].fetch_add(bytes, SeqCst);
        }
        fits
    }
}

/// Room for one block in the budget, until dropped. Blocks carry theirs with them, and by it their pool.
///
/// Dropping it does not serve the waiting: who drops one outside the queue's lock calls [`Engine::serve`] after.
pub(crate) struct Charge {
    engine: Arc<Engine>,
    class: Class,
}

impl Charge {
    pub(crate) fn reserve(engine: &Arc<Engine>, class: Class) -> Option<Self> {
        engine.ledger.reserve(class).then(|| Self { engine: Arc::clone(engine), class })
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = self.class.capacity();
        self.engine.ledger.by_class[self.class.index()].fetch_sub(bytes, SeqCst);
        self.engine.ledger.held.fetch_sub(bytes, SeqCst);
    }
}

/// Three quarters of what this machine, or this control group, has; unlimited where that cannot be read.
pub(crate) fn of_machine() -> usize {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
    });
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok());
    match machine.into_iter().chain(group).min() {
        Some(bytes) => bytes / 4 * 3,
        None => usize::MAX,
    }
}
