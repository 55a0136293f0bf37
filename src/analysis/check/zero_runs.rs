//! Runs of zeros: rows that are zero one after another, as a hole in a download leaves them. Runs go on over the ends of tiles.

/// The zeros of one tile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TileZeros {
    /// Numbers before the first that is not zero.
    front: u64,
    /// Numbers behind the last that is not zero; as `front` if all are zero.
    back: u64,
    inner: RowZeros,
}

/// Whole rows of zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RowZeros {
    /// How many there are.
    pub(super) rows: u64,
    /// The longest run of them: its first row, and the row behind its last.
    pub(super) longest: Option<[u64; 2]>,
    /// Zeros at the end of what was appended.
    open: u64,
}

impl TileZeros {
    /// The runs in a tile that begins at number `start` and has `zeros` zeros. `sign`: the highest bit is not looked at.
    pub(super) fn of(
        bytes: &[u8],
        width: usize,
        sign: bool,
        start: u64,
        row: u64,
        zeros: u64,
    ) -> Self {
        let count = bytes.len() / width.max(1);
        let is_zero = |at: usize| {
            let word = &bytes[at * width..][..width];
            let (last, low) = word.split_last().expect("words have bytes");
            // little endian: the last byte has a float's sign, and -0 is a zero
            let mask = if sign { 0x7f } else { 0xff };
            last & mask == 0 && low.iter().all(|&byte| byte == 0)
        };
        let front = (0..count).take_while(|&at| is_zero(at)).count();
        if front == count {
            return Self {
                front: count as u64,
                back: count as u64,
                inner: RowZeros::default(),
            };
        }
        let back = (0..count).rev().take_while(|&at| is_zero(at)).count();
        let mut inner = RowZeros::default();
        let step = usize::try_from(row).unwrap_or(usize::MAX).max(1);
        let (mut from, end) = (front, count - back);
        // a run of a whole row contains one of each `step` positions
        let mut at = from.saturating_add(step - 1);
        // with fewer zeros there is no whole row, and the inner search is skipped
        if zeros - (front + back) as u64 >= row {
            while at < end {
                if !is_zero(at) {
                    at = at.saturating_add(step);
                    continue;
                }
                let first = (from..at).rev().take_while(|&at| is_zero(at)).count();
                let rest = (at..end).take_while(|&at| is_zero(at)).count();
                let (first, behind) = (at - first, at + rest);
                inner.add(start + first as u64, start + behind as u64, row);
                from = behind;
                at = behind.saturating_add(step);
            }
        }
        Self {
            front: front as u64,
            back: back as u64,
            inner,
        }
    }
}

impl RowZeros {
    /// Appends a tile of `len` numbers behind the first `before`.
    pub(super) fn append(&mut self, tile: &TileZeros, before: u64, len: u64, row: u64) {
        if tile.front == len {
            self.open += len;
            return;
        }
        // a run goes on over the end of a tile
        self.add(before - self.open, before + tile.front, row);
        self.join(&tile.inner);
        self.open = tile.back;
    }

    /// Ends the run that is open at the end of all `len` numbers.
    pub(super) fn close(&mut self, len: u64, row: u64) {
        self.add(len - self.open, len, row);
        self.open = 0;
    }

    /// Adds the rows that are within a run of zeros.
    fn add(&mut self, start: u64, end: u64, row: u64) {
        let (first, behind) = (start.div_ceil(row.max(1)), end / row.max(1));
        if behind > first {
            self.join(&Self {
                rows: behind - first,
                longest: Some([first, behind]),
                open: 0,
            });
        }
    }

    fn join(&mut self, next: &Self) {
        let len = |run: &Option<[u64; 2]>| run.map_or(0, |[first, behind]| behind - first);
        self.rows += next.rows;
        if len(&next.longest) > len(&self.longest) {
            self.longest = next.longest;
        }
    }
}
