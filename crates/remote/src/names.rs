//! Names of files in listings and URLs.

/// Whether a name is one of a file in a folder, and leads to no other folder on any system.
pub(crate) fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

/// Whether the last part of a path has an ending: it then counts as a file where no listing says what it is.
pub(crate) fn has_ending(path: &str) -> bool {
    path.rsplit('/').next().unwrap_or_default().contains('.')
}
