//! The tests of the crate from outside: one binary, as each binary links the crate again.

mod few_elements;
mod quantize;
mod simd_closures;
