//! Eviction behind the reader ("burn after reading" in the paper).
//!
//! An inference service copies the weights to its accelerators and does not read the files again,
//! so pages that every worker has passed only displace pages that are still to be read.
//! [`evict_behind`] is called when memory is short and returns what can be evicted; the runtime
//! evicts it.

use std::ops::Range;

use anamnesis_ppc::{FileRange, RangeList};

use crate::followed_group::FollowedGroup;
use crate::window_sizes::WindowSizes;
use anamnesis_template::FileSpan;

/// Returns the ranges to evict, or `None` if there are none.
///
/// These are the chunks between each group's eviction cursor and its read position minus the kept
/// distance, without bytes that any running worker will still read: shared bytes are evicted after
/// the last worker has passed them. The cursors advance. If that yields nothing, the ranges that
/// remain from before a worker went back are returned, without those that a worker reads within its
/// window.
pub(crate) fn evict_behind(groups: &mut [FollowedGroup], sizes: &WindowSizes) -> Option<RangeList> {
    let running = running(groups);
    let mut needs: Vec<NeededPositions> = groups
        .iter()
        .zip(running)
        .map(|(group, running)| {
            if running {
                group.keep_from(sizes)..u64::MAX
            } else {
                // an absent worker needs nothing
                0..0
            }
        })
        .collect();
    let mut ranges = Vec::new();
    for g in 0..groups.len() {
        let chunks = groups[g].cursor
            ..groups[g]
                .schedule
                .whole_chunks_before(groups[g].keep_from(sizes));
        if !chunks.is_empty() {
            // advanced even over bytes that another worker still needs: that worker's own cursor
            // returns them later
            groups[g].cursor = chunks.end;
            add_unneeded(g, chunks, groups, &needs, &mut ranges);
        }
    }
    if ranges.is_empty() {
        for (need, group) in needs.iter_mut().zip(&*groups) {
            need.end = need.end.min(group.window_end(sizes));
        }
        for g in 0..groups.len() {
            let chunks = std::mem::take(&mut groups[g].leftover);
            add_unneeded(g, chunks, groups, &needs, &mut ranges);
        }
    }
    (!ranges.is_empty()).then(|| ranges.into())
}

/// The positions of a group's schedule that its worker will still read.
type NeededPositions = Range<u64>;

/// Adds the bytes of a group's `chunks` that no group needs, and merges them with an adjacent last
/// range.
fn add_unneeded(
    g: usize,
    chunks: Range<usize>,
    groups: &mut [FollowedGroup],
    needs: &[NeededPositions],
    ranges: &mut Vec<FileRange>,
) {
    let mut nbytes = 0;
    for i in chunks {
        let io = groups[g].schedule.file_range(i);
        for bytes in unneeded(&groups[g].schedule.span(i), groups, needs) {
            nbytes += bytes.len();
            match ranges.last_mut() {
                Some(last) if last.path == io.path && last.start + last.len == bytes.start => {
                    last.len += bytes.len()
                }
                _ => ranges.push(FileRange {
                    start: bytes.start,
                    len: bytes.len(),
                    ..io.clone()
                }),
            }
        }
    }
    groups[g].evicted = groups[g].evicted.saturating_add(nbytes);
}

/// Returns for each group whether its worker runs on this machine. A template may describe more
/// workers than run here, and the bytes of an absent worker would never be evicted. A group without
/// any access is taken for absent once another group has read a quarter of its schedule: workers of
/// one service start within seconds.
fn running(groups: &[FollowedGroup]) -> Vec<bool> {
    let load_is_under_way = groups
        .iter()
        .any(|group| group.position.current() > group.schedule.nbytes() / 4);
    groups
        .iter()
        .map(|group| group.pid.is_some() || !load_is_under_way)
        .collect()
}

/// Returns the parts of a chunk that no group needs.
fn unneeded(
    chunk: &FileSpan,
    groups: &[FollowedGroup],
    needs: &[NeededPositions],
) -> Vec<FileSpan> {
    let mut left = vec![*chunk];
    for (group, need) in groups
        .iter()
        .zip(needs)
        .filter(|(_, need)| !need.is_empty())
    {
        // chunks are at most one stretch of the file long, so only chunks of the same number can
        // overlap this one
        let needed = |&i: &usize| {
            group.schedule.start_of(i + 1) > need.start && group.schedule.start_of(i) < need.end
        };
        for i in group.schedule.overlaps(chunk).filter(needed) {
            let needed = group.schedule.span(i);
            left = left
                .into_iter()
                .flat_map(|bytes| without(bytes, &needed))
                .collect();
            if left.is_empty() {
                return left;
            }
        }
    }
    left
}

/// Returns the parts of `bytes` before and after `other`.
fn without(bytes: FileSpan, other: &FileSpan) -> impl Iterator<Item = FileSpan> {
    let before = FileSpan {
        end: bytes.end.min(other.start),
        ..bytes
    };
    let behind = FileSpan {
        start: bytes.start.max(other.end),
        ..bytes
    };
    [before, behind]
        .into_iter()
        .filter(|part| part.start < part.end)
}
