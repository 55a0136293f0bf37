//! Notes: statements of a run or of a file's reader besides its result.

use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};

use crate::base::error::Remedy;

/// A statement about a checkpoint or a plan, and its remedy, if there is one.
///
/// It is text: a note dereferences to it and compares with it. `Display` adds the remedy in the words of this library, and so
/// does serialisation, as one string. A program takes [`remedy`](Self::remedy) to name its own options instead.
///
/// ```
/// use anamnesis::{Checkpoint, Remedy, remember};
///
/// let checkpoint = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
/// let plan = remember(&checkpoint).plan()?;
/// let note = &plan.output_notes[0];
/// assert_eq!(*note, "the names of the outputs are llama.cpp's");
/// assert_eq!(note.remedy(), Some(Remedy::NameAsTransformers));
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    text: String,
    remedy: Option<Remedy>,
}

impl Note {
    pub(crate) fn with_remedy(text: impl Into<String>, remedy: Remedy) -> Self {
        let (text, remedy) = (text.into(), Some(remedy));
        Self { text, remedy }
    }

    /// The text, without the remedy.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The remedy for its cause.
    pub fn remedy(&self) -> Option<Remedy> {
        self.remedy
    }
}

impl<T: Into<String>> From<T> for Note {
    fn from(text: T) -> Self {
        let (text, remedy) = (text.into(), None);
        Self { text, remedy }
    }
}

impl Deref for Note {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq<str> for Note {
    fn eq(&self, text: &str) -> bool {
        self.text == text
    }
}

impl PartialEq<&str> for Note {
    fn eq(&self, text: &&str) -> bool {
        self.text == *text
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.remedy.map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
