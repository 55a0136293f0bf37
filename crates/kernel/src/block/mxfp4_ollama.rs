//! Ollama's type 4: MXFP4 with the codes of neighbours in one byte, as gpt-oss stores them. 32 codes of FP4 (E2M1), one scale of
//! 8 bits, 17 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `e` | E8M0 scale, a power of two |
//! | 1 | `qs[16]` | byte `i` holds element `2i` in its low nibble and `2i + 1` in its high one |
//!
//! ggml's own MXFP4 (type 39) has the same bytes for the elements `i` and `i + 16`. Ollama rearranges blocks of type 4 when it
//! loads them (`ml/backend/ggml/ggml.go`). Values and scales are as in `mxfp4.rs`.
//!
//! Only gpt-oss' first files of 2025 have this type, so it is not vectorised.

use crate::codebook::{FP4_DOUBLED, e8m0_half};
use crate::{OutputElement, Simd, kernel};

kernel!(mxfp4_ollama);

#[inline(always)]
fn mxfp4_ollama<S: Simd, O: OutputElement>(_: S, blocks: &[u8], out: &mut [u8]) {
    let out = O::as_stored(out).as_chunks_mut::<32>().0;
    for (block, out) in blocks.as_chunks::<17>().0.iter().zip(out) {
        let d = e8m0_half(block[0]);
        let value = |code: u8| O::round(FP4_DOUBLED[usize::from(code)] * d);
        for (pair, out) in block[1..].iter().zip(out.as_chunks_mut::<2>().0) {
            *out = [value(pair & 15), value(pair >> 4)];
        }
    }
}
