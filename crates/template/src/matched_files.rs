//! Matches the files of two templates, for the modules that compare them.

use std::collections::HashMap;

use crate::{File, Template};

/// Returns for each file of `b` the index of the same file of `a`: equal path, and the
/// [same](File::same) length and key.
pub(crate) fn matched_files(a: &Template, b: &Template) -> Vec<Option<usize>> {
    let paths: HashMap<_, _> = a
        .files()
        .iter()
        .enumerate()
        .map(|(i, file)| (&*file.path, i))
        .collect();
    let find = |file: &File| {
        paths
            .get(&*file.path)
            .copied()
            // a file that differs is another file, even at the same path: its bytes cannot be compared
            .filter(|&i| a.files()[i].same(file))
    };
    b.files().iter().map(find).collect()
}
