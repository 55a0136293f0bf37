//! The tests of the crate from outside: one binary, as each binary links the crate again.

mod encode;
mod few_elements;
mod simd_closures;
