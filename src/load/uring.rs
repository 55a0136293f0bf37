//! io_uring: many reads in flight from one thread, into buffers of the pool.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::task::JoinSet;
use tokio_uring::buf::BoundedBuf;
use zeropool::Part;

use super::belt::{Belt, Cut, Next, Piece};
use super::coalesce::coalesce;
use super::pread::{ALIGN, EXTENT, LARGEST, PIECE, shrunk};
use super::way::{By, Tally};
use super::{Body, Loader, Pread, Reading, direct};
use crate::catalog::ByteRange;
use crate::error::{Error, Result};
use crate::source::Source;

/// Reads with io_uring, from a thread of its own. Where the kernel has none, or a source no descriptor, it is
/// [`Pread`].
#[derive(Clone, Copy, Debug)]
pub struct Uring {
    depth: usize,
    piece: usize,
    direct: bool,
}

impl Default for Uring {
    fn default() -> Self {
        Self {
            depth: 16,
            piece: PIECE,
            direct: false,
        }
    }
}

impl Uring {
    /// Sixteen reads in flight, through the page cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads in flight: 1 to 1024. Default 16.
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.clamp(1, 1024);
        self
    }

    /// Bytes of a read, rounded up to pages, and 64 MiB at most. Default 2 MiB.
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

    /// What reads instead.
    fn threads(&self) -> Pread {
        Pread::new().piece(self.piece).direct(self.direct)
    }
}

/// The files, opened for the ring.
struct Files {
    direct: Option<direct::Files>,
    /// The same descriptors, or those that are read through the page cache.
    files: Vec<File>,
    align: u64,
}

impl Files {
    fn open(sources: &[Box<dyn Source>], direct: bool, tally: &Arc<Tally>) -> io::Result<Self> {
        if direct && let Some(direct) = direct::Files::open(sources, tally) {
            let files = direct
                .files()
                .iter()
                .map(|file| file.file.try_clone())
                .collect::<io::Result<_>>()?;
            return Ok(Self {
                align: direct.align(),
                direct: Some(direct),
                files,
            });
        }
        let again = |source: &dyn Source| {
            let fd = source
                .as_fd()
                .ok_or_else(|| io::Error::other("a source has no descriptor"))?;
            direct::again(fd, rustix::fs::OFlags::empty())
        };
        let files = sources
            .iter()
            .map(|source| again(&**source))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            direct: None,
            files,
            align: ALIGN,
        })
    }
}

impl Loader for Uring {
    fn name(&self) -> &'static str {
        if self.direct {
            "io_uring, direct"
        } else {
            "io_uring"
        }
    }

    fn run<'c>(
        &self,
        reading: &Reading<'c>,
        reads: &[ByteRange],
        body: Body<'_, 'c>,
    ) -> Result<()> {
        // a runtime that fails to start leaks two descriptors: once is enough
        static NONE: OnceLock<String> = OnceLock::new();
        if let Some(why) = NONE.get() {
            return self
                .threads()
                .run_instead(reading, reads, body, Some(why.clone()));
        }
        let tally = Arc::new(Tally::new(By::Ring, None));
        let files = match Files::open(reading.checkpoint.sources(), self.direct, &tally) {
            Ok(files) => files,
            Err(error) => {
                return self.threads().run_instead(
                    reading,
                    reads,
                    body,
                    Some(format!("no ring: {error}")),
                );
            }
        };
        let align = files.align;
        let piece = self
            .piece
            .next_multiple_of(usize::try_from(align).unwrap_or(1));
        let list = coalesce(reads, reading.gap, EXTENT);
        let belt = Belt::new(reading, list, Cut { piece, align }, Arc::clone(&tally));
        let depth = self.depth;
        let ran = thread::scope(|scope| {
            let end = belt.end();
            let (tell, told) = mpsc::channel();
            let belt = &belt;
            let ring = move || ring(belt, files, depth, tally, &tell);
            let thread = thread::Builder::new()
                .name("io_uring".into())
                .spawn_scoped(scope, ring);
            let thread = thread.map_err(Error::from)?;
            let done = match told.recv() {
                Ok(Ok(())) => body(belt).map(|()| true),
                Ok(Err(error)) => {
                    if NONE.set(format!("no io_uring: {error}")).is_ok() {
                        tracing::warn!(%error, "no io_uring here: reading with threads");
                    }
                    Ok(false)
                }
                Err(_) => Err(Error::from(io::Error::other("the thread of the ring died"))),
            };
            drop(end);
            // if it died it has told the belt, and with it whoever takes
            drop(thread.join());
            done
        })?;
        if ran {
            Ok(())
        } else {
            self.threads()
                .run_instead(reading, reads, body, NONE.get().cloned())
        }
    }
}

/// The ring's thread: says whether there is a ring, then keeps `depth` reads in flight until the belt ends.
fn ring(
    belt: &Belt<'_>,
    files: Files,
    depth: usize,
    tally: Arc<Tally>,
    tell: &mpsc::Sender<io::Result<()>>,
) {
    let _guard = belt.guard();
    let mut builder = tokio_uring::builder();
    builder.entries(u32::try_from(depth.next_power_of_two()).unwrap_or(64));
    let runtime = match tokio_uring::Runtime::new(&builder) {
        Ok(runtime) => runtime,
        Err(error) => return drop(tell.send(Err(error))),
    };
    if tell.send(Ok(())).is_err() {
        return;
    }
    runtime.block_on(drive(belt, files, depth, &tally));
}

async fn drive(belt: &Belt<'_>, files: Files, depth: usize, tally: &Arc<Tally>) {
    let Files { direct, files, .. } = files;
    let both = |file: File| -> io::Result<Rc<Ringed>> {
        let plain = file.try_clone()?;
        Ok(Rc::new(Ringed {
            plain,
            ring: tokio_uring::fs::File::from_std(file),
            tally: Arc::clone(tally),
        }))
    };
    let files = match files.into_iter().map(both).collect::<io::Result<Vec<_>>>() {
        Ok(files) => files,
        Err(error) => return belt.failed(0, 0, &error),
    };
    let direct = direct.map(Rc::new);
    let mut flying = JoinSet::new();
    loop {
        let mut over = false;
        while flying.len() < depth {
            match belt.next(flying.is_empty()) {
                Next::Piece(piece, part) => {
                    let file = files[piece.file as usize].clone();
                    flying.spawn_local(read(file, direct.clone(), piece, part));
                }
                Next::Later => break,
                Next::Over => {
                    over = true;
                    break;
                }
            }
        }
        match flying.join_next().await {
            Some(Ok((piece, part, Ok(())))) => belt.filled(piece, part),
            Some(Ok((piece, _, Err((done, error))))) => {
                belt.failed(piece.file, piece.start + done as u64, &error)
            }
            Some(Err(died)) => std::panic::resume_unwind(died.into_panic()),
            None if over => return,
            None => {}
        }
    }
}

/// A file to be read by the ring, and without it.
struct Ringed {
    ring: tokio_uring::fs::File,
    plain: File,
    tally: Arc<Tally>,
}

/// Whether the kernel has a ring, and not this operation (before Linux 5.6, and in some sandboxes).
fn unknown(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let unknown = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS];
    error
        .raw_os_error()
        .is_some_and(|code| unknown.iter().any(|errno| errno.raw_os_error() == code))
}

/// Fills a part, as far as bytes are wanted; else says how far it came.
async fn read(
    file: Rc<Ringed>,
    direct: Option<Rc<direct::Files>>,
    piece: Piece,
    mut part: Part,
) -> (Piece, Part, Result<(), (usize, io::Error)>) {
    let mut done = 0;
    while done < piece.wanted {
        // read directly, a part is asked for whole: its end is aligned, and that of the file need not be
        let end = if direct.is_some() {
            part.len()
        } else {
            piece.wanted
        };
        let direct_file = direct
            .as_ref()
            .map(|files| &files.files()[piece.file as usize]);
        let buffered = direct_file.is_none_or(direct::Direct::is_buffered);
        let (read, slice) = file
            .ring
            .read_at(part.slice(done..end), piece.start + done as u64)
            .await;
        part = slice.into_inner();
        let outcome = match read {
            Ok(0) => Err(shrunk()),
            Ok(n) => {
                done += n;
                if let Some(direct) = direct_file {
                    direct.read(buffered);
                }
                match &direct {
                    Some(files) if done < piece.wanted => files.cut_short(piece.file, done),
                    _ => Ok(()),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => match direct_file {
                Some(direct) if !buffered => direct.fall_back(buffered, e),
                _ if unknown(&e) => {
                    file.tally
                        .instead(format!("one by one, since the ring does not read: {e}"));
                    match file
                        .plain
                        .read_at(&mut part[done..piece.wanted], piece.start + done as u64)
                    {
                        Ok(0) => Err(shrunk()),
                        Ok(n) => {
                            done += n;
                            Ok(())
                        }
                        Err(e) => Err(e),
                    }
                }
                _ => Err(e),
            },
        };
        if let Err(error) = outcome {
            return (piece, part, Err((done, error)));
        }
    }
    (piece, part, Ok(()))
}
