//! The first bytes of files, by which a template recognises a file and its copies.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anamnesis_template::{ContentKey, File};

use crate::base::error::{Error, Result};
use crate::read::checkpoint::Checkpoint;
use crate::read::source::{Source, read_exact_at};

/// Files whose first bytes are requested ahead of the one that is read: more than run at a time, and 4 MiB.
const AHEAD: usize = 64;

/// Where the first bytes of a checkpoint's files are read.
#[derive(Clone)]
pub(super) enum FileHeads {
    /// By the paths of the files, which have a time as well.
    Local,
    /// From the checkpoint's sources: the files are at a URL.
    Sources(Vec<Arc<dyn Source>>),
}

impl FileHeads {
    pub(super) fn of(checkpoint: &Checkpoint) -> Self {
        if checkpoint.files().is_local() {
            Self::Local
        } else {
            Self::Sources(checkpoint.sources().to_vec())
        }
    }

    /// The file of this number, path and length: its length now, and the hash of its first bytes. Call it for one file after
    /// the other: the first bytes of those that follow are requested meanwhile.
    pub(super) fn file(&self, number: u32, root: &Path, path: &str, nbytes: u64) -> Result<File> {
        let sources = match self {
            Self::Local => return Ok(File::probe(root, path)?),
            Self::Sources(sources) => sources,
        };
        let number = usize::try_from(number).expect("an index");
        // the first call announces a whole window, each later one the file that enters it
        let announced = match number {
            0 => 0..AHEAD,
            number => number + AHEAD - 1..number + AHEAD,
        };
        let announced = announced.filter_map(|number| sources.get(number));
        announced.for_each(|source| source.will_need(0, ContentKey::HEAD));
        let source = &*sources[number];
        let len = usize::try_from(nbytes.min(ContentKey::HEAD)).expect("at most 64 KiB");
        let mut head = vec![0; len];
        // under the version that was opened: a file that was replaced since is an error
        read_exact_at(source, 0, &mut head)
            .map_err(|e| Error::from(e).in_file(&root.join(path)))?;
        source.settled();
        // a server's time of modification is the time of an upload, which no copy has
        let mut file = File::new(path, nbytes)?;
        file.key = Some(ContentKey::of(&head));
        Ok(file)
    }
}

impl fmt::Debug for FileHeads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("Local"),
            Self::Sources(sources) => write!(f, "Sources({})", sources.len()),
        }
    }
}

impl PartialEq for FileHeads {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local, Self::Local) => true,
            (Self::Sources(a), Self::Sources(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
            }
            _ => false,
        }
    }
}

impl Eq for FileHeads {}
