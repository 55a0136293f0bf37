//! The journal of an edit: what each file is to become, and what tells the state that it is in.
//!
//! A line of text, the length of a JSON description, the description, the new headers, and the SHA-256 of all of that. It is a file
//! among others' files: it is read if this user owns it and no other can write to it, never through a link, and names only
//! files below its directory. Its digest tells one that was cut or changed by accident; what it says is checked like any file.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::base::error::{Error, Remedy, Result};
use crate::base::limits::Budget;
use crate::engine::sink::files::operations::FileOperations;
use crate::read::checkpoint::edit_journal::MAGIC;
use crate::read::source::regular::read_opened;

const WHAT: &str = "the journal of an edit";
const DIGEST: usize = 32;
/// Bytes at each end of the data whose digests tell that the data are where they belong.
pub(super) const MARKED: u64 = 4096;

/// The files of an edit.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EditJournal {
    pub(super) files: Vec<JournalEntry>,
    /// The new headers, and the new bytes of files without one, one after the other.
    #[serde(skip)]
    pub(super) headers: Vec<u8>,
}

/// The file before and after the edit.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalEntry {
    /// The path below the directory of the journal.
    pub(super) file: String,
    pub(super) old: FileMark,
    pub(super) new: FileMark,
    pub(super) change: JournaledChange,
}

/// How a file becomes that.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum JournaledChange {
    /// By the name of another file in its directory; if that is not there, by these bytes: a header in front of the data, or the
    /// whole file where there is no format.
    Replace {
        part: String,
        format: Option<String>,
        at: u64,
        nbytes: u64,
    },
    /// By another header, of which `at` is the offset among the headers.
    Header {
        format: String,
        at: u64,
        nbytes: u64,
        /// Room that is inserted in front.
        inserted: u64,
        data: DataMarks,
    },
}

/// A length, and a digest of the first bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileMark {
    pub(super) nbytes: u64,
    pub(super) front: u64,
    pub(super) sha256: String,
}

/// Digests of both ends of the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DataMarks {
    pub(super) first: String,
    pub(super) last: String,
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The digits of a digest.
pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl FileMark {
    /// The mark of a file of this length that begins with these bytes.
    pub(super) fn of(nbytes: u64, front: &[u8]) -> Self {
        Self {
            nbytes,
            front: front.len() as u64,
            sha256: sha256(front),
        }
    }
}

impl JournalEntry {
    /// The path of the file. `None` for one that is not below the directory.
    pub(super) fn path(&self, directory: &Path) -> Option<PathBuf> {
        below(directory, &self.file)
    }
}

/// A path below a directory, by plain names.
pub(super) fn below(directory: &Path, relative: &str) -> Option<PathBuf> {
    let relative = Path::new(relative);
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_below = relative.components().next().is_some() && relative.components().all(is_name);
    is_below.then(|| directory.join(relative))
}

impl EditJournal {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let description = serde_json::to_vec(self).expect("texts and numbers serialise to JSON");
        let mut out = MAGIC.to_vec();
        out.extend((description.len() as u64).to_le_bytes());
        out.extend(description);
        out.extend(&self.headers);
        let digest = Sha256::digest(&out);
        out.extend(digest);
        out
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let malformed = || Error::malformed("it is no journal of an edit, or not a whole one");
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(malformed)?;
        let (content, digest) = rest.split_last_chunk::<DIGEST>().ok_or_else(malformed)?;
        let whole = &bytes[..bytes.len() - DIGEST];
        if Sha256::digest(whole)[..] != digest[..] {
            return Err(malformed());
        }
        let (len, content) = content.split_first_chunk::<8>().ok_or_else(malformed)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| malformed())?;
        let (description, headers) = content.split_at_checked(len).ok_or_else(malformed)?;
        let mut journal: Self = serde_json::from_slice(description)
            .map_err(|e| Error::malformed(format!("it is no journal of an edit: {e}")))?;
        journal.headers = headers.to_vec();
        Ok(journal)
    }

    /// Reads a journal; `None` if there is none.
    pub(super) fn read(
        system: &dyn FileOperations,
        path: &Path,
        budget: &Budget,
    ) -> Result<Option<Self>> {
        match path.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::from(e).in_file(path)),
            Ok(meta) if !meta.is_file() => {
                let what = "a journal of an edit is expected here, and it is no regular file";
                return Err(refused(what).in_file(path));
            }
            Ok(_) => {}
        }
        let read = || {
            let file = system.open_existing(path)?;
            let file = file.ok_or_else(|| refused("another process has locked it"))?;
            check_owner(&file)?;
            let len = file.metadata()?.len();
            // the description and the headers are copied out of the text, which is hashed
            let _copy = budget.temporary(len, WHAT)?;
            let (bytes, _charge) = read_opened(&file, len, budget, WHAT)?;
            budget.memory(len, WHAT)?;
            Self::from_bytes(&bytes).map(Some)
        };
        read().map_err(|e: Error| e.in_file(path))
    }

    /// The new header of an entry.
    pub(super) fn header(&self, at: u64, nbytes: u64) -> Result<&[u8]> {
        let range = usize::try_from(at).ok().zip(usize::try_from(nbytes).ok());
        let header = range
            .and_then(|(at, nbytes)| self.headers.get(at..)?.get(..nbytes))
            .filter(|header| !header.is_empty());
        header.ok_or_else(|| Error::malformed("the journal lacks a header"))
    }
}

fn refused(what: &str) -> Error {
    Error::unsupported(what).with_remedy(Remedy::CheckPermissions)
}

/// Refuses a journal that another user may have written.
fn check_owner(file: &File) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let meta = file.metadata()?;
        let own = rustix::process::geteuid().as_raw();
        if meta.uid() != own {
            let what = format!(
                "the journal of an edit belongs to user {}, who can complete it",
                meta.uid()
            );
            return Err(refused(&what));
        }
        if meta.mode() & 0o022 != 0 || meta.nlink() != 1 {
            let what = "other users can change the journal of an edit, or it has another name";
            return Err(refused(what));
        }
    }
    let _ = file;
    Ok(())
}
