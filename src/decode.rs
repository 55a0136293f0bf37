//! Decoders: what schemes are made of. Each knows one way in which stored bytes make rows of elements,
//! and leaves the arithmetic to a kernel.

mod affine;
mod blocks;
pub(crate) mod cast;
mod factors;
mod flat;
pub(crate) mod grouped;

pub(crate) use affine::{Affine, Affinity};
pub(crate) use blocks::Blocks;
pub(crate) use cast::Cast;
pub(crate) use factors::Factors;
pub(crate) use flat::{Flat, PerGroup};
pub(crate) use grouped::{Codes, Global, Grouped, Planes, Scales, Zeros};
