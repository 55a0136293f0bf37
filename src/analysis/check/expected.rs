//! The digests that files should have: from a list that the caller gives, else from what is next to the files: lists such as
//! `SHA256SUMS`, names of blobs in the hub's cache, and what its client writes about a download. A file has to have all of
//! them. Evidence that is there and is not used is a finding.

use std::collections::HashMap;
use std::path::Path;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::Budget;
use crate::base::template::is_weight_file;
use crate::read::catalog::quote;
use crate::read::digest::Sha256Digest;
use crate::read::source::file_system::NamedPath;

use super::check_rules;
use super::checked_model::CheckedModel;
use super::digest_list::DigestList;
use super::evidence::{Evidence, EvidenceKind, evidence_beside, subject_of, uncomputed_algorithm};
use super::file_digest::FileDigest;
use super::listed_names::{FoundFile, ListedNames};
use super::places::below;
use super::report::Finding;

/// A digest that a file should have, and where it is from.
pub(super) type ExpectedDigest = (FileDigest, String);

/// A tensor's name, the digest that it should have, and the list that says so.
pub(super) type ExpectedTensor = (String, Sha256Digest, String);

/// The expectations about the files of a model.
#[derive(Debug, Default)]
pub(super) struct ExpectedDigests {
    /// By the path below the model's directory.
    pub(super) files: HashMap<String, Vec<ExpectedDigest>>,
    /// Digests of tensors, by name.
    pub(super) tensors: Vec<ExpectedTensor>,
    /// Lists and signatures, and whether they were used.
    pub(super) evidence: Vec<Evidence>,
    /// Listed files that are not there, and evidence that could not be used.
    pub(super) findings: Vec<Finding>,
}

const WHAT: &str = "the digests of the files";

/// The files of a repository that are not there, by the first names.
fn not_here(files: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<_> = files
        .iter()
        .take(SHOWN)
        .map(|file| quote(file).to_string())
        .collect();
    let more = match files.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("of its files are not here: {}{more}", shown.join(", "))
}

impl ExpectedDigests {
    /// Takes the digests of the caller's list; lists next to the files are named, and not used.
    pub(super) fn of_list(
        model: &CheckedModel<'_>,
        list: &DigestList,
        budget: &Budget,
    ) -> Result<Self> {
        let mut expected = Self::default();
        let origin = match &*list.origin {
            "" => "the list of digests",
            origin => origin,
        };
        let name = Path::new(origin).file_name().and_then(|name| name.to_str());
        expected.add_list(model, origin, list, name.and_then(subject_of), budget)?;
        expected.name_unused(model, "another list was given", budget)?;
        Ok(expected)
    }

    /// Takes no digest: names the evidence next to the files, which was not used.
    pub(super) fn unused(model: &CheckedModel<'_>, why: &str, budget: &Budget) -> Result<Self> {
        let mut expected = Self::default();
        expected.name_unused(model, why, budget)?;
        Ok(expected)
    }

    /// Takes the digests that lie next to the files. Only local files have that.
    pub(super) fn beside(model: &CheckedModel<'_>, budget: &Budget) -> Result<Self> {
        let mut expected = Self::default();
        for (name, kind) in evidence_beside(model, budget)? {
            match kind {
                EvidenceKind::Digests => expected.add_file(model, &name, budget)?,
                EvidenceKind::Signature => expected.add_signature(name, budget)?,
            }
        }
        // each look at a server would be a request, for files that are rarely there; a manifest or a list is known
        if !model.files.is_local() {
            for path in model.paths {
                let stated = model.files.stated_digest(path);
                let Some(digest) = stated.and_then(|text| FileDigest::from_manifest(&text)) else {
                    continue;
                };
                budget.memory(256 + 2 * path.as_os_str().len() as u64, WHAT)?;
                let file = below(model.root, path);
                let digests = expected.files.entry(file).or_default();
                digests.push((digest, "the manifest or list of its server".to_owned()));
            }
            return Ok(expected);
        }
        for path in model.paths {
            budget.memory(256 + 2 * path.as_os_str().len() as u64, WHAT)?;
            let of_download = expected.of_metadata(model, path, budget)?;
            // the record of the download names the same revision as the blob
            if let Some(found) = of_download.or_else(|| of_blob(path)) {
                let file = below(model.root, path);
                expected.files.entry(file).or_default().push(found);
            }
        }
        Ok(expected)
    }

    /// Takes a list that lies next to the files.
    fn add_file(&mut self, model: &CheckedModel<'_>, name: &str, budget: &Budget) -> Result<()> {
        if let Some(algorithm) = uncomputed_algorithm(name) {
            return self.refuse(
                name,
                format!("digests of {algorithm} are not computed"),
                budget,
            );
        }
        let path = model.root.join(name);
        let read = model
            .files
            .read_whole(NamedPath::below(model.root, &path), budget, WHAT);
        let list = read.and_then(|(bytes, _charge)| match bytes.is_empty() {
            true => Err(Error::malformed("it is empty")),
            false if is_detached_signature(&bytes) => Ok(None),
            false => DigestList::parse(&bytes, budget).map(Some),
        });
        match list {
            Ok(Some(list)) => self.add_list(model, name, &list, subject_of(name), budget),
            Ok(None) => self.add_signature(name.to_owned(), budget),
            Err(error) if matches!(error.kind(), ErrorKind::Cancelled) => Err(error),
            // a limit too: a list of any length would otherwise switch the comparison off without a word
            Err(error) => self.refuse(name, error.kind().to_string(), budget),
        }
    }

    /// Takes the digests of a list. Names refer to files below the model's directory; those elsewhere to the file of the
    /// same name in it. `subject` is the file of lines without a name.
    fn add_list(
        &mut self,
        model: &CheckedModel<'_>,
        origin: &str,
        list: &DigestList,
        subject: Option<&str>,
        budget: &Budget,
    ) -> Result<()> {
        let names = ListedNames::new(model, list, budget)?;
        let (mut compared, mut odd) = (0, list.odd.clone());
        let mut elsewhere: Vec<&str> = Vec::new();
        // the tensors of a file may lie in other shards, and are looked for by their names
        let has_tensors = list.entries.iter().any(|entry| entry.tensor.is_some());
        for entry in &list.entries {
            budget.steps(1, WHAT)?;
            budget.memory(256 + 2 * (entry.file.len() + origin.len()) as u64, WHAT)?;
            if let Some(tensor) = &entry.tensor {
                match entry.digest {
                    FileDigest::Sha256(digest) => {
                        budget.memory(64 + tensor.len() as u64, WHAT)?;
                        let expected = (tensor.clone(), digest, origin.to_owned());
                        budget.push(&mut self.tensors, expected, WHAT)?;
                        compared += 1;
                    }
                    _ => odd.add(|| format!("{}: digests of tensors are SHA-256", quote(tensor))),
                }
                continue;
            }
            match names.find(&entry.file, subject) {
                FoundFile::File(file) => {
                    compared += 1;
                    let digests = self.files.entry(file).or_default();
                    digests.push((entry.digest, origin.to_owned()));
                }
                FoundFile::Ambiguous => {
                    odd.add(|| format!("several entries have the name of {}", quote(&entry.file)))
                }
                FoundFile::Missing if has_tensors && is_weight_file(&entry.file) => {}
                FoundFile::Missing if list.of_repository => {
                    budget.push(&mut elsewhere, &*entry.file, WHAT)?;
                }
                // a list of a directory has files of other models too
                FoundFile::Missing if model.whole => {
                    let text = format!("is in {origin}, and not there");
                    let found = Finding::new(&check_rules::HASH_MISSING_FILE, text);
                    self.find(found.of_file(&*entry.file), budget)?;
                    compared += 1;
                }
                FoundFile::Missing => {}
            }
        }
        if list.of_repository {
            self.find_unlisted(model, origin, budget)?;
        }
        let mut why = (odd.count > 0).then(|| odd.text());
        if compared == 0 && odd.count == 0 {
            let text = "it names no file of the model";
            why = Some(text.to_owned());
        }
        if let Some(why) = &why {
            self.find_unused(origin, why, budget)?;
        }
        if why.is_none() && !elsewhere.is_empty() {
            // not a finding: of a repository people download what they need, and an index says what is missing
            why = Some(not_here(&elsewhere));
        }
        if list.is_signed && why.is_none() {
            // not a finding: the digests were compared, and who wrote them is not known of any list
            why = Some("its signature is not verified".to_owned());
        }
        self.add_evidence(
            origin.to_owned(),
            EvidenceKind::Digests,
            compared,
            why,
            budget,
        )
    }

    /// Finds fault with the files of the model that a repository does not have.
    fn find_unlisted(
        &mut self,
        model: &CheckedModel<'_>,
        origin: &str,
        budget: &Budget,
    ) -> Result<()> {
        for path in model.paths {
            let file = below(model.root, path);
            if !self.files.contains_key(&file) {
                let finding =
                    Finding::new(&check_rules::HASH_UNLISTED, format!("is not in {origin}"));
                self.find(finding.of_file(&*file), budget)?;
            }
        }
        Ok(())
    }

    /// Names the evidence next to the files, none of which was used.
    fn name_unused(&mut self, model: &CheckedModel<'_>, why: &str, budget: &Budget) -> Result<()> {
        let given = self.evidence.first().map(|given| given.path.clone());
        for (name, kind) in evidence_beside(model, budget)? {
            // the list that was given may be one of them
            if given.as_deref() == model.root.join(&name).to_str() {
                continue;
            }
            match kind {
                EvidenceKind::Digests => {
                    self.add_evidence(name, kind, 0, Some(why.to_owned()), budget)?;
                }
                EvidenceKind::Signature => self.add_signature(name, budget)?,
            }
        }
        Ok(())
    }

    /// Names a list of which nothing was used, and finds fault with that.
    fn refuse(&mut self, name: &str, why: String, budget: &Budget) -> Result<()> {
        self.find_unused(name, &why, budget)?;
        self.add_evidence(name.to_owned(), EvidenceKind::Digests, 0, Some(why), budget)
    }

    fn find_unused(&mut self, origin: &str, why: &str, budget: &Budget) -> Result<()> {
        let text = format!("not used: {why}");
        self.find(
            Finding::new(&check_rules::HASH_LIST, text).of_file(origin),
            budget,
        )
    }

    fn find(&mut self, finding: Finding, budget: &Budget) -> Result<()> {
        budget.memory(finding.memory(), WHAT)?;
        budget.push(&mut self.findings, finding, WHAT)
    }

    fn add_signature(&mut self, name: String, budget: &Budget) -> Result<()> {
        let why = "signatures are not verified".to_owned();
        self.add_evidence(name, EvidenceKind::Signature, 0, Some(why), budget)
    }

    fn add_evidence(
        &mut self,
        path: String,
        kind: EvidenceKind,
        compared: u64,
        unused: Option<String>,
        budget: &Budget,
    ) -> Result<()> {
        let texts = path.len() + unused.as_ref().map_or(0, String::len);
        budget.memory(64 + texts as u64, WHAT)?;
        let evidence = Evidence {
            path,
            kind,
            compared,
            unused,
        };
        budget.push(&mut self.evidence, evidence, WHAT)
    }

    /// The record that the hub's client wrote next to a download: the commit, the etag and the time.
    fn of_metadata(
        &mut self,
        model: &CheckedModel<'_>,
        path: &Path,
        budget: &Budget,
    ) -> Result<Option<ExpectedDigest>> {
        let name = format!(
            ".cache/huggingface/download/{}.metadata",
            below(model.root, path)
        );
        let metadata = model.root.join(&name);
        if !model.files.exists(&metadata) {
            return Ok(None);
        }
        let digest =
            match model
                .files
                .read_whole(NamedPath::below(model.root, &metadata), budget, WHAT)
            {
                Ok((bytes, _charge)) => {
                    let text = String::from_utf8_lossy(&bytes);
                    // the second of three lines, as huggingface_hub writes them
                    let etag = text.lines().nth(1).map(FileDigest::from_etag);
                    etag.ok_or_else(|| "it has no etag".to_owned())
                }
                Err(error) if matches!(error.kind(), ErrorKind::Cancelled) => return Err(error),
                Err(error) => Err(error.kind().to_string()),
            };
        match digest {
            Ok(Some(digest)) => return Ok(Some((digest, name))),
            // a mirror's etags may be anything
            Ok(None) => {
                let why = "its etag is no digest".to_owned();
                self.add_evidence(name, EvidenceKind::Digests, 0, Some(why), budget)?;
            }
            Err(why) => self.refuse(&name, why, budget)?,
        }
        Ok(None)
    }
}

/// Whether a file is a signature alone, without the text that is signed.
fn is_detached_signature(bytes: &[u8]) -> bool {
    bytes.starts_with(b"-----BEGIN PGP SIGNATURE-----")
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
