//! Attributes of a tensor that only PyTorch files state.

use super::TensorInfo;

/// Attributes of a tensor that only PyTorch files state. Boxed in a description, since few tensors have any.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PytorchAttributes {
    /// Signs to flip on reading.
    pub view_flags: ViewFlags,
    /// Parameters of a quantised tensor.
    pub quantizer: Option<Quantizer>,
}

/// Operations that PyTorch applies when a view is read instead of when it is made (`Tensor.conj`,
/// `torch._neg_view`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewFlags {
    /// Negate the imaginary parts.
    pub conj: bool,
    /// Negate all numbers.
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
        /// Code that represents zero.
        zero_point: i64,
    },
    /// One scale per index of a dimension.
    PerChannel {
        /// The scales: a tensor with one element per channel.
        scales: Box<TensorInfo>,
        /// The zero points: a tensor with one element per channel.
        zero_points: Box<TensorInfo>,
        /// The dimension whose indices are the channels.
        axis: u64,
    },
}
