//! Following a template: from accesses to what is brought and let go.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::{Access, Ios, Prefetch};
use anamnesis_template::Template;

use crate::burn::burn;
use crate::config::Config;
use crate::convoy::Convoy;
use crate::group::{Group, Seen};
use crate::model::Model;
use crate::pieces::{PAGE, Range, cut, footprint, piece, ranges};
use crate::route::Route;
use crate::share::{Pressure, Share};
use crate::state::{GroupState, Phase, State};
use crate::strays::Strays;
use crate::workers::{Accelerators, Workers};

/// How far into a file a small access is a look at what it is.
const HEAD: u64 = 1 << 20;
/// How large such a look is.
const LOOK: u64 = 256 << 10;
/// Processes whose accelerator is looked for.
const PROCESSES: usize = 1 << 16;

/// A template that is followed.
#[derive(Debug)]
pub(crate) struct Follow {
    groups: Vec<Group>,
    /// The groups as one, if there is memory for all.
    convoy: Option<Convoy>,
    ranks: Vec<u32>,
    files: HashMap<Arc<Path>, (u32, u64)>,
    folders: HashSet<PathBuf>,
    workers: Workers,
    accelerators: Accelerators,
    share: Share,
    pressure: Pressure,
    /// The smallest window.
    least: u64,
    strays: Strays,
    /// Whether every access is told.
    told: bool,
    prefetch: bool,
    affinity: bool,
    /// Processes whose accelerator was looked for.
    asked: HashSet<u32>,
}

/// An access of a group.
struct Place {
    group: usize,
    seen: Seen,
}

impl Follow {
    /// Follows `template`, whose files are those of `model`, with `memory` bytes of page cache, on the machine below
    /// `root`.
    pub(crate) fn new(
        template: &Template,
        model: &Model,
        config: &Config,
        memory: u64,
        root: &Path,
    ) -> Self {
        let accelerators = Accelerators::new(root, config.devices.as_deref());
        let entries: Vec<_> = template
            .files()
            .iter()
            .map(|file| model.entry(&file.path))
            .collect();
        let lens: Vec<u64> = entries
            .iter()
            .map(|entry| entry.map_or(0, |entry| entry.len))
            .collect();
        let paths: Vec<Arc<Path>> = entries
            .iter()
            .map(|e| e.map_or(Path::new("").into(), |e| Arc::clone(&e.path)))
            .collect();
        let here = |rank: u32| {
            config
                .ranks
                .is_none_or(|(first, last)| (first..=last).contains(&rank))
        };
        let groups: Vec<_> = template
            .groups()
            .iter()
            .filter(|group| here(group.rank()))
            .collect();
        let all: Vec<Vec<Range>> = groups
            .iter()
            .map(|group| ranges(group.accesses(), &lens))
            .collect();
        let sums = all
            .iter()
            .map(|ranges| ranges.iter().map(Range::len).fold(0, u64::saturating_add));
        let sums: Vec<u64> = sums.collect();
        let piece = piece(sums.iter().copied().max().unwrap_or(0));
        let sum = sums.iter().copied().fold(0, u64::saturating_add);
        let footprint = footprint(all.iter().flatten());
        let share = Share::new(config, memory, groups.len(), sum, footprint, piece);
        let groups: Vec<Group> = groups
            .iter()
            .zip(&all)
            .map(|(group, ranges)| {
                let device = accelerators.of(group.rank()).filter(|_| config.affinity);
                Group::new(
                    group.rank(),
                    group.name(),
                    Route::new(&cut(ranges, piece), piece, &paths, device),
                )
            })
            .collect();
        let differ = groups
            .windows(2)
            .any(|pair| !pair[0].route.alike(&pair[1].route));
        let numbered = (0..).zip(paths).zip(lens);
        let folders = numbered
            .clone()
            .filter_map(|((_, path), _)| path.parent().map(PathBuf::from))
            .collect();
        let all = share.window.is_none() && !share.short;
        Self {
            convoy: if all {
                Convoy::new(&groups, piece, root)
            } else {
                None
            },
            ranks: groups.iter().map(|group| group.rank).collect(),
            groups,
            files: numbered
                .map(|((number, path), len)| (path, (number, len)))
                .collect(),
            folders,
            workers: Workers::new(&config.workers, differ, &root.join("proc"), &accelerators),
            accelerators,
            share,
            pressure: Pressure::default(),
            least: 4 * piece,
            strays: Strays::new(footprint),
            told: config
                .touch
                .unwrap_or(share.window.is_some() || (share.short && config.evict)),
            prefetch: config.prefetch,
            affinity: config.affinity,
            asked: HashSet::new(),
        }
    }

    /// Whether every access shall be told.
    pub(crate) fn told(&self) -> bool {
        self.told
    }

    /// The files of the template.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(|path| &**path)
    }

    /// The service begins.
    pub(crate) fn start(&mut self) -> Vec<Prefetch> {
        let share = self.share;
        match &mut self.convoy {
            Some(convoy) => convoy.start(&mut self.groups).into_iter().collect(),
            None => self
                .groups
                .iter_mut()
                .filter_map(|group| group.start(&share))
                .collect(),
        }
    }

    /// A process waits for bytes.
    pub(crate) fn miss(&mut self, miss: &Access) -> Option<Prefetch> {
        self.wait(miss).filter(|_| self.prefetch)
    }

    fn wait(&mut self, miss: &Access) -> Option<Prefetch> {
        let Place { group: g, seen } = self.place(miss)?;
        let group = &mut self.groups[g];
        let first = group.miss(&seen, &self.share, self.told)?;
        match &mut self.convoy {
            Some(convoy) => convoy.answer(g, first, seen.time, &mut self.groups),
            None => Some(group.begin(first, seen.time, &self.share)),
        }
    }

    /// A process accessed bytes.
    pub(crate) fn touch(&mut self, access: &Access) -> Option<Prefetch> {
        let place = self.place(access)?;
        let prefetch = self.groups[place.group].touch(&place.seen, &self.share);
        prefetch.filter(|_| self.prefetch)
    }

    /// Memory is short.
    pub(crate) fn evict(&mut self, miss: Option<&Access>) -> Option<Ios> {
        if let Some(miss) = miss.filter(|_| !self.prefetch) {
            self.wait(miss);
        }
        if self.told {
            let at = self
                .groups
                .iter()
                .map(|group| group.front.at())
                .fold(0, u64::saturating_add);
            self.pressure
                .felt(at, self.groups.len(), &mut self.share, self.least);
        }
        burn(&mut self.groups, &self.share)
    }

    /// Whose access it is, and where on its way.
    fn place(&mut self, access: &Access) -> Option<Place> {
        let Some(&(file, len)) = self.files.get(&access.path) else {
            if access
                .path
                .parent()
                .is_some_and(|folder| self.folders.contains(folder))
            {
                self.strays.stray(access.len);
            }
            return None;
        };
        let end = access.start.saturating_add(access.len.max(PAGE)).min(len);
        if access.start >= end {
            return None;
        }
        let bytes = Range {
            file,
            start: access.start,
            end,
        };
        // in doubt, the page that was asked for says whose it is
        let page = Range {
            end: end.min(bytes.start + PAGE),
            ..bytes
        };
        let groups = &self.groups;
        let has = |group: usize| groups[group].route.has(&page);
        let group = self.workers.group(access.pid, &self.ranks, has)?;
        let Some(spot) = self.groups[group].find(&bytes, &self.share) else {
            if !self.groups.iter().any(|group| group.route.has(&page)) {
                self.strays.stray(bytes.len());
            }
            return None;
        };
        self.strays.expected();
        self.claim(group, access.pid);
        let head = bytes.start < HEAD && bytes.len() <= LOOK;
        Some(Place {
            group,
            seen: Seen {
                spot,
                head,
                time: access.time,
            },
        })
    }

    fn claim(&mut self, group: usize, pid: u32) {
        if self.groups[group].pid == Some(pid) {
            return;
        }
        self.groups[group].pid = Some(pid);
        // several processes may read one group in turn
        if !self.affinity || self.asked.len() >= PROCESSES || !self.asked.insert(pid) {
            return;
        }
        if let Some(device) = self.accelerators.held(pid) {
            self.groups[group].route.aim(Some(device));
        }
    }

    /// Tells what it is doing.
    pub(crate) fn tell(&self, state: &mut State) {
        state.phase = if self.strays.left() {
            Phase::Left
        } else {
            Phase::Following
        };
        (state.distance, state.window) = (self.share.distance, self.share.window);
        (state.strays, state.stray_share) = (self.strays.count(), self.strays.share());
        let group = |group: &Group| GroupState {
            rank: group.rank,
            name: group.name.to_string(),
            pid: group.pid,
            nbytes: group.route.nbytes(),
            front: group.front.at(),
            restarts: group.lane.restarts(),
            jumps: group.front.jumps(),
            evicted: group.evicted,
        };
        state.groups = self.groups.iter().map(group).collect();
    }
}
