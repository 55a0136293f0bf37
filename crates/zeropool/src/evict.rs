//! Eviction: which free buffer is released when the budget has no room for a new one.
//!
//! Buffers of one class are interchangeable, so a policy picks a class; the buffer of that class that has been free
//! longest is released.

use crate::class::Class;
use crate::clockpro::{ClockPro, FreeBuffers, TouchedClasses};
use crate::slab::Object;
use crate::sync::Mutex;

/// Which free buffers are released first when the budget has no room left. Buffers in use are never released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EvictionPolicy {
    /// By size alone: the smallest free buffer that makes enough room, or the largest there is. Within its class, the
    /// one that has been free longest, as free buffers are reused last in, first out. No bookkeeping.
    #[default]
    Lifo,
    /// By use (CLOCK-Pro: Jiang, Chen and Zhang, 2005, over size classes instead of pages): size classes that are
    /// requested repeatedly stay, those requested once are released first, and a class that misses soon after its
    /// buffers were released is kept longer. Costs at most one store per request, and a search of the classes per
    /// eviction.
    ClockPro,
}

#[derive(Debug)]
pub(crate) enum VictimSelection {
    Lifo,
    ClockPro(Mutex<ClockPro>, TouchedClasses),
}

/// A pool whose free objects can be taken for release.
pub(crate) trait Evictable: FreeBuffers {
    /// The free object of this class that has been free longest.
    fn take_coldest(&self, class: Class) -> Option<Object>;
}

impl VictimSelection {
    pub(crate) fn new(policy: EvictionPolicy) -> Self {
        match policy {
            EvictionPolicy::Lifo => Self::Lifo,
            EvictionPolicy::ClockPro => {
                Self::ClockPro(Mutex::new(ClockPro::default()), TouchedClasses::new(false))
            }
        }
    }

    /// Where requests record their classes, if the policy uses that.
    pub(crate) fn touched(&self) -> Option<&TouchedClasses> {
        match self {
            Self::Lifo => None,
            Self::ClockPro(_, touched) => Some(touched),
        }
    }

    /// Records that an object of this class is about to be allocated.
    pub(crate) fn record_miss(&self, class: Class, pool: &impl FreeBuffers) {
        if let Self::ClockPro(clock, touched) = self {
            clock.lock().record_miss(class, pool, touched);
        }
    }

    /// A free object to release, where `shortfall` bytes are missing; `None` if nothing is free.
    pub(crate) fn victim(&self, pool: &impl Evictable, shortfall: usize) -> Option<Object> {
        let class = match self {
            Self::Lifo => None,
            Self::ClockPro(clock, touched) => clock.lock().victim(pool, touched),
        };
        // another thread may have taken the class's last free object meanwhile
        class
            .and_then(|class| pool.take_coldest(class))
            .or_else(|| victim_by_size(pool, shortfall))
    }
}

/// The smallest free object of at least `shortfall` bytes, or the largest.
fn victim_by_size(pool: &impl Evictable, shortfall: usize) -> Option<Object> {
    let enough = Class::of(shortfall).map_or(Class::COUNT, Class::index);
    let larger = Class::all()
        .skip(enough)
        .find_map(|class| pool.take_coldest(class));
    // none is enough alone: the largest releases most
    larger.or_else(|| {
        Class::all()
            .take(enough)
            .rev()
            .find_map(|class| pool.take_coldest(class))
    })
}
