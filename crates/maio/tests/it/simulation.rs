//! A simulated machine: files, a page cache of limited memory, a device, a prefetcher with queues, and
//! readers. It calls a policy as the runtime does. Memory is counted in blocks of 64 KiB; a step is a
//! millisecond.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use anamnesis_maio::{Maio, MaioState};
use anamnesis_ppc::{
    EventKind, FileAccess, Interests, Namespace, Policy, PolicyContext, PrefetchRequest,
};
use anamnesis_template::{ByteRange, File, Template, TemplateBuilder};

pub(crate) const M: u64 = 1 << 20;
pub(crate) const BLOCK: u64 = 64 << 10;

/// Creates a directory with sparse files of these lengths: `0.safetensors`, `1.safetensors`, ….
pub(crate) fn model(lens: &[u64]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (i, len) in lens.iter().enumerate() {
        std::fs::File::create(dir.path().join(name(i)))
            .unwrap()
            .set_len(*len)
            .unwrap();
    }
    dir
}

pub(crate) fn name(file: usize) -> String {
    format!("{file}.safetensors")
}

/// Bytes of a file: its number, the first byte, the number of bytes.
pub(crate) type Read = (usize, u64, u64);

/// Reads of the whole files for which `of` returns true.
pub(crate) fn files_of(lens: &[u64], of: impl Fn(usize) -> bool) -> Vec<Read> {
    (0..lens.len())
        .filter(|&file| of(file))
        .map(|file| (file, 0, lens[file]))
        .collect()
}

/// The template of workers that read these bytes.
pub(crate) fn template(dir: &Path, lens: &[u64], workers: &[Vec<Read>]) -> Template {
    let mut builder = TemplateBuilder::new();
    for file in 0..lens.len() {
        builder
            .file(File::probe(dir, &name(file)).unwrap())
            .unwrap();
    }
    for (rank, reads) in (0..).zip(workers) {
        builder.group(rank, "");
        for &(file, start, len) in reads {
            let file = u32::try_from(file).unwrap();
            builder
                .access(rank, ByteRange { file, start, len }, None)
                .unwrap();
        }
    }
    builder.finish()
}

/// One block of the page cache.
#[derive(Clone, Default)]
pub(crate) struct Block {
    pub(crate) resident: bool,
    pub(crate) used: u64,
    pub(crate) loads: u32,
    pub(crate) reads: u32,
    pub(crate) evicted: bool,
}

/// A worker and what it reads.
pub(crate) struct SimulatedReader {
    pub(crate) pid: u32,
    pub(crate) reads: Vec<Read>,
    /// Blocks that it can read in a step.
    pub(crate) pace: u64,
    /// Threads that read a megabyte each in turn.
    pub(crate) threads: usize,
    pub(crate) begins: u64,
}

pub(crate) struct World {
    pub(crate) policy: Maio,
    pub(crate) wants: Interests,
    pub(crate) files: Vec<Vec<Block>>,
    pub(crate) paths: Vec<Arc<Path>>,
    pub(crate) lens: Vec<u64>,
    /// Blocks that fit into memory.
    pub(crate) memory: u64,
    /// Blocks that the device reads in a step.
    pub(crate) device: u64,
    /// Whether the prefetcher pauses while memory is short.
    pub(crate) waits: bool,
    pub(crate) resident: u64,
    pub(crate) now: u64,
    pub(crate) misses: u64,
    pub(crate) reclaimed: u64,
    pub(crate) reread: u64,
    pub(crate) requests: u64,
    lanes: BTreeMap<u32, VecDeque<(usize, usize)>>,
    budget: u64,
}

impl World {
    /// Registers a policy with this configuration, on a machine with `memory` bytes, of which the
    /// runtime permits nine tenths, and a device that reads `device` blocks in a step.
    pub(crate) fn new(dir: &Path, lens: &[u64], config: &str, memory: u64, device: u64) -> Self {
        let namespace = Arc::new(Namespace::scan(dir).unwrap());
        let paths = (0..lens.len())
            .map(|i| Arc::clone(&namespace.get(Path::new(&name(i))).unwrap().path))
            .collect();
        let mut policy = Maio::new().root(dir.join("nowhere"));
        policy
            .init(&PolicyContext {
                namespace,
                config: config.into(),
                memory: memory / 10 * 9,
            })
            .unwrap();
        let blocks =
            |len: &u64| vec![Block::default(); usize::try_from(len.div_ceil(BLOCK)).unwrap()];
        Self {
            wants: policy.interests(),
            policy,
            files: lens.iter().map(blocks).collect(),
            paths,
            lens: lens.into(),
            memory: memory / BLOCK,
            device,
            waits: true,
            resident: 0,
            now: 0,
            misses: 0,
            reclaimed: 0,
            reread: 0,
            requests: 0,
            lanes: BTreeMap::new(),
            budget: 0,
        }
    }

    pub(crate) fn state(&self) -> MaioState {
        self.policy.state()
    }

    pub(crate) fn start(&mut self) {
        for prefetch in self.policy.start() {
            self.submit(prefetch);
        }
    }

    /// Runs steps without a reader.
    pub(crate) fn idle(&mut self, steps: u64) {
        (0..steps).for_each(|_| self.step());
    }

    /// Runs until the readers have read everything; returns the number of steps.
    pub(crate) fn run(&mut self, readers: Vec<SimulatedReader>) -> u64 {
        let began = self.now;
        let mut left: Vec<_> = readers
            .into_iter()
            .map(|reader| (threads(&reader), reader))
            .collect();
        while left
            .iter()
            .any(|(threads, _)| threads.iter().any(|thread| !thread.is_empty()))
        {
            self.step();
            for (threads, reader) in &mut left {
                if self.now < began + reader.begins {
                    continue;
                }
                let mut pace = reader.pace;
                // threads read in turn, unevenly
                let count = threads.len();
                let mut stuck = 0;
                while pace > 0 && stuck < count {
                    let thread = usize::try_from(self.now + pace).unwrap() * 7 % count;
                    let thread = (0..count)
                        .map(|i| (thread + i) % count)
                        .find(|&t| !threads[t].is_empty());
                    let Some(thread) = thread else { break };
                    let (file, block) = threads[thread][0];
                    if self.read(reader.pid, file, block) {
                        threads[thread].pop_front();
                        stuck = 0;
                    } else {
                        stuck += 1;
                    }
                    pace -= 1;
                }
            }
            assert!(self.now < began + 1_000_000, "the readers make no progress");
        }
        self.now - began
    }

    /// Reads one block; `false` if it is not resident and the device has no time left in this step.
    pub(crate) fn read(&mut self, pid: u32, file: usize, block: usize) -> bool {
        let start = block as u64 * BLOCK;
        let len = BLOCK.min(self.lens[file] - start);
        let path = Arc::clone(&self.paths[file]);
        let mut access = FileAccess {
            kind: EventKind::Touch,
            path,
            start,
            len,
            pid,
            tid: pid,
            time: self.now * 1_000_000,
        };
        let here = self.files[file][block].resident;
        if !here {
            if self.budget == 0 {
                return false;
            }
            access.kind = EventKind::Miss;
            self.misses += 1;
            self.reread += u64::from(self.files[file][block].evicted);
            if self.wants.evict && self.is_full() {
                self.evict(Some(&access));
            }
            if self.wants.prefetch
                && let Some(prefetch) = self.policy.prefetch(&access)
            {
                self.submit(prefetch);
            }
            self.budget -= 1;
            self.load(file, block);
        }
        access.kind = EventKind::Touch;
        if self.wants.touch
            && let Some(prefetch) = self.policy.touch(&access)
        {
            self.submit(prefetch);
        }
        let row = &mut self.files[file][block];
        row.used = self.now;
        row.reads += 1;
        true
    }

    /// Queues a request of the policy, whose bytes must lie in the files.
    pub(crate) fn submit(&mut self, prefetch: PrefetchRequest) {
        self.requests += 1;
        let mut blocks = VecDeque::new();
        for io in prefetch.ranges.iter() {
            blocks.extend(self.blocks(&io.path, io.start, io.len));
        }
        self.lanes.insert(prefetch.queue, blocks);
    }

    fn blocks(&self, path: &Arc<Path>, start: u64, len: u64) -> Vec<(usize, usize)> {
        let file = self
            .paths
            .iter()
            .position(|other| other == path)
            .expect("a file of the namespace");
        assert!(
            len > 0 && start + len <= self.lens[file],
            "bytes {start}+{len} of a file of {}",
            self.lens[file]
        );
        let block = |at: u64| usize::try_from(at / BLOCK).unwrap();
        (block(start)..=block(start + len - 1))
            .map(|block| (file, block))
            .collect()
    }

    fn is_full(&self) -> bool {
        self.resident > self.memory / 20 * 17
    }

    fn evict(&mut self, miss: Option<&FileAccess>) {
        for io in self
            .policy
            .evict(miss)
            .iter()
            .flat_map(|ranges| ranges.iter())
        {
            for (file, block) in self.blocks(&io.path, io.start, io.len) {
                // a block is evicted only as a whole: the rest may still be needed
                let (first, last) = (
                    block as u64 * BLOCK,
                    (block as u64 * BLOCK + BLOCK).min(self.lens[file]),
                );
                let row = &mut self.files[file][block];
                if row.resident && io.start <= first && last <= io.start + io.len {
                    (row.resident, row.evicted) = (false, true);
                    self.resident -= 1;
                }
            }
        }
    }

    fn step(&mut self) {
        self.now += 1;
        self.budget = self.device;
        if self.wants.evict && self.is_full() && self.now.is_multiple_of(10) {
            self.evict(None);
        }
        // the prefetcher uses the device first, one block per queue in turn; readers get the rest, at least one block
        let mut share = self.device;
        while share > 0 && (!self.waits || self.resident < self.memory / 10 * 9) {
            let mut any = false;
            for lane in self.lanes.keys().copied().collect::<Vec<_>>() {
                let next = loop {
                    match self.lanes.get_mut(&lane).and_then(VecDeque::pop_front) {
                        Some((file, block)) if self.files[file][block].resident => continue,
                        next => break next,
                    }
                };
                if let Some((file, block)) = next.filter(|_| share > 0) {
                    any = true;
                    share -= 1;
                    self.load(file, block);
                }
            }
            if !any {
                break;
            }
        }
        self.budget = share.max(1);
    }

    fn load(&mut self, file: usize, block: usize) {
        let row = &mut self.files[file][block];
        assert!(!row.resident);
        (row.resident, row.used) = (true, self.now);
        row.loads += 1;
        self.resident += 1;
        if self.resident > self.memory {
            let rows = self.files.iter_mut().flatten().filter(|row| row.resident);
            if let Some(oldest) = rows.min_by_key(|row| row.used) {
                oldest.resident = false;
                self.resident -= 1;
                self.reclaimed += 1;
            }
        }
    }

    /// The largest number of times that one block was read from the device.
    pub(crate) fn most_loads(&self) -> u32 {
        self.files
            .iter()
            .flatten()
            .map(|row| row.loads)
            .max()
            .unwrap_or(0)
    }

    /// Number of blocks read from the device.
    pub(crate) fn loads(&self) -> u64 {
        self.files
            .iter()
            .flatten()
            .map(|row| u64::from(row.loads))
            .sum()
    }
}

fn threads(reader: &SimulatedReader) -> Vec<VecDeque<(usize, usize)>> {
    let mut threads = vec![VecDeque::new(); reader.threads];
    let mut turn = 0;
    for &(file, start, len) in &reader.reads {
        let mut block = usize::try_from(start / BLOCK).unwrap();
        let end = usize::try_from((start + len).div_ceil(BLOCK)).unwrap();
        while block < end {
            let until = end.min(block + 16);
            threads[turn % reader.threads].extend((block..until).map(|block| (file, block)));
            (block, turn) = (until, turn + 1);
        }
    }
    threads
}
