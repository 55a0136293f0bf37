//! Threads that read pieces with positioned reads, into buffers of the pool.

use std::io;
use std::sync::Arc;
use std::thread;

use zeropool::Part;

use super::belt::{Belt, Cut, Next, Piece};
use super::coalesce::coalesce;
use super::way::{By, Tally};
use super::{Body, Loader, Reading};
use crate::catalog::ByteRange;
use crate::error::{Error, Result};

/// Reads with threads; any source will do.
#[derive(Clone, Copy, Debug)]
pub struct Pread {
    threads: usize,
    piece: usize,
    direct: bool,
}

/// To what reads through the page cache begin: any element is aligned to less.
pub(super) const ALIGN: u64 = 64;
/// Bytes of extents that several reads share.
pub(super) const EXTENT: u64 = 16 << 20;
/// Bytes of a piece: see `docs/perf-experiments.md`.
pub(super) const PIECE: usize = 2 << 20;
/// Bytes of the largest: a read that has begun cannot be stopped.
pub(super) const LARGEST: usize = 64 << 20;

impl Default for Pread {
    fn default() -> Self {
        Self {
            threads: 0,
            piece: PIECE,
            direct: false,
        }
    }
}

impl Pread {
    /// As many threads as there are cores, through the page cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many threads read; 0 for one per core.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Bytes that a thread reads at a time, rounded up to pages, and 64 MiB at most. Default 2 MiB.
    #[must_use]
    pub fn piece(mut self, bytes: usize) -> Self {
        self.piece = bytes.clamp(1, LARGEST).next_multiple_of(4096);
        self
    }

    /// Whether the page cache is left out (`O_DIRECT`), where the file system can.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }
}

/// What a piece is filled from.
enum Files<'c> {
    Sources(&'c [Box<dyn crate::Source>]),
    #[cfg(target_os = "linux")]
    Direct(super::direct::Files),
}

impl<'c> Files<'c> {
    fn open(sources: &'c [Box<dyn crate::Source>], direct: bool, tally: &Arc<Tally>) -> Self {
        #[cfg(target_os = "linux")]
        if direct && let Some(direct) = super::direct::Files::open(sources, tally) {
            return Self::Direct(direct);
        }
        #[cfg(not(target_os = "linux"))]
        if direct {
            tally.through("direct reads are of Linux".into());
        }
        Self::Sources(sources)
    }

    fn align(&self) -> u64 {
        match self {
            // so that what is aligned in the file is aligned in memory
            Self::Sources(_) => ALIGN,
            #[cfg(target_os = "linux")]
            Self::Direct(files) => files.align(),
        }
    }

    fn read(&self, piece: Piece, part: &mut Part) -> io::Result<usize> {
        match self {
            Self::Sources(files) => {
                files[piece.file as usize].read_at(piece.start, &mut part[..piece.wanted])
            }
            #[cfg(target_os = "linux")]
            Self::Direct(files) => files.read(piece.file, piece.start, part, piece.wanted),
        }
    }
}

/// An end that came too early.
pub(super) fn shrunk() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the file ends here, and was longer when it was opened",
    )
}

impl Loader for Pread {
    fn name(&self) -> &'static str {
        if self.direct {
            "pread, direct"
        } else {
            "pread"
        }
    }

    fn run<'c>(
        &self,
        reading: &Reading<'c>,
        reads: &[ByteRange],
        body: Body<'_, 'c>,
    ) -> Result<()> {
        self.run_instead(reading, reads, body, None)
    }
}

impl Pread {
    /// Reads, and says why it does so `instead` of somebody else.
    pub(super) fn run_instead<'c>(
        &self,
        reading: &Reading<'c>,
        reads: &[ByteRange],
        body: Body<'_, 'c>,
        instead: Option<String>,
    ) -> Result<()> {
        let tally = Arc::new(Tally::new(By::Threads, instead));
        let sources = reading.checkpoint.sources();
        let files = Files::open(sources, self.direct, &tally);
        let align = files.align();
        let piece = self
            .piece
            .next_multiple_of(usize::try_from(align).unwrap_or(1));
        let list = coalesce(reads, reading.gap, EXTENT);
        let belt = Belt::new(reading, list, Cut { piece, align }, tally);
        // for one piece a thread would be started to be waited for; if there is no room yet, it waits for that as well
        if belt.is_one_piece() && fill(&belt, &files, false) {
            return body(&belt);
        }
        let threads = crate::execute::threads(self.threads);
        thread::scope(|scope| {
            let end = belt.end();
            let spawn = |number| {
                let fill = || {
                    fill(&belt, &files, true);
                };
                thread::Builder::new()
                    .name(format!("pread-{number}"))
                    .spawn_scoped(scope, fill)
            };
            let mut crew = vec![spawn(0).map_err(Error::from)?];
            // one is enough
            crew.extend((1..threads).map_while(|number| spawn(number).ok()));
            let done = body(&belt);
            drop(end);
            // one that died has told the belt, and with it whoever takes
            crew.into_iter().for_each(|thread| drop(thread.join()));
            done
        })
    }
}

/// Reads what there is to read, and says whether that is all; waits for room if `wait`.
fn fill(belt: &Belt<'_>, files: &Files<'_>, wait: bool) -> bool {
    let _guard = belt.guard();
    loop {
        let (piece, mut part) = match belt.next(wait) {
            Next::Piece(piece, part) => (piece, part),
            Next::Later => return false,
            Next::Over => return true,
        };
        match files.read(piece, &mut part) {
            Ok(n) if n >= piece.wanted => belt.filled(piece, part),
            Ok(n) => belt.failed(piece.file, piece.start + n as u64, &shrunk()),
            Err(e) => belt.failed(piece.file, piece.start, &e),
        }
    }
}
