//! Accesses that the template does not have: when they are many, the template is no longer the service's.

/// Accesses to be seen before they tell.
const LEAST: u64 = 64;
/// A tenth of what the template reads, read beside it, is too much.
const TENTH: u64 = 10;

/// Counts accesses on the template's way and beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strays {
    footprint: u64,
    strays: u64,
    nbytes: u64,
    expected: u64,
    left: bool,
}

impl Strays {
    /// For a template that reads `footprint` bytes.
    pub(crate) fn new(footprint: u64) -> Self {
        Self {
            footprint,
            strays: 0,
            nbytes: 0,
            expected: 0,
            left: false,
        }
    }

    /// An access to bytes that the template has.
    pub(crate) fn expected(&mut self) {
        self.expected += 1;
    }

    /// An access to bytes of the model that the template does not have.
    pub(crate) fn stray(&mut self, nbytes: u64) {
        self.strays += 1;
        self.nbytes = self.nbytes.saturating_add(nbytes);
        // a miss tells of a stream's first bytes only: many misses weigh as much as many bytes
        let many = self.strays >= LEAST && self.strays > self.expected;
        if !self.left && (many || self.nbytes > self.footprint / TENTH) {
            self.left = true;
            tracing::warn!(
                strays = self.strays,
                nbytes = self.nbytes,
                "the service reads what its template does not have: the template is stale; predict or record it anew"
            );
        }
    }

    /// Whether the service has left the template.
    pub(crate) fn left(&self) -> bool {
        self.left
    }

    pub(crate) fn count(&self) -> u64 {
        self.strays
    }

    /// Of all accesses, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        let all = self.strays + self.expected;
        if all == 0 {
            0.0
        } else {
            self.strays as f64 / all as f64
        }
    }
}
