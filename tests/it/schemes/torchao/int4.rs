//! torchao's INT4 classes of packed words and of preshuffled codes: against their formula, and descriptions that are refused.

use super::{WEIGHT, class_description, described_file};
use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, dequantised, f32_bytes, plan_notes, random_scales, refusal, safetensors_with,
};

/// An `Int4PlainInt32Tensor`: words of 8 codes, groups of 32 and zero points of this dtype.
fn int4_int32_file(dtype: &'static str, zeros: Vec<u8>) -> Vec<u8> {
    let description = class_description(
        "Int4PlainInt32Tensor",
        r#""block_size":[1,32],"shape":[4,64]"#,
    )
    .replace(r#""scale"]"#, r#""scale","zero_point"]"#);
    let metadata =
        serde_json::json!({"a.fc.weight": description, "tensor_names": "[]"}).to_string();
    let scale = (
        "a.fc._weight_scale",
        "F32",
        &[2, 4][..],
        f32_bytes(&random_scales(2, 8)),
    );
    let zero = ("a.fc._weight_zero_point", dtype, &[2, 4][..], zeros);
    safetensors_with(
        &metadata,
        &[
            ("a.fc._weight_qdata", "I32", &[4, 8], random_bytes(1, 128)),
            scale,
            zero,
        ],
    )
}
#[test]
fn int4_words_with_float_zero_points_are_signed_as_for_npu() {
    let (codes, scales, zero_points) = (
        random_bytes(1, 128),
        random_scales(2, 8),
        random_scales(3, 8),
    );
    let file = int4_int32_file("F32", f32_bytes(&zero_points));
    let (shape, values) = dequantised(file.clone(), "{}", "a.fc.weight");
    assert_eq!(shape, [4, 64]);
    let value = |i: usize| {
        let (nibble, group) = (codes[i / 2] >> (i % 2 * 4) & 15, i % 64 / 32 * 4 + i / 64);
        (f32::from((nibble << 4).cast_signed() >> 4) - zero_points[group]) * scales[group]
    };
    assert_same_bits(&values, &(0..256).map(value).collect::<Vec<_>>());
    assert!(plan_notes(file, "{}").join("").contains("NPU"));
}
/// An `Int4PreshuffledTensor` of this shape with 16 x 16 bytes of codes and these parts.
fn preshuffled(shape: &[u64], group: u64, parts: &[(&str, &str, &[u64])]) -> Vec<u8> {
    let description = class_description(
        "Int4PreshuffledTensor",
        &format!(r#""block_size":[1,{group}],"shape":{shape:?}"#),
    );
    let bytes = |dtype: &str| anamnesis::Dtype::from_name(dtype).unwrap().bits() / 8;
    let parts: Vec<_> = parts
        .iter()
        .map(|(name, dtype, shape)| {
            let n = shape.iter().product::<u64>() * bytes(dtype);
            (
                format!("a.fc._weight_{name}"),
                *dtype,
                *shape,
                random_bytes(2, usize::try_from(n).unwrap()),
            )
        })
        .collect();
    let parts: Vec<_> = parts
        .iter()
        .map(|(name, dtype, shape, bytes)| (&**name, *dtype, *shape, bytes.clone()))
        .collect();
    described_file(&description, ("I8", &[16, 16]), &parts)
}
#[test]
fn preshuffled_codes_are_decoded_in_cuda_layout_or_refused() {
    let bf16: [(&str, &str, &[u64]); 2] = [
        ("group_scale", "BF16", &[2, 16]),
        ("group_zero", "BF16", &[2, 16]),
    ];
    let fp8: [(&str, &str, &[u64]); 2] = [
        ("group_scale", "F8_E4M3", &[2, 8, 16]),
        ("row_scale", "F32", &[16]),
    ];
    for parts in [bf16, fp8] {
        let file = preshuffled(&[16, 32], 16, &parts);
        assert_eq!(dequantised(file.clone(), "{}", "a.fc.weight").0, [16, 32]);
        assert!(plan_notes(file, "{}").join("").contains("ROCm"));
        refusal(preshuffled(&[16, 32], 12, &parts), "{}", WEIGHT);
        refusal(preshuffled(&[32, 16], 16, &parts), "{}", WEIGHT);
        refusal(preshuffled(&[16, 32], 16, &parts[1..]), "{}", WEIGHT);
        refusal(preshuffled(&[16, 32], 16, &parts[..1]), "{}", "a.fc");
    }
    let invalid: [(&str, &str, &[u64]); 5] = [
        ("group_scale", "F8_E4M3", &[2, 16]),
        ("group_scale", "F8_E4M3", &[2, 16, 8]),
        ("group_scale", "F8_E5M2", &[2, 8, 16]),
        ("group_scale", "BF16", &[2, 8, 16]),
        ("group_scale", "F8_E4M3", &[1, 8, 16]),
    ];
    for scale in invalid {
        refusal(
            preshuffled(&[16, 32], 16, &[scale, fp8[1]]),
            "{}",
            "group_scale",
        );
    }
    refusal(
        preshuffled(&[16, 32], 16, &[fp8[0], ("row_scale", "F32", &[32])]),
        "{}",
        "row_scale",
    );
    refusal(
        preshuffled(&[16, 32], 16, &[("group_scale", "BF16", &[16, 2]), bf16[1]]),
        "{}",
        "group_scale",
    );
    // incomplete tiles of the layout: 12 rows of 32 columns, and 48 columns for FP8 activations
    let description = class_description("Int4PreshuffledTensor", r#""block_size":[1,16]"#);
    let part = |name, dtype, shape, n| (name, dtype, shape, random_bytes(2, n));
    let factors = [
        part("a.fc._weight_group_scale", "F32", &[2, 12][..], 96),
        part("a.fc._weight_group_zero", "F32", &[2, 12], 96),
    ];
    refusal(
        described_file(&description, ("I8", &[12, 16]), &factors),
        "{}",
        WEIGHT,
    );
    let factors = [
        part("a.fc._weight_group_scale", "F8_E4M3", &[3, 8, 16][..], 384),
        part("a.fc._weight_row_scale", "F32", &[16], 64),
    ];
    refusal(
        described_file(&description, ("I8", &[16, 24]), &factors),
        "{}",
        WEIGHT,
    );
    refusal(
        described_file(&description, ("F8_E4M3", &[16, 24]), &factors),
        "{}",
        WEIGHT,
    );
}

#[test]
fn int4_words_with_integer_zero_points_of_32_bits_are_refused() {
    // Int4PlainInt32Tensor has I8 zero points for XPU and float ones for NPU
    let message = refusal(int4_int32_file("I32", vec![0; 32]), "{}", "zero_point");
    assert!(
        message.contains("XPU") && message.contains("NPU"),
        "{message}"
    );
}
