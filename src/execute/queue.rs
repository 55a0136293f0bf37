//! What is to be done, in file order, one piece at a time.

use std::vec;

use super::there;
use crate::plan::{Plan, Tile, Work, tile};

/// A piece of work, and the memory lent for it.
pub(super) struct Item<'r> {
    pub(super) job: usize,
    pub(super) piece: Piece,
    pub(super) out: Option<Lent<'r>>,
}

/// Memory of an output, or of a piece of it.
pub(super) struct Lent<'r> {
    pub(super) bytes: &'r mut [u8],
    /// Whether it is worth going past the caches: see [`LARGE`].
    pub(super) past: bool,
}

/// Outputs of so many bytes in sum are in no cache when they are read, and what is stored there past the caches is not read
/// first. That is worth it where the memory is there: what the kernel has just zeroed is in the caches.
const LARGE: u64 = 64 << 20;

pub(super) enum Piece {
    /// These rows.
    Tile {
        tile: Tile,
        number: u64,
        start: u64,
        nbytes: usize,
    },
    /// A whole output, from its first element to its last.
    Whole,
}

/// Memory of the outputs to come, and what is left of the one at hand.
type Room<'r> = (vec::IntoIter<Lent<'r>>, Option<Lent<'r>>);

/// The pieces that nobody has taken.
pub(super) struct Queue<'r> {
    plan: &'r Plan,
    job: usize,
    /// Jobs in front of this one may be handed out.
    end: usize,
    /// Number of the next tile of this job.
    tile: u64,
    /// Memory for the jobs after this one, and what is left of this one's.
    room: Option<Room<'r>>,
}

impl<'r> Queue<'r> {
    pub(super) fn new(plan: &'r Plan, room: Option<Vec<&'r mut [u8]>>) -> Self {
        let large = plan.nbytes() >= LARGE;
        let room = room.map(|room| {
            let lent = |bytes: &'r mut [u8]| Lent {
                past: large && there::is_there(bytes),
                bytes,
            };
            let mut room = room.into_iter().map(lent).collect::<Vec<_>>().into_iter();
            let first = room.next();
            (room, first)
        });
        Self {
            plan,
            job: 0,
            end: plan.jobs.len(),
            tile: 0,
            room,
        }
    }

    /// Lets pieces of the jobs in front of this one be taken, and no others.
    pub(super) fn until(&mut self, end: usize) {
        self.end = end;
    }

    pub(super) fn next(&mut self) -> Option<Item<'r>> {
        loop {
            let job = self.plan.jobs[..self.end].get(self.job)?;
            let number = self.job;
            let Work::Tiles { decoder, rows } = &job.work else {
                let out = self.room.as_mut().and_then(|(_, left)| left.take());
                self.next_job();
                return Some(Item {
                    job: number,
                    piece: Piece::Whole,
                    out,
                });
            };
            let grid = decoder.grid();
            if self.tile >= grid.tiles(*rows) {
                self.next_job();
                continue;
            }
            let tile_number = self.tile;
            let tile = tile::tile(&**decoder, *rows, tile_number);
            self.tile += 1;
            let bytes = |rows: u64| job.output.dtype.nbytes(rows * grid.cols).expect("planned");
            let (start, end) = (bytes(tile.rows.start), bytes(tile.rows.end));
            let nbytes = usize::try_from(end - start).expect("a tile is small");
            let out = self.room.as_mut().and_then(|(_, left)| {
                let Lent { bytes, past } = left.take()?;
                let (out, behind) = bytes.split_at_mut(nbytes);
                *left = Some(Lent {
                    bytes: behind,
                    past,
                });
                Some(Lent { bytes: out, past })
            });
            return Some(Item {
                job: number,
                piece: Piece::Tile {
                    tile,
                    number: tile_number,
                    start,
                    nbytes,
                },
                out,
            });
        }
    }

    fn next_job(&mut self) {
        self.job += 1;
        self.tile = 0;
        if let Some((rest, left)) = &mut self.room {
            *left = rest.next();
        }
    }
}
