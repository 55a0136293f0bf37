//! The binary form, `.iot`: see `docs/template-format.md`.
//!
//! `token.rs` expresses an access relative to earlier ones, so that regular sequences become equal
//! tokens; `repeat.rs` finds repeated tokens; `varint.rs` encodes numbers; `write.rs` and `read.rs`
//! combine them.

mod read;
mod repeat;
mod token;
mod varint;
mod write;

/// First bytes of a file, after the pattern of PNG: not ASCII, and changed by transfers that
/// convert line ends.
pub(crate) const MAGIC: [u8; 8] = *b"\x89IOT\r\n\x1a\n";

/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u8 = 1;

/// Bits of a file's flags: a modification time and a content key follow.
const HAS_MTIME: u8 = 1;
const HAS_KEY: u8 = 2;
