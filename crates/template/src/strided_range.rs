//! Runs of equal length at a constant stride.

use std::fmt;

use crate::ByteRange;

/// `count` runs of `len` bytes; each run starts `stride` bytes after the start of the one before.
///
/// Offsets are relative to a file, a tensor or a part of a weight: the type that holds the range says which. A plain range
/// is one run with stride 0. A row-parallel slice of a matrix has one run per row.
///
/// The fields are public and unchecked. [`contiguous`](Self::contiguous) and [`strided`](Self::strided) give the normal
/// form, which is the only form that a [`Template`](crate::Template) holds: `len` and `count` are at least 1, `stride` is
/// 0 for one run and greater than `len` for several.
///
/// ```
/// use anamnesis_template::StridedRange;
///
/// // columns 2..4 of a 3 × 8 matrix of bytes that starts at byte 100
/// let columns = StridedRange::strided(102, 2, 3, 8).unwrap();
/// assert_eq!(columns.starts().collect::<Vec<_>>(), [102, 110, 118]);
/// assert_eq!((columns.nbytes(), columns.extent(), columns.end()), (6, Some(18), 120));
/// assert_eq!(columns.to_string(), "102+2 ×3 every 8");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StridedRange {
    /// Offset of the first byte of the first run.
    pub start: u64,
    /// Bytes of each run.
    pub len: u64,
    /// Number of runs.
    pub count: u64,
    /// Bytes from the start of one run to the start of the next.
    pub stride: u64,
}

impl StridedRange {
    /// One run of `len` bytes.
    pub const fn contiguous(start: u64, len: u64) -> Self {
        Self {
            start,
            len,
            count: 1,
            stride: 0,
        }
    }

    /// `count` runs of `len` bytes, `stride` bytes apart, in normal form: runs that touch become one, and no runs become
    /// one run of no bytes. `None` if the runs overlap (`stride` less than `len`) or end beyond 64 bits.
    pub fn strided(start: u64, len: u64, count: u64, stride: u64) -> Option<Self> {
        let range = match count {
            0 => Self::contiguous(start, 0),
            1 => Self::contiguous(start, len),
            _ if stride < len => return None,
            // one form for one set of bytes, so that ranges can be compared field by field
            _ if stride == len => Self::contiguous(start, len.checked_mul(count)?),
            _ => Self {
                start,
                len,
                count,
                stride,
            },
        };
        // no later sum of its parts wraps if its end does not
        range.checked_end().map(|_| range)
    }

    /// Bytes of all runs; stops at `u64::MAX`.
    #[inline]
    pub fn nbytes(&self) -> u64 {
        self.len.saturating_mul(self.count)
    }

    /// Bytes from the start of the first run to the end of the last, gaps included. 0 without runs; `None` beyond 64
    /// bits.
    #[inline]
    pub fn extent(&self) -> Option<u64> {
        match self.count {
            0 => Some(0),
            n => (n - 1).checked_mul(self.stride)?.checked_add(self.len),
        }
    }

    /// Offset of the first byte after the last run; `None` beyond 64 bits.
    #[inline]
    pub fn checked_end(&self) -> Option<u64> {
        self.start.checked_add(self.extent()?)
    }

    /// Offset of the first byte after the last run; stops at `u64::MAX`.
    #[inline]
    pub fn end(&self) -> u64 {
        self.checked_end().unwrap_or(u64::MAX)
    }

    /// Whether no bytes lie between the runs.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.count <= 1 || self.stride == self.len
    }

    /// Bytes between two runs; 0 for one run.
    #[inline]
    pub fn gap(&self) -> u64 {
        self.stride.saturating_sub(self.len)
    }

    /// The offset of each run. The last run must end within 64 bits.
    #[inline]
    pub fn starts(&self) -> impl Iterator<Item = u64> + use<> {
        let Self {
            start,
            count,
            stride,
            ..
        } = *self;
        (0..count).map(move |i| start + i * stride)
    }

    /// The first run, and the range of the runs after it. `None` without runs.
    pub fn split_first(&self) -> Option<(Self, Self)> {
        let count = self.count.checked_sub(1)?;
        let rest = Self {
            // after the last run nothing reads the sum, which may exceed 64 bits
            start: self.start.saturating_add(self.stride),
            count,
            ..*self
        };
        Some((Self::contiguous(self.start, self.len), rest))
    }

    /// One range from the start of the first run to the end of the last, gaps included.
    pub fn covering(&self) -> Self {
        Self::contiguous(self.start, self.end() - self.start)
    }

    /// The same runs `offset` bytes later: a slice of a tensor becomes a slice of the file that contains the tensor.
    /// `None` beyond 64 bits.
    pub fn shifted(self, offset: u64) -> Option<Self> {
        let range = Self {
            start: self.start.checked_add(offset)?,
            ..self
        };
        range.checked_end().map(|_| range)
    }

    /// Returns the index of the first run that ends after `offset`, which is the position of a
    /// reader whose read missed at that offset. `None` if all runs end at or before `offset`.
    pub fn run_at(&self, offset: u64) -> Option<u64> {
        if offset >= self.end() {
            return None;
        }
        let ahead = offset.saturating_sub(self.start);
        // a single run has no stride
        let run = ahead.checked_div(self.stride).unwrap_or(0);
        let within = ahead - run * self.stride < self.len;
        Some(if within { run } else { run + 1 })
    }

    /// Whether the range is in the form that a template holds. The file format counts runs with 32 bits.
    pub(crate) fn is_normal(&self) -> bool {
        let apart = if self.count == 1 {
            self.stride == 0
        } else {
            self.stride > self.len
        };
        let counted = u32::try_from(self.count).is_ok_and(|count| count > 0);
        counted && self.len > 0 && apart && self.checked_end().is_some()
    }
}

/// `start+len`, and ` ×count every stride` for several runs.
impl fmt::Display for StridedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.len)?;
        if self.count > 1 {
            write!(f, " ×{} every {}", self.count, self.stride)?;
        }
        Ok(())
    }
}

/// A [`StridedRange`] of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StridedFileRange {
    /// Index into [`Template::files`](crate::Template::files).
    pub file: u32,
    /// Bytes of the file.
    pub bytes: StridedRange,
}

impl StridedFileRange {
    /// Each run as a range of its own, in order.
    pub fn runs(&self) -> impl Iterator<Item = ByteRange> + use<> {
        let (file, len) = (self.file, self.bytes.len);
        self.bytes
            .starts()
            .map(move |start| ByteRange { file, start, len })
    }
}

impl From<ByteRange> for StridedFileRange {
    fn from(range: ByteRange) -> Self {
        Self {
            file: range.file,
            bytes: StridedRange::contiguous(range.start, range.len),
        }
    }
}

/// `file:start+len`, and ` ×count every stride` for several runs.
impl fmt::Display for StridedFileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.bytes)
    }
}
