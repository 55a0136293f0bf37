//! What PyTorch leaves to be done when a tensor is read.

use super::TensorInfo;

/// Sign bits that PyTorch left to be flipped on reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lazy {
    /// Imaginary parts are to be negated.
    pub conj: bool,
    /// All numbers are to be negated.
    pub neg: bool,
}

/// Parameters of a PyTorch quantised tensor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Quantizer {
    /// One scale for all elements.
    PerTensor {
        /// Scale.
        scale: f64,
        /// Code that means zero.
        zero_point: i64,
    },
    /// One scale per index of a dimension.
    PerChannel {
        /// The scales, a tensor of their own.
        scales: Box<TensorInfo>,
        /// The zero points, a tensor of their own.
        zero_points: Box<TensorInfo>,
        /// The dimension.
        axis: u64,
    },
}
