//! One load: which reads make which tensors, and making them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use zeropool::{Buffer, BufferPool};

use super::cut::{Cut, Runs};
use super::loaded::LoadedTensor;
use super::{Chunk, Feed, room};
use crate::catalog::ByteRange;
use crate::error::Result;
use crate::execute::{Course, Pace, Watch, threads_for};
use crate::tensor::Tensor;

/// A tensor to be loaded, or a part of one.
pub(super) struct Task<'c> {
    pub(super) tensor: Tensor<'c>,
    pub(super) runs: Runs,
    pub(super) origin: Origin,
}

/// Where a tensor's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A read of its own.
    Read(usize),
    /// The runs of a part: so many reads from this one on.
    Runs(usize),
    /// The runs of a part, out of one read that has them all.
    Within(usize),
    /// The bytes of an earlier tensor.
    Same(usize),
    /// Inflated, gathered or turned around.
    Made,
}

/// Runs of one tensor that are read one by one; more are read as one, with what is between them.
const RUNS: u64 = 1 << 16;

/// Bytes whose checking takes as long as beginning with a tensor; of what is far away one asks for several at once.
const LEAST: u64 = 4 << 10;

/// What the loader is asked to read, and which task wants it. `keep`: tensors stay, so that those of the same bytes
/// may share them.
pub(super) fn tasks<'c>(
    tensors: impl Iterator<Item = Tensor<'c>>,
    cut: impl Fn(&Tensor<'c>) -> Cut,
    keep: bool,
) -> Result<(Vec<ByteRange>, Vec<Task<'c>>)> {
    let mut reads = Vec::new();
    let mut known = HashMap::new();
    let mut tasks: Vec<Task<'c>> = Vec::new();
    for tensor in tensors {
        let number = tasks.len();
        let runs = cut(&tensor).runs(tensor.info())?;
        let bytes = tensor.info().bytes;
        let range = |start: u64, len: u64| ByteRange {
            start: bytes.start.saturating_add(start),
            len,
            ..bytes
        };
        let first = reads.len();
        let origin = if !tensor.lies_as_it_is()
            || tensor.is_guarded() && runs.nbytes() < tensor.info().nbytes()
        {
            Origin::Made
        } else if runs.count > RUNS {
            reads.push(range(runs.start, runs.reach()));
            Origin::Within(first)
        } else if runs.count > 1 {
            reads.extend(runs.starts().map(|start| range(start, runs.len)));
            Origin::Runs(first)
        } else {
            match known.entry((bytes.file, bytes.start, runs.start, runs.len)) {
                Entry::Occupied(first) if keep => Origin::Same(*first.get()),
                entry => {
                    entry.insert_entry(number);
                    reads.push(range(runs.start, runs.len));
                    Origin::Read(first)
                }
            }
        };
        tasks.push(Task {
            tensor,
            runs,
            origin,
        });
    }
    Ok((reads, tasks))
}

/// One load.
pub(super) struct Run<'r, 'c> {
    pub(super) pool: &'r BufferPool,
    pub(super) own: bool,
    pub(super) tasks: &'r [Task<'c>],
    pub(super) course: Course<'r>,
    loaded: Vec<OnceLock<Chunk<'c>>>,
    next: AtomicUsize,
}

impl<'r, 'c> Run<'r, 'c> {
    pub(super) fn new(
        pool: &'r BufferPool,
        own: bool,
        tasks: &'r [Task<'c>],
        watch: Watch<'r>,
    ) -> Self {
        Self {
            pool,
            own,
            tasks,
            course: Course::new(watch),
            loaded: tasks.iter().map(|_| OnceLock::new()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Loads every tensor; with several threads only if there is enough to do besides waiting.
    pub(super) fn all(&self, feed: &dyn Feed<'c>, threads: usize) -> Result<()> {
        let busy = |task: &&Task<'_>| {
            task.tensor.is_guarded() || !matches!(task.origin, Origin::Read(_) | Origin::Same(_))
        };
        let (busy, bytes) = self
            .tasks
            .iter()
            .filter(busy)
            .fold((0, 0u64), |(n, all), task| {
                (n + 1, all.saturating_add(task.runs.nbytes().max(LEAST)))
            });
        thread::scope(|scope| {
            for _ in 1..threads_for(threads, bytes).min(busy) {
                // one is enough
                let _ = thread::Builder::new()
                    .name("load".into())
                    .spawn_scoped(scope, || self.worker(feed));
            }
            self.worker(feed);
        });
        self.course.failure.outcome()
    }

    fn worker(&self, feed: &dyn Feed<'c>) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = self
                .tasks
                .get(number)
                .filter(|_| !self.course.failure.is_seen())
            else {
                return;
            };
            match self.chunk(task, feed) {
                Ok(Some(chunk)) => drop(self.loaded[number].set(chunk)),
                Ok(None) => {}
                Err(error) => self.course.failure.tell(error),
            }
        }
    }

    /// The next tensor of a stream.
    pub(super) fn next(&self, feed: &dyn Feed<'c>) -> Option<Result<LoadedTensor<'c>>> {
        let task = self.tasks.get(self.next.fetch_add(1, Ordering::Relaxed))?;
        let chunk = self
            .chunk(task, feed)
            .transpose()
            .expect("no tensor of a stream has another's bytes");
        Some(chunk.map(|chunk| LoadedTensor::new(task, chunk)))
    }

    /// The bytes of a task; `None` if they are those of another.
    fn chunk(&self, task: &Task<'c>, feed: &dyn Feed<'c>) -> Result<Option<Chunk<'c>>> {
        let Task {
            tensor,
            runs,
            origin,
        } = task;
        match *origin {
            Origin::Made => tensor.reads(&mut |bytes, _| feed.beside(bytes)),
            Origin::Read(_) => tensor
                .guard_bytes()
                .into_iter()
                .for_each(|bytes| feed.beside(bytes)),
            _ => {}
        }
        let mut pace = self.course.begin(runs.nbytes());
        let chunk = match *origin {
            Origin::Same(_) => None,
            Origin::Read(read) => {
                let chunk = take(feed, read, 0, &mut pace)?;
                if tensor.is_guarded() {
                    let lent = !self.own && matches!(chunk, Chunk::Lent(_));
                    tensor.believe(&chunk, lent, &mut |bytes| pace.work(bytes))?;
                }
                Some(match chunk {
                    Chunk::Lent(lent) if self.own && !lent.is_empty() => {
                        let mut own = self.room(lent.len() as u64, &mut pace)?;
                        pace.copy(0, lent, &mut own)?;
                        Chunk::Pooled(own.freeze())
                    }
                    chunk => chunk,
                })
            }
            Origin::Runs(first) => {
                let mut made = self.room(runs.nbytes(), &mut pace)?;
                for (i, out) in made.chunks_mut(size(runs.len).max(1)).enumerate() {
                    let before = i as u64 * runs.len;
                    let run = take(feed, first + i, before, &mut pace)?;
                    pace.copy(before, &run, out)?;
                }
                Some(Chunk::Pooled(made.freeze()))
            }
            Origin::Within(read) => {
                let whole = take(feed, read, 0, &mut pace)?;
                Some(self.gather(runs, runs.start, &whole, &mut pace)?)
            }
            Origin::Made => {
                let mut whole = self.room(tensor.info().nbytes(), &mut pace)?;
                tensor.read_watched(&mut whole, &mut |there, worked| {
                    pace.come(there);
                    pace.work(worked)
                })?;
                let part = runs.nbytes() < tensor.info().nbytes();
                Some(if part {
                    self.gather(runs, 0, &whole, &mut pace)?
                } else {
                    Chunk::Pooled(whole.freeze())
                })
            }
        };
        pace.end().map(|()| chunk)
    }

    /// Runs put together, from bytes that begin `base` bytes into the tensor.
    fn gather(
        &self,
        runs: &Runs,
        base: u64,
        from: &[u8],
        pace: &mut Pace<'_, '_>,
    ) -> Result<Chunk<'c>> {
        let mut made = self.room(runs.nbytes(), pace)?;
        for (i, (start, out)) in runs
            .starts()
            .zip(made.chunks_mut(size(runs.len).max(1)))
            .enumerate()
        {
            pace.copy(
                i as u64 * runs.len,
                &from[size(start - base)..][..out.len()],
                out,
            )?;
        }
        Ok(Chunk::Pooled(made.freeze()))
    }

    /// A buffer: what is loaded may be kept, so nothing need come back.
    fn room(&self, nbytes: u64, pace: &mut Pace<'_, '_>) -> Result<Buffer> {
        room(self.pool, nbytes, &mut || pace.flow())
    }

    pub(super) fn end(self) -> Vec<LoadedTensor<'c>> {
        let loaded: Vec<_> = self.loaded.into_iter().map(OnceLock::into_inner).collect();
        let tensor = |(number, task): (usize, &Task<'c>)| {
            let from = if let Origin::Same(first) = task.origin {
                first
            } else {
                number
            };
            let chunk = loaded[from]
                .clone()
                .expect("every tensor was loaded, or one of them failed");
            LoadedTensor::new(task, chunk)
        };
        self.tasks.iter().enumerate().map(tensor).collect()
    }
}

/// Takes a read in front of which so many of the task's bytes have come.
fn take<'c>(
    feed: &dyn Feed<'c>,
    read: usize,
    before: u64,
    pace: &mut Pace<'_, '_>,
) -> Result<Chunk<'c>> {
    feed.take_watched(read, &mut |bytes| {
        pace.come(before.saturating_add(bytes));
        pace.flow()
    })
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("of a buffer")
}
