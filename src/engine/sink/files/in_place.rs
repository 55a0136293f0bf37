//! Files that get a new header in front of the bytes they have, and how they get it: in their room, by room that is inserted, by
//! a clone, or by a copy.
//!
//! Nothing here knows what a header says. A change that is one rename (a clone, a copy, another configuration) is complete or absent
//! by that. Every other is recorded first: a journal beside the files has the new headers, and what tells the state of each
//! file. It gets its name when it is synced, the changes follow, and it is removed when they are synced. After any prefix of
//! this, and whatever part of a write a loss of power leaves, the files are as before, or the journal completes them
//! (`recovery.rs`). The protocol for several files:
//!
//! 1. The files that are replaced are written under temporary names, and synced. The others get a lease where bytes will move.
//! 2. The journal is written, synced and named, and the directory synced. This is the commit.
//! 3. Room is inserted and synced, in one file after the other. The first that fails undoes the commit; a later one is copied instead.
//! 4. Files get the names of those they replace. Headers are written in place, and synced.
//! 5. The directories are synced, and the journal is removed.

mod apply;
mod decide;
mod journal;
mod place;
mod recovery;
mod target;

use std::path::PathBuf;

pub(crate) use place::EditPlace;
pub use recovery::RecoveredEdit;
pub(crate) use target::{EditTarget, check_local, check_named};

/// Bytes of data from which on room is inserted. Less is copied in the time that inserting takes, and a copy needs no journal.
pub(crate) const INSERT_FROM: u64 = 1 << 20;

/// A header that is written anew, of a length that is chosen when it is known how.
pub(crate) trait NewHeader {
    /// The least length: where data can begin without room.
    fn least(&self) -> u64;

    /// The header of exactly this length; `None` if there is none.
    fn of_length(&self, nbytes: u64) -> Option<Vec<u8>>;

    /// Lengths are multiples of this.
    fn alignment(&self) -> u64;
}

/// One file that changes.
pub(crate) enum FileChange {
    /// It gets another header in front of its data.
    Header {
        target: EditTarget,
        /// The header that it has, with the room.
        old: Vec<u8>,
        new: Box<dyn NewHeader>,
        /// The name of the format.
        format: &'static str,
    },
    /// It gets other bytes: a configuration, or an index.
    Whole { target: EditTarget, bytes: Vec<u8> },
}

/// How files are changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EditOptions {
    /// Whether files are copied, whatever is possible.
    pub(crate) copy: bool,
    /// Whether headers lose their room.
    pub(crate) compact: bool,
    /// Bytes of data from which on room is inserted.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "the way is Linux's")
    )]
    pub(crate) insert_from: u64,
}

/// How a file got its new header.
///
/// ```
/// use anamnesis::EditWay;
///
/// assert_eq!(EditWay::Room.name(), "room");
/// assert!(EditWay::Insert.is_in_place() && !EditWay::Copy.is_in_place());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EditWay {
    /// It had this header already.
    Unchanged,
    /// The header was written over the old one, and its room is less.
    Room,
    /// Room was inserted in front of the data, which were not copied. The pages of the file are no longer in the page cache.
    Insert,
    /// A new file shares the data with the old one, which it replaces.
    Clone,
    /// A new file has a copy of the data, and replaces the old one.
    Copy,
}

impl EditWay {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Room => "room",
            Self::Insert => "insert",
            Self::Clone => "clone",
            Self::Copy => "copy",
        }
    }

    /// Whether the file is the one that it was, to programs that have it open.
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::Unchanged | Self::Room | Self::Insert)
    }
}

/// A file of an edit.
///
/// ```
/// use anamnesis::{EditWay, edit};
///
/// # let path = std::env::temp_dir().join(format!("anamnesis-edited-{}.gguf", std::process::id()));
/// std::fs::copy("fixtures/gguf/plain_v3.gguf", &path)?;
/// let report = edit(&path).set("my.note", "x").commit()?;
/// assert_eq!(report.files[0].way, EditWay::Copy);
/// // the header has room now
/// let report = edit(&path).set("my.note", "another").commit()?;
/// assert_eq!(report.files[0].way, EditWay::Room);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedFile {
    /// Its path.
    pub path: PathBuf,
    /// How it was changed.
    pub way: EditWay,
    /// Bytes that were written.
    pub bytes_written: u64,
}
