//! Decoders that several schemes use. A decoder that a single scheme uses is in that scheme's folder.
//!
//! A decoder covers one stored layout: which bytes a range of output rows needs, and how they become elements. The
//! arithmetic itself is in the kernels (`crates/kernel`).
//!
//! | decoder | layout |
//! |---|---|
//! | [`Grouped`] | rows of codes `[out, in]`, with factors per tensor, channel, group or block: most schemes |
//! | [`Linear`] | one run of codes whose groups ignore row ends |
//! | [`Columns`] | 32-bit words of codes, `[in, out]`: GPTQ, AWQ, EETQ |
//! | [`Transposed`] | a stack of `[in, out]` matrices in any packing: gpt-oss, Quark |
//! | [`NibbleRows`] | two rows in one stored row, a nibble each |
//! | [`Cast`] | unquantised elements |
//! | [`Smoothed`] | another decoder, then a factor per column and a low-rank part |
//! | [`TransposedMatrices`] | another decoder, whose matrices are transposed |
//! | [`StoredBlocks`] | blocks of a GGUF, copied |
//! | [`Encoded`] | another decoder, whose rows are encoded: blocks of a GGUF, or a plain float |
//! | [`Rounded`] | another decoder, whose elements are rounded to a narrower float first |
//! | [`ConstantElements`] | none: elements that a configuration determines |
//! | [`Sliced`] | another decoder, of whose output some elements are made |
//! | [`Composite`] | another decoder, some of whose parts are first computed by a [`PartView`] |

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

pub(crate) mod cast;
mod code_order;
mod columns;
mod composite;
mod constant;
mod elements;
mod encoded;
mod factors;
pub(crate) mod grouped;
mod input_cursor;
mod linear;
mod nibble_rows;
mod rounded;
mod sliced;
mod smoothed;
mod stored_blocks;
pub(crate) mod streaming;
mod through_f32;
mod tile_rows;
mod transposed;
mod transposed_factors;
mod transposed_matrices;

pub(crate) use cast::Cast;
pub(crate) use code_order::CodeOrder;
pub(crate) use columns::{ColumnZeros, Columns, GroupOf, ZeroPointBias, ZeroPointOrder};
pub(crate) use composite::{Composite, DecodedPart, PartOffset, PartSource, PartView};
pub(crate) use constant::ConstantElements;
pub(crate) use elements::{decode_elements, rows_with};
pub(crate) use encoded::{CheckedCopy, Encoded, EncodedType};
pub(crate) use factors::{Factors, half_exponent, to_f32};
pub(crate) use grouped::{CODES, Codes, GlobalScale, Grouped, Planes, Scales, Zeros};
pub(crate) use input_cursor::InputCursor;
pub(crate) use linear::{GroupFactors, Linear};
pub(crate) use nibble_rows::NibbleRows;
pub(crate) use rounded::Rounded;
pub(crate) use sliced::Sliced;
pub(crate) use smoothed::{LowRank, Smoothed};
pub(crate) use stored_blocks::StoredBlocks;
pub(crate) use through_f32::through_f32;
pub(crate) use tile_rows::{scratch, split_by_matrix};
pub(crate) use transposed::{Transposed, TransposedScales, TransposedZeros};
pub(crate) use transposed_factors::TransposedFactors;
pub(crate) use transposed_matrices::TransposedMatrices;
