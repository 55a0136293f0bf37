//! The digests that files should have: from a list that the caller gives, else from what is next to the files: names of blobs in
//! the hub's cache, what its client writes about a download, `SHA256SUMS`.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::read::digest::{GitObjectId, Sha256Digest};
use crate::read::source::files::Files;

use super::digest_list::DigestList;
use super::places::below;

/// A digest that a file should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileDigest {
    Sha256(Sha256Digest),
    /// The id of the git object of a file that is not in LFS.
    Git(GitObjectId),
}

impl FileDigest {
    /// Reads an etag or the name of a blob: 64 digits are a SHA-256, 40 the id of a git object.
    fn from_etag(text: &str) -> Option<Self> {
        // servers put a weak mark and quotes around an ETag
        let text = text.trim().trim_start_matches("W/").trim_matches('"');
        let sha256 = text.parse().ok().map(Self::Sha256);
        sha256.or_else(|| GitObjectId::from_text(text).map(Self::Git))
    }
}

impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(digest) => digest.fmt(f),
            Self::Git(id) => write!(f, "sha1:{id}"),
        }
    }
}

/// The expectations about the files of a model.
#[derive(Debug, Default)]
pub(super) struct ExpectedDigests {
    /// By the path below the model's directory: the digest, and where it is from.
    pub(super) files: HashMap<String, (FileDigest, String)>,
    /// Digests of tensors, by name.
    pub(super) tensors: Vec<(String, Sha256Digest)>,
    /// Listed files that are not there, with the list.
    pub(super) missing: Vec<String>,
}

/// The model whose files are looked at.
pub(super) struct CheckedModel<'m> {
    pub(super) files: &'m Files,
    pub(super) root: &'m Path,
    /// Paths of the files that belong to it.
    pub(super) paths: &'m [PathBuf],
    /// Whether the model is a directory, of which all files of a list of digests must be there.
    pub(super) whole: bool,
}

const WHAT: &str = "the digests of the files";

impl ExpectedDigests {
    /// Takes the digests of a list. Names refer to files below the model's directory; those elsewhere to the file of the
    /// same name in it.
    pub(super) fn of_list(
        model: &CheckedModel<'_>,
        list: &DigestList,
        budget: &Budget,
    ) -> Result<Self> {
        let mut expected = Self::default();
        let shown: Vec<String> = model
            .paths
            .iter()
            .map(|path| below(model.root, path))
            .collect();
        // a list may have as many lines as the model has files
        let known_names: HashSet<&str> = shown.iter().map(String::as_str).collect();
        for entry in &list.entries {
            budget.steps(1, WHAT)?;
            budget.memory(256 + 2 * entry.file.len() as u64, WHAT)?;
            if let Some(tensor) = &entry.tensor {
                budget.memory(64 + tensor.len() as u64, WHAT)?;
                expected.tensors.push((tensor.clone(), entry.sha256));
                continue;
            }
            let digest = (FileDigest::Sha256(entry.sha256), list.origin.clone());
            let name = plain(&entry.file);
            let known = match (&name, &shown[..]) {
                (None, [only]) if entry.file.is_empty() => Some(only.clone()),
                // a list that was made elsewhere has that machine's paths
                (None, _) => Path::new(&entry.file)
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned())
                    .filter(|name| known_names.contains(&**name)),
                (Some(name), _) => Some(name.clone()).filter(|name| {
                    known_names.contains(&**name)
                        || (model.whole && model.files.exists(&model.root.join(name)))
                }),
            };
            match known {
                Some(name) => {
                    expected.files.insert(name, digest);
                }
                // a list of a directory has files of other models too
                None if model.whole => expected.missing.push(entry.file.clone()),
                None => {}
            }
        }
        Ok(expected)
    }

    /// Takes the digests that lie next to the files. Only local files have that.
    pub(super) fn beside(model: &CheckedModel<'_>, budget: &Budget) -> Result<Self> {
        let mut expected = Self::default();
        // each look at a server would be a request, for files that are rarely there
        if !model.files.is_local() {
            return Ok(expected);
        }
        let sums = model.root.join("SHA256SUMS");
        if model.files.is_file(&sums) {
            let (bytes, _charge) = model.files.read_whole(&sums, budget, WHAT)?;
            // another program's list is no error of the model
            if let Ok(mut list) = DigestList::parse(&bytes, budget) {
                list.origin = "SHA256SUMS".to_owned();
                expected = Self::of_list(model, &list, budget)?;
            }
        }
        for path in model.paths {
            budget.memory(256 + 2 * path.as_os_str().len() as u64, WHAT)?;
            // the download's own record first: it names the revision that was downloaded
            let found = of_metadata(model, path, budget)?.or_else(|| of_blob(path));
            if let Some(found) = found {
                expected.files.insert(below(model.root, path), found);
            }
        }
        Ok(expected)
    }
}

/// A name as a path below the model's directory; `None` if it is anything else.
fn plain(name: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            // absolute paths and `..` would compare files outside of the model
            _ => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// The record that the hub's client wrote next to a download: the commit, the etag and the time.
fn of_metadata(
    model: &CheckedModel<'_>,
    path: &Path,
    budget: &Budget,
) -> Result<Option<(FileDigest, String)>> {
    let name = format!(
        ".cache/huggingface/download/{}.metadata",
        below(model.root, path)
    );
    let metadata = model.root.join(&name);
    if !model.files.is_file(&metadata) {
        return Ok(None);
    }
    let (bytes, _charge) = model.files.read_whole(&metadata, budget, WHAT)?;
    let text = String::from_utf8_lossy(&bytes);
    // the second of three lines, as huggingface_hub writes them
    let digest = text.lines().nth(1).and_then(FileDigest::from_etag);
    Ok(digest.map(|digest| (digest, name)))
}

/// The name of a blob of the hub's cache, which its files are links to.
fn of_blob(path: &Path) -> Option<(FileDigest, String)> {
    let target = std::fs::read_link(path).ok()?;
    let (name, folder) = (target.file_name()?, target.parent()?.file_name()?);
    // links of other programs have any target, whose name is no digest
    (folder == "blobs").then_some(())?;
    let digest = FileDigest::from_etag(name.to_str()?)?;
    Some((digest, "hub cache".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_directory() {
        assert_eq!(plain("./a/b.bin").as_deref(), Some("a/b.bin"));
        for outside in ["../a", "/a", "a/../../b", ""] {
            assert_eq!(plain(outside), None, "{outside}");
        }
    }

    #[test]
    fn etags_are_digests() {
        let git = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        assert!(matches!(
            FileDigest::from_etag(&format!("W/\"{git}\"")),
            Some(FileDigest::Git(_))
        ));
        assert!(matches!(
            FileDigest::from_etag(&"0".repeat(64)),
            Some(FileDigest::Sha256(_))
        ));
        assert_eq!(FileDigest::from_etag("\"5f3-612\""), None);
    }
}
