//! Places in tensors and files, as findings name them.

use std::path::Path;

use crate::base::quote::path_text;
use crate::base::template::weight_ending;

/// The index of an element, by its number in C order.
pub(super) fn position(shape: &[u64], mut number: u64) -> Vec<u64> {
    let mut index = vec![0; shape.len()];
    for (at, size) in index.iter_mut().zip(shape).rev() {
        // an axis of no elements has no index; such a tensor has no finding about values
        *at = number % (*size).max(1);
        number /= (*size).max(1);
    }
    index
}

/// A path below the model's directory; its whole text elsewhere.
pub(super) fn below(root: &Path, path: &Path) -> String {
    let inner = path
        .strip_prefix(root)
        .ok()
        .filter(|inner| !inner.as_os_str().is_empty());
    let text = path_text(inner.unwrap_or(path));
    if std::path::MAIN_SEPARATOR == '/' {
        text
    } else {
        text.replace(std::path::MAIN_SEPARATOR, "/")
    }
}

/// The name of a file of weights without its ending.
pub(super) fn weight_stem(name: &str) -> Option<&str> {
    weight_ending(name)?;
    name.rsplit_once('.').map(|(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_indices_in_c_order() {
        assert_eq!(position(&[2, 3, 4], 0), [0, 0, 0]);
        assert_eq!(position(&[2, 3, 4], 23), [1, 2, 3]);
        assert_eq!(position(&[5], 3), [3]);
        assert_eq!(position(&[], 0), [] as [u64; 0]);
        assert_eq!(below(Path::new("a"), Path::new("a/b/c")), "b/c");
        assert_eq!(below(Path::new("a"), Path::new("d")), "d");
    }
}
