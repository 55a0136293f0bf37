//! Small reads made into large ones: a pure function on ranges.

use std::collections::VecDeque;

use crate::catalog::ByteRange;

/// Bytes that are read as one, and how many of the reads asked for are in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// From the first byte that is wanted to the last.
    pub bytes: ByteRange,
    /// How many reads are in it.
    pub reads: u32,
}

/// Where a read is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the extent; nothing in particular for a read of no bytes.
    pub extent: usize,
    /// Where it begins in the extent.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
}

/// Reads, and what to read for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coalesced {
    /// In the order of the first read in each.
    pub extents: Vec<Extent>,
    /// One per read.
    pub places: Vec<Place>,
}

/// Extents that later reads may still join: codes and scales, or the shards of a weight, take turns.
const OPEN: usize = 8;

/// Puts reads into extents of at most `most` bytes, where they follow each other in a file with at most `gap` unwanted
/// bytes between; a longer read is an extent of its own. Reads keep their order, in that no extent is needed before
/// the ones in front of it.
///
/// ```
/// use anamnesis::ByteRange;
/// use anamnesis::load::coalesce;
///
/// let reads = [ByteRange::new(0, 100), ByteRange::new(4000, 50), ByteRange::new(100, 200)];
/// let found = coalesce(&reads, 64, 1 << 20);
/// let extents: Vec<_> = found.extents.iter().map(|e| (e.bytes.start, e.bytes.len, e.reads)).collect();
/// assert_eq!(extents, [(0, 300, 2), (4000, 50, 1)]);
/// ```
pub fn coalesce(reads: &[ByteRange], gap: u64, most: u64) -> Coalesced {
    let mut extents: Vec<Extent> = Vec::new();
    let mut places = Vec::with_capacity(reads.len());
    let mut open: VecDeque<usize> = VecDeque::with_capacity(OPEN);
    for read in reads {
        if read.len == 0 {
            places.push(Place {
                extent: 0,
                start: 0,
                len: 0,
            });
            continue;
        }
        let end = read.start.saturating_add(read.len);
        let joins = |extent: &Extent| {
            let has = &extent.bytes;
            let has_end = has.start.saturating_add(has.len);
            has.file == read.file
                && read.start >= has.start
                && read.start <= has_end.saturating_add(gap)
                && (end <= has_end || end - has.start <= most)
        };
        let number = open
            .iter()
            .copied()
            .find(|&number| joins(&extents[number]))
            .unwrap_or_else(|| {
                extents.push(Extent {
                    bytes: ByteRange { len: 0, ..*read },
                    reads: 0,
                });
                if open.len() == OPEN {
                    open.pop_back();
                }
                open.push_front(extents.len() - 1);
                extents.len() - 1
            });
        let extent = &mut extents[number];
        extent.bytes.len = extent.bytes.len.max(end - extent.bytes.start);
        extent.reads += 1;
        places.push(Place {
            extent: number,
            start: read.start - extent.bytes.start,
            len: read.len,
        });
    }
    Coalesced { extents, places }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(file: u32, start: u64, len: u64) -> ByteRange {
        ByteRange { file, start, len }
    }

    #[test]
    fn codes_and_scales_that_take_turns_are_two_extents() {
        let reads: Vec<_> = (0..10)
            .flat_map(|i| [range(0, i * 100, 100), range(0, 5000 + i * 8, 8)])
            .collect();
        let found = coalesce(&reads, 0, 1 << 20);
        assert_eq!(found.extents.len(), 2);
        assert_eq!(
            found.places[19],
            Place {
                extent: 1,
                start: 72,
                len: 8
            }
        );
    }

    proptest! {
        #[test]
        fn every_read_is_in_its_extent_and_order_is_kept(
            reads in prop::collection::vec((0u32..3, 0u64..2000, 0u64..300), 0..200),
            gap in 0u64..100,
            most in 1u64..1000,
        ) {
            let reads: Vec<_> = reads.into_iter().map(|(file, start, len)| range(file, start, len)).collect();
            let found = coalesce(&reads, gap, most);
            prop_assert_eq!(found.places.len(), reads.len());
            let mut counts = vec![0; found.extents.len()];
            let mut begun = 0;
            for (read, place) in reads.iter().zip(&found.places).filter(|(read, _)| read.len > 0) {
                let extent = &found.extents[place.extent].bytes;
                prop_assert_eq!((extent.file, extent.start + place.start, place.len), (read.file, read.start, read.len));
                prop_assert!(place.start + place.len <= extent.len);
                prop_assert!(extent.len <= most || found.extents[place.extent].reads as usize == 1
                    || reads.iter().any(|r| r.start == extent.start && r.len == extent.len));
                counts[place.extent] += 1;
                // extents are numbered as they are first needed
                prop_assert!(place.extent <= begun);
                begun = begun.max(place.extent + 1);
            }
            let reads: Vec<_> = found.extents.iter().map(|e| e.reads).collect();
            prop_assert_eq!(counts, reads);
        }

        #[test]
        fn neighbours_in_order_become_as_few_as_fit(lens in prop::collection::vec(1u64..100, 1..50)) {
            let mut start = 0;
            let reads: Vec<_> = lens.iter().map(|len| { start += len; range(0, start - len, *len) }).collect();
            let found = coalesce(&reads, 0, u64::MAX);
            prop_assert_eq!(found.extents, vec![Extent { bytes: range(0, 0, start), reads: u32::try_from(reads.len()).unwrap() }]);
        }
    }
}
