//! IQ4_NL: 32 codes of 4 bits into a codebook, one scale. `d (f16) | qs[16]`; low nibbles first.

use super::q4_0::chosen;
use crate::codebook::IQ4;
use crate::{Element, Lanes, kernel};

kernel!(iq4_nl);

#[inline(always)]
fn iq4_nl<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    chosen::<S, O>(s, &IQ4, blocks, out);
}
