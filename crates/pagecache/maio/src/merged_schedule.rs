//! One prefetch schedule for all workers of a service.
//!
//! Workers of one service load in step: tensor by tensor, each its slice. Prefetching each worker's
//! slices alone reads a matrix in strips, and a worker whose headers another worker has already
//! read into memory has no miss that would start its prefetch. The merged schedule reads what all
//! workers need next in file order, from the first miss of any of them. It took MAIO from 1.4 times
//! the duration of EagerLoad to equal duration (docs/perf-experiments.md 39).

use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::cache::Topology;
use anamnesis_ppc::{FileRange, PrefetchRequest, RangeList};

use crate::followed_group::FollowedGroup;
use crate::prefetch_state::REPEAT_NS;
use anamnesis_template::FileSpan;

/// Bytes of each worker's schedule that are merged into one step. Longer steps make longer reads,
/// but a worker waits for the bytes that others need in the same step: with 16 MiB and four
/// workers, the last one waited for 48 MiB (docs/perf-experiments.md 39).
const STEP: u64 = 4 << 20;

/// The ranges that all groups read, step by step. A step is the next [`STEP`] bytes of every group,
/// merged and sorted by file and offset: slices of one matrix become the whole matrix, and bytes
/// that several workers read are read once.
///
/// It requires memory for all bytes, since it has no window. Under memory pressure each worker has
/// a window in its own schedule.
#[derive(Debug)]
pub(crate) struct MergedSchedule {
    ranges: Arc<[FileRange]>,
    /// The index of each step's first range.
    steps: Box<[usize]>,
    step_len: u64,
    /// The prefetch queue of this schedule: a number that is no worker's rank.
    queue: u32,
    last_request: Option<LastRequest>,
}

/// The last request.
#[derive(Clone, Copy, Debug)]
struct LastRequest {
    step: usize,
    /// The time of the miss that caused it, in nanoseconds. A request at the start of the service
    /// has none; the first miss sets it.
    time: Option<u64>,
}

impl MergedSchedule {
    /// Merges the schedules of `groups`. Returns `None` for fewer than two groups, or if their
    /// accelerators belong to different NUMA nodes below `root`: one list could be placed on one
    /// node only.
    pub(crate) fn new(groups: &[FollowedGroup], chunk_len: u64, root: &Path) -> Option<Self> {
        if groups.len() < 2 || !share_a_node(groups, root) {
            return None;
        }
        let step_len = STEP.max(chunk_len);
        let most = groups.iter().map(|group| group.schedule.nbytes()).max()?;
        let (mut ranges, mut steps) = (Vec::<FileRange>::new(), Vec::new());
        for step in 0..most.div_ceil(step_len) {
            let begin = ranges.len();
            steps.push(begin);
            let mut chunks: Vec<(FileSpan, &FileRange)> = Vec::new();
            for group in groups {
                let span = group.schedule.chunks_up_to(step * step_len)
                    ..group.schedule.chunks_up_to((step + 1) * step_len);
                chunks.extend(span.map(|i| (group.schedule.span(i), group.schedule.file_range(i))));
            }
            // the order of the file within a step, which is what a device and its read-ahead are
            // fastest at
            chunks.sort_unstable_by_key(|(range, _)| *range);
            for (_, io) in chunks {
                match ranges[begin..].last_mut() {
                    Some(last) if last.path == io.path && io.start <= last.start + last.len => {
                        last.len = last.len.max(io.start + io.len - last.start);
                    }
                    _ => ranges.push(io.clone()),
                }
            }
        }
        // from the top, since ranks are small numbers
        let queue = (0..=u32::MAX)
            .rev()
            .find(|queue| groups.iter().all(|group| group.rank != *queue))?;
        Some(Self {
            ranges: ranges.into(),
            steps: steps.into(),
            step_len,
            queue,
            last_request: None,
        })
    }

    /// Returns the request with which prefetching begins before the first miss.
    pub(crate) fn start(&mut self, groups: &mut [FollowedGroup]) -> Option<PrefetchRequest> {
        self.begin(0, None, groups)
    }

    /// Handles a miss of group `g` in its chunk `first` that the running prefetch does not cover.
    ///
    /// A worker behind the last request gets its own request, up to where the merged one begins.
    /// Otherwise the merged request restarts one step before the miss, because other workers may
    /// still read there; bytes that are already resident cost nothing.
    pub(crate) fn request_for_miss(
        &mut self,
        g: usize,
        first: usize,
        time: u64,
        groups: &mut [FollowedGroup],
    ) -> Option<PrefetchRequest> {
        let step = usize::try_from(groups[g].schedule.start_of(first) / self.step_len).ok()?;
        let Some(last_request) = &mut self.last_request else {
            return self.begin(step.saturating_sub(1), Some(time), groups);
        };
        let (requested_step, requested_at) =
            (last_request.step, *last_request.time.get_or_insert(time));
        if step < requested_step {
            let until = groups[g]
                .schedule
                .chunks_up_to(requested_step as u64 * self.step_len);
            return Some(groups[g].begin_only(first..until, time));
        }
        let from = step.saturating_sub(1).max(requested_step);
        if from == requested_step && time.saturating_sub(requested_at) < REPEAT_NS {
            return None;
        }
        groups[g].prefetch.count_restart();
        self.begin(from, Some(time), groups)
    }

    fn begin(
        &mut self,
        step: usize,
        time: Option<u64>,
        groups: &mut [FollowedGroup],
    ) -> Option<PrefetchRequest> {
        let first = *self.steps.get(step)?;
        self.last_request = Some(LastRequest { step, time });
        for group in groups {
            let begin = group.schedule.chunks_up_to(step as u64 * self.step_len);
            group.prefetch.set_merged(begin..group.schedule.len(), time);
        }
        Some(PrefetchRequest {
            // to the end of the list: memory suffices for all of it, and no further request is
            // needed
            ranges: RangeList::slice(&self.ranges, first..self.ranges.len()),
            queue: self.queue,
        })
    }
}

/// Whether the accelerators of all groups belong to one NUMA node, or to none.
fn share_a_node(groups: &[FollowedGroup], root: &Path) -> bool {
    let devices: Vec<_> = groups.iter().map(|group| group.schedule.device()).collect();
    if devices.windows(2).all(|pair| pair[0] == pair[1]) {
        return true;
    }
    let topology = Topology::under(root);
    let node = |device: &Option<u32>| {
        device
            .and_then(|device| topology.node_of(device))
            .map(|node| node.id)
    };
    devices
        .windows(2)
        .all(|pair| node(&pair[0]) == node(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::split;
    use crate::schedule::Schedule;

    const M: u64 = 1 << 20;

    /// Returns groups that read these ranges, given as file and megabytes.
    fn groups(all: &[&[(u32, u64, u64)]]) -> Vec<FollowedGroup> {
        let paths: Vec<Arc<Path>> = ["a", "b"].map(|name| Path::new(name).into()).into();
        let range = |&(file, start, end): &(u32, u64, u64)| FileSpan {
            file,
            start: start * M,
            end: end * M,
        };
        let schedule = |ranges: &[(u32, u64, u64)]| {
            let ranges: Vec<FileSpan> = ranges.iter().map(range).collect();
            Schedule::new(&split(&ranges, M), M, &paths, None)
        };
        (0..)
            .zip(all)
            .map(|(rank, ranges)| FollowedGroup::new(rank, "", schedule(ranges)))
            .collect()
    }

    fn merged(groups: &[FollowedGroup]) -> Option<MergedSchedule> {
        MergedSchedule::new(groups, M, Path::new("/nowhere"))
    }

    fn list(prefetch: &PrefetchRequest) -> Vec<(String, u64, u64)> {
        let row = |io: &FileRange| {
            (
                io.path.display().to_string(),
                io.start / M,
                (io.start + io.len) / M,
            )
        };
        prefetch.ranges.iter().map(row).collect()
    }

    fn of(rows: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
        rows.iter()
            .map(|&(path, start, end)| (path.into(), start, end))
            .collect()
    }

    #[test]
    fn the_slices_of_all_workers_are_merged_into_whole_matrices() {
        // Two matrices in halves, then one that both workers read.
        let mut groups = groups(&[
            &[(0, 0, 3), (0, 6, 7), (1, 0, 4)],
            &[(0, 3, 6), (0, 7, 8), (1, 0, 4)],
        ]);
        let mut merged = merged(&groups).unwrap();
        let prefetch = merged.start(&mut groups).unwrap();
        assert_eq!(list(&prefetch), of(&[("a", 0, 8), ("b", 0, 4)]));
        assert!(groups.iter().all(|group| group.rank != prefetch.queue));
    }

    #[test]
    fn ranges_of_workers_alternate_in_steps() {
        // Each worker has a file of its own. Steps alternate between them.
        let mut groups = groups(&[&[(0, 0, 10)], &[(1, 0, 5)]]);
        let prefetch = merged(&groups).unwrap().start(&mut groups).unwrap();
        let rows = [
            ("a", 0, 4),
            ("b", 0, 4),
            ("a", 4, 8),
            ("b", 4, 5),
            ("a", 8, 10),
        ];
        assert_eq!(list(&prefetch), of(&rows));
    }

    #[test]
    fn a_miss_ahead_restarts_all_workers_and_one_behind_its_own() {
        let mut groups = groups(&[&[(0, 0, 40)], &[(1, 0, 40)]]);
        let mut merged = merged(&groups).unwrap();
        assert_eq!(
            merged
                .request_for_miss(1, 0, 5, &mut groups)
                .unwrap()
                .ranges
                .len(),
            20,
            "the first miss begins it for all"
        );
        assert!(
            merged.request_for_miss(0, 3, 9, &mut groups).is_none(),
            "a chunk that is being prefetched"
        );
        assert!(
            merged.request_for_miss(0, 5, 9, &mut groups).is_none(),
            "a repeated miss"
        );
        let ahead = merged.request_for_miss(0, 25, 10, &mut groups).unwrap();
        assert_eq!(list(&ahead)[..2], of(&[("a", 20, 24), ("b", 20, 24)]));
        let behind = merged.request_for_miss(1, 3, 11, &mut groups).unwrap();
        assert_eq!(
            (behind.queue, list(&behind)[0].clone(), behind.ranges.len()),
            (1, ("b".into(), 3, 4), 17)
        );
        let again = merged
            .request_for_miss(0, 25, 10 + REPEAT_NS, &mut groups)
            .unwrap();
        assert_eq!(
            list(&again),
            list(&ahead),
            "a miss a second later means that the chunk did not arrive"
        );
        assert!(
            merged
                .request_for_miss(0, 39, 11, &mut groups)
                .unwrap()
                .ranges
                .len()
                <= 4
        );
    }

    #[test]
    fn one_worker_has_no_merged_schedule() {
        assert!(merged(&groups(&[&[(0, 0, 40)]])).is_none());
        assert!(
            merged(&groups(&[&[], &[]]))
                .unwrap()
                .start(&mut [])
                .is_none(),
            "groups without ranges have nothing to prefetch"
        );
    }
}
