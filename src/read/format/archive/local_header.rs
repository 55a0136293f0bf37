//! Local headers: the records that precede the bytes of each member.

use super::entry::{FLAG_ENCRYPTED, decode_name};
use super::{LOCAL_LEN, u16_at};
use crate::base::error::{Error, Result};
use crate::read::catalog::quote;
use crate::read::source::cursor::Cursor;

const LOCAL: &[u8] = b"PK\x03\x04";

pub(super) struct LocalHeader {
    pub(super) method: u16,
    /// The offset of the member's bytes.
    pub(super) payload: u64,
}

/// Reads the local header at `at`, which must belong to `name`. The extra fields are skipped: the directory repeats
/// everything in them.
pub(super) fn read(cursor: &mut Cursor<'_>, at: u64, name: &str) -> Result<LocalHeader> {
    cursor.seek(at);
    let head = cursor.array::<LOCAL_LEN>("a zip local header")?;
    let bad = |what: &str| Error::malformed(format!("member {}: {what}", quote(name))).at(at);
    if !head.starts_with(LOCAL) {
        return Err(bad("no zip local header where the directory says"));
    }
    let flags = u16_at(&head, 6);
    if flags & FLAG_ENCRYPTED != 0 {
        return Err(bad(
            "encrypted in its local header but not in the directory",
        ));
    }
    let (name_len, extra_len) = (u16_at(&head, 26), u16_at(&head, 28));
    let stored = cursor.take(usize::from(name_len), "the name in a zip local header")?;
    // the name ties this header to its entry. An entry whose offset points at another member would read that one's
    // bytes
    if decode_name(stored, flags).is_none_or(|stored| stored != name) {
        return Err(bad("its local header has another name"));
    }
    let payload = at + LOCAL_LEN as u64 + u64::from(name_len) + u64::from(extra_len);
    Ok(LocalHeader {
        method: u16_at(&head, 8),
        payload,
    })
}

/// Reads a local header and returns the offset of the member's bytes.
pub(crate) fn local_payload(cursor: &mut Cursor<'_>, header_at: u64, name: &str) -> Result<u64> {
    read(cursor, header_at, name).map(|local| local.payload)
}
