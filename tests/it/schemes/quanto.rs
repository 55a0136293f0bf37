//! quanto: against reference outputs of optimum-quanto, against the formula, and weights whose shape or bit width the file does
//! not give.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, bf16_bytes, compare_with_oracles, dequantised, f32_bytes, plan_notes,
    random_scales, refusal, safetensors,
};

const WEIGHT: &str = "a.fc.weight";

#[test]
fn weights_equal_reference_outputs_of_optimum_quanto() {
    assert_eq!(compare_with_oracles("quanto"), 9);
}

/// A 4-bit weight of `groups` groups of 32 codes with these shifts, and a layer bias if `bias_len` is not 0.
fn four_bits(groups: usize, shift: (&str, Vec<u8>), bias_len: u64) -> Vec<u8> {
    let (stored, n) = (groups.div_ceil(2), groups as u64);
    let mut tensors = vec![
        (
            "a.fc.weight._data._data",
            "U8",
            vec![stored as u64, 32],
            random_bytes(1, stored * 32),
        ),
        (
            "a.fc.weight._scale",
            "F32",
            vec![n, 1],
            f32_bytes(&random_scales(2, groups)),
        ),
        ("a.fc.weight._shift", shift.0, vec![n, 1], shift.1),
    ];
    if bias_len > 0 {
        tensors.push((
            "a.fc.bias",
            "BF16",
            vec![bias_len],
            bf16_bytes(&vec![0.5; usize::try_from(bias_len).unwrap()]),
        ));
    }
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, *dtype, &**shape, bytes.clone()))
        .collect();
    safetensors(&tensors)
}

#[test]
fn integer_shifts_are_subtracted_before_and_float_shifts_after_the_scale() {
    let (groups, rows) = (15, 5);
    let (codes, scales, shifts) = (
        random_bytes(1, 8 * 32),
        random_scales(2, groups),
        random_bytes(3, groups),
    );
    let code = |i: usize| codes[i % 256] >> (i / 256 * 4) & 15;
    for (shift, expected) in [
        (
            ("I8", shifts.clone()),
            (0..480)
                .map(|i| {
                    (f32::from(code(i)) - f32::from(shifts[i / 32].cast_signed())) * scales[i / 32]
                })
                .collect(),
        ),
        (
            ("F32", f32_bytes(&scales)),
            (0..480)
                .map(|i| f32::from(code(i)) * scales[i / 32] - scales[i / 32])
                .collect::<Vec<f32>>(),
        ),
    ] {
        let (shape, values) = dequantised(four_bits(groups, shift, rows), "{}", WEIGHT);
        assert_eq!(shape, [5, 96]);
        assert_same_bits(&values, &expected);
    }
}

#[test]
fn weight_of_ambiguous_shape_is_refused_with_the_candidates() {
    let shift = || ("F32", f32_bytes(&random_scales(3, 16)));
    let shifts_of_35 = ("F32", f32_bytes(&random_scales(3, 35)));
    let message = refusal(four_bits(35, shifts_of_35, 0), "{}", WEIGHT);
    assert!(
        message.contains("shape") && message.contains("config.json"),
        "{message}"
    );
    assert!(
        message.contains("[1, 1120] or [35, 32] or [5, 224] or [7, 160];"),
        "{message}"
    );
    refusal(four_bits(16, shift(), 3), "{}", WEIGHT);
    refusal(four_bits(16, shift(), 32), "{}", WEIGHT);
    refusal(four_bits(16, ("F64", vec![0; 128]), 4), "{}", WEIGHT);
}

#[test]
fn group_count_determines_the_shape_if_only_one_is_possible() {
    // quanto does not divide rows of 64 columns into groups, and divides longer rows into larger groups
    let file = || four_bits(16, ("F32", f32_bytes(&random_scales(3, 16))), 0);
    assert_eq!(dequantised(file(), "{}", WEIGHT).0, [16, 32]);
    assert!(
        plan_notes(file(), "{}")
            .join("")
            .contains("by quanto's choice of groups")
    );
}

#[test]
fn model_sizes_in_the_configuration_determine_the_shape() {
    // 12 groups of 128 codes: 1536, 768, 384, 512, 256 or 128 columns are possible
    let file = |module: &str| {
        let names =
            ["_data._data", "_scale", "_shift"].map(|part| format!("{module}.weight.{part}"));
        safetensors(&[
            (&names[0], "U8", &[6, 128], random_bytes(1, 768)),
            (&names[1], "F32", &[12, 1], f32_bytes(&random_scales(2, 12))),
            (&names[2], "F32", &[12, 1], f32_bytes(&random_scales(3, 12))),
        ])
    };
    let config = r#"{"hidden_size":512,"intermediate_size":384,"vocab_size":3,"num_attention_heads":4,
        "quantization_config":{"quant_method":"quanto","weights":"int4"}}"#;
    refusal(file("a.own"), "{}", "a.own");
    refusal(
        file("a.up_proj"),
        r#"{"hidden_size":512,"quantization_config":{"weights":"int4"}}"#,
        "a.up_proj",
    );
    for (module, shape) in [
        ("a.lm_head", [3, 512]),
        ("a.up_proj", [3, 512]),
        ("a.own", [3, 512]),
    ] {
        let (found, values) = dequantised(file(module), config, &format!("{module}.weight"));
        assert_eq!(found, shape);
        let (codes, scales, shifts) = (
            random_bytes(1, 768),
            random_scales(2, 12),
            random_scales(3, 12),
        );
        let value = |i: usize| {
            f32::from(codes[i % 768] >> (i / 768 * 4) & 15) * scales[i / 128] - shifts[i / 128]
        };
        assert_same_bits(&values, &(0..1536).map(value).collect::<Vec<_>>());
    }
    let two_candidates = r#"{"hidden_size":256,"intermediate_size":6,"vocab_size":12,"head_dim":128,"num_attention_heads":1,
        "quantization_config":{"quant_method":"quanto"}}"#;
    // two of six shapes match the model sizes, and the error lists these; none matches the sizes of another model, and it
    // lists all
    let message = refusal(file("a.own"), two_candidates, "a.own");
    assert!(
        message.contains("may be [12, 128] or [6, 256];") && message.contains("hidden_size"),
        "{message}"
    );
    let other_model = r#"{"hidden_size":100,"quantization_config":{"quant_method":"quanto"}}"#;
    let message = refusal(file("a.own"), other_model, "a.own");
    assert!(
        message.contains("[1, 1536] or [12, 128] or [2, 768] or [6, 256] or [3, 512] or [4, 384];"),
        "{message}"
    );
    assert_eq!(
        dequantised(file("a.up_proj"), two_candidates, "a.up_proj.weight").0,
        [6, 256]
    );
}

#[test]
fn inconsistent_or_missing_parts_are_refused() {
    let file = |stored: u64, groups: u64, omitted: &[&str]| {
        let n = usize::try_from(groups).unwrap();
        let mut tensors = vec![
            (
                "a.fc.weight._data._data",
                "U8",
                vec![stored, 32],
                random_bytes(1, usize::try_from(stored).unwrap() * 32),
            ),
            (
                "a.fc.weight._scale",
                "F32",
                vec![groups, 1],
                f32_bytes(&random_scales(2, n)),
            ),
            (
                "a.fc.weight._shift",
                "F32",
                vec![groups, 1],
                f32_bytes(&random_scales(2, n)),
            ),
            ("a.fc.bias", "F32", vec![2], f32_bytes(&[0.0; 2])),
        ];
        tensors.retain(|tensor| !omitted.iter().any(|part| tensor.0.ends_with(part)));
        let tensors: Vec<_> = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| (*name, *dtype, &**shape, bytes.clone()))
            .collect();
        safetensors(&tensors)
    };
    for (stored, groups) in [(4, 4), (4, 7 + 16), (0, 0), (4, 3)] {
        refusal(file(stored, groups, &[]), "{}", WEIGHT);
    }
    for part in ["_scale", "_shift"] {
        let message = refusal(file(4, 8, &[part]), "{}", WEIGHT);
        assert!(message.contains("missing"), "{message}");
    }
}

/// Two groups fill one row of bytes with 4-bit codes (two in a byte) and with 2-bit codes (up to four).
#[test]
fn configuration_decides_between_2_and_4_bits_if_both_fit() {
    let file = || {
        safetensors(&[
            (
                "a.fc.weight._data._data",
                "U8",
                &[1, 32],
                random_bytes(1, 32),
            ),
            ("a.fc.weight._scale", "F32", &[2, 1], f32_bytes(&[1.0; 2])),
            ("a.fc.weight._shift", "I8", &[2, 1], vec![0; 2]),
            ("a.fc.bias", "F32", &[2], f32_bytes(&[0.0; 2])),
        ])
    };
    let codes = random_bytes(1, 32);
    let config = |weights: &str| {
        format!(r#"{{"quantization_config":{{"quant_method":"quanto"{weights}}}}}"#)
    };
    for (weights, bits, note_count) in [
        ("", 4, 1),
        (r#","weights":"int4""#, 4, 0),
        (r#","weights":"int2""#, 2, 0),
    ] {
        let (shape, values) = dequantised(file(), &config(weights), WEIGHT);
        assert_eq!(shape, [2, 32]);
        let code = |i: usize| f32::from(codes[i % 32] >> (i / 32 * bits) & ((1 << bits) - 1));
        assert_same_bits(&values, &(0..64).map(code).collect::<Vec<_>>());
        assert_eq!(plan_notes(file(), &config(weights)).len(), note_count);
    }
}
