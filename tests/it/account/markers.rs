//! Markers of ComfyUI's layers: values of another type, options of another format and unknown keys are refused or named.

use anamnesis::Checkpoint;
use serde_json::{Value, json};

use super::StoredCheckpoint;
use super::changes::{all, check, mark, metadata, remove};
use super::said::Said::{Nothing, Refused, Warned};
use super::said::{mentions, outputs};
use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

#[test]
fn values_of_markers_have_their_types() {
    let int8 = "field/comfy-int8-convrot64";
    let layer = |marker: Value| {
        let layers = json!({"format_version": "1.0", "layers": {"b.0.q": marker}});
        metadata("_quantization_metadata", layers)
    };
    let rotated = json!({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 64});
    let with = |key: &'static str, value: Value| {
        let mut whole =
            json!({"format_version": "1.0", "layers": {"b.0.q": {"format": "int8_tensorwise"}}});
        whole[key] = value;
        let header = metadata("_quantization_metadata", whole);
        all(vec![remove(".comfy_quant"), header])
    };
    check(vec![
        (
            int8,
            mark("convrot", json!("true")),
            Refused("`convrot`: \"true\""),
        ),
        (int8, mark("convrot", json!(1)), Refused("`convrot`: 1")),
        (
            int8,
            mark("convrot", json!([true])),
            Refused("`convrot`: [true]"),
        ),
        (
            int8,
            mark("convrot_groupsize", json!("64")),
            Refused("`convrot_groupsize`: \"64\""),
        ),
        (
            int8,
            mark("convrot_groupsize", json!(64.5)),
            Refused("`convrot_groupsize`: 64.5"),
        ),
        (
            int8,
            mark("params", json!(3)),
            Refused("params of its marker"),
        ),
        (
            int8,
            mark("format", json!("int8_hexagon")),
            Refused("`int8_hexagon`"),
        ),
        (int8, mark("orig_dtype", json!("torch.bfloat16")), Nothing),
        (int8, mark("orig_shape", json!([48, 128])), Nothing),
        (
            int8,
            mark("orig_shape", json!([48, 100])),
            Refused("orig_shape [48, 100]"),
        ),
        (int8, mark("new", json!(null)), Nothing),
        (int8, mark("new", json!(1)), Refused("`new`: 1")),
        (
            "field/comfy-nvfp4-160x96",
            mark("group_size", json!(16)),
            Nothing,
        ),
        (
            "field/comfy-nvfp4-160x96",
            mark("group_size", json!(32)),
            Refused("group_size 32 of nvfp4"),
        ),
        (
            "field/comfy-nvfp4-160x96",
            mark("convrot", json!(true)),
            Refused("convrot of nvfp4"),
        ),
        // header and tensor
        (int8, layer(rotated), Nothing),
        (
            int8,
            layer(json!({"format": "int8_tensorwise"})),
            Refused("differ in `convrot`"),
        ),
        (
            int8,
            layer(json!({"format": "float8_e4m3fn"})),
            Refused("differ in `format`"),
        ),
        (
            int8,
            with("rotation", json!("hadamard")),
            Refused("`rotation`: \"hadamard\""),
        ),
        (
            int8,
            with("format_version", json!("2.0")),
            Refused("`format_version`: \"2.0\""),
        ),
        (int8, with("writer", json!("x")), Warned("`writer`: \"x\"")),
        // a marker under another name in a file with markers
        (
            int8,
            all(vec![
                remove(".comfy_quant"),
                metadata(
                    "_quantization_metadata",
                    json!({"layers": {"m.b.0.q": {"format": "int8_tensorwise"}}}),
                ),
            ]),
            Refused("`comfy_quant` is missing"),
        ),
    ]);
}

#[test]
fn padding_is_cut_by_the_shape_of_a_marker() {
    for (path, [rows, cols], [high, wide]) in [
        ("field/comfy-nvfp4-160x96", [160, 96], [150, 90]),
        ("field/comfy-nvfp4-160x96", [160, 96], [129, 81]),
        ("field/comfy-mxfp8-96x160-u8", [96, 160], [91, 150]),
    ] {
        let made = |size: Option<[usize; 2]>| {
            let file = fixture(&format!("quant/{path}/model.safetensors"));
            let mut stored = StoredCheckpoint::read(&file);
            if let Some(size) = size {
                mark("orig_shape", json!(size))(&mut stored);
            }
            let directory = ScratchDir::new("descriptors");
            let path = stored.write(&directory, "model.safetensors");
            let (plan, outputs) = outputs(&Checkpoint::open(path).unwrap());
            let weight = |(name, _): &(String, Vec<u8>)| {
                name.ends_with("q.weight") || name.ends_with("w.weight")
            };
            (
                plan,
                outputs.into_iter().find(weight).map(|(_, bytes)| bytes),
            )
        };
        let whole = made(None).1.unwrap();
        assert_eq!(whole.len(), rows * cols * 2);
        let cut = made(Some([high, wide])).1.unwrap();
        let lines = whole.chunks(cols * 2).take(high);
        let expected: Vec<u8> = lines.flat_map(|line| &line[..wide * 2]).copied().collect();
        assert!(cut == expected, "{path} {high} {wide}");
        // padding is less than a group of columns, and no size is larger than stored
        for other in [[rows, cols - 32], [rows + 1, cols], [0, cols], [cols, rows]] {
            let (plan, _) = made(Some(other));
            assert_eq!(plan.refused.len(), 1, "{path} {other:?}");
            assert!(mentions(&plan, "orig_shape"), "{path} {other:?}");
        }
    }
}
