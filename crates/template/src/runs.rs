//! Runs of equal length at a constant stride: one access of a template.

use std::fmt;

use crate::ByteRange;

/// `count` runs of `len` bytes of one file, each starting `stride` bytes behind the one before.
///
/// A plain range is one run, with stride 0. A row-parallel slice of a matrix is a run per row. In a template the
/// form is unique: `len` and `count` are at least 1, `stride` is 0 for one run and more than `len` for several.
///
/// ```
/// use anamnesis_template::{ByteRange, Runs};
///
/// // columns 2..4 of a 3 × 8 matrix of bytes that starts at byte 100
/// let runs = Runs::strided(ByteRange { file: 0, start: 102, len: 2 }, 3, 8).unwrap();
/// assert_eq!(runs.iter().map(|run| run.start).collect::<Vec<_>>(), [102, 110, 118]);
/// assert_eq!((runs.nbytes(), runs.end()), (6, 120));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Runs {
    /// Which file, an index into [`Template::files`](crate::Template::files).
    pub file: u32,
    /// How many runs.
    pub count: u32,
    /// Offset of the first byte of the first run.
    pub start: u64,
    /// Bytes of each run.
    pub len: u64,
    /// Bytes from the start of one run to the start of the next; 0 for a single run.
    pub stride: u64,
}

impl From<ByteRange> for Runs {
    fn from(range: ByteRange) -> Self {
        Self {
            file: range.file,
            count: 1,
            start: range.start,
            len: range.len,
            stride: 0,
        }
    }
}

impl Runs {
    /// `count` runs like `first`, `stride` bytes apart; runs that touch become one. `None` if they overlap
    /// (`stride` less than a run), or reach beyond 64 bits.
    pub fn strided(first: ByteRange, count: u32, stride: u64) -> Option<Self> {
        let one = Self::from(first);
        let runs = match count {
            0 => Self { len: 0, ..one },
            1 => one,
            _ if stride < first.len => return None,
            _ if stride == first.len => Self {
                len: first.len.checked_mul(u64::from(count))?,
                ..one
            },
            _ => Self {
                count,
                stride,
                ..one
            },
        };
        runs.checked_end().map(|_| runs)
    }

    /// Offset behind the last byte; `None` beyond 64 bits.
    pub(crate) fn checked_end(&self) -> Option<u64> {
        let last = u64::from(self.count.saturating_sub(1)).checked_mul(self.stride)?;
        self.start.checked_add(last)?.checked_add(self.len)
    }

    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.checked_end().unwrap_or(u64::MAX)
    }

    /// Bytes of all runs.
    pub fn nbytes(&self) -> u64 {
        self.len.saturating_mul(u64::from(self.count))
    }

    /// From the first byte to the last, what lies between the runs included.
    pub fn span(&self) -> ByteRange {
        ByteRange {
            file: self.file,
            start: self.start,
            len: self.end() - self.start,
        }
    }

    /// The same runs of another file, `by` bytes later: a slice of a tensor becomes a slice of the file it lies in.
    /// `None` beyond 64 bits.
    pub fn placed(self, file: u32, by: u64) -> Option<Self> {
        let runs = Self {
            file,
            start: self.start.checked_add(by)?,
            ..self
        };
        runs.checked_end().map(|_| runs)
    }

    /// The runs in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ByteRange> + '_ {
        (0..self.count).map(|i| ByteRange {
            file: self.file,
            start: self.start + u64::from(i) * self.stride,
            len: self.len,
        })
    }

    /// The number of the first run that ends behind `offset`: where a reader that missed there is. `None` if all
    /// end before.
    pub fn run_at(&self, offset: u64) -> Option<u32> {
        if offset >= self.end() {
            return None;
        }
        let ahead = offset.saturating_sub(self.start);
        let run = ahead.checked_div(self.stride).unwrap_or(0);
        let within = ahead - run * self.stride < self.len;
        u32::try_from(if within { run } else { run + 1 }).ok()
    }

    /// Whether it has the form that a template keeps.
    pub(crate) fn is_normal(&self) -> bool {
        let apart = if self.count == 1 {
            self.stride == 0
        } else {
            self.stride > self.len
        };
        self.count > 0 && self.len > 0 && apart && self.checked_end().is_some()
    }
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}+{}", self.file, self.start, self.len)?;
        if self.count > 1 {
            write!(f, " ×{} every {}", self.count, self.stride)?;
        }
        Ok(())
    }
}
