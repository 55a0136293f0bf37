//! Zero points of a matrix that is stored the other way round.

use crate::kernel::{self, Width};
use crate::plan::Strip;

/// Zero points.
#[derive(Debug)]
pub(crate) enum ColumnZeros {
    /// One for all.
    All(f32),
    /// Packed along the stored rows like codes, one such row of so many words for each group.
    Packed {
        part: usize,
        words: u64,
        order: ZeroOrder,
        less: LessOne,
    },
}

/// How zero points are packed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ZeroOrder {
    Natural(Width),
    /// Each eight in AWQ's order.
    Awq(Width),
}

/// Whether zero points are stored less one, and what becomes of the highest code then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LessOne {
    /// They are stored as they are.
    No,
    /// One is added to each; the highest becomes 0.
    Each,
    /// One is added to each in one addition of whole words, so that the highest carries into the next.
    Carried,
}

impl ColumnZeros {
    /// For each group, the zero point of each column. Packed ones are the third of the inputs, a run for each group.
    pub(super) fn of(&self, inputs: &[Strip<'_>], columns: usize, groups: usize) -> Vec<f32> {
        let mut zeros = vec![0.0; columns * groups];
        match *self {
            Self::All(zero) => zeros.fill(zero),
            Self::Packed { order, less, .. } => {
                for (g, zeros) in zeros.chunks_exact_mut(columns.max(1)).enumerate() {
                    order.unpack(inputs[2].run(g).as_chunks().0, less, zeros);
                }
            }
        }
        zeros
    }
}

impl ZeroOrder {
    pub(super) fn width(self) -> Width {
        match self {
            Self::Natural(width) | Self::Awq(width) => width,
        }
    }

    /// The zero points of a group.
    fn unpack(self, words: &[[u8; 4]], less: LessOne, zeros: &mut [f32]) {
        let width = self.width();
        let (bits, most) = (width.bits(), (1u16 << width.bits()) - 1);
        // a one in the lowest bit of each code
        let ones = u32::MAX / u32::from(most);
        let word = |word: &[u8; 4]| match less {
            LessOne::Carried => u32::from_le_bytes(*word).wrapping_add(ones).to_le_bytes(),
            LessOne::No | LessOne::Each => *word,
        };
        let zero = |code: u8| match less {
            LessOne::Each => f32::from(code.wrapping_add(1) & most as u8),
            LessOne::No | LessOne::Carried => f32::from(code),
        };
        if bits == 4 {
            // mostly so: eight codes of a word at once
            let eight =
                |packed| kernel::eight_codes(word(packed), matches!(self, Self::Awq(_))).map(zero);
            let (eights, rest) = zeros.as_chunks_mut();
            eights
                .iter_mut()
                .zip(words)
                .for_each(|(zeros, packed)| *zeros = eight(packed));
            if let Some(packed) = words.get(eights.len()) {
                rest.copy_from_slice(&eight(packed)[..rest.len()]);
            }
            return;
        }
        let words: Vec<_> = words.iter().map(word).collect();
        for (column, to) in zeros.iter_mut().enumerate() {
            let at = match self {
                Self::Natural(_) => column,
                Self::Awq(_) => column / 8 * 8 + kernel::AWQ[column % 8],
            };
            *to = zero(kernel::packed_code(&words, width, at));
        }
    }
}
