//! The findings of a check, as data. `serde_json::to_value(&report)` is one element of the `models` array that `anamnesis
//! check --json` prints; `docs/json.md` documents it.

use serde::Serialize;

use crate::read::checkpoint::UnreadFile;
use crate::read::digest::Sha256Digest;

use super::check_rules::CheckRule;
use super::evidence::Evidence;
use super::level::FindingLevel;
use super::statistics::ValueStatistics;

/// One finding. A field that does not apply is `None`, and left out of the JSON if the field is not one of every finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The rule's id: one of [`rules`](super::rules()).
    pub rule: &'static str,
    /// How serious it is.
    pub level: FindingLevel,
    /// The finding as text for people, without the name of the tensor or file.
    pub message: String,
    /// The file, by its path below the model's directory.
    pub file: Option<String>,
    /// The stored tensor or, of values, the logical weight.
    pub tensor: Option<String>,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// How many values, scales, rows or tensors.
    pub count: Option<u64>,
    /// The index of the first one in the tensor: of a value, or of the first value of a quantisation block.
    pub first: Option<Vec<u64>>,
    /// The value itself, of a constant or an outlier.
    pub value: Option<f64>,
    /// The remedy.
    pub remedy: Option<&'static str>,
    /// The tensors of a finding about several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Vec<String>>,
    /// Rows: the first, and the one behind the last. Leading dimensions count as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<[u64; 2]>,
    /// The member of an archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The name of a global of a pickle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A dtype.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
}

impl Finding {
    pub(super) fn new(rule: &'static CheckRule, message: impl Into<String>) -> Self {
        Self {
            rule: rule.id,
            level: rule.level,
            message: message.into(),
            file: None,
            tensor: None,
            offset: None,
            count: None,
            first: None,
            value: None,
            remedy: rule.remedy,
            tensors: None,
            rows: None,
            member: None,
            name: None,
            dtype: None,
        }
    }

    pub(super) fn level(mut self, level: FindingLevel) -> Self {
        self.level = level;
        self
    }

    pub(super) fn of_file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(file.into());
        self
    }

    pub(super) fn of_tensor(mut self, tensor: &str) -> Self {
        self.tensor = Some(tensor.to_owned());
        self
    }

    pub(super) fn count(mut self, count: u64) -> Self {
        self.count = Some(count);
        self
    }

    pub(super) fn first(mut self, first: Vec<u64>) -> Self {
        self.first = Some(first);
        self
    }

    /// Memory of the finding: what a list of them costs.
    pub(super) fn memory(&self) -> u64 {
        let text = |text: &Option<String>| text.as_ref().map_or(0, |text| text.capacity() + 16);
        let lists = self
            .first
            .as_ref()
            .map_or(0, |first| 8 * first.capacity() + 16)
            + self
                .tensors
                .iter()
                .flatten()
                .map(|name| name.capacity() + 40)
                .sum::<usize>();
        let texts = self.message.capacity()
            + [
                &self.file,
                &self.tensor,
                &self.member,
                &self.name,
                &self.dtype,
            ]
            .map(text)
            .into_iter()
            .sum::<usize>();
        (size_of::<Self>() + lists + texts) as u64
    }
}

/// A file of the model, and the digest that was compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CheckedFile {
    /// Its path below the model's directory.
    pub path: String,
    /// Its length.
    pub nbytes: u64,
    /// Its SHA-256, if it was computed.
    pub sha256: Option<Sha256Digest>,
    /// The digest that it should have: a SHA-256, or `sha1:` and the id of a git object.
    pub expected: Option<String>,
    /// Where that digest is from: a path, or `hub cache`.
    pub source: Option<String>,
}

/// A tensor as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StoredTensor {
    /// safetensors', ggml's or numpy's name of the element or block type.
    pub dtype: String,
    /// Sizes, outermost first.
    pub shape: Vec<u64>,
    /// Bytes of the logical contents.
    pub nbytes: u64,
    /// Its SHA-256, where a list is compared or written that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Digest>,
}

/// A logical weight, and the statistics of its values.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CheckedTensor {
    /// Its name.
    pub name: String,
    /// The stored tensor that it is made from; of several the one with its codes.
    pub stored: StoredTensor,
    /// Statistics of the values, if they were asked for.
    pub values: Option<ValueStatistics>,
}

/// Findings by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FindingCounts {
    /// Errors.
    pub error: u64,
    /// Warnings.
    pub warning: u64,
    /// Notes.
    pub note: u64,
}

/// How much of a model was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckCoverage {
    /// Stored tensors whose bytes were looked at; with [`Check::headers`](super::Check::headers) none.
    pub tensors: u64,
    /// Stored tensors of the files that could be opened.
    pub of_tensors: u64,
    /// Files that were opened or whose digest was computed.
    pub files: u64,
    /// Files of the model: of a directory, all files directly in it, and those that a list of digests names.
    pub of_files: u64,
}

/// One of the models that a check has looked at: a directory may have several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckedModelFiles {
    /// Its files, by their paths below the directory; the first ones of very many.
    pub files: Vec<String>,
    /// Its format.
    pub format: &'static str,
    /// Its stored tensors.
    pub tensors: u64,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Path of the model; `None` for a reader or bytes.
    pub path: Option<String>,
    /// Its files.
    pub files: Vec<CheckedFile>,
    /// The findings: errors first, then warnings, then notes; each in the order of the rules, and of the files.
    pub findings: Vec<Finding>,
    /// The weights, if statistics or digests of tensors were asked for.
    pub tensors: Vec<CheckedTensor>,
    /// Findings by level.
    pub counts: FindingCounts,
    /// Time that the check took.
    pub seconds: f64,
    /// Bytes of the files that were checked.
    pub nbytes: u64,
    /// Stored tensors whose bytes were looked at by all rules, and that no error or warning names: none where headers alone
    /// were read, or some rules alone were applied.
    pub sound: u64,
    /// How much was looked at, of how much.
    pub checked: CheckCoverage,
    /// The models that were looked at.
    pub models: Vec<CheckedModelFiles>,
    /// Files of the directory that were not looked at, and why.
    pub unread: Vec<UnreadFile>,
    /// Lists of digests and signatures, and whether they were used.
    pub evidence: Vec<Evidence>,
    /// Whether headers alone were read.
    pub headers: bool,
    /// The rules whose findings alone are reported; empty for all.
    pub only: Vec<String>,
    /// The rules whose findings are left out.
    pub allowed: Vec<String>,
    /// Whether all files could be opened. Where not, the others were checked.
    pub readable: bool,
    /// Why no rule that was applied looked at anything.
    #[serde(rename = "why_idle")]
    pub(super) idle: Option<String>,
}

impl CheckReport {
    /// Whether there is a finding of this level or above.
    pub fn found(&self, level: FindingLevel) -> bool {
        self.findings.iter().any(|finding| finding.level >= level)
    }

    /// Files whose digest was computed and compared with the one that it should be.
    pub fn compared_digests(&self) -> u64 {
        let is_compared = |file: &&CheckedFile| file.sha256.is_some() && file.expected.is_some();
        self.files.iter().filter(is_compared).count() as u64
    }

    /// Why no rule that was applied had anything to look at, such as `nan` where headers alone were read and `crc` where
    /// there is no archive; `None` if one had.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, check};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/ask/check/clean.safetensors")?;
    /// let report = check(&checkpoint).only("nan").headers().run()?;
    /// assert_eq!(report.why_idle(), Some("headers alone were read"));
    /// assert!(report.is_empty());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    pub fn why_idle(&self) -> Option<&str> {
        self.idle.as_deref()
    }

    /// Whether there is nothing that the check says anything about: no rule that was applied looked at anything
    /// ([`Self::why_idle`]); of all rules, no bytes of a tensor were looked at and no digest was computed; of headers, no file
    /// was opened.
    pub fn is_empty(&self) -> bool {
        if self.idle.is_some() {
            return true;
        }
        match self.headers {
            _ if !self.only.is_empty() => false,
            true => self.checked.files == 0,
            false => {
                let is_computed = |file: &CheckedFile| file.sha256.is_some();
                self.checked.tensors == 0 && !self.files.iter().any(is_computed)
            }
        }
    }
}
