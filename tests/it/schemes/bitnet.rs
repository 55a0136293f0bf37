//! BitNet against reference outputs, and what decides between its two readings.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, compare_with_oracles, dequantised, f32_bytes, plan_notes, refusal,
    safetensors,
};

const NAME: &str = "a.fc.weight";

#[test]
fn reference_outputs_are_met() {
    assert_eq!(compare_with_oracles("bitnet"), 2);
}

fn file(scale: (&str, &[u64], Vec<u8>)) -> Vec<u8> {
    safetensors(&[
        (NAME, "U8", &[300, 700], random_bytes(1, 210_000)),
        ("a.fc.weight_scale", scale.0, scale.1, scale.2),
    ])
}

#[test]
fn the_class_says_whether_scales_divide() {
    let one = || file(("F32", &[1], f32_bytes(&[0.3])));
    let codes = random_bytes(1, 210_000);
    let code = |i: usize| f32::from(codes[i % 210_000] >> (i / 210_000 * 2) & 3) - 1.0;
    let divided: Vec<f32> = (0..840_000).map(|i| code(i) / 0.3).collect();
    let multiplied: Vec<f32> = (0..840_000).map(|i| code(i) * 0.3).collect();
    let config =
        |more: &str| format!(r#"{{"quantization_config":{{"quant_method":"bitnet"{more}}}}}"#);
    for (config, expected, noted) in [
        ("{}".to_owned(), &divided, 1),
        (config(""), &divided, 1),
        (config(r#","linear_class":"bitlinear""#), &divided, 0),
        (
            config(r#","linear_class":"autobitlinear","quantization_mode":"offline""#),
            &multiplied,
            0,
        ),
    ] {
        let (shape, values) = dequantised(one(), &config, NAME);
        assert_eq!(shape, [1200, 700]);
        assert_same_bits(&values, expected);
        assert_eq!(plan_notes(one(), &config).len(), noted);
    }
}

#[test]
fn scales_that_do_not_fit_are_refused() {
    let config = r#"{"quantization_config":{"quant_method":"bitnet"}}"#;
    for scale in [
        ("F32", &[2][..], f32_bytes(&[1.0; 2])),
        ("I32", &[1], vec![0; 4]),
        ("F32", &[0], vec![]),
    ] {
        refusal(file(scale), config, "a.fc.weight_scale");
    }
    // other bytes under a weight's name are not taken for BitNet's
    let other = r#"{"quantization_config":{"quant_method":"gemma"}}"#;
    refusal(file(("F32", &[1], f32_bytes(&[1.0]))), other, NAME);
}
