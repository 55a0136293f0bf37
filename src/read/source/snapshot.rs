//! Where a model is on this machine: the snapshot of a repository in the cache of the Hugging Face hub, of whose layout
//! (`models--owner--name/{blobs,refs,snapshots}`) a caller may name the outermost directory.

use std::fs;
use std::path::{Path, PathBuf};

use anamnesis_os::hub_cache::is_repository;
use anamnesis_os::trust;

use crate::base::error::{Error, Remedy, Result};
use crate::base::limits::{Budget, Limits};
use crate::base::note::Note;

use super::file_system::NamedPath;
use super::files::{Files, require_local, url};
use super::ollama::blob_of;
use super::regular::{check_directory, read_named};

/// The names of snapshots that an error lists.
const SHOWN: usize = 4;

/// The path on this machine of a model that a path or a URL names, as [`Checkpoint::open`](crate::Checkpoint::open) finds it.
///
/// | path | result |
/// |---|---|
/// | `hf://owner/name`, also with `@revision` or a file | the snapshot or file in the hub's cache, if it is there (feature `remote`) |
/// | `ollama://model:tag` | the blob of the model in the store of Ollama, if it is there (feature `remote`) |
/// | a directory `models--owner--name` of the hub's cache | its snapshot that `refs/main` names, or its only one |
/// | a manifest of an Ollama store | the blob of its model |
/// | any other path | the path itself, which need not exist |
///
/// Sends no request.
///
/// # Errors
/// The model is at a URL and not on this machine; a repository in the cache has several snapshots of which `refs/main`
/// names none, or none at all.
///
/// ```
/// let cache = std::env::temp_dir().join(format!("anamnesis-cache-{}", std::process::id()));
/// let snapshot = cache.join("models--org--name/snapshots/abc");
/// std::fs::create_dir_all(&snapshot)?;
/// let found = anamnesis::source::local_path(cache.join("models--org--name"))?;
/// assert_eq!(found, snapshot);
/// # std::fs::remove_dir_all(&cache)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn local_path(path: impl AsRef<Path>) -> Result<PathBuf> {
    let (files, path) = Files::of(path.as_ref())?;
    require_local(&files, &path, "this needs")?;
    if let Some(snapshot) = snapshot_of(&path)? {
        return Ok(snapshot);
    }
    Ok(match blob_of(&path)? {
        Some(blob) => blob,
        None => path.into_owned(),
    })
}

/// A warning that other users can change what the hub's cache on this machine holds, which stands in for the hub. `given` is
/// the path or the URL that was opened, and `found` is where [`local_path`] has found it. `None` if no other user can, or if
/// the caller has named the place.
///
/// ```
/// use std::path::Path;
///
/// let found = anamnesis::source::cache_warning(Path::new("fixtures/gguf"), Path::new("fixtures/gguf"));
/// assert!(found.is_none(), "a directory that the caller names is the caller's choice");
/// ```
pub fn cache_warning(given: &Path, found: &Path) -> Option<Note> {
    let cache = match url(given)?.split(':').next() {
        Some(scheme) if scheme.eq_ignore_ascii_case("ollama") => "the Ollama store",
        _ => "the hub's cache",
    };
    // a path that cannot be looked at cannot be opened either, which says why
    let stranger = trust::stranger_to_snapshot(found).ok()??;
    let text = format!("{cache} on this machine is read, and {stranger}");
    Some(Note::with_remedy(text, Remedy::OwnCache))
}

/// The snapshot of a repository in the hub's cache; `None` for any other path.
///
/// By the name first, as this is called for every path that is opened: a system call would cost a small file a tenth of its
/// opening.
pub(crate) fn snapshot_of(path: &Path) -> Result<Option<PathBuf>> {
    if !is_repository(path) {
        return Ok(None);
    }
    let snapshots = path.join("snapshots");
    if !snapshots.is_dir() {
        return Ok(None);
    }
    if let Some(named) = revision(&path.join("refs/main")).map(|name| snapshots.join(name))
        && named.is_dir()
    {
        return own_snapshot(path, named);
    }
    let in_snapshots = |e| Error::from(e).in_file(&snapshots);
    let mut found = Vec::new();
    for entry in fs::read_dir(&snapshots).map_err(in_snapshots)? {
        let entry = entry.map_err(in_snapshots)?;
        // one more than an error shows says that there are more
        if found.len() <= SHOWN && entry.path().is_dir() {
            found.push(entry.file_name());
        }
    }
    match &found[..] {
        [only] => own_snapshot(path, snapshots.join(only)),
        [] => Err(Error::unsupported(
            "the hub's cache holds no snapshot of this repository; download it with `hf download`",
        )
        .in_file(path)),
        several => {
            let shown: Vec<_> = several
                .iter()
                .take(SHOWN)
                .map(|name| name.to_string_lossy())
                .collect();
            let more = if several.len() > SHOWN { ", …" } else { "" };
            Err(Error::unsupported(format!(
                "the hub's cache holds several snapshots of this repository, and refs/main names none of them; open one \
                 ({}{more})",
                shown.join(", ")
            ))
            .in_file(&snapshots))
        }
    }
}

/// A snapshot whose links, if it is one, are followed.
fn own_snapshot(repository: &Path, snapshot: PathBuf) -> Result<Option<PathBuf>> {
    check_directory(repository, &snapshot)?;
    Ok(Some(snapshot))
}

/// The name of a snapshot that a reference holds.
fn revision(reference: &Path) -> Option<String> {
    /// The longest name of a commit: 64 digits of SHA-256.
    const LONGEST: usize = 64;
    let limits = Limits {
        // a reference is one short line
        memory: 4096,
        ..Limits::default()
    };
    let budget = Budget::new(limits);
    let (text, _charge) = read_named(
        NamedPath::in_its_directory(reference),
        &budget,
        "a reference",
    )
    .ok()?;
    let name = std::str::from_utf8(&text).ok()?.trim();
    // the name is joined to a path, and must not lead out of the cache
    let is_plain = !name.is_empty()
        && name.len() <= LONGEST
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_of_the_cache_is_its_main_or_only_snapshot() {
        let name = format!("anamnesis-snapshot-{}", std::process::id());
        let cache = std::env::temp_dir().join(name);
        fs::create_dir(&cache).unwrap();
        let repository = cache.join("models--org--name");
        let snapshot = |name: &str| repository.join("snapshots").join(name);
        // an ordinary directory of this name
        fs::create_dir(&repository).unwrap();
        assert_eq!(snapshot_of(&repository).unwrap(), None);
        fs::create_dir(repository.join("snapshots")).unwrap();
        let error = snapshot_of(&repository).unwrap_err().to_string();
        assert!(error.contains("no snapshot"), "{error}");
        fs::create_dir(snapshot("abc")).unwrap();
        fs::write(snapshot("file"), "").unwrap();
        assert_eq!(snapshot_of(&repository).unwrap(), Some(snapshot("abc")));
        fs::create_dir(snapshot("def")).unwrap();
        let error = snapshot_of(&repository).unwrap_err().to_string();
        assert!(
            error.contains("abc") && error.contains("def") && error.contains("several"),
            "{error}"
        );
        fs::create_dir(repository.join("refs")).unwrap();
        // a reference is untrusted text: it names a snapshot and nothing outside of them
        for text in ["../..", "", "missing", "/etc"] {
            fs::write(repository.join("refs/main"), text).unwrap();
            assert!(snapshot_of(&repository).is_err(), "{text}");
        }
        fs::write(repository.join("refs/main"), "a".repeat(1 << 16)).unwrap();
        assert!(snapshot_of(&repository).is_err());
        fs::write(repository.join("refs/main"), "def\n").unwrap();
        let with_slash = cache.join("models--org--name/");
        for path in [&repository, &with_slash] {
            assert_eq!(local_path(path).unwrap(), snapshot("def"));
        }
        assert_eq!(local_path("no/such").unwrap(), Path::new("no/such"));
        assert!(local_path("https://example.org/model.gguf").is_err());
        fs::remove_dir_all(&cache).unwrap();
    }
}
