//! The options of a check.

use crate::base::progress::{CancelToken, Progress, RunControl};
use crate::read::selection::Selection;

use super::{Check, DigestList, Subject};

impl<'c> Check<'c> {
    pub(super) fn of(subject: Subject<'c>) -> Self {
        Self {
            subject,
            list: None,
            file_digests: false,
            tensor_digests: false,
            statistics: false,
            headers: false,
            threads: 0,
            allowed: Vec::new(),
            only: Vec::new(),
            selection: Selection::default(),
            control: RunControl::default(),
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

    /// The number of threads; 0, the default, for one per core. Findings and statistics do not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Looks only at weights and tensors whose name this accepts. Files are checked as a whole.
    #[must_use]
    pub fn filter(mut self, keep: impl Fn(&str) -> bool + Send + Sync + 'c) -> Self {
        self.selection.set_filter(keep);
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

    /// A callback for progress, in bytes of the pass that is under way: digests, checksums, scales, values. It is invoked by one thread
    /// at a time.
    #[must_use]
    pub fn progress(mut self, callback: impl FnMut(Progress) + Send + 'c) -> Self {
        self.control.set_progress(callback);
        self
    }

    /// A token that cancels the check, which then returns [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.control.set_cancel(token);
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
