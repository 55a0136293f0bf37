//! Size classes: which capacity a length gets.
//!
//! Four per doubling, so that no more than a fifth of a buffer lies idle. From one page up capacities are whole pages,
//! as direct I/O wants them; between one and four pages that leaves steps of one page.

/// One size class. Classes are ordered by capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

/// Capacity of the smallest class: four cache lines.
const SMALLEST: usize = 1 << SMALLEST_BIT;
const SMALLEST_BIT: u32 = 8;
/// Below this, classes are four per doubling; here whole pages begin.
pub(crate) const PAGE: usize = 4096;
/// From here on a quarter of a power of two is whole pages.
const QUARTERS: usize = 4 * PAGE;
/// Index of the class of one page, and of four.
const PAGE_INDEX: usize = 16;
const QUARTERS_INDEX: usize = PAGE_INDEX + 3;

impl Class {
    /// How many classes there are: up to the largest capacity that a slice may have.
    pub(crate) const COUNT: usize =
        QUARTERS_INDEX + 4 * (usize::BITS as usize - 1 - QUARTERS.ilog2() as usize);

    /// The smallest class that holds `len` bytes, or `None` where no slice is as long.
    #[inline]
    pub(crate) fn of(len: usize) -> Option<Self> {
        let index = Self::index_of(len);
        if index < Self::COUNT {
            u8::try_from(index).ok().map(Self)
        } else {
            None
        }
    }

    /// Its position in tables that have one cell per class; [`Self::COUNT`] or more where there is no such class.
    #[inline]
    pub(crate) fn index_of(len: usize) -> usize {
        if len <= PAGE {
            quarters(len.max(SMALLEST), SMALLEST_BIT)
        } else if len <= QUARTERS {
            PAGE_INDEX + (len - 1) / PAGE
        } else {
            QUARTERS_INDEX + quarters(len, QUARTERS.ilog2())
        }
    }

    /// How many classes have at most this capacity.
    pub(crate) fn up_to(capacity: usize) -> usize {
        Self::all()
            .take_while(|class| class.capacity() <= capacity)
            .count()
    }

    /// Bytes of a buffer of this class.
    #[inline]
    pub(crate) fn capacity(self) -> usize {
        let index = self.index();
        if index < PAGE_INDEX {
            quarter(index, SMALLEST)
        } else if index < QUARTERS_INDEX {
            (index - PAGE_INDEX + 1) * PAGE
        } else {
            quarter(index - QUARTERS_INDEX, QUARTERS)
        }
    }

    /// Position in tables that have one cell per class.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// All classes, the smallest first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        (0..=u8::MAX).take(Self::COUNT).map(Self)
    }
}

/// Number of the first step of a quarter doubling that holds `len`, counted from `1 << base`, which is at most `len`.
#[inline]
fn quarters(len: usize, base: u32) -> usize {
    let last = len - 1;
    let bit = last.ilog2();
    let step = ((last - (1 << bit)) >> (bit - 2)) + 1;
    // `last` is one bit shorter than `base` where `len` is the base itself; `step` is 4 then
    (4 * bit as usize + step) - 4 * base as usize
}

#[inline]
fn quarter(number: usize, base: usize) -> usize {
    let doubled = base << (number / 4);
    doubled + (doubled / 4) * (number % 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_class_is_a_possible_slice() {
        let last = Class::all().next_back().unwrap();
        assert_eq!(Class::all().count(), Class::COUNT);
        assert!(last.capacity() <= isize::MAX as usize);
        assert_eq!(Class::of(last.capacity()), Some(last));
        assert_eq!(Class::of(last.capacity() + 1), None);
        assert_eq!(Class::of(usize::MAX), None);
    }

    #[test]
    fn every_capacity_is_its_own_class_and_they_rise() {
        for (class, next) in Class::all().zip(Class::all().skip(1)) {
            assert!(class.capacity() < next.capacity());
            assert_eq!(Class::of(class.capacity()), Some(class));
            assert_eq!(Class::of(class.capacity() + 1), Some(next));
        }
        assert_eq!(Class::of(0).unwrap().capacity(), SMALLEST);
    }

    #[test]
    fn pages_and_cache_lines_stay_whole() {
        for class in Class::all() {
            let unit = if class.capacity() < PAGE { 64 } else { PAGE };
            assert_eq!(class.capacity() % unit, 0, "{}", class.capacity());
        }
    }

    proptest! {
        #[test]
        fn waste_is_bounded(bits in 0u32..62, low in any::<usize>()) {
            let len = (1usize << bits) | (low & ((1 << bits) - 1));
            let capacity = Class::of(len).unwrap().capacity();
            prop_assert!(capacity >= len);
            let idle = capacity - len;
            // a quarter of what was asked for; a page where capacities are whole pages; the smallest class
            prop_assert!(idle * 4 <= len || (idle < PAGE && (PAGE..=QUARTERS).contains(&capacity)) || len < SMALLEST,
                "{len} got {capacity}");
        }

        #[test]
        fn longer_is_never_smaller(a in 0usize..1 << 40, b in 0usize..1 << 40) {
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(Class::of(a).unwrap() <= Class::of(b).unwrap());
        }
    }
}
