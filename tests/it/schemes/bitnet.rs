//! BitNet: against reference outputs of transformers, and the choice between its two conventions for scales.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, compare_with_oracles, dequantised, f32_bytes, plan_notes, refusal,
    safetensors,
};

const WEIGHT: &str = "a.fc.weight";

#[test]
fn weights_equal_reference_outputs_of_transformers() {
    assert_eq!(compare_with_oracles("bitnet"), 2);
}

fn file(scale: (&str, &[u64], Vec<u8>)) -> Vec<u8> {
    safetensors(&[
        (WEIGHT, "U8", &[300, 700], random_bytes(1, 210_000)),
        ("a.fc.weight_scale", scale.0, scale.1, scale.2),
    ])
}

#[test]
fn linear_class_decides_whether_scales_divide_or_multiply() {
    let single_scale = || file(("F32", &[1], f32_bytes(&[0.3])));
    let codes = random_bytes(1, 210_000);
    let code = |i: usize| f32::from(codes[i % 210_000] >> (i / 210_000 * 2) & 3) - 1.0;
    let divided: Vec<f32> = (0..840_000).map(|i| code(i) / 0.3).collect();
    let multiplied: Vec<f32> = (0..840_000).map(|i| code(i) * 0.3).collect();
    let config = |options: &str| {
        format!(r#"{{"quantization_config":{{"quant_method":"bitnet"{options}}}}}"#)
    };
    for (config, expected, note_count) in [
        ("{}".to_owned(), &divided, 1),
        (config(""), &divided, 1),
        (config(r#","linear_class":"bitlinear""#), &divided, 0),
        (
            config(r#","linear_class":"autobitlinear","quantization_mode":"offline""#),
            &multiplied,
            0,
        ),
    ] {
        let (shape, values) = dequantised(single_scale(), &config, WEIGHT);
        assert_eq!(shape, [1200, 700]);
        assert_same_bits(&values, expected);
        assert_eq!(plan_notes(single_scale(), &config).len(), note_count);
    }
}

#[test]
fn scales_of_wrong_shape_or_dtype_are_refused() {
    let config = r#"{"quantization_config":{"quant_method":"bitnet"}}"#;
    for scale in [
        ("F32", &[2][..], f32_bytes(&[1.0; 2])),
        ("I32", &[1], vec![0; 4]),
        ("F32", &[0], vec![]),
    ] {
        refusal(file(scale), config, "a.fc.weight_scale");
    }
    // U8 weights of another quantisation method are not decoded as BitNet
    let other_method = r#"{"quantization_config":{"quant_method":"gemma"}}"#;
    refusal(file(("F32", &[1], f32_bytes(&[1.0]))), other_method, WEIGHT);
}
