//! CLOCK-Pro over size classes.
//!
//! Every class that was asked for has a place on a clock and is hot or cold. A cold one is in its test period after it
//! came: if it is missed or used again before the hot hand has passed, its reuse distance is shorter than some hot
//! class's, and it becomes hot. The cold hand looks for victims, the hot hand cools what was not used since it came by
//! and ends test periods. How many bytes may be cold adapts: up when a class is missed in its test period, down when a
//! test period ends for nothing.

use std::sync::atomic::Ordering::Relaxed;

use crate::class::Class;
use crate::evict::{Shelf, Touched};

#[derive(Debug, Default)]
pub(crate) struct ClockPro {
    ring: Vec<Place>,
    cold_hand: usize,
    hot_hand: usize,
    /// Bytes that are left to cold classes.
    cold_target: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    class: Class,
    heat: Heat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heat {
    Hot,
    /// Cold, in its test period. It may have no block left.
    Tested,
    Cold,
}

impl ClockPro {
    /// A request of this class found no free block, and a new one is about to be made.
    pub(crate) fn admitted(
        &mut self,
        class: Class,
        budget: usize,
        held: &dyn Fn(Class) -> usize,
        touched: &[Touched],
    ) {
        let Some(place) = self.ring.iter_mut().find(|place| place.class == class) else {
            self.ring.push(Place {
                class,
                heat: Heat::Tested,
            });
            return;
        };
        match place.heat {
            Heat::Hot => touched[class.index()].store(true, Relaxed),
            Heat::Cold => place.heat = Heat::Tested,
            Heat::Tested => {
                place.heat = Heat::Hot;
                self.cold_target = self
                    .cold_target
                    .saturating_add(class.capacity())
                    .min(budget);
                self.cool(budget, held, touched);
            }
        }
    }

    /// A class with a free block that is worth least.
    pub(crate) fn victim(&mut self, shelf: &impl Shelf, touched: &[Touched]) -> Option<Class> {
        // the hands would go round and cool everything for nothing
        if !self.ring.iter().any(|place| shelf.has_free(place.class)) {
            return None;
        }
        // once to clear, once to find; then what is hot cools, one class a round
        for _ in 0..=self.ring.len() {
            for _ in 0..2 * self.ring.len() {
                if let Some(class) = self.cold_step(shelf, touched) {
                    return Some(class);
                }
            }
            if !self.hot_round(&|class| shelf.held(class), touched) {
                break;
            }
        }
        None
    }

    /// The cold hand looks at one place.
    fn cold_step(&mut self, shelf: &impl Shelf, touched: &[Touched]) -> Option<Class> {
        self.cold_hand %= self.ring.len().max(1);
        let place = self.ring.get_mut(self.cold_hand)?;
        let class = place.class;
        if place.heat == Heat::Hot || !shelf.has_free(class) {
            self.cold_hand += 1;
        } else if touched[class.index()].swap(false, Relaxed) {
            let again = place.heat == Heat::Tested;
            place.heat = if again { Heat::Hot } else { Heat::Tested };
            self.cold_hand += 1;
            if again {
                self.cool(shelf.budget(), &|class| shelf.held(class), touched);
            }
        } else {
            // the hand stays while there is more of it; in its test period its place outlives its last block
            let last = shelf.held(class) <= class.capacity();
            if last && place.heat == Heat::Cold {
                self.ring.remove(self.cold_hand);
                self.hot_hand -= usize::from(self.hot_hand > self.cold_hand);
            }
            return Some(class);
        }
        None
    }

    /// Cools hot classes until they leave the cold ones their share.
    fn cool(&mut self, budget: usize, held: &dyn Fn(Class) -> usize, touched: &[Touched]) {
        let hot = |ring: &[Place]| -> usize {
            ring.iter()
                .filter(|place| place.heat == Heat::Hot)
                .map(|place| held(place.class))
                .sum()
        };
        while hot(&self.ring) > budget - self.cold_target.min(budget)
            && self.hot_round(held, touched)
        {}
    }

    /// The hot hand goes on to the first hot class that was not used since, and cools it. False if none is hot.
    fn hot_round(&mut self, held: &dyn Fn(Class) -> usize, touched: &[Touched]) -> bool {
        for _ in 0..2 * self.ring.len() {
            self.hot_hand %= self.ring.len().max(1);
            let Some(place) = self.ring.get_mut(self.hot_hand) else {
                return false;
            };
            let class = place.class;
            match place.heat {
                Heat::Hot if !touched[class.index()].swap(false, Relaxed) => {
                    place.heat = Heat::Cold;
                    self.hot_hand += 1;
                    return true;
                }
                Heat::Tested => {
                    place.heat = Heat::Cold;
                    self.cold_target = self.cold_target.saturating_sub(class.capacity());
                    self.hot_hand += 1;
                    self.forget(class, held);
                }
                Heat::Hot | Heat::Cold => self.hot_hand += 1,
            }
        }
        false
    }

    /// Takes the place of a class that has neither blocks nor a test period.
    fn forget(&mut self, class: Class, held: &dyn Fn(Class) -> usize) {
        if held(class) == 0
            && let Some(at) = self.ring.iter().position(|place| place.class == class)
        {
            self.ring.remove(at);
            self.cold_hand -= usize::from(self.cold_hand > at);
            self.hot_hand -= usize::from(self.hot_hand > at);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// One block held of each class, and one free of some.
    struct Held(Option<Class>);

    impl Shelf for Held {
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
    fn looking_for_nothing_cools_nothing() {
        let touched: Vec<_> = Class::all().map(|_| Touched::new(true)).collect();
        let heats = [Heat::Hot, Heat::Tested, Heat::Cold, Heat::Hot];
        let ring: Vec<_> = Class::all()
            .zip(heats)
            .map(|(class, heat)| Place { class, heat })
            .collect();
        let mut clock = ClockPro {
            ring: ring.clone(),
            ..ClockPro::default()
        };
        assert_eq!(clock.victim(&Held(None), &touched), None);
        assert_eq!(
            (&clock.ring, clock.cold_hand, clock.hot_hand),
            (&ring, 0, 0)
        );
        assert!(touched.iter().all(|touched| touched.load(Relaxed)));
        // a hot one that is free goes in the end
        assert_eq!(
            clock.victim(&Held(Some(ring[3].class)), &touched),
            Some(ring[3].class)
        );
    }
}
