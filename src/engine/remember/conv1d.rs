//! Weights of `Conv1D` modules, which transformers stores `[in, out]`.
//!
//! Quantisers replace a `Conv1D` by a linear layer and store its weight as one, `[out, in]`. The class that loads the
//! dequantised checkpoint has `Conv1D` modules again: a weight that is not square would not load, and a square one would
//! load in the wrong orientation without an error.
//!
//! Source: `transformers.pytorch_utils.Conv1D` and the classes that use it.

use std::sync::Arc;

use crate::models::names::is_conv1d;
use crate::plan::decode::TransposedMatrices;
use crate::quant::scheme::Weight;
use crate::read::catalog::Shape;

/// The weight in the orientation in which the class of this model type stores it.
pub(super) fn oriented(weight: Weight, model_type: Option<&str>) -> Weight {
    let is_conv1d = is_conv1d(model_type, &weight.name);
    let &[rows, cols] = weight.shape.as_slice() else {
        return weight;
    };
    if !is_conv1d {
        return weight;
    }
    Weight {
        shape: Shape::from_slice(&[cols, rows]),
        decoder: Arc::new(TransposedMatrices {
            inner: weight.decoder,
            matrices: 1,
            rows,
            cols,
        }),
        ..weight
    }
}
