//! MLX against reference outputs, the formula written down again, and shapes that do not fit.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, bf16_bytes, compare_with_oracles, dequantised, f32_bytes, output_names,
    plan_notes, random_scales, refusal, safetensors,
};

const NAME: &str = "a.fc.weight";

#[test]
fn reference_outputs_are_met_in_both_roundings() {
    assert_eq!(compare_with_oracles("mlx"), 16);
}

fn affine(rows: u64, words: u64, groups: u64) -> Vec<u8> {
    let (n, codes) = (
        usize::try_from(rows * groups).unwrap(),
        usize::try_from(rows * words * 4).unwrap(),
    );
    safetensors(&[
        (NAME, "U32", &[rows, words], random_bytes(1, codes)),
        (
            "a.fc.scales",
            "F32",
            &[rows, groups],
            f32_bytes(&random_scales(2, n)),
        ),
        (
            "a.fc.biases",
            "BF16",
            &[rows, groups],
            bf16_bytes(&random_scales(3, n)),
        ),
        ("a.fc.bias", "F32", &[1], f32_bytes(&[1.0])),
    ])
}

fn config(bits: u64, group: u64) -> String {
    format!(r#"{{"quantization":{{"bits":{bits},"group_size":{group}}}}}"#)
}

#[test]
fn every_size_is_that_of_the_formula() {
    for bits in [2, 3, 4, 5, 6, 8] {
        for group in [32, 64, 128] {
            let (rows, groups) = (700, 5);
            let cols = groups * group;
            let words = cols * bits / 32;
            let (shape, values) =
                dequantised(affine(rows, words, groups), &config(bits, group), NAME);
            assert_eq!(shape, [rows, cols]);
            let [rows, cols, bits, words, groups, group] =
                [rows, cols, bits, words, groups, group].map(|n| usize::try_from(n).unwrap());
            let (codes, s) = (
                random_bytes(1, rows * words * 4),
                random_scales(2, rows * groups),
            );
            let b: Vec<f32> = random_scales(3, rows * groups)
                .iter()
                .map(|x| half::bf16::from_f32(*x).to_f32())
                .collect();
            let code = |row: usize, col: usize| {
                let bit = |i: usize| codes[row * words * 4 + i / 8] >> (i % 8) & 1;
                (0..bits)
                    .map(|k| u32::from(bit(col * bits + k)) << k)
                    .sum::<u32>()
            };
            let value = |i: usize| {
                let (row, col) = (i / cols, i % cols);
                code(row, col) as f32 * s[row * groups + col / group]
                    + b[row * groups + col / group]
            };
            assert_same_bits(&values, &(0..rows * cols).map(value).collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_bias_of_the_layer_stays() {
    assert_eq!(
        output_names(affine(4, 32, 4), &config(4, 64)),
        [NAME, "a.fc.bias"]
    );
}

/// 256 bits in a group: 4 in 64, 8 in 32, 2 in 128.
#[test]
fn the_configuration_decides_between_pairs_that_fit() {
    let of = |config: &str| {
        (
            dequantised(affine(4, 32, 4), config, NAME).0[1],
            plan_notes(affine(4, 32, 4), config).len(),
        )
    };
    assert_eq!(of(&config(4, 64)), (256, 0));
    assert_eq!(of(&config(8, 32)), (128, 0));
    assert_eq!(of(&config(2, 128)), (512, 0));
    // a module's own settings come first
    let own = r#"{"quantization":{"bits":4,"group_size":64,"a.fc":{"bits":8,"group_size":32}}}"#;
    assert_eq!(of(own), (128, 0));
    // the group size takes precedence over the bits; without a word the usual group is
    assert_eq!(of(&config(4, 32)), (128, 1));
    assert_eq!(of("{}"), (256, 1));
    assert_eq!(
        of(r#"{"quantization":{"bits":2,"mode":"affine"}}"#),
        (512, 1)
    );
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
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
            (NAME, "U32", &[4, 16][..], random_bytes(1, 256)),
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
        let text = refusal(file, "{}", "a.fc.");
        assert!(text.contains(why), "{text}");
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
    let four = parts(("U8", &[4, 4], bytes(4)), None);
    let text = refusal(four, r#"{"quantization":{"mode":"nvfp4"}}"#, NAME);
    assert!(text.contains("mxfp4"), "{text}");
}
