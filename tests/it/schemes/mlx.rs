//! MLX: against reference outputs of mlx, against the affine formula, and inconsistent shapes.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, bf16_bytes, compare_with_oracles, dequantised, f32_bytes, output_names,
    plan_notes, random_scales, refusal, safetensors,
};

const WEIGHT: &str = "a.fc.weight";

#[test]
fn weights_equal_reference_outputs_of_mlx_in_both_roundings() {
    assert_eq!(compare_with_oracles("mlx"), 16);
}

fn affine(rows: u64, words: u64, groups: u64) -> Vec<u8> {
    let (factors, code_bytes) = (
        usize::try_from(rows * groups).unwrap(),
        usize::try_from(rows * words * 4).unwrap(),
    );
    safetensors(&[
        (WEIGHT, "U32", &[rows, words], random_bytes(1, code_bytes)),
        (
            "a.fc.scales",
            "F32",
            &[rows, groups],
            f32_bytes(&random_scales(2, factors)),
        ),
        (
            "a.fc.biases",
            "BF16",
            &[rows, groups],
            bf16_bytes(&random_scales(3, factors)),
        ),
        ("a.fc.bias", "F32", &[1], f32_bytes(&[1.0])),
    ])
}

fn config(bits: u64, group_size: u64) -> String {
    format!(r#"{{"quantization":{{"bits":{bits},"group_size":{group_size}}}}}"#)
}

#[test]
fn affine_weights_equal_code_times_scale_plus_bias() {
    for bits in [2, 3, 4, 5, 6, 8] {
        for group_size in [32, 64, 128] {
            let (rows, groups) = (700, 5);
            let cols = groups * group_size;
            let words = cols * bits / 32;
            let (shape, values) = dequantised(
                affine(rows, words, groups),
                &config(bits, group_size),
                WEIGHT,
            );
            assert_eq!(shape, [rows, cols]);
            let [rows, cols, bits, words, groups, group_size] =
                [rows, cols, bits, words, groups, group_size].map(|n| usize::try_from(n).unwrap());
            let (packed, scales) = (
                random_bytes(1, rows * words * 4),
                random_scales(2, rows * groups),
            );
            let biases: Vec<f32> = random_scales(3, rows * groups)
                .iter()
                .map(|x| half::bf16::from_f32(*x).to_f32())
                .collect();
            let code = |row: usize, col: usize| {
                let bit = |i: usize| packed[row * words * 4 + i / 8] >> (i % 8) & 1;
                (0..bits)
                    .map(|k| u32::from(bit(col * bits + k)) << k)
                    .sum::<u32>()
            };
            let value = |i: usize| {
                let (row, col) = (i / cols, i % cols);
                let group = row * groups + col / group_size;
                code(row, col) as f32 * scales[group] + biases[group]
            };
            assert_same_bits(&values, &(0..rows * cols).map(value).collect::<Vec<_>>());
        }
    }
}

#[test]
fn layer_bias_is_an_output() {
    assert_eq!(
        output_names(affine(4, 32, 4), &config(4, 64)),
        [WEIGHT, "a.fc.bias"]
    );
}

/// The parts have 256 bits per group, which fits 64 codes of 4 bits, 32 of 8 and 128 of 2.
#[test]
fn configuration_decides_between_consistent_bits_and_group_sizes() {
    let columns_and_notes = |config: &str| {
        (
            dequantised(affine(4, 32, 4), config, WEIGHT).0[1],
            plan_notes(affine(4, 32, 4), config).len(),
        )
    };
    assert_eq!(columns_and_notes(&config(4, 64)), (256, 0));
    assert_eq!(columns_and_notes(&config(8, 32)), (128, 0));
    assert_eq!(columns_and_notes(&config(2, 128)), (512, 0));
    // the settings of a module take precedence
    let module_config =
        r#"{"quantization":{"bits":4,"group_size":64,"a.fc":{"bits":8,"group_size":32}}}"#;
    assert_eq!(columns_and_notes(module_config), (128, 0));
    // a pair that does not fit is not replaced by one that does; the default is 64 codes
    let message = refusal(affine(4, 32, 4), &config(4, 32), "a.fc.");
    assert!(message.contains("as configured"), "{message}");
    assert_eq!(columns_and_notes("{}"), (256, 1));
    assert_eq!(
        columns_and_notes(r#"{"quantization":{"bits":2,"mode":"affine"}}"#),
        (512, 1)
    );
}

#[test]
fn inconsistent_shapes_and_dtypes_are_refused() {
    for (rows, words, groups) in [
        (4, 33, 4),
        (4, 4, 4),
        (4, 32, 0),
        (4, 0, 4),
        (0, 32, 4),
        (4, 7, 1),
        (4, 28, 4),
    ] {
        refusal(affine(rows, words, groups), &config(4, 64), "a.fc.");
    }
    let parts = |scales: (&str, &[u64], Vec<u8>), biases: Option<(&str, &[u64], Vec<u8>)>| {
        let mut tensors = vec![
            (WEIGHT, "U32", &[4, 16][..], random_bytes(1, 256)),
            ("a.fc.scales", scales.0, scales.1, scales.2),
        ];
        tensors.extend(biases.map(|(dtype, shape, bytes)| ("a.fc.biases", dtype, shape, bytes)));
        safetensors(&tensors)
    };
    let f = |n: u64| {
        (
            "F32",
            n,
            f32_bytes(&vec![1.0; usize::try_from(4 * n).unwrap()]),
        )
    };
    let bytes = |n: u64| random_bytes(2, usize::try_from(4 * n).unwrap());
    let refused = |file: Vec<u8>, why: &str| {
        let message = refusal(file, "{}", "a.fc.");
        assert!(message.contains(why), "{message}");
    };
    refused(
        parts(("F32", &[4, 2], f(2).2), Some(("F32", &[4, 4], f(4).2))),
        "shape",
    );
    refused(
        parts(("F32", &[4, 2], f(2).2), Some(("U8", &[4, 2], bytes(2)))),
        "instead of F32, F16 or BF16",
    );
    refused(
        parts(("I32", &[4, 2], f(2).2), Some(("F32", &[4, 2], f(2).2))),
        "instead of F32, F16 or BF16",
    );
    refused(
        parts(("F32", &[2, 4], f(2).2), Some(("F32", &[2, 4], f(2).2))),
        "scale",
    );
    refused(parts(("F32", &[4, 4], f(4).2), None), "instead of U8");
    refused(parts(("U8", &[4, 1], bytes(1)), None), "512 bits");
    let nvfp4_shaped = parts(("U8", &[4, 4], bytes(4)), None);
    let message = refusal(nvfp4_shaped, r#"{"quantization":{"mode":"nvfp4"}}"#, WEIGHT);
    assert!(message.contains("mxfp4"), "{message}");
}
