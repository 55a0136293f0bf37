//! The names in a directory, as a search has listed them.

use std::ffi::OsString;

use anamnesis_os::entries::EntryKind;

/// The names in a directory, sorted, and what each is.
#[derive(Debug, Default)]
pub(super) struct SearchedNames {
    pub(super) all: Vec<OsString>,
    /// Positions of files.
    pub(super) files: Vec<u32>,
    /// Positions of directories.
    pub(super) folders: Vec<u32>,
    /// Positions of links to directories.
    pub(super) linked: Vec<u32>,
    /// Positions of pipes, sockets and devices.
    pub(super) special: Vec<u32>,
}

impl SearchedNames {
    pub(super) fn sorted(mut entries: Vec<(OsString, EntryKind)>) -> Self {
        // the order of a listing is unspecified
        entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut names = Self::default();
        for (at, (name, kind)) in (0u32..).zip(entries) {
            match kind {
                EntryKind::File => &mut names.files,
                EntryKind::Folder => &mut names.folders,
                EntryKind::LinkedFolder => &mut names.linked,
                EntryKind::Special => &mut names.special,
            }
            .push(at);
            names.all.push(name);
        }
        names
    }

    /// Whether a directory of this name is among them.
    pub(super) fn has_folder(&self, name: &str) -> bool {
        let mut folders = self.folders.iter();
        folders.any(|&folder| self.all[folder as usize] == name)
    }
}
