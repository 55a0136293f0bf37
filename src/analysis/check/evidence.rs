//! Files in a model's directory that say what its files should be: lists of digests, which are compared, and signatures,
//! which are not verified and therefore named.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;

use serde::Serialize;

use crate::base::error::{ErrorKind, Result};
use crate::base::limits::Budget;

use super::checked_model::CheckedModel;
use super::places::{below, weight_stem};

const WHAT: &str = "the lists of digests";

/// A file that says what others should be, or who signed them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Evidence {
    /// Its path: below the model's directory or, of the list that was given, as it was given.
    pub path: String,
    /// Its kind.
    pub kind: EvidenceKind,
    /// Digests of it that were compared.
    pub compared: u64,
    /// Why it, or a part of it, was not used; `None` if all of it was.
    pub unused: Option<String>,
}

/// A kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EvidenceKind {
    /// A list of digests.
    Digests,
    /// A signature.
    Signature,
}

/// Algorithms of lists, as their names begin or end.
const ALGORITHMS: [&str; 24] = [
    "sha256", "sha512", "sha384", "sha224", "sha1", "sha3", "sha3-256", "sha3-512", "sha", "md5",
    "b2", "b3", "blake2", "blake2b", "blake2s", "blake3", "crc", "crc32", "crc32c", "sfv", "xxh",
    "xxh3", "xxh64", "xxh128",
];

/// Endings of signatures.
const SIGNATURES: [&str; 12] = [
    "sig", "asc", "gpg", "pgp", "minisig", "sigstore", "signify", "p7s", "p7m", "att", "intoto",
    "bundle",
];

/// The evidence that a file is by its name.
pub(super) fn kind_of(name: &str) -> Option<EvidenceKind> {
    let name = name.to_ascii_lowercase();
    let (stem, ending) = name.rsplit_once('.').unwrap_or((&name, ""));
    // a signed list is a list
    if ending == "asc" && kind_of(stem) == Some(EvidenceKind::Digests) {
        return Some(EvidenceKind::Digests);
    }
    if is_list(&name) {
        return Some(EvidenceKind::Digests);
    }
    let inner = stem.rsplit_once('.').map_or("", |(_, inner)| inner);
    let is_signature = SIGNATURES.contains(&ending)
        // `model.sigstore.json`, `claims.intoto.jsonl`
        || (matches!(ending, "json" | "jsonl") && SIGNATURES.contains(&inner));
    is_signature.then_some(EvidenceKind::Signature)
}

/// First parts of names of lists, whose ending says how they are written.
const LISTS: [&str; 9] = [
    "checksum",
    "checksums",
    "digest",
    "digests",
    "hash",
    "hashes",
    "integrity",
    "shasum",
    "shasums",
];

/// The same, of files without an ending.
const BARE_LISTS: [&str; 6] = [
    "checksum",
    "checksums",
    "digests",
    "hashes",
    "shasum",
    "shasums",
];

/// Whether a file is a list by its name: `SHA256SUMS`, `SHASUMS256.txt`, `sha512sum.txt`, `sha256.txt`, `checksums.json`,
/// `model.gguf.sha256`, `model.sha256.txt`.
fn is_list(name: &str) -> bool {
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    // the ending of a text says nothing
    let inner = rest.strip_suffix(".txt").unwrap_or(rest);
    let inner = inner.rsplit_once('.').map_or(inner, |(_, last)| last);
    let of_algorithm = |text: &str| {
        // Node's `SHASUMS256.txt`
        if matches!(
            text,
            "shasums256" | "shasums512" | "shasum256" | "shasum512"
        ) {
            return true;
        }
        let sums = text
            .strip_suffix("sums")
            .or_else(|| text.strip_suffix("sum"));
        let algorithm = sums.map(|text| text.trim_end_matches(['-', '_']));
        algorithm.is_some_and(|text| ALGORITHMS.contains(&text))
    };
    let is_text = matches!(rest, "" | "txt");
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let is_algorithm = |text: &str| ALGORITHMS.contains(&text) && text != "sha";
    let is_written = matches!(rest, "txt" | "json" | "sum" | "sums");
    (is_text && (of_algorithm(first) || BARE_LISTS.contains(&first)))
        || (is_written && (is_algorithm(first) || LISTS.contains(&first)))
        || (name.ends_with(".txt") && (is_algorithm(inner) || of_algorithm(inner)))
        || (ALGORITHMS.contains(&ending) && ending != "sha")
        || (ending != name && of_algorithm(ending))
}

/// The algorithm that the name of a list says, if its digests are not computed here; `None` if the lines say what they are.
pub(super) fn uncomputed_algorithm(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    // two of these have digests of the length of a SHA-256 or a SHA-512
    [
        ("md5", "MD5"),
        ("b2", "BLAKE2"),
        ("b3", "BLAKE3"),
        ("blake2", "BLAKE2"),
        ("blake3", "BLAKE3"),
        ("sha1", "SHA-1"),
        ("sha3", "SHA-3"),
        ("sha224", "SHA-224"),
        ("sha384", "SHA-384"),
        ("sha3-256", "SHA-3"),
        ("sha3-512", "SHA-3"),
        ("blake2b", "BLAKE2"),
        ("blake2s", "BLAKE2"),
        ("crc", "CRC"),
        ("crc32", "CRC-32"),
        ("crc32c", "CRC-32C"),
        ("sfv", "CRC-32"),
        ("xxh", "XXH"),
        ("xxh3", "XXH"),
        ("xxh64", "XXH"),
        ("xxh128", "XXH"),
    ]
    .into_iter()
    .find(|(text, _)| {
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        let of = |part: &str| {
            let rest = part.strip_prefix(text);
            rest.is_some_and(|rest| matches!(rest, "" | "sum" | "sums"))
        };
        of(ending) || of(name.split_once('.').map_or(&*name, |(first, _)| first))
    })
    .map(|(_, algorithm)| algorithm)
}

/// The file that a list is about by its name: `model.gguf` of `model.gguf.sha256`.
pub(super) fn subject_of(name: &str) -> Option<&str> {
    // `model.gguf.sha256.txt`
    let name = name.strip_suffix(".txt").unwrap_or(name);
    let (stem, ending) = name.rsplit_once('.')?;
    let ending = ending.to_ascii_lowercase();
    let stem_is_list =
        kind_of(stem) == Some(EvidenceKind::Digests) || is_list(&stem.to_ascii_lowercase());
    (ALGORITHMS
        .iter()
        .any(|algorithm| ending.starts_with(algorithm))
        && !stem_is_list)
        .then_some(stem)
}

/// The names of evidence in the directory of a model, sorted.
pub(super) fn evidence_beside(
    model: &CheckedModel<'_>,
    budget: &Budget,
) -> Result<Vec<(String, EvidenceKind)>> {
    let mut found = Vec::new();
    // each look at a server would be a request, for files that are rarely there
    if !model.files.is_local() {
        return Ok(found);
    }
    // files of weights beside a model that is one, without their endings
    let mut stems = HashSet::new();
    let mut add = |name: &str| {
        if let Some(kind) = kind_of(name) {
            budget.memory(64 + name.len() as u64, WHAT)?;
            return budget.push(&mut found, (name.to_owned(), kind), WHAT);
        }
        if let Some(stem) = weight_stem(name) {
            budget.memory(64 + stem.len() as u64, WHAT)?;
            stems.insert(stem.to_owned());
        }
        Ok(())
    };
    if let Some(listing) = model.listing {
        let names = listing.files().iter();
        let mut evidence = names.filter(|name| kind_of(name).is_some());
        evidence.try_for_each(|name| add(name))?;
    } else if !model.whole {
        // the parent of a bare file name is empty, and an empty path is no directory
        let directory = match model.root.as_os_str().is_empty() {
            true => Path::new("."),
            false => model.root,
        };
        let wanted = |name: &OsStr| {
            name.to_str()
                .is_some_and(|name| kind_of(name).is_some() || weight_stem(name).is_some())
        };
        let listed = model.files.list(directory, &wanted, &mut |name| {
            name.to_str().map_or(Ok(()), &mut add)
        });
        match listed {
            // a directory that may be entered, and not listed, hides what there is: the files themselves could be read
            Err(error) if matches!(error.kind(), ErrorKind::Io(_)) => return Ok(Vec::new()),
            listed => listed?,
        }
    }
    // a list of one file beside others is no evidence about them
    if !model.whole {
        let names: HashSet<String> = model
            .paths
            .iter()
            .map(|path| below(model.root, path))
            .collect();
        let own: HashSet<&str> = names.iter().filter_map(|name| weight_stem(name)).collect();
        found.retain(|(name, _)| {
            let subject = subject_of(name).or_else(|| name.rsplit_once('.').map(|(stem, _)| stem));
            let is_of_other = |subject: &str| {
                let is_stem_of_other = stems.contains(subject) && !own.contains(subject);
                !names.contains(subject)
                    && (is_stem_of_other || model.files.exists(&model.root.join(subject)))
            };
            !subject.is_some_and(is_of_other)
        });
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_evidence_a_file_is() {
        use EvidenceKind::{Digests, Signature};
        for (name, kind) in [
            ("SHA256SUMS", Some(Digests)),
            ("SHA512SUMS", Some(Digests)),
            ("sha256sum.txt", Some(Digests)),
            ("SHA256SUMS.asc", Some(Digests)),
            ("checksums.txt", Some(Digests)),
            ("CHECKSUM", Some(Digests)),
            ("md5sums", Some(Digests)),
            ("B2SUMS", Some(Digests)),
            ("model.gguf.sha256", Some(Digests)),
            ("model.gguf.sha256sum", Some(Digests)),
            ("checksums.sha256", Some(Digests)),
            ("SHA256SUMS.sig", Some(Signature)),
            ("model.sig", Some(Signature)),
            ("model.safetensors.asc", Some(Signature)),
            ("model.sigstore.json", Some(Signature)),
            ("sha256.txt", Some(Digests)),
            ("SHASUMS256.txt", Some(Digests)),
            ("hashes.txt", Some(Digests)),
            ("sha256.sum", Some(Digests)),
            ("checksums.json", Some(Digests)),
            ("model.sha256.txt", Some(Digests)),
            ("model.gguf.sha256sum.txt", Some(Digests)),
            ("DIGESTS", Some(Digests)),
            ("CHECKSUMS", Some(Digests)),
            ("HASHES", Some(Digests)),
            ("MD5SUMS", Some(Digests)),
            ("model.gguf.crc32", Some(Digests)),
            ("model.safetensors.xxh64", Some(Digests)),
            ("release.sfv", Some(Digests)),
            ("integrity.json", Some(Digests)),
            ("sha3-256sums.txt", Some(Digests)),
            ("digest", None),
            ("integrity", None),
            ("hash", None),
            ("vocab.txt", None),
            ("notes.model.txt", None),
            ("model.gguf", None),
            ("config.json", None),
            ("sha", None),
            ("README.md", None),
            ("checksum_model.safetensors", None),
        ] {
            assert_eq!(kind_of(name), kind, "{name}");
        }
        assert_eq!(uncomputed_algorithm("B2SUMS"), Some("BLAKE2"));
        assert_eq!(uncomputed_algorithm("a.gguf.blake3"), Some("BLAKE3"));
        assert_eq!(uncomputed_algorithm("release.sfv"), Some("CRC-32"));
        assert_eq!(uncomputed_algorithm("CRC32SUMS"), Some("CRC-32"));
        assert_eq!(uncomputed_algorithm("SHA256SUMS"), None);
        assert_eq!(uncomputed_algorithm("checksums.txt"), None);
        assert_eq!(subject_of("model.gguf.sha256"), Some("model.gguf"));
        assert_eq!(subject_of("model.gguf.sha256.txt"), Some("model.gguf"));
        assert_eq!(subject_of("checksums.sha256"), None);
        assert_eq!(subject_of("SHA256SUMS"), None);
    }
}
