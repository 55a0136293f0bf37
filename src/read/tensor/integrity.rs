//! Integrity checks of a member: its header before its bytes are used, its checksum after they were read.

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::progress::CHECK_INTERVAL;
use crate::read::catalog::{ByteRange, IntegrityCheck, Member, Packing, TensorInfo, quote};
use crate::read::checkpoint::Checkpoint;
use crate::read::format::local_payload;
use crate::read::source::cursor::Cursor;
use crate::read::source::range_reader::{Content, RangeReader};

fn member<'c>(checkpoint: &'c Checkpoint, info: &TensorInfo) -> Option<&'c Member> {
    checkpoint.catalog().members.get(info.member? as usize)
}

/// The byte range that is read to verify a tensor, in addition to its own bytes: the header of its member, and the
/// content in front of the tensor that the member's checksum covers.
pub(super) fn front(checkpoint: &Checkpoint, info: &TensorInfo) -> Option<ByteRange> {
    let member = member(checkpoint, info)?;
    let front = member.front();
    let lead = lead(member, info, info.bytes.len)
        .filter(|_| info.packing == Packing::Raw)
        .unwrap_or(0);
    Some(ByteRange {
        len: front.len.saturating_add(lead),
        ..front
    })
}

/// Content in front of a tensor of `len` content bytes that its member's checksum needs; `None` if it is not checked.
fn lead(member: &Member, info: &TensorInfo, len: u64) -> Option<u64> {
    let IntegrityCheck::ZipLocal { crc32: Some(_), .. } = &member.check else {
        return None;
    };
    let lead = match info.packing {
        Packing::Raw => info.bytes.start.saturating_sub(member.bytes.start),
        Packing::Deflate { skip, .. } => skip,
        // the pickle was verified when it was parsed
        Packing::Latin1 | Packing::DeflatedLatin1 { .. } => return None,
    };
    // a tensor that ends before its member would need the bytes behind it for the checksum, so it is not verified
    (lead <= Checksum::LEAD && lead.saturating_add(len) == member.inflated).then_some(lead)
}

/// Whether a checksum covers the stored bytes of the tensor.
pub(super) fn has_checksum(checkpoint: &Checkpoint, info: &TensorInfo) -> bool {
    member(checkpoint, info).is_some_and(|member| lead(member, info, info.bytes.len).is_some())
}

/// The checksum of a piece of a tensor's bytes. Pieces are checked by any threads in any order, and combined in theirs.
pub(crate) struct PieceChecksum(crc32fast::Hasher);

impl PieceChecksum {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytes);
        Self(hasher)
    }
}

/// Compares the header in front of the tensor's member with the archive's directory.
pub(super) fn verify(checkpoint: &Checkpoint, info: &TensorInfo) -> Result<()> {
    let Some(member) = member(checkpoint, info) else {
        // a format without members has nothing to compare
        return Ok(());
    };
    let budget = Budget::new(*checkpoint.limits());
    let mut cursor = Cursor::new(checkpoint.source(member.bytes.file), &budget);
    match &member.check {
        IntegrityCheck::ZipLocal { at, name, .. } => {
            // the offset was computed from the directory; a local header that disagrees would make these bytes
            // another member's
            let start = local_payload(&mut cursor, *at, name)?;
            if start != member.bytes.start {
                return Err(Error::malformed(format!(
                    "the bytes of member {} begin at {start}, but the directory places them at {}",
                    quote(name),
                    member.bytes.start
                ))
                .at(*at));
            }
        }
        IntegrityCheck::Count { elements } => {
            // the count stands in front of the elements
            let at = member.bytes.start.saturating_sub(8);
            cursor.seek(at);
            let found = u64::from_le_bytes(cursor.array("a storage's element count")?);
            if found != *elements {
                return Err(Error::malformed(format!(
                    "the header of a storage counts {found} elements, but its persistent id {elements}"
                ))
                .at(at));
            }
        }
    }
    Ok(())
}

/// The checksum of a member, updated while a tensor that reaches to the member's end is read.
pub(super) struct Checksum<'c>(Option<(crc32fast::Hasher, u32, &'c str)>);

impl<'c> Checksum<'c> {
    /// The checksum of a tensor that begins further inside its member is not verified: all bytes in front would have to
    /// be read for it.
    const LEAD: u64 = 1 << 20;

    /// Starts the checksum of the tensor's member, or nothing where the tensor, of `len` content
    /// bytes, does not reach from (near) its beginning to its end.
    pub(super) fn new(checkpoint: &'c Checkpoint, info: &TensorInfo, len: u64) -> Result<Self> {
        let Some(member) = member(checkpoint, info) else {
            return Ok(Self(None));
        };
        let IntegrityCheck::ZipLocal {
            crc32: Some(expected),
            name,
            ..
        } = &member.check
        else {
            return Ok(Self(None));
        };
        let Some(lead) = lead(member, info, len) else {
            return Ok(Self(None));
        };
        let mut hasher = crc32fast::Hasher::new();
        if info.packing == Packing::Raw && lead > 0 {
            // the header in front of a stored array; the header of a deflated one passes by on the way
            let source = checkpoint.source(member.bytes.file);
            let mut before =
                Content::new(RangeReader::new(source, member.bytes.start, lead), false);
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut before, &mut bytes)?;
            hasher.update(&bytes);
        }
        Ok(Self(Some((hasher, *expected, name))))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let Some((hasher, ..)) = &mut self.0 {
            hasher.update(bytes);
        }
    }

    /// Appends a piece whose checksum was computed.
    pub(super) fn combine(&mut self, piece: &PieceChecksum) {
        if let Some((hasher, ..)) = &mut self.0 {
            hasher.combine(&piece.0);
        }
    }

    /// Computes the checksum of all bytes and compares it. `each` receives the number of bytes of each step and cancels
    /// by returning an error.
    pub(super) fn of(
        mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        for piece in bytes.chunks(CHECK_INTERVAL) {
            self.update(piece);
            each(piece.len())?;
        }
        self.finish()
    }

    pub(super) fn finish(self) -> Result<()> {
        let Some((hasher, expected, name)) = self.0 else {
            return Ok(());
        };
        if hasher.finalize() != expected {
            return Err(Error::malformed(format!(
                "member {} does not match its checksum",
                quote(name)
            )));
        }
        Ok(())
    }
}
