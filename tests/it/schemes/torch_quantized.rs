//! PyTorch's own quantised tensors against the output of `torch.Tensor.dequantize`.

use crate::support::fixture;
use crate::support::scheme_checks::compare_with_oracles;
use anamnesis::{Checkpoint, remember};

/// Every quantised dtype, per tensor and per channel of each axis, strided, channels-last, with float zero points, with elements
/// that end inside a byte, in zip archives and in the legacy container.
#[test]
fn weights_equal_torch_dequantize() {
    assert_eq!(compare_with_oracles("torch"), 6);
}

#[test]
fn zero_point_of_more_than_32_bits_is_refused() {
    let bytes = std::fs::read(fixture("quant/torch/legacy/model.pth")).unwrap();
    let scheme = bytes
        .windows(17)
        .position(|at| at == b"per_tensor_affine")
        .unwrap();
    let at = scheme
        + bytes[scheme..]
            .windows(2)
            .position(|at| at == b"K\x07")
            .unwrap();
    let long = [&bytes[..at], b"\x8a\x05\0\0\0\0\x01", &bytes[at + 2..]].concat();
    let checkpoint = Checkpoint::from_bytes(long).unwrap();
    let plan = remember(&checkpoint).plan().unwrap();
    let message = plan.refused[0].error.to_string();
    assert!(
        message.contains("`w`") && message.contains("4294967296"),
        "{message}"
    );
}
