//! Settings, markers and descriptions of weights: one that says what the file does not have, or what is not known, is refused or
//! named; one that is off, or known to be harmless, changes no byte.

use serde_json::{Map, Value, json};

use anamnesis::{Checkpoint, ErrorKind};

use super::{StoredCheckpoint, mentions, outputs};
use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

/// A change of a fixture.
type Change = Box<dyn Fn(&mut StoredCheckpoint)>;

/// The result for a changed fixture.
enum Said {
    /// A weight is refused, with this text.
    Refused(&'static str),
    /// A warning has this text, and no weight is refused.
    Warned(&'static str),
    /// Nothing, and no byte is another.
    Nothing,
}
use Said::{Nothing, Refused, Warned};

fn all(changes: Vec<Change>) -> Change {
    Box::new(move |stored| changes.iter().for_each(|change| change(stored)))
}

/// Sets the value at a path of the configuration; a number of the path is a position of a list.
fn set(path: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        let changed = stored.change_settings(&|map| {
            let mut steps = path.split('/').peekable();
            let mut at = map;
            while let Some(step) = steps.next() {
                if steps.peek().is_none() {
                    at.insert(step.to_owned(), value.clone());
                    return;
                }
                at = at
                    .entry(step)
                    .or_insert_with(|| json!({}))
                    .as_object_mut()
                    .unwrap();
            }
        });
        assert!(changed, "no configuration");
    })
}

/// Removes the tensors whose names end so.
fn remove(end: &'static str) -> Change {
    Box::new(move |stored| {
        let before = stored.tensors.len();
        stored.tensors.retain(|tensor| !tensor.name.ends_with(end));
        assert!(stored.tensors.len() < before, "no {end}");
    })
}

/// Changes the JSON text of the tensors whose names have this text.
fn describe(part: &'static str, key: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        let mut tensors = stored.tensors.iter_mut();
        let tensor = tensors.find(|tensor| tensor.name.contains(part)).unwrap();
        let mut map: Map<String, Value> = serde_json::from_slice(&tensor.bytes).unwrap();
        map.insert(key.to_owned(), value.clone());
        tensor.bytes = serde_json::to_vec(&map).unwrap();
        tensor.shape = vec![tensor.bytes.len() as u64];
    })
}

fn mark(key: &'static str, value: Value) -> Change {
    describe(".comfy_quant", key, value)
}

/// Sets a text of the metadata.
fn metadata(key: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        let text = json!(value.to_string());
        stored.metadata.insert(key.to_owned(), text);
    })
}

/// Changes the attributes of torchao's tensors.
fn attribute(path: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        for text in stored.metadata.values_mut() {
            let Ok(mut description) = serde_json::from_str::<Value>(text.as_str().unwrap()) else {
                continue;
            };
            if description.get("_data").is_some_and(Value::is_object) {
                *description.pointer_mut(path).unwrap() = value.clone();
                *text = json!(description.to_string());
            }
        }
    })
}

fn rename(from: &'static str, to: &'static str) -> Change {
    Box::new(move |stored| {
        let mut tensors = stored.tensors.iter_mut();
        let tensor = tensors.find(|tensor| tensor.name.ends_with(from)).unwrap();
        tensor.name = tensor.name.replace(from, to);
    })
}

fn check(cases: Vec<(&str, Change, Said)>) {
    let mut failures = Vec::new();
    for (i, (path, change, said)) in cases.into_iter().enumerate() {
        let intact = StoredCheckpoint::read(&fixture(&format!("quant/{path}/model.safetensors")));
        let mut changed = intact.clone();
        change(&mut changed);
        let made = |stored: &StoredCheckpoint| {
            let directory = ScratchDir::new("descriptors");
            let path = stored.write(&directory, "model.safetensors");
            outputs(&Checkpoint::open(path).unwrap())
        };
        let ((_, before), (plan, after)) = (made(&intact), made(&changed));
        let fine = match said {
            Refused(text) => {
                let known = plan
                    .refused
                    .iter()
                    .all(|r| matches!(r.error.kind(), ErrorKind::Unexplained(_)));
                !plan.refused.is_empty() && known && mentions(&plan, text)
            }
            Warned(text) => plan.refused.is_empty() && mentions(&plan, text),
            Nothing => {
                let same = before.iter().all(|output| after.contains(output));
                plan.refused.is_empty() && plan.unexplained.is_empty() && same
            }
        };
        if !fine {
            let refused: Vec<String> = plan.refused.iter().map(|r| r.error.to_string()).collect();
            failures.push(format!("{i} {path}: {refused:?} {:?}", plan.unexplained));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn parts_that_settings_demand_are_missed() {
    // a setting of the weights of all groups
    let groups = |key: &'static str, value: Value| -> Change {
        Box::new(move |stored| {
            let changed = stored.change_settings(&|map| {
                for group in map["config_groups"].as_object_mut().unwrap().values_mut() {
                    group["weights"][key] = value.clone();
                }
            });
            assert!(changed, "no configuration");
        })
    };
    let order = |value: Value| groups("actorder", value);
    let symmetric = |value: Value| groups("symmetric", value);
    let other = |bits: u64, symmetric: bool| {
        let weights = json!({"num_bits": bits, "type": "int", "symmetric": symmetric});
        set("config_groups/group_9/weights", weights)
    };
    let no_index = Refused("`weight_g_idx` is missing");

    check(vec![
        (
            "ct_written/w4a16_sym_g128",
            symmetric(json!(false)),
            Refused("`symmetric`: false"),
        ),
        (
            "ct_written/w8a16_sym_g128",
            symmetric(json!(false)),
            Refused("`weight_zero_point` is missing"),
        ),
        (
            "ct_written/int8_channel_bf16",
            symmetric(json!(false)),
            Refused("`weight_zero_point` is missing"),
        ),
        (
            "ct_written/w4a16_sym_g128",
            symmetric(json!("False")),
            Refused("`weight_zero_point` is missing"),
        ),
        // groups of another width say nothing, and those that differ leave it open
        ("ct_written/w4a16_sym_g128", other(8, false), Nothing),
        ("ct_written/w4a16_sym_g128", other(4, false), Nothing),
        // a zero point that the configuration does not mention is used
        (
            "ct_written/w4a16_asym_g128",
            symmetric(json!(true)),
            Nothing,
        ),
        (
            "ct/g_idx",
            all(vec![order(json!("group")), remove(".weight_g_idx")]),
            no_index,
        ),
        (
            "ct_written/w4a16_sym_g128",
            order(json!("dynamic")),
            Refused("`actorder`: dynamic"),
        ),
        (
            "ct_written/w4a16_sym_g128",
            order(json!(true)),
            Refused("`actorder`: true"),
        ),
        ("ct_written/w4a16_sym_g128", order(json!("weight")), Nothing),
        ("ct_written/w4a16_sym_g128", order(json!("static")), Nothing),
        // one group for all columns
        ("ct_written/w4a16_channel", order(json!("group")), Nothing),
        (
            "quark/uint4_group_order",
            remove(".weight_zero_point"),
            Refused("`symmetric`: false"),
        ),
        (
            "quark_more/scales_int4_per_group_fp8_e4m3",
            remove(".weight_scale_2"),
            Refused("`weight_scale_2` is missing"),
        ),
        (
            "torchao/int4",
            remove("_zero_point"),
            Refused("`zero_point` is missing"),
        ),
        (
            "torchao/nvfp4",
            remove("_per_tensor_scale"),
            Refused("`per_tensor_scale` is missing"),
        ),
        (
            "mlx/affine4_g64",
            remove(".biases"),
            Refused("`biases` is missing"),
        ),
        (
            "bnb/nf4_bf16",
            rename("__nf4", "__nf3"),
            Refused("its quant_state is of `nf3`"),
        ),
        (
            "field/modelopt-compressed-fp8",
            remove("._scale"),
            Refused("weight_quantizer._scale"),
        ),
        (
            "field/comfy-scaled-fp8-old",
            remove("q.scale_weight"),
            Refused("it has no scale"),
        ),
    ]);
}

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
fn descriptors_are_compared_with_what_their_writers_have() {
    let mlx = "mlx/affine4_g64";
    let observer = "config_groups/group_0/weights/observer_kwargs";
    check(vec![
        (
            "bnb/nf4_dq_bf16",
            describe("quant_state", "transform", json!("hadamard")),
            Refused("`transform`"),
        ),
        (
            "bnb/nf4_dq_bf16",
            describe("quant_state", "writer", json!("x")),
            Warned("`writer`"),
        ),
        (
            "bnb/nf4_dq_bf16",
            describe("quant_state", "transform", json!(null)),
            Nothing,
        ),
        (
            "torchao/int4",
            attribute(
                "/_data",
                json!({"block_size": [1, 32], "shape": [12, 96], "rotation": 4}),
            ),
            Refused("`_data.rotation`: 4"),
        ),
        (
            "ct_written/fp8_channel_bf16",
            set(observer, json!({"rotation": true})),
            Refused("observer_kwargs.rotation"),
        ),
        (
            "ct_written/fp8_channel_bf16",
            set(observer, json!({"maxshrink": 0.2})),
            Nothing,
        ),
        (
            "ct_written/fp8_channel_bf16",
            set("config_groups/group_0/weights/scale_dtype", json!("float9")),
            Warned("scale_dtype"),
        ),
        (
            "ct_written/fp8_channel_bf16",
            set(
                "config_groups/group_0/weights/scale_dtype",
                json!("torch.bfloat16"),
            ),
            Nothing,
        ),
        (
            "ct_written/fp8_channel_bf16",
            set("rotation_size", json!(0)),
            Nothing,
        ),
        (
            "ct_written/fp8_channel_bf16",
            set("rotation_size", json!(64)),
            Refused("`rotation_size`: 64"),
        ),
        (mlx, set("rotate", json!(true)), Refused("`rotate`: true")),
        (
            mlx,
            set("hadamard", json!(true)),
            Refused("`hadamard`: true"),
        ),
        (
            mlx,
            set("compiled", json!(true)),
            Warned("`compiled`: true"),
        ),
        (
            mlx,
            set("model.layers.0.mlp.down_proj", json!(true)),
            Nothing,
        ),
        (mlx, set("layers.0.mlp.down_proj", json!(true)), Nothing),
        (mlx, set("model.embed_tokens", json!(true)), Nothing),
        (
            "quark/fp4",
            set("algo_config", json!([{"name": "gptq", "block_size": 128}])),
            Nothing,
        ),
        (
            "quark/fp4",
            set("algo_config", json!({"name": "gptq", "block_size": 128})),
            Nothing,
        ),
        (
            "quark/fp4",
            set("algo_config", json!([{"name": "rotation"}])),
            Refused("\"rotation\""),
        ),
        (
            "autoround/auto_gptq",
            set("enable_torch_compile", json!(true)),
            Nothing,
        ),
        (
            "autoround/auto_gptq",
            set("damp_percent", json!(0.01)),
            Nothing,
        ),
        (
            "gptq/4bit_act_asym_v1",
            set("checkpoint_format", json!("gptq_v3")),
            Refused("`gptq_v3`"),
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
