//! quanto against reference outputs, and what its files leave open.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, bf16_bytes, compare_with_oracles, dequantised, f32_bytes, plan_notes,
    random_scales, refusal, safetensors,
};

const NAME: &str = "a.fc.weight";

#[test]
fn reference_outputs_are_met() {
    assert_eq!(compare_with_oracles("quanto"), 6);
}

/// 4 bits of `groups` groups of 32, with shifts of this dtype.
fn four_bits(groups: usize, shift: (&str, Vec<u8>), bias: u64) -> Vec<u8> {
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
    if bias > 0 {
        tensors.push((
            "a.fc.bias",
            "BF16",
            vec![bias],
            bf16_bytes(&vec![0.5; usize::try_from(bias).unwrap()]),
        ));
    }
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(n, d, s, b)| (*n, *d, &**s, b.clone()))
        .collect();
    safetensors(&tensors)
}

#[test]
fn shifts_of_whole_numbers_and_odd_groups() {
    let (groups, rows) = (15, 5);
    let (codes, s, z) = (
        random_bytes(1, 8 * 32),
        random_scales(2, groups),
        random_bytes(3, groups),
    );
    let code = |i: usize| codes[i % 256] >> (i / 256 * 4) & 15;
    for (shift, expected) in [
        (
            ("I8", z.clone()),
            (0..480)
                .map(|i| (f32::from(code(i)) - f32::from(z[i / 32].cast_signed())) * s[i / 32])
                .collect(),
        ),
        (
            ("F32", f32_bytes(&s)),
            (0..480)
                .map(|i| f32::from(code(i)) * s[i / 32] - s[i / 32])
                .collect::<Vec<f32>>(),
        ),
    ] {
        let (shape, values) = dequantised(four_bits(groups, shift, rows), "{}", NAME);
        assert_eq!(shape, [5, 96]);
        assert_same_bits(&values, &expected);
    }
}

#[test]
fn what_the_files_do_not_say_is_not_guessed() {
    let shift = || ("F32", f32_bytes(&random_scales(3, 16)));
    let many = ("F32", f32_bytes(&random_scales(3, 35)));
    let text = refusal(four_bits(35, many, 0), "{}", NAME);
    assert!(
        text.contains("shape") && text.contains("config.json"),
        "{text}"
    );
    assert!(
        text.contains("[1, 1120] or [35, 32] or [5, 224] or [7, 160];"),
        "{text}"
    );
    refusal(four_bits(16, shift(), 3), "{}", NAME);
    refusal(four_bits(16, shift(), 32), "{}", NAME);
    refusal(four_bits(16, ("F64", vec![0; 128]), 4), "{}", NAME);
}

#[test]
fn groups_tell_a_shape_where_quanto_leaves_no_other() {
    // 64 columns are not cut, and more would be cut wider
    let file = || four_bits(16, ("F32", f32_bytes(&random_scales(3, 16))), 0);
    assert_eq!(dequantised(file(), "{}", NAME).0, [16, 32]);
    assert!(
        plan_notes(file(), "{}")
            .join("")
            .contains("by quanto's choice of groups")
    );
}

#[test]
fn the_sizes_of_the_model_tell_a_shape() {
    // 12 groups of 128: 1536, 768, 384, 512, 256 or 128 columns
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
        let (codes, s, z) = (
            random_bytes(1, 768),
            random_scales(2, 12),
            random_scales(3, 12),
        );
        let value =
            |i: usize| f32::from(codes[i % 768] >> (i / 768 * 4) & 15) * s[i / 128] - z[i / 128];
        assert_same_bits(&values, &(0..1536).map(value).collect::<Vec<_>>());
    }
    let both = r#"{"hidden_size":256,"intermediate_size":6,"vocab_size":12,"head_dim":128,"num_attention_heads":1,
        "quantization_config":{"quant_method":"quanto"}}"#;
    // of six shapes the sizes leave two, and the refusal says which; those of another model leave none, and it says all
    let text = refusal(file("a.own"), both, "a.own");
    assert!(
        text.contains("may be [12, 128] or [6, 256];") && text.contains("hidden_size"),
        "{text}"
    );
    let other = r#"{"hidden_size":100,"quantization_config":{"quant_method":"quanto"}}"#;
    let text = refusal(file("a.own"), other, "a.own");
    assert!(
        text.contains("[1, 1536] or [12, 128] or [2, 768] or [6, 256] or [3, 512] or [4, 384];"),
        "{text}"
    );
    assert_eq!(
        dequantised(file("a.up_proj"), both, "a.up_proj.weight").0,
        [6, 256]
    );
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let file = |stored: u64, groups: u64, what: &[&str]| {
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
        tensors.retain(|tensor| !what.iter().any(|what| tensor.0.ends_with(what)));
        let tensors: Vec<_> = tensors
            .iter()
            .map(|(n, d, s, b)| (*n, *d, &**s, b.clone()))
            .collect();
        safetensors(&tensors)
    };
    for (stored, groups) in [(4, 4), (4, 7 + 16), (0, 0), (4, 3)] {
        refusal(file(stored, groups, &[]), "{}", NAME);
    }
    for part in ["_scale", "_shift"] {
        let text = refusal(file(4, 8, &[part]), "{}", NAME);
        assert!(text.contains("missing"), "{text}");
    }
}

/// One group of codes fills as many bytes with 4 bits as with 2.
#[test]
fn the_configuration_tells_4_bits_from_2_where_bytes_do_not() {
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
    for (weights, bits, noted) in [
        ("", 4, 1),
        (r#","weights":"int4""#, 4, 0),
        (r#","weights":"int2""#, 2, 0),
    ] {
        let (shape, values) = dequantised(file(), &config(weights), NAME);
        assert_eq!(shape, [2, 32]);
        let code = |i: usize| f32::from(codes[i % 32] >> (i / 32 * bits) & ((1 << bits) - 1));
        assert_same_bits(&values, &(0..64).map(code).collect::<Vec<_>>());
        assert_eq!(plan_notes(file(), &config(weights)).len(), noted);
    }
}
