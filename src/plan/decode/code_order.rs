//! The orders in which codes are packed into a 32-bit word or a byte, and their conversion to the natural order.

use crate::base::kernel;

/// The order of the codes in a 32-bit word or a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeOrder {
    /// Code 0 in the lowest bits.
    Natural,
    /// AWQ: eight codes of 4 bits in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on.
    Awq,
    /// Four codes of 2 bits per byte, code 0 in the highest bits.
    HighFirst,
}

impl CodeOrder {
    /// Writes the same codes in the natural order to `out`, which has as many bytes.
    pub(crate) fn write_natural(self, codes: &[u8], out: &mut [u8]) {
        match self {
            Self::Natural => out.copy_from_slice(codes),
            Self::Awq => {
                let words = codes.as_chunks().0.iter().zip(out.as_chunks_mut().0);
                words.for_each(|(word, out)| *out = awq_to_natural(*word));
            }
            Self::HighFirst => {
                let reordered =
                    |byte: u8| (0..4).fold(0, |all, i| all | (byte >> (2 * i) & 3) << (6 - 2 * i));
                let bytes = codes.iter().zip(out);
                bytes.for_each(|(byte, out)| *out = reordered(*byte));
            }
        }
    }

    /// The same codes in the natural order.
    pub(crate) fn to_natural(self, codes: &[u8]) -> Vec<u8> {
        let mut natural = vec![0; codes.len()];
        self.write_natural(codes, &mut natural);
        natural
    }
}

/// A word in AWQ's order, in the natural order.
fn awq_to_natural(word: [u8; 4]) -> [u8; 4] {
    let codes = kernel::unpack_8_nibbles(word, true);
    [0, 2, 4, 6].map(|i| codes[i] | codes[i + 1] << 4)
}

#[cfg(test)]
mod tests {
    use super::awq_to_natural;

    #[test]
    fn awq_order_is_converted_to_natural_order() {
        // code i is stored in nibble [0, 4, 1, 5, 2, 6, 3, 7][i]
        let stored = 0x7531_6420u32.to_le_bytes();
        assert_eq!(awq_to_natural(stored), 0x7654_3210u32.to_le_bytes());
    }
}
