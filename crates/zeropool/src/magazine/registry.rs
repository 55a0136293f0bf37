//! The registry of a pool's magazines: what threads do to magazines that they do not own. Every method needs the registry's
//! lock, which `&mut` stands for. `magazine.rs` describes the protocol, and its SAFETY comments rely on this file: at most one
//! owner per magazine, and takes from shared magazines only.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::barrier;
use crate::class::Class;
use crate::magazine::slot::ObjectSlot;
use crate::magazine::{Magazine, MagazineOwner, MagazineSettings};
use crate::slab::Object;

/// All magazines of a pool.
pub(crate) struct Magazines {
    settings: MagazineSettings,
    all: Vec<Arc<Magazine>>,
    /// `membarrier` was refused after the process had registered for it.
    refused: bool,
}

impl Magazines {
    pub(crate) fn new(settings: MagazineSettings) -> Self {
        Self {
            settings,
            all: Vec::new(),
            refused: false,
        }
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.refused
    }

    /// A magazine for the calling thread, and its number. The magazine of a thread that has ended is reused with its
    /// contents before a new one is made.
    pub(crate) fn attach(&mut self, pool: u64) -> (MagazineOwner, usize) {
        let number = self
            .all
            .iter()
            // `Acquire`: pairs with the `Release` of the owner that has ended, whose plain stores the new owner
            // continues from
            .position(|magazine| !magazine.owned.load(Acquire))
            .unwrap_or_else(|| {
                self.all.push(Arc::new(Magazine::new(&self.settings)));
                self.all.len() - 1
            });
        let magazine = Arc::clone(&self.all[number]);
        // under the registry's lock, and no other thread sets it
        magazine.owned.store(true, Relaxed);
        let owner = MagazineOwner {
            pool,
            magazine,
            _this_thread: PhantomData,
        };
        self.bias(&owner);
        (owner, number)
    }

    /// Biases the magazine to its owner, which is outside its critical section, unless a thread waits or the pool is
    /// closed: a thread that begins to wait or closes the pool sets a flag first and then revokes every bias.
    pub(crate) fn bias(&mut self, owner: &MagazineOwner) {
        if self
            .all
            .iter()
            // the lock that `&mut self` stands for protects this pool's magazines only
            .any(|magazine| Arc::ptr_eq(magazine, &owner.magazine))
        {
            let may_bias = self.settings.may_bias && !self.refused;
            let biased = may_bias && self.settings.flags.allows_fast_path();
            owner.magazine.lock.set_biased(biased);
        }
    }

    /// A free object of this class from any magazine. Shared magazines are searched first, as they need no
    /// `membarrier`; a magazine whose bias cannot be revoked is left alone.
    pub(crate) fn take_remote(&mut self, class: Class) -> Option<Object> {
        let shared = self
            .all
            .iter()
            .filter(|magazine| Self::is_shared(magazine))
            .find_map(|magazine| Self::take_shared(magazine, class));
        if shared.is_some() {
            return shared;
        }
        for number in 0..self.all.len() {
            let magazine = Arc::clone(&self.all[number]);
            // a `membarrier` only where there is something to take. A put that comes after this check is missed, which
            // a waiting request makes up for by `revoke_all` and a second search
            let may_have = !Self::is_shared(&magazine) && magazine.objects(class) > 0;
            if may_have && self.revoke(&[&magazine]) {
                let object = Self::take_shared(&magazine, class);
                if object.is_some() {
                    return object;
                }
            }
        }
        None
    }

    /// Revokes every bias. An object that was put before, by an owner that has not observed the pool's flags, is visible
    /// afterwards.
    pub(crate) fn revoke_all(&mut self) {
        let all = self.all.clone();
        let all: Vec<_> = all.iter().collect();
        // also without any biased magazine: the barrier makes puts in progress visible
        self.revoke(&all);
    }

    /// Returns false where `membarrier` is refused: the owners may then be inside their critical sections.
    fn revoke(&mut self, some: &[&Arc<Magazine>]) -> bool {
        let unbiased = !self.settings.may_bias || self.refused;
        if unbiased && some.iter().all(|magazine| Self::is_shared(magazine)) {
            return true;
        }
        some.iter()
            .for_each(|magazine| magazine.lock.request_revocation());
        let revoked = barrier::heavy();
        if revoked {
            some.iter()
                .for_each(|magazine| magazine.lock.finish_revocation());
        } else {
            self.refused = true;
        }
        revoked
    }

    /// Whether other threads may take: there is no owner, and none is made while `self` is borrowed, or its bias is
    /// revoked.
    fn is_shared(magazine: &Magazine) -> bool {
        !magazine.owned.load(Acquire) || magazine.lock.is_shared()
    }

    /// Takes from a magazine that [`is_shared`](Self::is_shared).
    fn take_shared(magazine: &Magazine, class: Class) -> Option<Object> {
        let object = magazine
            .classes
            .get(class.index())?
            .0
            .iter()
            .find_map(ObjectSlot::take)?;
        magazine.lock.note_remote_take();
        Some(object)
    }

    /// Free objects of this class in all magazines.
    pub(crate) fn objects(&self, class: Class) -> usize {
        self.all
            .iter()
            .map(|magazine| magazine.objects(class))
            .sum()
    }

    /// Hits, and pages of them that were in memory already.
    pub(crate) fn counted(&self) -> (u64, u64) {
        let hits = self
            .all
            .iter()
            .map(|magazine| magazine.lock.owner_hits() + magazine.hits.load(Relaxed))
            .sum();
        let pages = self.all.iter().map(|m| m.pages.load(Relaxed)).sum();
        (hits, pages)
    }
}
