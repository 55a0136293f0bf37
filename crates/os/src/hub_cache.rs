//! Names in the cache of the Hugging Face hub: `models--owner--name/snapshots/commit`, of which links lead to
//! `models--owner--name/blobs`.

use std::path::Path;

/// Whether a path is called as a repository in the cache is.
///
/// ```
/// use anamnesis_os::hub_cache::is_repository;
///
/// assert!(is_repository("hub/models--org--name".as_ref()));
/// assert!(!is_repository("hub/models--org--name/snapshots".as_ref()));
/// ```
pub fn is_repository(path: &Path) -> bool {
    let name = path.file_name().map(std::ffi::OsStr::as_encoded_bytes);
    name.is_some_and(|name| name.starts_with(b"models--"))
}

/// The repository that a path is in, or that it is itself.
///
/// ```
/// use anamnesis_os::hub_cache::repository_of;
///
/// let repository = repository_of("hub/models--org--name/snapshots/abc/config.json".as_ref());
/// assert_eq!(repository.unwrap(), "hub/models--org--name");
/// ```
pub fn repository_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|path| is_repository(path))
}
