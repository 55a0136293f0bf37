//! Q8_1: as Q8_0, with a sum that serves dot products only. `d (f16) | s (f16) | qs[32]`.
//!
//! ggml makes such blocks of activations, and none of its functions undoes them: the formula is that of their struct.

use super::q8_0::scaled;
use crate::{Element, Lanes, kernel};

kernel!(q8_1);

#[inline(always)]
fn q8_1<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    scaled::<S, O, 36, 4>(s, blocks, out);
}
