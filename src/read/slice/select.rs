//! The bytes of a slice, from the bytes of its tensor as they pass by.

use super::SliceLayout;
use crate::base::error::Result;

/// Selects the bytes of a slice from pieces of a tensor's logical bytes, which arrive in order. Runs ascend, so that one
/// position suffices.
#[derive(Debug)]
pub(crate) struct SelectedBytes<'l> {
    layout: &'l SliceLayout,
    /// Number of the first run that is not complete.
    run: u64,
    /// Bytes of the tensor in front of the next piece.
    at: u64,
}

impl<'l> SelectedBytes<'l> {
    pub(crate) fn new(layout: &'l SliceLayout) -> Self {
        Self {
            layout,
            run: 0,
            at: 0,
        }
    }

    /// Calls `each` with the bytes of the next piece that belong to the slice, run by run.
    pub(crate) fn of<'b>(
        &mut self,
        piece: &'b [u8],
        mut each: impl FnMut(&'b [u8]) -> Result<()>,
    ) -> Result<()> {
        let (start, end) = (self.at, self.at + piece.len() as u64);
        let inside = |at: u64| usize::try_from(at - start).expect("within the piece");
        self.at = end;
        while self.run < self.layout.runs.count() {
            let run = self.layout.run(self.run);
            if run.start >= end {
                break;
            }
            let (from, to) = (run.start.max(start), run.end.min(end));
            each(&piece[inside(from)..inside(to)])?;
            if run.end > end {
                // the rest of the run is in a later piece
                break;
            }
            self.run += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use crate::base::kernel::Dtype;
    use crate::read::catalog::Encoding;
    use crate::read::slice::TensorSlice;

    #[test]
    fn pieces_of_any_length_have_the_same_bytes() {
        let tensor: Vec<u8> = (0..6 * 7 * 5).collect();
        let slice = TensorSlice::Axes(vec![1..4, 2..6, 1..3]);
        let layout = slice.layout("tensor", "t", &[6, 7, 5], &Encoding::Plain(Dtype::U8));
        let layout = layout.unwrap();
        let expected: Vec<u8> = (0..layout.runs.count())
            .flat_map(|run| layout.run(run))
            .map(|at| u8::try_from(at).unwrap())
            .collect();
        assert_eq!(expected.len(), 3 * 4 * 2);
        for length in 1..=tensor.len() {
            let (mut selected, mut found) = (SelectedBytes::new(&layout), Vec::new());
            for piece in tensor.chunks(length) {
                let append = |bytes: &[u8]| {
                    assert!(!bytes.is_empty());
                    found.extend_from_slice(bytes);
                    Ok::<(), Error>(())
                };
                selected.of(piece, append).unwrap();
            }
            assert_eq!(found, expected, "{length}");
        }
    }
}
