//! Following a template: attributes each event to a worker and a position, and returns what to
//! prefetch and evict.
//!
//! An event passes through four steps: `worker_identity.rs` finds the worker, `schedule.rs` the
//! position, `followed_group.rs` decides for the worker alone, and `merged_schedule.rs` for all
//! workers at once where memory has room for all their bytes.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::{FileAccess, PrefetchRequest, RangeList};
use anamnesis_template::{FileSpan, PAGE, Template, footprint, page_spans};

use crate::chunks::{chunk_length, split};
use crate::config::MaioConfig;
use crate::eviction::evict_behind;
use crate::followed_group::{FollowedGroup, ObservedAccess};
use crate::merged_schedule::MergedSchedule;
use crate::model_files::ModelFiles;
use crate::off_template::OffTemplateAccesses;
use crate::schedule::Schedule;
use crate::state::{GroupState, MaioPhase, MaioState};
use crate::window_sizes::{WindowShrinker, WindowSizes};
use crate::worker_identity::{Accelerators, WorkerIdentifier};

/// Reads that start within the first MiB of a file may be reads of its header.
const HEADER_REGION: u64 = 1 << 20;
/// Largest read that is taken for a read of the header. Larger reads at the beginning of a file are
/// reads of tensors.
const HEADER_READ: u64 = 256 << 10;
/// Number of processes whose accelerator is looked up. It bounds the set of process ids and the
/// searches of `/proc`.
const MAX_PROCESSES: usize = 1 << 16;

/// A template that is being followed.
#[derive(Debug)]
pub(crate) struct TemplateFollower {
    groups: Vec<FollowedGroup>,
    /// The merged schedule of all groups, if memory has room for all.
    merged: Option<MergedSchedule>,
    ranks: Vec<u32>,
    files: HashMap<Arc<Path>, (u32, u64)>,
    directories: HashSet<PathBuf>,
    workers: WorkerIdentifier,
    accelerators: Accelerators,
    sizes: WindowSizes,
    shrinker: WindowShrinker,
    /// The smallest window to which memory pressure may shrink it.
    min_window: u64,
    off_template: OffTemplateAccesses,
    /// Whether the policy subscribes to every access, not to misses only.
    needs_accesses: bool,
    prefetch: bool,
    affinity: bool,
    /// Processes whose accelerator was looked up.
    probed_processes: HashSet<u32>,
}

/// An access, its group and its position in the group's schedule.
struct AttributedAccess {
    group: usize,
    access: ObservedAccess,
}

impl TemplateFollower {
    /// Follows `template` on the files of `model`, with `memory` bytes for the page cache. `root`
    /// is the file system root below which processes, devices and memory nodes are looked up.
    pub(crate) fn new(
        template: &Template,
        model: &ModelFiles,
        config: &MaioConfig,
        memory: u64,
        root: &Path,
    ) -> Self {
        let accelerators = Accelerators::new(root, config.devices.as_deref());
        let entries: Vec<_> = template
            .files()
            .iter()
            .map(|file| model.entry(&file.path))
            .collect();
        // a file that is missing has no bytes to read
        let lens: Vec<u64> = entries
            .iter()
            .map(|entry| entry.map_or(0, |entry| entry.len))
            .collect();
        let paths: Vec<Arc<Path>> = entries
            .iter()
            .map(|e| e.map_or(Path::new("").into(), |e| Arc::clone(&e.path)))
            .collect();
        let runs_here = |rank: u32| {
            config
                .ranks
                .is_none_or(|(first, last)| (first..=last).contains(&rank))
        };
        let groups: Vec<_> = template
            .groups()
            .iter()
            .filter(|group| runs_here(group.rank()))
            .collect();
        let all: Vec<Vec<FileSpan>> = groups
            .iter()
            .map(|group| page_spans(group.accesses(), &lens))
            .collect();
        let sums = all.iter().map(|ranges| {
            ranges
                .iter()
                .map(FileSpan::len)
                .fold(0, u64::saturating_add)
        });
        let sums: Vec<u64> = sums.collect();
        let chunk_len = chunk_length(sums.iter().copied().max().unwrap_or(0));
        let sum = sums.iter().copied().fold(0, u64::saturating_add);
        let footprint = footprint(all.iter().flatten());
        let sizes = WindowSizes::new(config, memory, groups.len(), sum, footprint, chunk_len);
        let groups: Vec<FollowedGroup> = groups
            .iter()
            .zip(&all)
            .map(|(group, ranges)| {
                let device = accelerators
                    .of_rank(group.rank())
                    .filter(|_| config.affinity);
                FollowedGroup::new(
                    group.rank(),
                    group.name(),
                    Schedule::new(&split(ranges, chunk_len), chunk_len, &paths, device),
                )
            })
            .collect();
        // where all workers read the same bytes, bytes cannot tell them apart, and accesses need no
        // votes
        let differ = groups
            .windows(2)
            .any(|pair| !pair[0].schedule.same_ranges(&pair[1].schedule));
        let numbered = (0..).zip(paths).zip(lens);
        let directories = numbered
            .clone()
            .filter_map(|((_, path), _)| path.parent().map(PathBuf::from))
            .collect();
        // the merged schedule has no window, so it needs memory for everything, whatever the
        // configuration says
        let all = sizes.window.is_none() && !sizes.exceeds_memory;
        Self {
            merged: if all {
                MergedSchedule::new(&groups, chunk_len, root)
            } else {
                None
            },
            ranks: groups.iter().map(|group| group.rank).collect(),
            groups,
            files: numbered
                .map(|((number, path), len)| (path, (number, len)))
                .collect(),
            directories,
            workers: WorkerIdentifier::new(
                &config.workers,
                differ,
                &root.join("proc"),
                &accelerators,
            ),
            accelerators,
            sizes,
            shrinker: WindowShrinker::default(),
            min_window: 4 * chunk_len,
            off_template: OffTemplateAccesses::new(footprint),
            // windows and eviction follow the reader, whose position misses alone do not show
            needs_accesses: config
                .touch
                .unwrap_or(sizes.window.is_some() || (sizes.exceeds_memory && config.evict)),
            prefetch: config.prefetch,
            affinity: config.affinity,
            probed_processes: HashSet::new(),
        }
    }

    /// Whether the policy subscribes to every access.
    pub(crate) fn needs_accesses(&self) -> bool {
        self.needs_accesses
    }

    /// The files of the template, as paths in the namespace.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(|path| &**path)
    }

    /// The same files, as they are named in the namespace.
    pub(crate) fn files(&self) -> Vec<Arc<Path>> {
        self.files.keys().map(Arc::clone).collect()
    }

    /// The service begins.
    pub(crate) fn start(&mut self) -> Vec<PrefetchRequest> {
        let sizes = self.sizes;
        match &mut self.merged {
            Some(merged) => merged.start(&mut self.groups).into_iter().collect(),
            None => self
                .groups
                .iter_mut()
                .filter_map(|group| group.start(&sizes))
                .collect(),
        }
    }

    /// Handles a miss; returns a prefetch request if prefetching is on.
    pub(crate) fn miss(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        // after the call: positions follow misses without prefetching too
        self.request_for_miss(miss).filter(|_| self.prefetch)
    }

    fn request_for_miss(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        let AttributedAccess { group: g, access } = self.attribute(miss)?;
        let group = &mut self.groups[g];
        let first = group.miss(&access, &self.sizes, self.needs_accesses)?;
        match &mut self.merged {
            Some(merged) => merged.request_for_miss(g, first, access.time, &mut self.groups),
            None => Some(group.begin(first, access.time, &self.sizes)),
        }
    }

    /// Handles an access; returns a prefetch request if prefetching is on.
    pub(crate) fn access(&mut self, access: &FileAccess) -> Option<PrefetchRequest> {
        let attributed = self.attribute(access)?;
        let prefetch = self.groups[attributed.group].access(&attributed.access, &self.sizes);
        prefetch.filter(|_| self.prefetch)
    }

    /// Handles memory pressure, at a miss or between misses; returns the ranges to evict.
    pub(crate) fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        // without prefetching, misses arrive with evictions only, and the positions still have to
        // follow them
        if let Some(miss) = miss.filter(|_| !self.prefetch) {
            self.request_for_miss(miss);
        }
        // without accesses a position moves at misses only, which says too little about how long
        // memory has been short
        if self.needs_accesses {
            let at = self
                .groups
                .iter()
                .map(|group| group.position.current())
                .fold(0, u64::saturating_add);
            self.shrinker
                .memory_is_short(at, self.groups.len(), &mut self.sizes, self.min_window);
        }
        evict_behind(&mut self.groups, &self.sizes)
    }

    /// Finds the group and the position of an access. Counts accesses that the template does not
    /// have.
    fn attribute(&mut self, access: &FileAccess) -> Option<AttributedAccess> {
        let Some(&(file, len)) = self.files.get(&access.path) else {
            if access
                .path
                .parent()
                .is_some_and(|folder| self.directories.contains(folder))
            {
                self.off_template.off_template(access.len);
            }
            return None;
        };
        // an event of unknown length is of one page
        let end = access.start.saturating_add(access.len.max(PAGE)).min(len);
        if access.start >= end {
            return None;
        }
        let bytes = FileSpan {
            file,
            start: access.start,
            end,
        };
        // An access may cover pages of several groups. Its first page, which the process requested,
        // decides the group; the rest may be read-ahead.
        let page = FileSpan {
            end: end.min(bytes.start + PAGE),
            ..bytes
        };
        let groups = &self.groups;
        let has = |group: usize| groups[group].schedule.contains(&page);
        let group = self.workers.group(access.pid, &self.ranks, has)?;
        let Some(position) = self.groups[group].find(&bytes, &self.sizes) else {
            if !self
                .groups
                .iter()
                .any(|group| group.schedule.contains(&page))
            {
                self.off_template.off_template(bytes.len());
            }
            return None;
        };
        self.off_template.expected();
        self.assign_process(group, access.pid);
        let head = bytes.start < HEADER_REGION && bytes.len() <= HEADER_READ;
        Some(AttributedAccess {
            group,
            access: ObservedAccess {
                position,
                head,
                time: access.time,
            },
        })
    }

    fn assign_process(&mut self, group: usize, pid: u32) {
        if self.groups[group].pid == Some(pid) {
            return;
        }
        self.groups[group].pid = Some(pid);
        // Several processes may read for one group in turn. Each is looked up once.
        if !self.affinity
            || self.probed_processes.len() >= MAX_PROCESSES
            || !self.probed_processes.insert(pid)
        {
            return;
        }
        if let Some(device) = self.accelerators.held_by(pid) {
            self.groups[group].schedule.set_device(Some(device));
        }
    }

    /// Adds the state of the groups to `state`.
    pub(crate) fn report(&self, state: &mut MaioState) {
        state.phase = if self.off_template.is_stale() {
            MaioPhase::OffTemplate
        } else {
            MaioPhase::Following
        };
        state.wanted = self.off_template.footprint();
        if self.off_template.is_stale() {
            state.reason = Some(self.off_template.reason());
        }
        (state.distance, state.window) = (self.sizes.distance, self.sizes.window);
        (state.off_template, state.off_template_share) =
            (self.off_template.count(), self.off_template.share());
        let group = |group: &FollowedGroup| GroupState {
            rank: group.rank,
            name: group.name.to_string(),
            pid: group.pid,
            nbytes: group.schedule.nbytes(),
            position: group.position.current(),
            restarts: group.prefetch.restarts(),
            jumps: group.position.jumps(),
            evicted: group.evicted,
        };
        state.groups = self.groups.iter().map(group).collect();
    }
}
