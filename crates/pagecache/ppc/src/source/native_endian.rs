//! Integers in native byte order, as the kernel writes them.

/// The unsigned integer stored in 1, 2, 4 or 8 bytes; `None` for other lengths.
pub(crate) fn read_uint(bytes: &[u8]) -> Option<u64> {
    Some(match bytes.len() {
        1 => u64::from(bytes[0]),
        2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
        4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
        8 => u64::from_ne_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

/// Reads a `u16` and advances `from` past it.
pub(crate) fn take_u16(from: &mut &[u8]) -> Option<u16> {
    let (value, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u16::from_ne_bytes(*value))
}

/// Reads a `u32` and advances `from` past it.
pub(crate) fn take_u32(from: &mut &[u8]) -> Option<u32> {
    let (value, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u32::from_ne_bytes(*value))
}

/// Reads a `u64` and advances `from` past it.
pub(crate) fn take_u64(from: &mut &[u8]) -> Option<u64> {
    let (value, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_ne_bytes(*value))
}
