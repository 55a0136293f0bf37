//! Ollama's type 4: MXFP4 with the codes of neighbours in one byte, as gpt-oss stores them. 32 codes of FP4 (E2M1), one scale of
//! 8 bits, 17 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `e` | E8M0 scale, a power of two |
//! | 1 | `qs[16]` | byte `i` holds element `2i` in its low nibble and `2i + 1` in its high one |
//!
//! ggml's own MXFP4 (type 39) has the same bytes for the elements `i` and `i + 16`. Ollama rearranges blocks of type 4 when it
//! loads them (`ml/backend/ggml/ggml.go`), and so does this crate: values and scales are then as in `mxfp4.rs`.

/// ggml's id of the type, which ggml itself does not use.
pub(crate) const ID: u32 = 4;

pub(crate) const BYTES: usize = 17;

/// Copies whole blocks, with the codes in the order of ggml's MXFP4. Both slices have the same length.
// only gpt-oss' first files of 2025 have this type, so it is not vectorised
#[inline]
pub(crate) fn in_ggml_order(blocks: &[u8], out: &mut [u8]) {
    let blocks = blocks.as_chunks::<BYTES>().0.iter();
    for (block, out) in blocks.zip(out.as_chunks_mut::<BYTES>().0) {
        let (low, high) = block[1..].split_at(8);
        out[0] = block[0];
        for (pair, (low, high)) in out[1..]
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(low.iter().zip(high))
        {
            *pair = [low & 15 | high << 4, low >> 4 | high & 0xf0];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_separated() {
        let mut block = [0u8; BYTES];
        block[0] = 127;
        for (i, byte) in block[1..].iter_mut().enumerate() {
            // element k holds the code k mod 16
            let k = 2 * i as u8;
            *byte = (k % 16) | (((k + 1) % 16) << 4);
        }
        let mut out = [0; BYTES];
        in_ggml_order(&block, &mut out);
        assert_eq!(out[0], 127);
        for (i, byte) in out[1..].iter().enumerate() {
            let i = i as u8;
            assert_eq!((byte & 15, byte >> 4), (i % 16, (i + 16) % 16));
        }
    }
}
