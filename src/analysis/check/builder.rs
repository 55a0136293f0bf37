//! The options of a check.

use crate::read::run_options::{RunOptions, run_options};

use super::{Check, DigestList, Subject};

run_options!(Check {
    threads,
    /// Weights and tensors of these names are looked at. Files are checked as a whole.
    filter,
    /// In bytes of the pass that is under way: digests, checksums, scales, values.
    progress,
    cancel,
});

impl<'c> Check<'c> {
    pub(super) fn of(subject: Subject<'c>) -> Self {
        Self {
            subject,
            list: None,
            file_digests: false,
            tensor_digests: false,
            statistics: false,
            headers: false,
            allowed: Vec::new(),
            only: Vec::new(),
            options: RunOptions::default(),
        }
    }

    /// The digests that files and tensors should have. Without a list, what is next to the files is used: the names of
    /// blobs in the hub's cache, what its client writes about a download, and `SHA256SUMS`.
    #[must_use]
    pub fn manifest(mut self, list: DigestList) -> Self {
        self.list = Some(list);
        self
    }

    /// Computes the digest of every file, also where there is nothing to compare it with; for
    /// [`sha256_lines`](super::sha256_lines).
    #[must_use]
    pub fn file_digests(mut self) -> Self {
        self.file_digests = true;
        self
    }

    /// Computes the digest of every file and tensor; for [`json_list`](super::json_list).
    #[must_use]
    pub fn tensor_digests(mut self) -> Self {
        (self.file_digests, self.tensor_digests) = (true, true);
        self
    }

    /// Computes statistics of each weight's values.
    #[must_use]
    pub fn statistics(mut self) -> Self {
        self.statistics = true;
        self
    }

    /// Reads headers only: no digests, no checksums, no values.
    #[must_use]
    pub fn headers(mut self) -> Self {
        self.headers = true;
        self
    }

    /// Leaves out the findings of a rule. May be called several times.
    #[must_use]
    pub fn allow(mut self, rule: &str) -> Self {
        self.allowed.push(rule.to_owned());
        self
    }

    /// Reports the findings of this rule, and of others that are given so, alone.
    #[must_use]
    pub fn only(mut self, rule: &str) -> Self {
        self.only.push(rule.to_owned());
        self
    }
}

impl std::fmt::Debug for Check<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check")
            .field("statistics", &self.statistics)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
