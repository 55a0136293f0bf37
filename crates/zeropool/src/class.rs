//! Size classes: the capacity of a buffer of a given length.
//!
//! There are four classes per doubling, so at most a fifth of a capacity is unused. From one page up, capacities are whole
//! pages, as direct I/O requires; so between one and four pages the steps are one page.

/// One size class. Classes are ordered by capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

/// Capacity of the smallest class: four cache lines.
const SMALLEST: usize = 1 << SMALLEST_BIT;
const SMALLEST_BIT: u32 = 8;
/// From this capacity on, classes are whole pages. 4 KiB, the alignment that direct I/O needs, also where the kernel's pages
/// are larger.
pub(crate) const PAGE: usize = 4096;
/// From this capacity on, a quarter of a power of two is a whole number of pages.
const QUARTERS: usize = 4 * PAGE;
/// Index of the class of one page: four doublings from 256 bytes to 4 KiB, of four classes each.
const PAGE_INDEX: usize = 16;
/// Index of the class of four pages.
const QUARTERS_INDEX: usize = PAGE_INDEX + 3;

impl Class {
    /// The number of classes, up to the largest capacity that a slice may have.
    pub(crate) const COUNT: usize =
        QUARTERS_INDEX + 4 * (usize::BITS as usize - 1 - QUARTERS.ilog2() as usize);

    /// The smallest class with a capacity of at least `len` bytes; `None` if no slice can be that long.
    #[inline]
    pub(crate) fn of(len: usize) -> Option<Self> {
        let index = Self::index_of(len);
        if index < Self::COUNT {
            u8::try_from(index).ok().map(Self)
        } else {
            None
        }
    }

    /// The [`index`](Self::index) of the class for `len` bytes; [`Self::COUNT`] or more if there is no such class.
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

    /// The number of classes with at most this capacity.
    pub(crate) fn up_to(capacity: usize) -> usize {
        Self::all()
            .take_while(|class| class.capacity() <= capacity)
            .count()
    }

    /// Capacity of buffers of this class, in bytes.
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

    /// The position in tables with one entry per class.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// All classes, the smallest first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        (0..=u8::MAX).take(Self::COUNT).map(Self)
    }
}

/// The number of quarter-doubling steps from `1 << base` to the first step of at least `len`. `len` is at least `1 << base`.
#[inline]
fn quarters(len: usize, base: u32) -> usize {
    // steps are computed from `len - 1`, so that a length equal to a step does not round up to the next
    let last = len - 1;
    let bit = last.ilog2();
    let step = ((last - (1 << bit)) >> (bit - 2)) + 1;
    // if `len` is `1 << base`, `bit` is `base - 1` and `step` is 4, so the difference is 0
    (4 * bit as usize + step) - 4 * base as usize
}

/// The capacity at this number of quarter-doubling steps from `base`: the inverse of [`quarters`].
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
    fn the_largest_capacity_is_at_most_isize_max() {
        let last = Class::all().next_back().unwrap();
        assert_eq!(Class::all().count(), Class::COUNT);
        assert!(last.capacity() <= isize::MAX as usize);
        assert_eq!(Class::of(last.capacity()), Some(last));
        assert_eq!(Class::of(last.capacity() + 1), None);
        assert_eq!(Class::of(usize::MAX), None);
    }

    #[test]
    fn capacities_increase_and_map_to_their_own_class() {
        for (class, next) in Class::all().zip(Class::all().skip(1)) {
            assert!(class.capacity() < next.capacity());
            assert_eq!(Class::of(class.capacity()), Some(class));
            assert_eq!(Class::of(class.capacity() + 1), Some(next));
        }
        assert_eq!(Class::of(0).unwrap().capacity(), SMALLEST);
    }

    #[test]
    fn capacities_are_whole_pages_or_cache_lines() {
        for class in Class::all() {
            let alignment = if class.capacity() < PAGE { 64 } else { PAGE };
            assert_eq!(class.capacity() % alignment, 0, "{}", class.capacity());
        }
    }

    proptest! {
        #[test]
        fn unused_capacity_is_at_most_a_quarter_of_the_length(bits in 0u32..62, low in any::<usize>()) {
            let len = (1usize << bits) | (low & ((1 << bits) - 1));
            let capacity = Class::of(len).unwrap().capacity();
            prop_assert!(capacity >= len);
            let unused = capacity - len;
            // a quarter of the length; less than a page where the steps are pages; anything in the smallest class
            prop_assert!(unused * 4 <= len || (unused < PAGE && (PAGE..=QUARTERS).contains(&capacity)) || len < SMALLEST,
                "length {len}, capacity {capacity}");
        }

        #[test]
        fn a_longer_buffer_never_has_a_smaller_class(a in 0usize..1 << 40, b in 0usize..1 << 40) {
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(Class::of(a).unwrap() <= Class::of(b).unwrap());
        }
    }
}
