//! Counts accesses that the template does not have. If they are many, the template is stale.

/// Number of accesses before their count can mark a template as stale.
const MIN_ACCESSES: u64 = 64;
/// A template is stale if more than a tenth of its bytes were read outside of it.
const OFF_TEMPLATE_FRACTION: u64 = 10;

/// Counts accesses within and outside of a template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OffTemplateAccesses {
    footprint: u64,
    accesses: u64,
    nbytes: u64,
    expected: u64,
    stale: bool,
}

impl OffTemplateAccesses {
    /// Creates the counters for a template that reads `footprint` distinct bytes.
    pub(crate) fn new(footprint: u64) -> Self {
        Self {
            footprint,
            accesses: 0,
            nbytes: 0,
            expected: 0,
            stale: false,
        }
    }

    /// Counts an access to bytes that the template has.
    pub(crate) fn expected(&mut self) {
        self.expected += 1;
    }

    /// Counts an access of `nbytes` bytes of the model that the template does not have.
    pub(crate) fn off_template(&mut self, nbytes: u64) {
        self.accesses += 1;
        self.nbytes = self.nbytes.saturating_add(nbytes);
        // A miss reports only the first bytes of a stream of reads, so the bytes are underestimated
        // where accesses are not reported. Therefore the number of accesses counts as well.
        let many = self.accesses >= MIN_ACCESSES && self.accesses > self.expected;
        if !self.stale && (many || self.nbytes > self.footprint / OFF_TEMPLATE_FRACTION) {
            self.stale = true;
            tracing::warn!(
                accesses = self.accesses,
                nbytes = self.nbytes,
                "the service reads bytes that its template does not have: the template is stale; predict or record it again"
            );
        }
    }

    /// Returns the number of distinct bytes that the template reads.
    pub(crate) fn footprint(&self) -> u64 {
        self.footprint
    }

    /// Why the template is taken to be stale, in words.
    pub(crate) fn reason(&self) -> String {
        format!(
            "{} of {} accesses, of {} bytes, are not in the template; predict or record it again",
            self.accesses,
            self.accesses + self.expected,
            self.nbytes
        )
    }

    /// Whether the template is stale.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Returns the number of accesses outside of the template.
    pub(crate) fn count(&self) -> u64 {
        self.accesses
    }

    /// Returns the fraction of accesses outside of the template, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        let all = self.accesses + self.expected;
        if all == 0 {
            0.0
        } else {
            self.accesses as f64 / all as f64
        }
    }
}
