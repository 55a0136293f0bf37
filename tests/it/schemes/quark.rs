//! Quark's UE5M3 scales, quantised scales and packed INT3 zero points: against reference outputs of Quark and against the
//! formulas; inconsistent parts are refused by name.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, compare_with_oracles, dequantised, f32_bytes, random_scales, refusal,
    safetensors,
};

const WEIGHT: &str = "a.fc.weight";

/// A configuration whose weights are quantised in these steps.
fn config(quantisation_steps: &str) -> String {
    format!(
        r#"{{"quantization_config":{{"quant_method":"quark","export":{{"pack_method":"order"}},
            "global_quant_config":{{"weight":{quantisation_steps}}}}}}}"#
    )
}

/// A configuration of FP4 codes with UE5M3 scales (5 bits of exponent, 3 of mantissa).
fn amdfp4() -> String {
    config(r#"{"dtype":"fp4","qscheme":"per_group","group_size":16,"scale_format":"e5m3"}"#)
}

#[test]
fn ue5m3_scales_have_their_defined_values() {
    let ue5m3 = |byte: u8| match (i32::from(byte >> 3), f32::from(byte & 7) / 8.0) {
        (31, m) if m > 0.8 => f32::NAN,
        (0, m) => m * 2f32.powi(-14),
        (e, m) => (1.0 + m) * 2f32.powi(e - 15),
    };
    let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    // groups of 16, of 32, and a stack of matrices
    for (shape, groups) in [(&[3u64, 64][..], 8), (&[5, 32], 2), (&[2, 3, 16], 1)] {
        let (codes, rows) = (
            shape.iter().product::<u64>(),
            shape.iter().rev().skip(1).product::<u64>(),
        );
        let group = usize::try_from(codes * 2 / rows / groups).unwrap();
        let (codes, scale) = (
            random_bytes(1, usize::try_from(codes).unwrap()),
            random_bytes(2, usize::try_from(rows * groups).unwrap()),
        );
        let scale_shape = [&shape[..shape.len() - 1], &[groups]].concat();
        let file = safetensors(&[
            (WEIGHT, "U8", shape, codes.clone()),
            ("a.fc.weight_scale", "U8", &scale_shape, scale.clone()),
        ]);
        let (found, values) = dequantised(file, &amdfp4(), WEIGHT);
        assert_eq!(found[..shape.len() - 1], shape[..shape.len() - 1]);
        let value = |i: usize| {
            let code = codes[i / 2] >> (i % 2 * 4) & 15;
            let magnitude = e2m1[usize::from(code & 7)];
            (if code > 7 { -magnitude } else { magnitude }) * ue5m3(scale[i / group])
        };
        assert_same_bits(
            &values,
            &(0..codes.len() * 2).map(value).collect::<Vec<_>>(),
        );
    }
}

#[test]
fn ue5m3_scales_of_wrong_shape_are_refused() {
    for (codes, scale) in [
        (("U8", &[4u64, 32][..]), ("U8", &[4u64, 3][..])),
        (("U8", &[4, 32]), ("U8", &[4, 8])),
        (("U8", &[4, 32]), ("U8", &[8, 4])),
        (("U8", &[4, 32]), ("U8", &[16])),
        (("U8", &[128]), ("U8", &[16])),
        (("I8", &[4, 32]), ("U8", &[4, 4])),
    ] {
        let n = |shape: &[u64]| usize::try_from(shape.iter().product::<u64>()).unwrap();
        let tensors = [
            (WEIGHT, codes.0, codes.1, random_bytes(1, n(codes.1))),
            (
                "a.fc.weight_scale",
                scale.0,
                scale.1,
                random_bytes(2, n(scale.1)),
            ),
        ];
        refusal(safetensors(&tensors), &amdfp4(), "a.fc.weight");
    }
}

/// INT8 codes with a scale per row, where the scales are INT8 codes with one scale.
fn int8_with_int8_scales(
    scale_of_scales: (&str, &[u64], Vec<u8>),
    scale: (&str, &[u64], Vec<u8>),
    zero: u8,
) -> Vec<u8> {
    safetensors(&[
        (WEIGHT, "I8", &[5, 8], random_bytes(1, 40)),
        ("a.fc.weight_scale", scale.0, scale.1, scale.2),
        (
            "a.fc.weight_scale_2",
            scale_of_scales.0,
            scale_of_scales.1,
            scale_of_scales.2,
        ),
        ("a.fc.weight_zero_point_2", "I32", &[], vec![zero, 0, 0, 0]),
    ])
}

fn two_step_config(scale_step: &str) -> String {
    config(&format!(
        r#"[{{"dtype":"int8","qscheme":"per_channel","symmetric":true}},{scale_step}]"#
    ))
}

const INT8: &str = r#"{"dtype":"int8","qscheme":"per_tensor","is_scale_quant":true}"#;

#[test]
fn quantised_scales_are_dequantised_first() {
    let (codes, scale) = (random_bytes(1, 40), random_bytes(2, 5));
    for (scale_of_scales, stored) in [
        (0.3f32, ("F32", f32_bytes(&[0.3]))),
        (0.5, ("F16", vec![0, 0x38])),
        (0.5, ("BF16", vec![0, 0x3f])),
    ] {
        let file = int8_with_int8_scales((stored.0, &[], stored.1), ("I8", &[5], scale.clone()), 0);
        let (shape, values) = dequantised(file, &two_step_config(INT8), WEIGHT);
        assert_eq!(shape, [5, 8]);
        let value = |i: usize| {
            f32::from(codes[i].cast_signed())
                * (f32::from(scale[i / 8].cast_signed()) * scale_of_scales)
        };
        assert_same_bits(&values, &(0..40).map(value).collect::<Vec<_>>());
    }
}

#[test]
fn inconsistent_quantised_scales_are_refused() {
    let (per_tensor_scale, scale) = (
        || ("F32", &[][..], f32_bytes(&[0.3])),
        || ("I8", &[5][..], random_bytes(2, 5)),
    );
    for file in [
        int8_with_int8_scales(("F32", &[2], f32_bytes(&[0.3; 2])), scale(), 0),
        int8_with_int8_scales(("F32", &[0], vec![]), scale(), 0),
        int8_with_int8_scales(("I32", &[], vec![1, 0, 0, 0]), scale(), 0),
        int8_with_int8_scales(per_tensor_scale(), ("I8", &[4], random_bytes(2, 4)), 0),
        int8_with_int8_scales(per_tensor_scale(), ("I8", &[5, 1], random_bytes(2, 5)), 0),
        int8_with_int8_scales(per_tensor_scale(), ("U8", &[5], random_bytes(2, 5)), 0),
        int8_with_int8_scales(
            per_tensor_scale(),
            ("F32", &[5], f32_bytes(&random_scales(2, 5))),
            0,
        ),
        int8_with_int8_scales(per_tensor_scale(), scale(), 1),
    ] {
        refusal(file, &two_step_config(INT8), "a.fc.weight_");
    }
    for scale_step in [
        r#"{"dtype":"int8","qscheme":"per_channel","is_scale_quant":true}"#,
        r#"{"dtype":"int4","qscheme":"per_tensor","is_scale_quant":true}"#,
        r#"{"dtype":"int8","qscheme":"per_tensor"}"#,
        "7",
    ] {
        refusal(
            int8_with_int8_scales(per_tensor_scale(), scale(), 0),
            &two_step_config(scale_step),
            "a.fc.weight_scale_2",
        );
    }
}

/// INT3 codes with a scale and a zero point for each of 8 rows.
fn int3(zero: (&str, &[u64], Vec<u8>)) -> Vec<u8> {
    safetensors(&[
        (WEIGHT, "U8", &[8, 9], random_bytes(1, 72)),
        (
            "a.fc.weight_scale",
            "F32",
            &[8],
            f32_bytes(&random_scales(2, 8)),
        ),
        ("a.fc.weight_zero_point", zero.0, zero.1, zero.2),
    ])
}

#[test]
fn int3_zero_points_are_packed_without_padding() {
    let config = config(r#"{"dtype":"int3","qscheme":"per_channel","symmetric":false}"#);
    let (codes, scales, zero_points) =
        (random_bytes(1, 72), random_scales(2, 8), random_bytes(3, 3));
    let code = |bytes: &[u8], i: usize| {
        let bit = |b: usize| bytes[b / 8] >> (b % 8) & 1;
        let code = bit(3 * i) | bit(3 * i + 1) << 1 | bit(3 * i + 2) << 2;
        f32::from((code << 5).cast_signed() >> 5)
    };
    let (shape, values) = dequantised(int3(("U8", &[3], zero_points.clone())), &config, WEIGHT);
    assert_eq!(shape, [8, 24]);
    let value = |i: usize| (code(&codes, i) - code(&zero_points, i / 24)) * scales[i / 24];
    assert_same_bits(&values, &(0..192).map(value).collect::<Vec<_>>());
    // one byte for each row is valid if all are 0
    let plain: Vec<f32> = (0..192).map(|i| code(&codes, i) * scales[i / 24]).collect();
    assert_same_bits(
        &dequantised(int3(("U8", &[8], vec![0; 8])), &config, WEIGHT).1,
        &plain,
    );
    for zero in [
        ("U8", &[4u64][..], random_bytes(3, 4)),
        ("U8", &[8], random_bytes(3, 8)),
        ("I8", &[3], random_bytes(3, 3)),
    ] {
        refusal(int3(zero), &config, "a.fc.weight_zero_point");
    }
}

#[test]
fn weights_equal_reference_outputs_of_quark() {
    assert_eq!(compare_with_oracles("quark_more"), 30);
}
