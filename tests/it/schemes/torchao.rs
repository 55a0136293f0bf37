//! torchao's tensor classes in safetensors and PyTorch files: against reference outputs of torchao, against the formulas, and
//! descriptions that are refused.

mod int4;

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, compare_with_oracles, dequantised, f32_bytes, i64_bytes, random_scales,
    refusal, safetensors_with,
};

const WEIGHT: &str = "a.fc._weight";

#[test]
fn weights_equal_reference_outputs_of_torchao() {
    assert_eq!(compare_with_oracles("torchao"), 15);
}

/// Files of `torch.save`: zip archives with two pickle protocols, the legacy container, and classes of torchao 0.13.
#[test]
fn pickled_weights_equal_reference_outputs_of_torchao() {
    assert_eq!(compare_with_oracles("torchao_pickled"), 5);
}

/// A file of one weight whose class and attributes are this description.
fn described_file(
    description: &str,
    qdata: (&str, &[u64]),
    parts: &[(&str, &str, &[u64], Vec<u8>)],
) -> Vec<u8> {
    // every part is listed, as torchao lists them
    let names = parts.iter().map(|part| &part.0["a.fc._weight_".len()..]);
    let names: Vec<&str> = std::iter::once("qdata").chain(names).collect();
    let names = serde_json::json!(names).to_string();
    let description = description.replace(r#"["qdata","scale"]"#, &names);
    file_of_description(&description, qdata, parts)
}

/// The same, of which the description says itself which parts there are.
fn file_of_description(
    description: &str,
    qdata: (&str, &[u64]),
    parts: &[(&str, &str, &[u64], Vec<u8>)],
) -> Vec<u8> {
    let metadata =
        serde_json::json!({"a.fc.weight": description, "tensor_names": "[\"a.fc.weight\"]"})
            .to_string();
    let n = usize::try_from(qdata.1.iter().product::<u64>()).unwrap();
    let mut tensors = vec![("a.fc._weight_qdata", qdata.0, qdata.1, random_bytes(1, n))];
    tensors.extend(parts.iter().cloned());
    safetensors_with(&metadata, &tensors)
}

/// The description of a tensor of this class with these attributes, as torchao writes it to `__metadata__`.
fn class_description(name: &str, attributes: &str) -> String {
    format!(
        r#"{{"_type":"{name}","_data":{{{attributes}}},"_tensor_data_names":["qdata","scale"]}}"#
    )
}

#[test]
fn float_zero_points_are_subtracted_before_the_scale() {
    let description = class_description("IntxUnpackedToInt8Tensor", r#""block_size":[1,16]"#);
    let (scales, zero_points) = (random_scales(2, 8), random_scales(3, 8));
    let parts = [
        ("a.fc._weight_scale", "F32", &[4, 2][..], f32_bytes(&scales)),
        (
            "a.fc._weight_zero_point",
            "F32",
            &[4, 2],
            f32_bytes(&zero_points),
        ),
    ];
    let (shape, values) = dequantised(
        described_file(&description, ("I8", &[4, 32]), &parts),
        "{}",
        "a.fc.weight",
    );
    let codes = random_bytes(1, 128);
    assert_eq!(shape, [4, 32]);
    let value =
        |i: usize| (f32::from(codes[i].cast_signed()) - zero_points[i / 16]) * scales[i / 16];
    assert_same_bits(&values, &(0..128).map(value).collect::<Vec<_>>());
}

#[test]
fn parts_that_the_description_does_not_list_are_refused() {
    let description = class_description("Int8Tensor", r#""block_size":[1,32]"#);
    let scale = (
        "a.fc._weight_scale",
        "F32",
        &[4, 1][..],
        f32_bytes(&[1.0; 4]),
    );
    for (part, shape) in [
        ("a.fc._weight_act_pre_scale", &[32][..]),
        ("a.fc._weight_per_tensor_scale", &[]),
        ("a.fc._weight_zero_point", &[4, 1]),
        ("a.fc._weight_act_per_tensor_scale", &[]),
    ] {
        let elements = usize::try_from(shape.iter().product::<u64>()).unwrap();
        let parts = [
            scale.clone(),
            (part, "F32", shape, f32_bytes(&vec![2.0; elements])),
        ];
        let listed = described_file(&description, ("I8", &[4, 32]), &parts);
        dequantised(listed, "{}", "a.fc.weight");
        let unlisted = file_of_description(&description, ("I8", &[4, 32]), &parts);
        let message = refusal(unlisted, "{}", WEIGHT);
        assert!(message.contains(part), "{message}");
    }
    let codes_alone = description.replace(r#"["qdata","scale"]"#, r#"["qdata"]"#);
    let file = file_of_description(&codes_alone, ("I8", &[4, 32]), &[scale]);
    let message = refusal(file, "{}", WEIGHT);
    assert!(message.contains("_weight_scale"), "{message}");
}

#[test]
fn unknown_layouts_are_refused() {
    let scale = |dtype: &'static str, shape: &'static [u64], bytes: usize| {
        [("a.fc._weight_scale", dtype, shape, vec![0; bytes])]
    };
    for name in ["Int4OpaqueTensor", "Float8OpaqueTensor", "Other"] {
        let message = refusal(
            described_file(
                &class_description(name, ""),
                ("U8", &[4, 16]),
                &scale("F32", &[4, 2], 32),
            ),
            "{}",
            WEIGHT,
        );
        assert!(message.contains(name), "{message}");
    }
    let description = class_description(
        "Float8Tensor",
        r#""block_size":[1,16],"is_swizzled_scales":true"#,
    );
    let message = refusal(
        described_file(
            &description,
            ("F8_E4M3", &[4, 16]),
            &scale("F32", &[4, 1], 16),
        ),
        "{}",
        WEIGHT,
    );
    assert!(message.contains("swizzled"), "{message}");
}

/// Codes of a weight that was transposed before saving are packed along columns, which the shape shows.
#[test]
fn shape_that_contradicts_the_packed_codes_is_refused() {
    let description = |shape: &str| {
        class_description(
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
        described_file(&description("[4,32]"), ("U8", &[4, 16]), &scale),
        "{}",
        "a.fc.weight",
    );
    for shape in [
        "[8,16]", "[128]", "[4,32,1]", "[4,-32]", "[]", "\"x\"", "null",
    ] {
        let message = refusal(
            described_file(&description(shape), ("U8", &[4, 16]), &scale),
            "{}",
            WEIGHT,
        );
        assert!(message.contains("contiguous"), "{message}");
    }
}

/// An `AffineQuantizedTensor`, the class before torchao 0.14, as the PyTorch reader lists it.
fn affine(data: &str, codes: (&str, &str, &[u64]), zero: (&str, Vec<u8>)) -> Vec<u8> {
    let names = serde_json::json!([codes.0, "scale", "zero_point"]).to_string();
    let description =
        class_description("AffineQuantizedTensor", data).replace(r#"["qdata","scale"]"#, &names);
    let metadata =
        serde_json::json!({"a.fc.weight": description, "tensor_names": "[]"}).to_string();
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
fn affine_tensors_subtract_integer_zero_points() {
    let data = |domain: u32| {
        format!(
            r#""block_size":[1,16],"shape":[4,32],"zero_point_domain":{{"_type":"ZeroPointDomain","_data":{domain}}}"#
        )
    };
    let (codes, scales, zero_points) = (
        random_bytes(1, 128),
        random_scales(2, 8),
        random_bytes(3, 8),
    );
    let zeros: Vec<i64> = zero_points
        .iter()
        .map(|byte| i64::from(byte.cast_signed()))
        .collect();
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
        let value =
            |i: usize| (code(i) - f32::from(zero_points[i / 16].cast_signed())) * scales[i / 16];
        assert_same_bits(&values, &(0..128).map(value).collect::<Vec<_>>());
    }
    let refused = |data: &str, codes| {
        refusal(
            affine(data, codes, ("I64", i64_bytes(&zeros))),
            "{}",
            WEIGHT,
        )
    };
    let message = refused(&data(2), ("int_data", "I8", &[4, 32]));
    assert!(message.contains("zero point domain"), "{message}");
    refused(&data(1), ("packed_weight", "I8", &[4, 32]));
    refused(&data(1), ("int_data", "I8", &[4, 48]));
    refused(
        &(data(1) + r#","transposed":true"#),
        ("int_data", "I8", &[4, 32]),
    );
}

#[test]
fn opaque_intx_tensor_is_refused_with_a_remedy() {
    let metadata =
        serde_json::json!({"a.fc.weight": class_description("IntxOpaqueTensor", ""), "tensor_names": "[]"})
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
    let message = refusal(file, "{}", "a.fc._weight_packed_weights");
    assert!(message.contains("IntxUnpackedToInt8Tensor"), "{message}");
}

#[test]
fn swizzled_scales_give_the_weights_of_plain_scales() {
    // 130 rows of 6 scales: 2 x 2 blocks of 128 x 4
    let (rows, groups) = (130, 6);
    let description = class_description(
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
    let (_, values) = dequantised(
        described_file(&description, ("U8", &[130, 48]), &parts),
        "{}",
        "a.fc.weight",
    );
    let mut scales = Vec::new();
    for r in 0..rows {
        scales.extend(
            (0..groups).map(|g| {
                stored[(r / 128 * 2 + g / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + g % 4]
            }),
        );
    }
    let plain = class_description(
        "NVFP4Tensor",
        r#""block_size":16,"is_swizzled_scales":false"#,
    );
    let parts = [("a.fc._weight_scale", "F8_E4M3", &[130, 6][..], scales)];
    assert_same_bits(
        &values,
        &dequantised(
            described_file(&plain, ("U8", &[130, 48]), &parts),
            "{}",
            "a.fc.weight",
        )
        .1,
    );
    let short = [("a.fc._weight_scale", "F8_E4M3", &[130, 6][..], vec![0; 780])];
    refusal(
        described_file(&description, ("U8", &[130, 48]), &short),
        "{}",
        "a.fc._weight_scale",
    );
}

#[test]
fn act_pre_scale_multiplies_columns() {
    let description = class_description("Int8Tensor", r#""block_size":[1,32]"#);
    let (scales, act_pre_scales) = (random_scales(2, 4), random_scales(3, 32));
    let parts = [
        ("a.fc._weight_scale", "F32", &[4, 1][..], f32_bytes(&scales)),
        (
            "a.fc._weight_act_pre_scale",
            "F32",
            &[32],
            f32_bytes(&act_pre_scales),
        ),
    ];
    let (_, values) = dequantised(
        described_file(&description, ("I8", &[4, 32]), &parts),
        "{}",
        "a.fc.weight",
    );
    let codes = random_bytes(1, 128);
    let value =
        |i: usize| f32::from(codes[i].cast_signed()) * scales[i / 32] * act_pre_scales[i % 32];
    assert_same_bits(&values, &(0..128).map(value).collect::<Vec<_>>());
    let invalid = [
        parts[0].clone(),
        (
            "a.fc._weight_act_pre_scale",
            "F32",
            &[4],
            f32_bytes(&scales),
        ),
    ];
    refusal(
        described_file(&description, ("I8", &[4, 32]), &invalid),
        "{}",
        "act_pre_scale",
    );
}

#[test]
fn descriptions_that_contradict_the_parts_are_refused() {
    let description = |block: &str| {
        class_description(
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
            described_file(&description(block), ("U8", &[4, 16]), &scale),
            "{}",
            "a.fc._weight_scale",
        );
    }
    refusal(
        described_file(&description("16"), ("I8", &[4, 16]), &scale),
        "{}",
        WEIGHT,
    );
    refusal(
        described_file(&description("16"), ("U8", &[4, 16]), &[]),
        "{}",
        WEIGHT,
    );
    for message in ["", "{", "[]", "{}"] {
        refusal(
            described_file(message, ("U8", &[4, 16]), &scale),
            "{}",
            WEIGHT,
        );
    }
    let global = [
        scale[0].clone(),
        ("a.fc._weight_per_tensor_scale", "F32", &[2], vec![0; 8]),
    ];
    refusal(
        described_file(&description("16"), ("U8", &[4, 16]), &global),
        "{}",
        "per_tensor_scale",
    );
    let description = class_description("Int8Tensor", r#""block_size":[1,32]"#);
    let parts = [
        ("a.fc._weight_scale", "F32", &[4, 1][..], vec![0; 16]),
        ("a.fc._weight_zero_point", "I8", &[4, 2], vec![0; 8]),
    ];
    refusal(
        described_file(&description, ("I8", &[4, 32]), &parts),
        "{}",
        "zero_point",
    );
    refusal(
        described_file(&description, ("F8_E4M3", &[4, 32]), &parts[..1]),
        "{}",
        WEIGHT,
    );
    refusal(
        described_file(
            &description,
            ("I8", &[4, 32]),
            &[("a.fc._weight_scale", "F32", &[3, 1], vec![0; 12])],
        ),
        "{}",
        WEIGHT,
    );
    // the configuration names torchao, and the header has no description
    let bare = safetensors_with(
        "{}",
        &[
            ("a.fc._weight_qdata", "I8", &[4, 32], random_bytes(1, 128)),
            parts[0].clone(),
        ],
    );
    let message = refusal(
        bare,
        r#"{"quantization_config":{"quant_method":"torchao"}}"#,
        WEIGHT,
    );
    assert!(message.contains("missing"), "{message}");
}

/// Each file of a sharded checkpoint describes its own tensors.
#[test]
fn sharded_checkpoint_is_described_by_the_metadata_of_each_shard() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("torchao_shards");
    std::fs::create_dir_all(&folder).unwrap();
    let description = class_description("Int8Tensor", r#""block_size":[1,32]"#);
    let mut weights = serde_json::Map::new();
    for (i, name) in ["a.fc", "b.fc"].iter().enumerate() {
        let file = format!("model-0000{}-of-00002.safetensors", i + 1);
        let [codes, scale] = ["qdata", "scale"].map(|part| format!("{name}._weight_{part}"));
        let metadata =
            serde_json::json!({format!("{name}.weight"): &description, "tensor_names": "[]"})
                .to_string();
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
