//! Reads the first bytes of a member's content, for its NPY header. No more is read or inflated than requested, because a
//! listing needs a few hundred bytes of members of gigabytes.

use flate2::{Decompress, FlushDecompress, Status};

use crate::base::error::{Error, Result};
use crate::read::catalog::{Member, quote};
use crate::read::source::cursor::Cursor;

/// Members of at most this stored size, in bytes, are read whole and verified: they fit in the page of their header.
const SMALL_STORED: u64 = 4 << 10;
/// Members that inflate to more bytes are not verified here: 4 KiB can inflate to 4 MiB, which costs time per member.
const SMALL_INFLATED: u64 = 64 << 10;
/// Deflated bytes read per step; the header of an array deflates to less.
const INPUT_STEP: u64 = 512;

/// The state of an inflater, allocated once per file and only if a member is deflated.
#[derive(Default)]
pub(super) struct SharedInflater(Option<Decompress>);

/// The first bytes of one member, read as far as needed.
pub(super) struct MemberPrefix<'a> {
    member: &'a Member,
    /// `None` for a stored member.
    inflate: Option<&'a mut Decompress>,
    /// The content inflated so far, if the member is deflated.
    content: Vec<u8>,
    /// Number of deflated bytes consumed for it.
    consumed: u64,
    ended: bool,
}

impl<'a> MemberPrefix<'a> {
    pub(super) fn new(member: &'a Member, deflated: bool, inflate: &'a mut SharedInflater) -> Self {
        let inflate = deflated.then(|| {
            let state = inflate.0.get_or_insert_with(|| Decompress::new(false));
            state.reset(false);
            state
        });
        Self {
            member,
            inflate,
            content: Vec::new(),
            consumed: 0,
            ended: false,
        }
    }

    /// The first `n` bytes of the content, or all of it if it is shorter.
    pub(super) fn first_bytes<'b>(
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
            let left = self.member.bytes.len - self.consumed;
            cursor.seek(self.member.bytes.start + self.consumed);
            let piece = usize::try_from(left.min(INPUT_STEP)).expect("at most INPUT_STEP");
            let packed = cursor.take(piece, "a member of the archive")?;
            let (before, had) = (inflate.total_in(), self.content.len());
            // stops when the reserved capacity is full, so no more than `n` bytes are inflated
            let status = inflate
                .decompress_vec(packed, &mut self.content, FlushDecompress::None)
                .map_err(|e| {
                    let what = format!("member {} does not inflate: {e}", quote(name));
                    Error::malformed(what).at(self.member.bytes.start)
                })?;
            let went_in = inflate.total_in() - before;
            self.consumed += went_in;
            // a stream that neither consumes nor produces anything is damaged; without this the loop would not end
            let stuck = went_in == 0 && self.content.len() == had;
            self.ended = status == Status::StreamEnd || stuck;
        }
        Ok(&self.content[..n.min(self.content.len())])
    }

    /// Compares a small member with its length and checksum, so that a damaged small file is refused when it is opened.
    /// Larger members are verified when they are read.
    pub(super) fn check_small(
        &mut self,
        cursor: &mut Cursor<'_>,
        name: &str,
        crc32: u32,
    ) -> Result<()> {
        let (packed, inflated) = (self.member.bytes.len, self.member.inflated);
        if packed > SMALL_STORED || inflated > SMALL_INFLATED {
            return Ok(());
        }
        let inflated = usize::try_from(inflated).expect("small");
        // one byte more than the directory claims, to detect content that is too long
        let content = self.first_bytes(cursor, name, inflated + 1)?;
        let wrong = if content.len() > inflated {
            format!("holds more than the {inflated} bytes that the directory claims")
        } else if content.len() < inflated {
            format!(
                "holds {} bytes of the {inflated} that the directory claims",
                content.len()
            )
        } else if crc32fast::hash(content) != crc32 {
            "does not match its checksum".into()
        } else {
            return Ok(());
        };
        Err(Error::malformed(format!("member {} {wrong}", quote(name))).at(self.member.bytes.start))
    }
}
