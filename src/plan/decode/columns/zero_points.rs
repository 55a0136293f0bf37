//! Zero points of input-major matrices: `[groups, out]`, packed along the outputs.

use crate::base::kernel::{self, CodeWidth};
use crate::plan::PartBytes;

/// Where the zero points of a [`Columns`](super::Columns) come from.
#[derive(Debug)]
pub(crate) enum ColumnZeros {
    /// One value for the whole weight.
    All(f32),
    /// Packed along the stored rows like codes: a row of `words` 32-bit words for each group.
    Packed {
        part: usize,
        words: u64,
        order: ZeroPointOrder,
        bias: ZeroPointBias,
    },
}

/// The order in which zero points are packed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ZeroPointOrder {
    Natural(CodeWidth),
    /// AWQ's order within each eight.
    Awq(CodeWidth),
}

/// Whether stored zero points are one less than their value (GPTQ version 1), and how the highest code wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZeroPointBias {
    /// Stored values are the zero points.
    None,
    /// One is added to each code; the highest code becomes 0.
    PerCode,
    /// One is added to all codes of a word in one 32-bit addition, so that the highest code becomes 0 and carries into the
    /// next, as in GPTQModel.
    PerWord,
}

impl ColumnZeros {
    /// The zero points of a tile, `[groups, columns]`. Packed ones are the third input range, one run per group.
    pub(super) fn of(&self, inputs: &[PartBytes<'_>], columns: usize, groups: usize) -> Vec<f32> {
        let mut zeros = vec![0.0; columns * groups];
        match *self {
            Self::All(zero) => zeros.fill(zero),
            Self::Packed { order, bias, .. } => {
                for (g, zeros) in zeros.chunks_exact_mut(columns.max(1)).enumerate() {
                    order.unpack(inputs[2].run(g).as_chunks().0, bias, zeros);
                }
            }
        }
        zeros
    }
}

impl ZeroPointOrder {
    pub(super) fn width(self) -> CodeWidth {
        match self {
            Self::Natural(width) | Self::Awq(width) => width,
        }
    }

    /// Unpacks the zero points of one group.
    fn unpack(self, words: &[[u8; 4]], bias: ZeroPointBias, zeros: &mut [f32]) {
        let width = self.width();
        let (bits, most) = (width.bits(), (1u16 << width.bits()) - 1);
        // 1 in the lowest bit of each code
        // `most` divides `u32::MAX` for widths of 2, 4 and 8 bits, the only ones with a bias per word
        let ones = u32::MAX / u32::from(most);
        let word = |word: &[u8; 4]| match bias {
            // wrapping: the carry out of the highest code is lost, as in torch's int32
            ZeroPointBias::PerWord => u32::from_le_bytes(*word).wrapping_add(ones).to_le_bytes(),
            ZeroPointBias::None | ZeroPointBias::PerCode => *word,
        };
        let zero = |code: u8| match bias {
            ZeroPointBias::PerCode => f32::from(code.wrapping_add(1) & most as u8),
            ZeroPointBias::None | ZeroPointBias::PerWord => f32::from(code),
        };
        if bits == 4 {
            // the usual width: the eight codes of a word at once
            let eight = |packed| {
                kernel::unpack_8_nibbles(word(packed), matches!(self, Self::Awq(_))).map(zero)
            };
            let (eights, rest) = zeros.as_chunks_mut();
            eights
                .iter_mut()
                .zip(words)
                .for_each(|(zeros, packed)| *zeros = eight(packed));
            // the last word of a tile may be used in part
            if let Some(packed) = words.get(eights.len()) {
                rest.copy_from_slice(&eight(packed)[..rest.len()]);
            }
            return;
        }
        let words: Vec<_> = words.iter().map(word).collect();
        for (column, to) in zeros.iter_mut().enumerate() {
            let at = match self {
                Self::Natural(_) => column,
                // each eight columns are permuted as within a word of 4-bit codes, whatever the width
                Self::Awq(_) => column / 8 * 8 + kernel::AWQ_ORDER[column % 8],
            };
            *to = zero(kernel::column_code(&words, width, at));
        }
    }
}
