//! How much was looked at, and which files were not.

use anamnesis::UnreadFile;
use anamnesis::quote::escape;

use crate::text::{ExactCount, listed};

/// Names that are shown for each reason; the document has all of them.
const NAMED: usize = 32;

/// `checked 20 of 21 tensors, 1 of 3 files`.
pub(crate) fn counted(tensors: (u64, u64), files: (u64, u64)) -> String {
    format!(
        "checked {} of {} tensors, {} of {} files",
        ExactCount(tensors.0),
        ExactCount(tensors.1),
        ExactCount(files.0),
        ExactCount(files.1)
    )
}

/// A line for each reason: `not looked at: LICENSE, README.md (no tensors)`.
pub(crate) fn unread_lines(unread: &[UnreadFile]) -> Vec<String> {
    let mut reasons: Vec<&str> = Vec::new();
    for file in unread {
        if !reasons.contains(&file.why) {
            reasons.push(file.why);
        }
    }
    let line = |why: &&str| {
        let files = unread.iter().filter(|file| file.why == *why);
        let names = listed(files.map(|file| escape(&file.path)), NAMED, " (--json)");
        format!("not looked at: {names} ({why})")
    };
    let models = unread.iter().flat_map(|file| {
        let names = file.models.iter();
        names.map(|name| escape(&format!("{}{name}", file.path)).into_owned())
    });
    let models = listed(models, NAMED, " (--json)");
    let in_folders = format!("not looked at: {models} (models in folders)");
    let lines = reasons.iter().map(line);
    lines
        .chain((!models.is_empty()).then_some(in_folders))
        .collect()
}
