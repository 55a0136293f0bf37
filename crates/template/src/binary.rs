//! The binary form, `.iot`: see `docs/template-format.md`.

mod read;
mod repeat;
mod token;
mod varint;
mod write;

/// First bytes of a file: not text, and changed by whatever takes it for text.
pub(crate) const MAGIC: [u8; 8] = *b"\x89IOT\r\n\x1a\n";

/// The version that is written, and the newest that is read.
pub(crate) const VERSION: u8 = 1;

/// Bits of a file's flags.
const HAS_MTIME: u8 = 1;
const HAS_KEY: u8 = 2;
