//! Coalescing small reads into larger extents: a pure function on byte ranges.

use std::collections::VecDeque;

use crate::read::catalog::ByteRange;

/// Bytes that are read with one request or more, and the number of listed reads that they serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// From the first requested byte to the last.
    pub bytes: ByteRange,
    /// The number of reads in it.
    pub reads: u32,
    /// Whether no two of them have a byte in common. Reads in another order than the file's are not compared, and count as
    /// if they had.
    pub is_disjoint: bool,
}

/// The part of an extent that belongs to one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentSlice {
    /// Index of the extent; unspecified for a read of no bytes.
    pub extent: usize,
    /// Offset in the extent.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The extents to read for a list of reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coalesced {
    /// In the order of the first read in each.
    pub extents: Vec<Extent>,
    /// One per read, in list order.
    pub slices: Vec<ExtentSlice>,
}

/// Extents that a later read may still join. More than one, because the parts of a weight (codes, scales) and the shards
/// of a checkpoint are read in turns.
const MAX_OPEN: usize = 8;

/// Merges reads into extents of at most `max_len` bytes, where they follow each other in a file with at most `max_gap`
/// unneeded bytes between them. A longer read is an extent of its own. Extents are in the order in which the list needs
/// them first.
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
pub fn coalesce(reads: &[ByteRange], max_gap: u64, max_len: u64) -> Coalesced {
    let mut extents: Vec<Extent> = Vec::new();
    let mut slices = Vec::with_capacity(reads.len());
    let mut open: VecDeque<usize> = VecDeque::with_capacity(MAX_OPEN);
    for read in reads {
        if read.len == 0 {
            slices.push(ExtentSlice {
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
            // never backwards: an extent begins at its first read, so that reads behind it only lengthen it
            has.file == read.file
                && read.start >= has.start
                && read.start <= has_end.saturating_add(max_gap)
                && (end <= has_end || end - has.start <= max_len)
        };
        let number = open
            .iter()
            .copied()
            .find(|&number| joins(&extents[number]))
            .unwrap_or_else(|| {
                extents.push(Extent {
                    bytes: ByteRange { len: 0, ..*read },
                    reads: 0,
                    is_disjoint: true,
                });
                if open.len() == MAX_OPEN {
                    // the extent that was opened first is closed, which bounds the search per read
                    open.pop_back();
                }
                open.push_front(extents.len() - 1);
                extents.len() - 1
            });
        let extent = &mut extents[number];
        extent.is_disjoint &= extent.bytes.end() <= read.start;
        extent.bytes.len = extent.bytes.len.max(end - extent.bytes.start);
        extent.reads += 1;
        slices.push(ExtentSlice {
            extent: number,
            start: read.start - extent.bytes.start,
            len: read.len,
        });
    }
    Coalesced { extents, slices }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(file: u32, start: u64, len: u64) -> ByteRange {
        ByteRange { file, start, len }
    }

    #[test]
    fn alternating_reads_of_codes_and_scales_give_two_extents() {
        let reads: Vec<_> = (0..10)
            .flat_map(|i| [range(0, i * 100, 100), range(0, 5000 + i * 8, 8)])
            .collect();
        let found = coalesce(&reads, 0, 1 << 20);
        assert_eq!(found.extents.len(), 2);
        assert_eq!(
            found.slices[19],
            ExtentSlice {
                extent: 1,
                start: 72,
                len: 8
            }
        );
    }

    proptest! {
        #[test]
        fn every_read_lies_in_its_extent_in_order_of_first_use(
            reads in prop::collection::vec((0u32..3, 0u64..2000, 0u64..300), 0..200),
            gap in 0u64..100,
            max_len in 1u64..1000,
        ) {
            let reads: Vec<_> = reads.into_iter().map(|(file, start, len)| range(file, start, len)).collect();
            let found = coalesce(&reads, gap, max_len);
            prop_assert_eq!(found.slices.len(), reads.len());
            for (number, extent) in found.extents.iter().enumerate() {
                let mut ranges: Vec<_> = found.slices.iter().filter(|slice| slice.len > 0 && slice.extent == number).map(|slice| (slice.start, slice.len)).collect();
                ranges.sort_unstable();
                let is_disjoint = ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
                prop_assert!(is_disjoint || !extent.is_disjoint);
            }
            let mut counts = vec![0; found.extents.len()];
            let mut extents_seen = 0;
            for (read, place) in reads.iter().zip(&found.slices).filter(|(read, _)| read.len > 0) {
                let extent = &found.extents[place.extent].bytes;
                prop_assert_eq!((extent.file, extent.start + place.start, place.len), (read.file, read.start, read.len));
                prop_assert!(place.start + place.len <= extent.len);
                prop_assert!(extent.len <= max_len || found.extents[place.extent].reads as usize == 1
                    || reads.iter().any(|r| r.start == extent.start && r.len == extent.len));
                counts[place.extent] += 1;
                // extents are numbered as they are first needed
                prop_assert!(place.extent <= extents_seen);
                extents_seen = extents_seen.max(place.extent + 1);
            }
            let reads: Vec<_> = found.extents.iter().map(|e| e.reads).collect();
            prop_assert_eq!(counts, reads);
        }

        #[test]
        fn adjacent_reads_in_order_become_one_extent(lens in prop::collection::vec(1u64..100, 1..50)) {
            let mut start = 0;
            let reads: Vec<_> = lens.iter().map(|len| { start += len; range(0, start - len, *len) }).collect();
            let found = coalesce(&reads, 0, u64::MAX);
            prop_assert_eq!(found.extents, vec![Extent { bytes: range(0, 0, start), reads: u32::try_from(reads.len()).unwrap(), is_disjoint: true }]);
        }
    }
}
