//! Workers that load in step, as those of one service do: what they read at a time is brought as one list.

use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::cache::Topology;
use anamnesis_ppc::{Io, Ios, Prefetch};

use crate::group::Group;
use crate::lane::REPEAT;
use crate::pieces::Range;

/// Bytes of each worker's way that are brought together. More of them make longer reads, and let a worker wait longer
/// for what another reads first.
const STRIDE: u64 = 4 << 20;

/// What all groups read, step by step: in each, the next [`STRIDE`] bytes of every group, merged, in the order of the
/// files. Slices of one matrix become the matrix, and bytes that several read come once.
///
/// It is for memory that has room for everything. The first miss of any worker begins it for all: the others may have
/// no miss until they load, since one has brought the headers that they look at.
#[derive(Debug)]
pub(crate) struct Convoy {
    ios: Arc<[Io]>,
    /// The first range of each step.
    steps: Box<[usize]>,
    stride: u64,
    /// A number that is no worker's.
    lane: u32,
    asked: Option<Asked>,
}

/// What was asked for last.
#[derive(Clone, Copy, Debug)]
struct Asked {
    step: usize,
    /// When; unknown if it was with the service's start.
    time: Option<u64>,
}

impl Convoy {
    /// Of groups whose memory is near each other on the machine below `root`; `None`: of fewer than two, or if it is not.
    pub(crate) fn new(groups: &[Group], piece: u64, root: &Path) -> Option<Self> {
        if groups.len() < 2 || !are_near(groups, root) {
            return None;
        }
        let stride = STRIDE.max(piece);
        let most = groups.iter().map(|group| group.route.nbytes()).max()?;
        let (mut ios, mut steps) = (Vec::<Io>::new(), Vec::new());
        for step in 0..most.div_ceil(stride) {
            let begin = ios.len();
            steps.push(begin);
            let mut pieces: Vec<(Range, &Io)> = Vec::new();
            for group in groups {
                let span = group.route.up_to(step * stride)..group.route.up_to((step + 1) * stride);
                pieces.extend(span.map(|i| (group.route.range(i), group.route.io(i))));
            }
            pieces.sort_unstable_by_key(|(range, _)| *range);
            for (_, io) in pieces {
                match ios[begin..].last_mut() {
                    Some(last) if last.path == io.path && io.start <= last.start + last.len => {
                        last.len = last.len.max(io.start + io.len - last.start);
                    }
                    _ => ios.push(io.clone()),
                }
            }
        }
        let lane = (0..=u32::MAX)
            .rev()
            .find(|lane| groups.iter().all(|group| group.rank != *lane))?;
        Some(Self {
            ios: ios.into(),
            steps: steps.into(),
            stride,
            lane,
            asked: None,
        })
    }

    /// The service begins.
    pub(crate) fn start(&mut self, groups: &mut [Group]) -> Option<Prefetch> {
        self.begin(0, None, groups)
    }

    /// Group `g` misses its piece `first`, and what was asked for does not say that this comes.
    ///
    /// A worker that lags is brought its own way, up to where the convoy was asked for; else the convoy begins a step
    /// before that of the miss: others may be there still, and what is in memory costs nothing.
    pub(crate) fn answer(
        &mut self,
        g: usize,
        first: usize,
        time: u64,
        groups: &mut [Group],
    ) -> Option<Prefetch> {
        let step = usize::try_from(groups[g].route.begin(first) / self.stride).ok()?;
        let Some(asked) = &mut self.asked else {
            return self.begin(step.saturating_sub(1), Some(time), groups);
        };
        let (begun, told) = (asked.step, *asked.time.get_or_insert(time));
        if step < begun {
            let until = groups[g].route.up_to(begun as u64 * self.stride);
            return Some(groups[g].bring(first..until, time));
        }
        let from = step.saturating_sub(1).max(begun);
        if from == begun && time.saturating_sub(told) < REPEAT {
            return None;
        }
        groups[g].lane.restarted();
        self.begin(from, Some(time), groups)
    }

    fn begin(&mut self, step: usize, time: Option<u64>, groups: &mut [Group]) -> Option<Prefetch> {
        let first = *self.steps.get(step)?;
        self.asked = Some(Asked { step, time });
        for group in groups {
            let begin = group.route.up_to(step as u64 * self.stride);
            group.lane.join(begin..group.route.len(), time);
        }
        Some(Prefetch {
            ios: Ios::of(&self.ios, first..self.ios.len()),
            lane: self.lane,
        })
    }
}

/// Whether the groups' bytes are best brought into the same memory.
fn are_near(groups: &[Group], root: &Path) -> bool {
    let devices: Vec<_> = groups.iter().map(|group| group.route.device()).collect();
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
    use crate::pieces::cut;
    use crate::route::Route;

    const M: u64 = 1 << 20;

    /// Groups that read these megabytes of files.
    fn groups(all: &[&[(u32, u64, u64)]]) -> Vec<Group> {
        let paths: Vec<Arc<Path>> = ["a", "b"].map(|name| Path::new(name).into()).into();
        let range = |&(file, start, end): &(u32, u64, u64)| Range {
            file,
            start: start * M,
            end: end * M,
        };
        let route = |ranges: &[(u32, u64, u64)]| {
            let ranges: Vec<Range> = ranges.iter().map(range).collect();
            Route::new(&cut(&ranges, M), M, &paths, None)
        };
        (0..)
            .zip(all)
            .map(|(rank, ranges)| Group::new(rank, "", route(ranges)))
            .collect()
    }

    fn convoy(groups: &[Group]) -> Option<Convoy> {
        Convoy::new(groups, M, Path::new("/nowhere"))
    }

    fn list(prefetch: &Prefetch) -> Vec<(String, u64, u64)> {
        let row = |io: &Io| {
            (
                io.path.display().to_string(),
                io.start / M,
                (io.start + io.len) / M,
            )
        };
        prefetch.ios.iter().map(row).collect()
    }

    fn of(rows: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
        rows.iter()
            .map(|&(path, start, end)| (path.into(), start, end))
            .collect()
    }

    #[test]
    fn slices_of_a_matrix_become_the_matrix() {
        // two matrices in halves, then one that both read
        let mut groups = groups(&[
            &[(0, 0, 3), (0, 6, 7), (1, 0, 4)],
            &[(0, 3, 6), (0, 7, 8), (1, 0, 4)],
        ]);
        let mut convoy = convoy(&groups).unwrap();
        let prefetch = convoy.start(&mut groups).unwrap();
        assert_eq!(list(&prefetch), of(&[("a", 0, 8), ("b", 0, 4)]));
        assert!(groups.iter().all(|group| group.rank != prefetch.lane));
    }

    #[test]
    fn steps_keep_the_workers_together() {
        // each has a file for itself: none waits until the other's is there
        let mut groups = groups(&[&[(0, 0, 10)], &[(1, 0, 5)]]);
        let prefetch = convoy(&groups).unwrap().start(&mut groups).unwrap();
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
    fn a_miss_ahead_takes_all_along_and_one_behind_its_worker() {
        let mut groups = groups(&[&[(0, 0, 40)], &[(1, 0, 40)]]);
        let mut convoy = convoy(&groups).unwrap();
        assert_eq!(
            convoy.answer(1, 0, 5, &mut groups).unwrap().ios.len(),
            20,
            "the first begins it for all"
        );
        assert!(convoy.answer(0, 3, 9, &mut groups).is_none(), "that comes");
        assert!(convoy.answer(0, 5, 9, &mut groups).is_none(), "and that");
        let ahead = convoy.answer(0, 25, 10, &mut groups).unwrap();
        assert_eq!(list(&ahead)[..2], of(&[("a", 20, 24), ("b", 20, 24)]));
        let behind = convoy.answer(1, 3, 11, &mut groups).unwrap();
        assert_eq!(
            (behind.lane, list(&behind)[0].clone(), behind.ios.len()),
            (1, ("b".into(), 3, 4), 17)
        );
        let again = convoy.answer(0, 25, 10 + REPEAT, &mut groups).unwrap();
        assert_eq!(
            list(&again),
            list(&ahead),
            "it was not there a second later"
        );
        assert!(convoy.answer(0, 39, 11, &mut groups).unwrap().ios.len() <= 4);
    }

    #[test]
    fn one_worker_is_no_convoy() {
        assert!(convoy(&groups(&[&[(0, 0, 40)]])).is_none());
        assert!(
            convoy(&groups(&[&[], &[]]))
                .unwrap()
                .start(&mut [])
                .is_none(),
            "nor is nothing"
        );
    }
}
