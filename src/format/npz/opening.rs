//! The first bytes of a member's content: no more is read or inflated than is asked for.

use flate2::{Decompress, FlushDecompress, Status};

use crate::catalog::{Member, quote};
use crate::error::{Error, Result};
use crate::source::cursor::Cursor;

/// Members of at most this stored size are read whole: their bytes came with their header.
const SMALL: u64 = 4 << 10;
/// And no more than this is inflated for it, lest small members cost much time.
const SMALL_INFLATED: u64 = 64 << 10;
/// Deflated bytes taken at a time; a header of numpy packs to less.
const PIECE: u64 = 512;

/// An inflater, made once per file and only if a member is deflated.
#[derive(Default)]
pub(super) struct Inflate(Option<Decompress>);

pub(super) struct Opening<'a> {
    member: &'a Member,
    /// `None` for a stored member.
    inflate: Option<&'a mut Decompress>,
    /// Content so far, if deflated.
    content: Vec<u8>,
    /// Packed bytes that went into it.
    taken: u64,
    ended: bool,
}

impl<'a> Opening<'a> {
    pub(super) fn new(member: &'a Member, deflated: bool, inflate: &'a mut Inflate) -> Self {
        let inflate = deflated.then(|| {
            let state = inflate.0.get_or_insert_with(|| Decompress::new(false));
            state.reset(false);
            state
        });
        Self {
            member,
            inflate,
            content: Vec::new(),
            taken: 0,
            ended: false,
        }
    }

    /// The first `n` bytes of the content, or all of it if there are fewer.
    pub(super) fn upto<'b>(
        &'b mut self,
        cursor: &'b mut Cursor<'_>,
        name: &str,
        n: usize,
    ) -> Result<&'b [u8]> {
        let Some(inflate) = &mut self.inflate else {
            cursor.seek(self.member.bytes.start);
            let n = usize::try_from(self.member.bytes.len).unwrap_or(n).min(n);
            return cursor.take(n, "a member of the archive");
        };
        self.content
            .reserve_exact(n.saturating_sub(self.content.len()));
        while self.content.len() < n && !self.ended {
            let left = self.member.bytes.len - self.taken;
            cursor.seek(self.member.bytes.start + self.taken);
            let piece = usize::try_from(left.min(PIECE)).expect("a short piece");
            let packed = cursor.take(piece, "a member of the archive")?;
            let (before, had) = (inflate.total_in(), self.content.len());
            // fills what was reserved, and stops there
            let status = inflate
                .decompress_vec(packed, &mut self.content, FlushDecompress::None)
                .map_err(|e| {
                    let what = format!("member {} does not inflate: {e}", quote(name));
                    Error::malformed(what).at(self.member.bytes.start)
                })?;
            let went_in = inflate.total_in() - before;
            self.taken += went_in;
            let stuck = went_in == 0 && self.content.len() == had;
            self.ended = status == Status::StreamEnd || stuck;
        }
        Ok(&self.content[..n.min(self.content.len())])
    }

    /// Reads a small member whole and compares it with its length and checksum, so that a small
    /// file that is damaged is refused at once. Larger ones are checked when they are read.
    pub(super) fn check_small(
        &mut self,
        cursor: &mut Cursor<'_>,
        name: &str,
        crc32: u32,
    ) -> Result<()> {
        let (packed, inflated) = (self.member.bytes.len, self.member.inflated);
        if packed > SMALL || inflated > SMALL_INFLATED {
            return Ok(());
        }
        let inflated = usize::try_from(inflated).expect("small");
        // one more than claimed, to see that it is not there
        let content = self.upto(cursor, name, inflated + 1)?;
        let wrong = if content.len() > inflated {
            format!("holds more than the {inflated} bytes it claims")
        } else if content.len() < inflated {
            format!("holds {} bytes of the {inflated} it claims", content.len())
        } else if crc32fast::hash(content) != crc32 {
            "does not match its checksum".into()
        } else {
            return Ok(());
        };
        Err(Error::malformed(format!("member {} {wrong}", quote(name))).at(self.member.bytes.start))
    }
}
