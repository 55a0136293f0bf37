//! The levels of findings.

use serde::Serialize;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// Unusual, and sound in many models.
    Note,
    /// Unlikely in a sound model.
    Warning,
    /// Cannot be right.
    Error,
}

impl FindingLevel {
    /// `note`, `warning` or `error`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}
