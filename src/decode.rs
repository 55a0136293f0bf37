//! Decoders: what schemes are made of. Each knows one way in which stored bytes make rows of elements,
//! and leaves the arithmetic to a kernel.

mod blocks;
pub(crate) mod cast;
mod columns;
mod factors;
mod gemv;
pub(crate) mod grouped;

pub(crate) use blocks::Blocks;
pub(crate) use cast::Cast;
pub(crate) use columns::{ColumnZeros, Columns, GroupOf, LessOne, ZeroOrder};
pub(crate) use factors::Factors;
pub(crate) use gemv::Gemv;
pub(crate) use grouped::{Codes, Global, Grouped, Planes, Scales, Zeros};
