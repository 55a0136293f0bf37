//! A simulated machine: files, a page cache of limited memory, a device, a prefetcher with queues, and readers. It calls a
//! policy as the runtime does. Memory is counted in blocks of 64 KiB; a step is a millisecond.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use anamnesis_maio::{Maio, MaioState};
use anamnesis_ppc::{
    EventKind, FileAccess, Interests, Namespace, Policy, PolicyContext, PrefetchRequest,
};
use anamnesis_template::{ByteRange, File, Template, TemplateBuilder};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const BLOCK: u64 = 64 << 10;

/// A directory with sparse files of these lengths: `0.safetensors`, `1.safetensors`, ….
pub(crate) fn create_model(lens: &[u64]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (i, len) in lens.iter().enumerate() {
        std::fs::File::create(dir.path().join(file_name(i)))
            .unwrap()
            .set_len(*len)
            .unwrap();
    }
    dir
}

pub(crate) fn file_name(file: usize) -> String {
    format!("{file}.safetensors")
}

/// The number of a file, the first byte, and the number of bytes.
pub(crate) type FileRead = (usize, u64, u64);

/// Reads of the whole files that `selects` returns true for.
pub(crate) fn whole_files(lens: &[u64], selects: impl Fn(usize) -> bool) -> Vec<FileRead> {
    (0..lens.len())
        .filter(|&file| selects(file))
        .map(|file| (file, 0, lens[file]))
        .collect()
}

/// A template with one group per worker, which contains its reads.
pub(crate) fn create_template(dir: &Path, lens: &[u64], workers: &[Vec<FileRead>]) -> Template {
    let mut builder = TemplateBuilder::new();
    for file in 0..lens.len() {
        builder
            .file(File::probe(dir, &file_name(file)).unwrap())
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

/// A block of a file: its state in the page cache, and its history.
#[derive(Clone, Default)]
struct SimulatedBlock {
    resident: bool,
    /// The step in which it was last read or loaded.
    last_used: u64,
    /// How often the device read it.
    loads: u32,
    /// Whether the policy has evicted it.
    evicted: bool,
}

/// A process that reads in order, as a worker of an inference service does.
pub(crate) struct SimulatedReader {
    pub(crate) pid: u32,
    pub(crate) reads: Vec<FileRead>,
    /// Limit on the blocks that it reads in a step.
    pub(crate) blocks_per_step: u64,
    /// Threads, among which its reads are divided by megabytes in turn.
    pub(crate) threads: usize,
    /// The step in which it starts, counted from the start of the run.
    pub(crate) start_step: u64,
}

/// The simulated machine, with a registered policy.
pub(crate) struct Simulation {
    pub(crate) policy: Maio,
    pub(crate) interests: Interests,
    files: Vec<Vec<SimulatedBlock>>,
    paths: Vec<Arc<Path>>,
    lens: Vec<u64>,
    /// Blocks that fit into memory.
    pub(crate) memory: u64,
    /// Blocks that the device reads in a step.
    pub(crate) device_rate: u64,
    /// Whether the prefetcher pauses when nine tenths of memory are in use.
    pub(crate) pauses_at_limit: bool,
    resident: u64,
    /// Steps since the start.
    pub(crate) now: u64,
    pub(crate) misses: u64,
    /// Blocks that were reclaimed because memory was full.
    pub(crate) reclaimed: u64,
    /// Misses of blocks that the policy had evicted.
    pub(crate) misses_after_eviction: u64,
    /// Prefetch requests of the policy.
    pub(crate) requests: u64,
    /// The file and number of each block that is still to be prefetched, by queue.
    queues: BTreeMap<u32, VecDeque<(usize, usize)>>,
    /// Blocks that the device can still read in this step.
    device_budget: u64,
}

impl Simulation {
    /// Registers a policy with this configuration, on a machine with `memory` bytes, of which the runtime permits nine
    /// tenths, and a device that reads `device_rate` blocks in a step.
    pub(crate) fn new(
        dir: &Path,
        lens: &[u64],
        config: &str,
        memory: u64,
        device_rate: u64,
    ) -> Self {
        let namespace = Arc::new(Namespace::scan(dir).unwrap());
        let paths = (0..lens.len())
            .map(|i| Arc::clone(&namespace.get(Path::new(&file_name(i))).unwrap().path))
            .collect();
        let mut policy = Maio::new().root(dir.join("nowhere"));
        policy
            .init(&PolicyContext {
                namespace,
                config: config.into(),
                memory: memory / 10 * 9,
            })
            .unwrap();
        let blocks = |len: &u64| {
            vec![SimulatedBlock::default(); usize::try_from(len.div_ceil(BLOCK)).unwrap()]
        };
        Self {
            interests: policy.interests(),
            policy,
            files: lens.iter().map(blocks).collect(),
            paths,
            lens: lens.into(),
            memory: memory / BLOCK,
            device_rate,
            pauses_at_limit: true,
            resident: 0,
            now: 0,
            misses: 0,
            reclaimed: 0,
            misses_after_eviction: 0,
            requests: 0,
            queues: BTreeMap::new(),
            device_budget: 0,
        }
    }

    pub(crate) fn state(&self) -> MaioState {
        self.policy.state()
    }

    /// Submits what the policy prefetches before the first access.
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
        let started = self.now;
        let mut readers: Vec<_> = readers
            .into_iter()
            .map(|reader| (threads(&reader), reader))
            .collect();
        while readers
            .iter()
            .any(|(threads, _)| threads.iter().any(|thread| !thread.is_empty()))
        {
            self.step();
            for (threads, reader) in &mut readers {
                if self.now < started + reader.start_step {
                    continue;
                }
                let mut remaining = reader.blocks_per_step;
                // threads read in turn, in an irregular order
                let count = threads.len();
                let mut waiting = 0;
                while remaining > 0 && waiting < count {
                    let thread = usize::try_from(self.now + remaining).unwrap() * 7 % count;
                    let thread = (0..count)
                        .map(|i| (thread + i) % count)
                        .find(|&t| !threads[t].is_empty());
                    let Some(thread) = thread else { break };
                    let (file, block) = threads[thread][0];
                    if self.read(reader.pid, file, block) {
                        threads[thread].pop_front();
                        waiting = 0;
                    } else {
                        waiting += 1;
                    }
                    remaining -= 1;
                }
            }
            assert!(
                self.now < started + 1_000_000,
                "the readers make no progress"
            );
        }
        self.now - started
    }

    /// A process reads one block; `false` if it is not resident and the device can read no more in this step.
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
        if !self.files[file][block].resident {
            if self.device_budget == 0 {
                return false;
            }
            access.kind = EventKind::Miss;
            self.misses += 1;
            self.misses_after_eviction += u64::from(self.files[file][block].evicted);
            if self.interests.evict && self.is_full() {
                self.evict(Some(&access));
            }
            if self.interests.prefetch
                && let Some(prefetch) = self.policy.prefetch(&access)
            {
                self.submit(prefetch);
            }
            self.device_budget -= 1;
            self.load(file, block);
        }
        access.kind = EventKind::Touch;
        if self.interests.touch
            && let Some(prefetch) = self.policy.touch(&access)
        {
            self.submit(prefetch);
        }
        self.files[file][block].last_used = self.now;
        true
    }

    /// Replaces the list of a queue. All bytes of the request must exist.
    fn submit(&mut self, prefetch: PrefetchRequest) {
        self.requests += 1;
        let mut blocks = VecDeque::new();
        for io in prefetch.ranges.iter() {
            blocks.extend(self.blocks(&io.path, io.start, io.len));
        }
        self.queues.insert(prefetch.queue, blocks);
    }

    fn blocks(&self, path: &Arc<Path>, start: u64, len: u64) -> Vec<(usize, usize)> {
        let file = self
            .paths
            .iter()
            .position(|other| other == path)
            .expect("a file of the namespace");
        assert!(
            len > 0 && start + len <= self.lens[file],
            "{len} bytes at {start} of a file of {}",
            self.lens[file]
        );
        let block = |at: u64| usize::try_from(at / BLOCK).unwrap();
        (block(start)..=block(start + len - 1))
            .map(|block| (file, block))
            .collect()
    }

    /// Whether the runtime would request evictions: memory is in use by more than 85 %.
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
                // a block is evicted only as a whole: its other bytes may still be read
                let (first, last) = (
                    block as u64 * BLOCK,
                    (block as u64 * BLOCK + BLOCK).min(self.lens[file]),
                );
                let block_state = &mut self.files[file][block];
                if block_state.resident && io.start <= first && last <= io.start + io.len {
                    (block_state.resident, block_state.evicted) = (false, true);
                    self.resident -= 1;
                }
            }
        }
    }

    fn step(&mut self) {
        self.now += 1;
        self.device_budget = self.device_rate;
        if self.interests.idle {
            for prefetch in self.policy.idle(self.now * 1_000_000) {
                self.submit(prefetch);
            }
            self.interests = self.policy.interests();
        }
        if self.interests.evict && self.is_full() && self.now.is_multiple_of(10) {
            self.evict(None);
        }
        // the prefetcher uses the device first, one block per queue in turn; readers use the rest, at least one block
        let mut device_left = self.device_rate;
        while device_left > 0 && (!self.pauses_at_limit || self.resident < self.memory / 10 * 9) {
            let mut any = false;
            for queue in self.queues.keys().copied().collect::<Vec<_>>() {
                let next = loop {
                    match self.queues.get_mut(&queue).and_then(VecDeque::pop_front) {
                        Some((file, block)) if self.files[file][block].resident => continue,
                        next => break next,
                    }
                };
                if let Some((file, block)) = next.filter(|_| device_left > 0) {
                    any = true;
                    device_left -= 1;
                    self.load(file, block);
                }
            }
            if !any {
                break;
            }
        }
        self.device_budget = device_left.max(1);
    }

    fn load(&mut self, file: usize, block: usize) {
        let block_state = &mut self.files[file][block];
        assert!(!block_state.resident);
        (block_state.resident, block_state.last_used) = (true, self.now);
        block_state.loads += 1;
        self.resident += 1;
        if self.resident > self.memory {
            let block_states = self
                .files
                .iter_mut()
                .flatten()
                .filter(|block_state| block_state.resident);
            if let Some(oldest) = block_states.min_by_key(|block_state| block_state.last_used) {
                oldest.resident = false;
                self.resident -= 1;
                self.reclaimed += 1;
            }
        }
    }

    /// How often the block that the device read most often was read.
    pub(crate) fn max_loads_of_a_block(&self) -> u32 {
        self.files
            .iter()
            .flatten()
            .map(|block_state| block_state.loads)
            .max()
            .unwrap_or(0)
    }

    /// Number of blocks that the device read.
    pub(crate) fn loads(&self) -> u64 {
        self.files
            .iter()
            .flatten()
            .map(|block_state| u64::from(block_state.loads))
            .sum()
    }
}

/// The blocks that each thread of a reader reads, in order.
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
