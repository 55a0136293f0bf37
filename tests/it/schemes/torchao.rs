//! torchao's flattened tensor classes against reference outputs, and classes that are refused.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, compare_with_oracles, dequantised, f32_bytes, i64_bytes, plan_notes,
    random_scales, refusal, safetensors_with,
};

const NAME: &str = "a.fc._weight";

#[test]
fn reference_outputs_are_met() {
    assert_eq!(compare_with_oracles("torchao"), 15);
}

/// As torch.save has them: zipped, with a newer pickle, in the container before, and those of torchao 0.13.
#[test]
fn pickled_tensors_are_those_of_the_reference() {
    assert_eq!(compare_with_oracles("torchao_pickled"), 5);
}

/// A file whose weight is said to be this.
fn file(said: &str, qdata: (&str, &[u64]), rest: &[(&str, &str, &[u64], Vec<u8>)]) -> Vec<u8> {
    let metadata =
        serde_json::json!({"a.fc.weight": said, "tensor_names": "[\"a.fc.weight\"]"}).to_string();
    let n = usize::try_from(qdata.1.iter().product::<u64>()).unwrap();
    let mut tensors = vec![("a.fc._weight_qdata", qdata.0, qdata.1, random_bytes(1, n))];
    tensors.extend(rest.iter().cloned());
    safetensors_with(&metadata, &tensors)
}

fn class(name: &str, data: &str) -> String {
    format!(r#"{{"_type":"{name}","_data":{{{data}}},"_tensor_data_names":["qdata","scale"]}}"#)
}

#[test]
fn float_zero_points_are_subtracted_before_the_scale() {
    let said = class("IntxUnpackedToInt8Tensor", r#""block_size":[1,16]"#);
    let (s, z) = (random_scales(2, 8), random_scales(3, 8));
    let parts = [
        ("a.fc._weight_scale", "F32", &[4, 2][..], f32_bytes(&s)),
        ("a.fc._weight_zero_point", "F32", &[4, 2], f32_bytes(&z)),
    ];
    let (shape, values) = dequantised(file(&said, ("I8", &[4, 32]), &parts), "{}", "a.fc.weight");
    let codes = random_bytes(1, 128);
    assert_eq!(shape, [4, 32]);
    let value = |i: usize| (f32::from(codes[i].cast_signed()) - z[i / 16]) * s[i / 16];
    assert_same_bits(&values, &(0..128).map(value).collect::<Vec<_>>());
}

#[test]
fn layouts_that_are_not_known_are_refused() {
    let scale = |dtype: &'static str, shape: &'static [u64], bytes: usize| {
        [("a.fc._weight_scale", dtype, shape, vec![0; bytes])]
    };
    for name in ["Int4OpaqueTensor", "Float8OpaqueTensor", "Other"] {
        let text = refusal(
            file(
                &class(name, ""),
                ("U8", &[4, 16]),
                &scale("F32", &[4, 2], 32),
            ),
            "{}",
            NAME,
        );
        assert!(text.contains(name), "{text}");
    }
    let said = class(
        "Float8Tensor",
        r#""block_size":[1,16],"is_swizzled_scales":true"#,
    );
    let text = refusal(
        file(&said, ("F8_E4M3", &[4, 16]), &scale("F32", &[4, 1], 16)),
        "{}",
        NAME,
    );
    assert!(text.contains("swizzled"), "{text}");
    // zero points of neither XPU nor NPUs
    let text = refusal(int4_words("I32", vec![0; 32]), "{}", "zero_point");
    assert!(text.contains("XPU") && text.contains("NPU"), "{text}");
}

/// Words of 8 codes for a kernel, with groups of 32 and zero points of this dtype.
fn int4_words(dtype: &'static str, zeros: Vec<u8>) -> Vec<u8> {
    let said = class(
        "Int4PlainInt32Tensor",
        r#""block_size":[1,32],"shape":[4,64]"#,
    );
    let metadata = serde_json::json!({"a.fc.weight": said, "tensor_names": "[]"}).to_string();
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
fn codes_of_npus_have_a_sign_and_zero_points_that_are_floats() {
    let (codes, s, z) = (
        random_bytes(1, 128),
        random_scales(2, 8),
        random_scales(3, 8),
    );
    let file = int4_words("F32", f32_bytes(&z));
    let (shape, values) = dequantised(file.clone(), "{}", "a.fc.weight");
    assert_eq!(shape, [4, 64]);
    let value = |i: usize| {
        let (nibble, factor) = (codes[i / 2] >> (i % 2 * 4) & 15, i % 64 / 32 * 4 + i / 64);
        (f32::from((nibble << 4).cast_signed() >> 4) - z[factor]) * s[factor]
    };
    assert_same_bits(&values, &(0..256).map(value).collect::<Vec<_>>());
    assert!(plan_notes(file, "{}").join("").contains("NPU"));
}

/// Codes that were turned before they were saved are packed along columns.
#[test]
fn a_shape_that_codes_do_not_have_is_refused() {
    let said = |shape: &str| {
        class(
            "NVFP4Tensor",
            &format!(r#""block_size":16,"is_swizzled_scales":false,"shape":{shape}"#),
        )
    };
    let scale = [
        (
            "a.fc._weight_scale",
            "F8_E4M3",
            &[4, 2][..],
            random_bytes(2, 8),
        ),
        (
            "a.fc._weight_per_tensor_scale",
            "F32",
            &[],
            f32_bytes(&[1.0]),
        ),
    ];
    dequantised(
        file(&said("[4,32]"), ("U8", &[4, 16]), &scale),
        "{}",
        "a.fc.weight",
    );
    for shape in [
        "[8,16]", "[128]", "[4,32,1]", "[4,-32]", "[]", "\"x\"", "null",
    ] {
        let text = refusal(file(&said(shape), ("U8", &[4, 16]), &scale), "{}", NAME);
        assert!(text.contains("contiguous"), "{text}");
    }
}

/// The class of the versions before 0.14, as it is listed where it was pickled.
fn affine(data: &str, codes: (&str, &str, &[u64]), zero: (&str, Vec<u8>)) -> Vec<u8> {
    let said = class("AffineQuantizedTensor", data);
    let metadata = serde_json::json!({"a.fc.weight": said, "tensor_names": "[]"}).to_string();
    let name = format!("a.fc._weight_{}", codes.0);
    let n = usize::try_from(codes.2.iter().product::<u64>()).unwrap();
    let tensors = [
        (&*name, codes.1, codes.2, random_bytes(1, n)),
        (
            "a.fc._weight_scale",
            "F32",
            &[4, 2],
            f32_bytes(&random_scales(2, 8)),
        ),
        ("a.fc._weight_zero_point", zero.0, &[4, 2], zero.1),
    ];
    safetensors_with(&metadata, &tensors)
}

#[test]
fn affine_tensors_subtract_whole_zero_points() {
    let data = |domain: u32| {
        format!(
            r#""block_size":[1,16],"shape":[4,32],"zero_point_domain":{{"_type":"ZeroPointDomain","_data":{domain}}}"#
        )
    };
    let (codes, s, z) = (
        random_bytes(1, 128),
        random_scales(2, 8),
        random_bytes(3, 8),
    );
    let zeros: Vec<i64> = z.iter().map(|z| i64::from(z.cast_signed())).collect();
    for dtype in ["I8", "U8"] {
        let file = affine(
            &data(1),
            ("int_data", dtype, &[4, 32]),
            ("I64", i64_bytes(&zeros)),
        );
        let (shape, values) = dequantised(file, "{}", "a.fc.weight");
        assert_eq!(shape, [4, 32]);
        let code = |i: usize| {
            if dtype == "I8" {
                f32::from(codes[i].cast_signed())
            } else {
                f32::from(codes[i])
            }
        };
        let value = |i: usize| (code(i) - f32::from(z[i / 16].cast_signed())) * s[i / 16];
        assert_same_bits(&values, &(0..128).map(value).collect::<Vec<_>>());
    }
    let refused =
        |data: &str, codes| refusal(affine(data, codes, ("I64", i64_bytes(&zeros))), "{}", NAME);
    let text = refused(&data(2), ("int_data", "I8", &[4, 32]));
    assert!(text.contains("zero point domain"), "{text}");
    refused(&data(1), ("packed_weight", "I8", &[4, 32]));
    refused(&data(1), ("int_data", "I8", &[4, 48]));
    refused(
        &(data(1) + r#","transposed":true"#),
        ("int_data", "I8", &[4, 32]),
    );
}

/// A shuffled weight of 16 rows: its codes, and what goes with them.
fn shuffled(shape: &[u64], group: u64, rest: &[(&str, &str, &[u64])]) -> Vec<u8> {
    let said = class(
        "Int4PreshuffledTensor",
        &format!(r#""block_size":[1,{group}],"shape":{shape:?}"#),
    );
    let bytes = |dtype: &str| anamnesis::Dtype::from_name(dtype).unwrap().bits() / 8;
    let rest: Vec<_> = rest
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
    let rest: Vec<_> = rest
        .iter()
        .map(|(name, dtype, shape, bytes)| (&**name, *dtype, *shape, bytes.clone()))
        .collect();
    file(&said, ("I8", &[16, 16]), &rest)
}

#[test]
fn shuffled_codes_are_read_as_cuda_has_them_or_refused() {
    let bf16: [(&str, &str, &[u64]); 2] = [
        ("group_scale", "BF16", &[2, 16]),
        ("group_zero", "BF16", &[2, 16]),
    ];
    let fp8: [(&str, &str, &[u64]); 2] = [
        ("group_scale", "F8_E4M3", &[2, 8, 16]),
        ("row_scale", "F32", &[16]),
    ];
    for parts in [bf16, fp8] {
        let file = shuffled(&[16, 32], 16, &parts);
        assert_eq!(dequantised(file.clone(), "{}", "a.fc.weight").0, [16, 32]);
        assert!(plan_notes(file, "{}").join("").contains("ROCm"));
        refusal(shuffled(&[16, 32], 12, &parts), "{}", NAME);
        refusal(shuffled(&[32, 16], 16, &parts), "{}", NAME);
        refusal(shuffled(&[16, 32], 16, &parts[1..]), "{}", NAME);
        refusal(shuffled(&[16, 32], 16, &parts[..1]), "{}", "a.fc");
    }
    let wrong: [(&str, &str, &[u64]); 5] = [
        ("group_scale", "F8_E4M3", &[2, 16]),
        ("group_scale", "F8_E4M3", &[2, 16, 8]),
        ("group_scale", "F8_E5M2", &[2, 8, 16]),
        ("group_scale", "BF16", &[2, 8, 16]),
        ("group_scale", "F8_E4M3", &[1, 8, 16]),
    ];
    for scale in wrong {
        refusal(
            shuffled(&[16, 32], 16, &[scale, fp8[1]]),
            "{}",
            "group_scale",
        );
    }
    refusal(
        shuffled(&[16, 32], 16, &[fp8[0], ("row_scale", "F32", &[32])]),
        "{}",
        "row_scale",
    );
    refusal(
        shuffled(&[16, 32], 16, &[("group_scale", "BF16", &[16, 2]), bf16[1]]),
        "{}",
        "group_scale",
    );
    // no whole tiles: 12 rows of 32 columns, and for FP8 inputs 48 columns
    let said = class("Int4PreshuffledTensor", r#""block_size":[1,16]"#);
    let part = |name, dtype, shape, n| (name, dtype, shape, random_bytes(2, n));
    let factors = [
        part("a.fc._weight_group_scale", "F32", &[2, 12][..], 96),
        part("a.fc._weight_group_zero", "F32", &[2, 12], 96),
    ];
    refusal(file(&said, ("I8", &[12, 16]), &factors), "{}", NAME);
    let factors = [
        part("a.fc._weight_group_scale", "F8_E4M3", &[3, 8, 16][..], 384),
        part("a.fc._weight_row_scale", "F32", &[16], 64),
    ];
    refusal(file(&said, ("I8", &[16, 24]), &factors), "{}", NAME);
    refusal(file(&said, ("F8_E4M3", &[16, 24]), &factors), "{}", NAME);
}

#[test]
fn codes_packed_with_their_scales_are_refused_with_a_remedy() {
    let metadata =
        serde_json::json!({"a.fc.weight": class("IntxOpaqueTensor", ""), "tensor_names": "[]"})
            .to_string();
    let file = safetensors_with(
        &metadata,
        &[(
            "a.fc._weight_packed_weights",
            "I8",
            &[400],
            random_bytes(1, 400),
        )],
    );
    let text = refusal(file, "{}", "a.fc._weight_packed_weights");
    assert!(text.contains("IntxUnpackedToInt8Tensor"), "{text}");
}

#[test]
fn scales_in_blocks_are_those_of_rows() {
    // 130 rows of 6 scales: two blocks high, two wide
    let (rows, groups) = (130, 6);
    let said = class(
        "NVFP4Tensor",
        r#""block_size":16,"is_swizzled_scales":true"#,
    );
    let stored = random_bytes(5, 2048)
        .into_iter()
        .map(|b| b & 0x7e)
        .collect::<Vec<_>>();
    let parts = [(
        "a.fc._weight_scale",
        "F8_E4M3",
        &[64, 32][..],
        stored.clone(),
    )];
    let (_, values) = dequantised(file(&said, ("U8", &[130, 48]), &parts), "{}", "a.fc.weight");
    let mut scales = Vec::new();
    for r in 0..rows {
        scales.extend(
            (0..groups).map(|g| {
                stored[(r / 128 * 2 + g / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + g % 4]
            }),
        );
    }
    let plain = class(
        "NVFP4Tensor",
        r#""block_size":16,"is_swizzled_scales":false"#,
    );
    let parts = [("a.fc._weight_scale", "F8_E4M3", &[130, 6][..], scales)];
    assert_same_bits(
        &values,
        &dequantised(
            file(&plain, ("U8", &[130, 48]), &parts),
            "{}",
            "a.fc.weight",
        )
        .1,
    );
    let short = [("a.fc._weight_scale", "F8_E4M3", &[130, 6][..], vec![0; 780])];
    refusal(
        file(&said, ("U8", &[130, 48]), &short),
        "{}",
        "a.fc._weight_scale",
    );
}

#[test]
fn inputs_that_were_multiplied_multiply_columns() {
    let said = class("Int8Tensor", r#""block_size":[1,32]"#);
    let (s, factors) = (random_scales(2, 4), random_scales(3, 32));
    let parts = [
        ("a.fc._weight_scale", "F32", &[4, 1][..], f32_bytes(&s)),
        (
            "a.fc._weight_act_pre_scale",
            "F32",
            &[32],
            f32_bytes(&factors),
        ),
    ];
    let (_, values) = dequantised(file(&said, ("I8", &[4, 32]), &parts), "{}", "a.fc.weight");
    let codes = random_bytes(1, 128);
    let value = |i: usize| f32::from(codes[i].cast_signed()) * s[i / 32] * factors[i % 32];
    assert_same_bits(&values, &(0..128).map(value).collect::<Vec<_>>());
    let wrong = [
        parts[0].clone(),
        ("a.fc._weight_act_pre_scale", "F32", &[4], f32_bytes(&s)),
    ];
    refusal(file(&said, ("I8", &[4, 32]), &wrong), "{}", "act_pre_scale");
}

#[test]
fn descriptions_that_lie_are_refused() {
    let said = |block: &str| {
        class(
            "NVFP4Tensor",
            &format!(r#""block_size":{block},"is_swizzled_scales":false"#),
        )
    };
    let scale = [("a.fc._weight_scale", "F8_E4M3", &[4, 2][..], vec![0; 8])];
    for block in [
        "0",
        "-16",
        "null",
        "8",
        "15",
        "18446744073709551615",
        "[1,16]",
    ] {
        refusal(
            file(&said(block), ("U8", &[4, 16]), &scale),
            "{}",
            "a.fc._weight_scale",
        );
    }
    refusal(file(&said("16"), ("I8", &[4, 16]), &scale), "{}", NAME);
    refusal(file(&said("16"), ("U8", &[4, 16]), &[]), "{}", NAME);
    for text in ["", "{", "[]", "{}"] {
        refusal(file(text, ("U8", &[4, 16]), &scale), "{}", NAME);
    }
    let global = [
        scale[0].clone(),
        ("a.fc._weight_per_tensor_scale", "F32", &[2], vec![0; 8]),
    ];
    refusal(
        file(&said("16"), ("U8", &[4, 16]), &global),
        "{}",
        "per_tensor_scale",
    );
    let said = class("Int8Tensor", r#""block_size":[1,32]"#);
    let parts = [
        ("a.fc._weight_scale", "F32", &[4, 1][..], vec![0; 16]),
        ("a.fc._weight_zero_point", "I8", &[4, 2], vec![0; 8]),
    ];
    refusal(file(&said, ("I8", &[4, 32]), &parts), "{}", "zero_point");
    refusal(file(&said, ("F8_E4M3", &[4, 32]), &parts[..1]), "{}", NAME);
    refusal(
        file(
            &said,
            ("I8", &[4, 32]),
            &[("a.fc._weight_scale", "F32", &[3, 1], vec![0; 12])],
        ),
        "{}",
        NAME,
    );
    // the configuration says torchao, the header says nothing
    let bare = safetensors_with(
        "{}",
        &[
            ("a.fc._weight_qdata", "I8", &[4, 32], random_bytes(1, 128)),
            parts[0].clone(),
        ],
    );
    let text = refusal(
        bare,
        r#"{"quantization_config":{"quant_method":"torchao"}}"#,
        NAME,
    );
    assert!(text.contains("missing"), "{text}");
}

/// Each file of a sharded checkpoint describes its own tensors.
#[test]
fn every_shard_describes_its_weights() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("torchao_shards");
    std::fs::create_dir_all(&folder).unwrap();
    let said = class("Int8Tensor", r#""block_size":[1,32]"#);
    let mut weights = serde_json::Map::new();
    for (i, name) in ["a.fc", "b.fc"].iter().enumerate() {
        let file = format!("model-0000{}-of-00002.safetensors", i + 1);
        let [codes, scale] = ["qdata", "scale"].map(|part| format!("{name}._weight_{part}"));
        let metadata =
            serde_json::json!({format!("{name}.weight"): &said, "tensor_names": "[]"}).to_string();
        let tensors: [(&str, &str, &[u64], Vec<u8>); 2] = [
            (&codes, "I8", &[4, 32], random_bytes(1, 128)),
            (&scale, "F32", &[4, 1], f32_bytes(&random_scales(2, 4))),
        ];
        std::fs::write(folder.join(&file), safetensors_with(&metadata, &tensors)).unwrap();
        weights.extend([(codes, file.clone().into()), (scale, file.into())]);
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": weights}).to_string();
    std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    let checkpoint = anamnesis::Checkpoint::open(&folder).unwrap();
    let plan = anamnesis::remember(&checkpoint).plan().unwrap();
    let names: Vec<_> = plan.jobs.iter().map(|job| &*job.output.name).collect();
    assert_eq!(names, ["a.fc.weight", "b.fc.weight"], "{:?}", plan.refused);
}
