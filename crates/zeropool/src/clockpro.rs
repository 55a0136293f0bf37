//! CLOCK-Pro (Jiang, Chen and Zhang, USENIX ATC 2005) over size classes instead of pages.
//!
//! Every requested class has an entry on a clock and is hot or cold. A new entry is cold and in its test period. If the
//! class is requested again, or misses again, before the hot hand has passed, its reuse distance is shorter than some hot
//! class's, and it becomes hot. The cold hand searches for victims. The hot hand cools classes that were not requested since
//! its last visit, and ends test periods. The bytes allowed to cold classes adapt: they grow when a class misses in its test
//! period, and shrink when a test period ends without another request.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::class::Class;
use crate::sync::AtomicBool;

/// The state of the pool that an eviction policy can read.
pub(crate) trait FreeBuffers {
    /// Bytes that the pool holds in this class, in use and free.
    fn held(&self, class: Class) -> usize;
    fn has_free(&self, class: Class) -> bool;
    fn budget(&self) -> usize;
}

/// Which classes were requested since a hand last cleared their bit. Shared by all threads of the pool.
#[derive(Debug, Clone)]
pub(crate) struct TouchedClasses(Arc<[AtomicBool]>);

impl TouchedClasses {
    pub(crate) fn new(touched: bool) -> Self {
        Self(Class::all().map(|_| AtomicBool::new(touched)).collect())
    }

    #[inline]
    pub(crate) fn touch(&self, class: Class) {
        let touched = &self.0[class.index()];
        // most bits are set already; a load alone keeps the cache line shared between cores
        if !touched.load(Relaxed) {
            touched.store(true, Relaxed);
        }
    }

    /// Clears the bit and returns what it was.
    fn clear(&self, class: Class) -> bool {
        // `Relaxed`: a touch that is lost or seen late costs a worse victim and nothing else
        self.0[class.index()].swap(false, Relaxed)
    }

    #[cfg(test)]
    fn all_touched(&self) -> bool {
        self.0.iter().all(|touched| touched.load(Relaxed))
    }
}

#[derive(Debug, Default)]
pub(crate) struct ClockPro {
    ring: Vec<ClockEntry>,
    cold_hand: usize,
    hot_hand: usize,
    /// Bytes allowed to cold classes.
    cold_target: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClockEntry {
    class: Class,
    heat: Heat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heat {
    Hot,
    /// Cold, in its test period. The class may have no object left.
    ColdInTest,
    Cold,
}

impl ClockPro {
    /// Records a miss: a request of this class found no free object, and one is about to be allocated.
    pub(crate) fn record_miss(
        &mut self,
        class: Class,
        pool: &impl FreeBuffers,
        touched: &TouchedClasses,
    ) {
        let Some(entry) = self.ring.iter_mut().find(|entry| entry.class == class) else {
            self.ring.push(ClockEntry {
                class,
                heat: Heat::ColdInTest,
            });
            return;
        };
        match entry.heat {
            // a hot class has no test period: its miss counts as a request
            Heat::Hot => touched.touch(class),
            Heat::Cold => entry.heat = Heat::ColdInTest,
            Heat::ColdInTest => {
                entry.heat = Heat::Hot;
                self.cold_target = self
                    .cold_target
                    .saturating_add(class.capacity())
                    .min(pool.budget());
                self.cool(pool, touched);
            }
        }
    }

    /// The class whose free objects are least likely to be requested soon; `None` if no class has a free object.
    pub(crate) fn victim(
        &mut self,
        pool: &impl FreeBuffers,
        touched: &TouchedClasses,
    ) -> Option<Class> {
        // without a victim the hands would cool every class and find nothing
        if !self.ring.iter().any(|entry| pool.has_free(entry.class)) {
            return None;
        }
        // the first turn of the cold hand clears the bits, the second finds a class; if all are hot, one is cooled per round
        for _ in 0..=self.ring.len() {
            for _ in 0..2 * self.ring.len() {
                if let Some(class) = self.cold_step(pool, touched) {
                    return Some(class);
                }
            }
            if !self.hot_round(pool, touched) {
                break;
            }
        }
        None
    }

    /// Moves the cold hand over one entry. Returns its class if that is the victim.
    fn cold_step(&mut self, pool: &impl FreeBuffers, touched: &TouchedClasses) -> Option<Class> {
        self.cold_hand %= self.ring.len().max(1);
        let entry = self.ring.get_mut(self.cold_hand)?;
        let class = entry.class;
        if entry.heat == Heat::Hot || !pool.has_free(class) {
            self.cold_hand += 1;
        } else if touched.clear(class) {
            let was_in_test = entry.heat == Heat::ColdInTest;
            entry.heat = if was_in_test {
                Heat::Hot
            } else {
                Heat::ColdInTest
            };
            self.cold_hand += 1;
            if was_in_test {
                self.cool(pool, touched);
            }
        } else {
            // the hand stays, as the class may have more free objects. An entry in its test period outlives the last object,
            // so that the next miss of the class is recognised
            let last = pool.held(class) <= class.capacity();
            if last && entry.heat == Heat::Cold {
                self.ring.remove(self.cold_hand);
                // the other hand stays at its entry
                self.hot_hand -= usize::from(self.hot_hand > self.cold_hand);
            }
            return Some(class);
        }
        None
    }

    /// Cools hot classes until the bytes that remain for cold ones reach `cold_target`.
    fn cool(&mut self, pool: &impl FreeBuffers, touched: &TouchedClasses) {
        let budget = pool.budget();
        let hot = |ring: &[ClockEntry]| -> usize {
            ring.iter()
                .filter(|entry| entry.heat == Heat::Hot)
                .map(|entry| pool.held(entry.class))
                .sum()
        };
        while hot(&self.ring) > budget - self.cold_target.min(budget)
            && self.hot_round(pool, touched)
        {}
    }

    /// Moves the hot hand to the next hot class that was not requested since its last visit, and cools it. Returns false
    /// if no class is hot.
    fn hot_round(&mut self, pool: &impl FreeBuffers, touched: &TouchedClasses) -> bool {
        for _ in 0..2 * self.ring.len() {
            self.hot_hand %= self.ring.len().max(1);
            let Some(entry) = self.ring.get_mut(self.hot_hand) else {
                return false;
            };
            let class = entry.class;
            match entry.heat {
                Heat::Hot if !touched.clear(class) => {
                    entry.heat = Heat::Cold;
                    self.hot_hand += 1;
                    return true;
                }
                Heat::ColdInTest => {
                    entry.heat = Heat::Cold;
                    self.cold_target = self.cold_target.saturating_sub(class.capacity());
                    self.hot_hand += 1;
                    self.remove_if_unused(class, pool);
                }
                Heat::Hot | Heat::Cold => self.hot_hand += 1,
            }
        }
        false
    }

    /// Removes the entry of a class that has neither objects nor a test period.
    fn remove_if_unused(&mut self, class: Class, pool: &impl FreeBuffers) {
        if pool.held(class) == 0
            && let Some(index) = self.ring.iter().position(|entry| entry.class == class)
        {
            self.ring.remove(index);
            self.cold_hand -= usize::from(self.cold_hand > index);
            self.hot_hand -= usize::from(self.hot_hand > index);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// A pool that holds one object of each class; the object of the named class is free.
    struct OneFree(Option<Class>);

    impl FreeBuffers for OneFree {
        fn held(&self, class: Class) -> usize {
            class.capacity()
        }

        fn has_free(&self, class: Class) -> bool {
            self.0 == Some(class)
        }

        fn budget(&self) -> usize {
            1 << 30
        }
    }

    #[test]
    fn a_search_that_finds_no_victim_leaves_the_clock_unchanged() {
        let touched = TouchedClasses::new(true);
        let heats = [Heat::Hot, Heat::ColdInTest, Heat::Cold, Heat::Hot];
        let ring: Vec<_> = Class::all()
            .zip(heats)
            .map(|(class, heat)| ClockEntry { class, heat })
            .collect();
        let mut clock = ClockPro {
            ring: ring.clone(),
            ..ClockPro::default()
        };
        assert_eq!(clock.victim(&OneFree(None), &touched), None);
        assert_eq!(
            (&clock.ring, clock.cold_hand, clock.hot_hand),
            (&ring, 0, 0)
        );
        assert!(touched.all_touched());
        // a free object of a hot class is found in the end
        assert_eq!(
            clock.victim(&OneFree(Some(ring[3].class)), &touched),
            Some(ring[3].class)
        );
    }
}
