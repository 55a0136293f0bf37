//! Limits on what reading a template may cost, and the budget that is charged against them.

use crate::error::{Error, ErrorKind, Result};

/// Bounds on the resources that reading one template may use. The defaults are safe for untrusted
/// templates and exceed the needs of the largest published models many times.
///
/// ```
/// use anamnesis_template::TemplateLimits;
///
/// let small = TemplateLimits { accesses: 1_000, ..TemplateLimits::default() };
/// # let _ = small;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateLimits {
    /// Bytes of the template's file, or of its JSON. Default 64 MiB.
    pub bytes: u64,
    /// Bytes of memory that its content may occupy. Default 256 MiB.
    pub memory: u64,
    /// Number of files. Default 100 000.
    pub files: u64,
    /// Number of groups. Default 65 536.
    pub groups: u64,
    /// Number of accesses of all groups. Default 2 000 000.
    pub accesses: u64,
    /// Number of runs of all accesses, which [`coverage`](crate::coverage) iterates. Default 2²⁷.
    pub runs: u64,
}

impl Default for TemplateLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            memory: 256 << 20,
            files: 100_000,
            groups: 65_536,
            accesses: 2_000_000,
            runs: 1 << 27,
        }
    }
}

impl TemplateLimits {
    /// No limits, for trusted templates. Malformed templates are still refused.
    pub const fn none() -> Self {
        let most = u64::MAX;
        Self {
            bytes: most,
            memory: most,
            files: most,
            groups: most,
            accesses: most,
            runs: most,
        }
    }
}

/// The limits of one read and what is left of them.
#[derive(Debug)]
pub(crate) struct TemplateBudget {
    limits: TemplateLimits,
    left: TemplateLimits,
}

impl TemplateBudget {
    pub(crate) fn new(limits: &TemplateLimits) -> Self {
        Self {
            limits: *limits,
            left: *limits,
        }
    }

    pub(crate) fn bytes(&mut self, n: u64) -> Result<()> {
        spend(
            &mut self.left.bytes,
            n,
            self.limits.bytes,
            "the template",
            "bytes",
        )
    }

    /// Charges `n` bytes of memory. Must be called before memory whose size the file states is
    /// allocated.
    pub(crate) fn memory(&mut self, n: u64, what: &str) -> Result<()> {
        spend(&mut self.left.memory, n, self.limits.memory, what, "memory")
    }

    pub(crate) fn files(&mut self, n: u64) -> Result<()> {
        spend(
            &mut self.left.files,
            n,
            self.limits.files,
            "the list of files",
            "files",
        )?;
        // A file's row and its entry in the set that detects duplicates.
        self.memory(n.saturating_mul(96), "the list of files")
    }

    pub(crate) fn groups(&mut self, n: u64) -> Result<()> {
        spend(
            &mut self.left.groups,
            n,
            self.limits.groups,
            "the list of groups",
            "groups",
        )?;
        self.memory(
            n.saturating_mul(size_of::<crate::AccessGroup>() as u64),
            "the list of groups",
        )
    }

    /// Charges `n` accesses of `size` bytes of memory each.
    pub(crate) fn accesses(&mut self, n: u64, size: usize) -> Result<()> {
        spend(
            &mut self.left.accesses,
            n,
            self.limits.accesses,
            "the list of accesses",
            "accesses",
        )?;
        self.memory(n.saturating_mul(size as u64), "the list of accesses")
    }

    pub(crate) fn runs(&mut self, n: u64) -> Result<()> {
        spend(
            &mut self.left.runs,
            n,
            self.limits.runs,
            "the runs of the accesses",
            "runs",
        )
    }
}

fn spend(left: &mut u64, n: u64, allowed: u64, what: &str, limit: &'static str) -> Result<()> {
    match left.checked_sub(n) {
        Some(rest) => *left = rest,
        None => {
            let needed = (allowed - *left).saturating_add(n);
            return Err(Error::new(ErrorKind::Limit {
                what: what.into(),
                needed,
                allowed,
                limit,
            }));
        }
    }
    Ok(())
}
