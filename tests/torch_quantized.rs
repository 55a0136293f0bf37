//! PyTorch's own quantised tensors against `Tensor.dequantize`.

mod common;

use common::schemes::meets_oracles;

/// QINT8, QUINT8 and QINT32, per tensor and per channel of each axis, strided, channels-last, float zero points.
#[test]
fn reference_outputs_are_met() {
    assert_eq!(meets_oracles("torch"), 1);
}
