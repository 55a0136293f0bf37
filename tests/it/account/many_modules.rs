//! Configurations of the largest models: every weight is compared with every list, within a small share of the default limits.

use anamnesis::{Checkpoint, Limits, OpenOptions, Usage, remember};
use serde_json::{Map, Value, json};

use crate::support::scratch_dir::ScratchDir;

/// Layers, and experts of each, of the largest published model in integers: 69 000 weights in 207 000 tensors.
const LAYERS: usize = 60;
const EXPERTS: usize = 384;

/// Writes the names of the model, with small shapes, in one file.
fn experts(directory: &ScratchDir, ignore: &[String]) -> Checkpoint {
    let (mut header, mut data) = (Map::new(), Vec::new());
    let mut add = |name: String, dtype: &str, shape: [usize; 2], bytes: &[u8]| {
        let shape = if dtype == "I64" {
            json!([2])
        } else {
            json!(shape)
        };
        let offsets = [data.len(), data.len() + bytes.len()];
        data.extend_from_slice(bytes);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        header.insert(name, entry);
    };
    let sizes = [2u64, 32].map(u64::to_le_bytes).concat();
    for layer in 0..LAYERS {
        let layer = format!("model.layers.{layer}");
        for name in ["q_a_proj", "q_b_proj", "o_proj"] {
            add(
                format!("{layer}.self_attn.{name}.weight"),
                "BF16",
                [1, 2],
                &[0; 4],
            );
        }
        for expert in 0..EXPERTS {
            for name in ["gate", "up", "down"] {
                let module = format!("{layer}.mlp.experts.{expert}.{name}_proj");
                add(format!("{module}.weight_packed"), "I32", [2, 4], &[0; 32]);
                add(format!("{module}.weight_scale"), "BF16", [2, 1], &[63; 4]);
                add(format!("{module}.weight_shape"), "I64", [2, 1], &sizes);
            }
        }
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    file.append(&mut data);
    let path = directory.path("model.safetensors");
    std::fs::write(&path, file).unwrap();
    let weights = json!({"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32});
    let config = json!({"quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
        "ignore": ignore,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }});
    std::fs::write(directory.path("config.json"), config.to_string()).unwrap();
    Checkpoint::open(path).unwrap()
}

#[test]
fn lists_of_the_largest_models_take_a_part_of_the_steps() {
    let published: Vec<String> = [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
    ]
    .map(str::to_owned)
    .into();
    let attention = |begin: &str, point: &str| -> Vec<String> {
        let layers = 0..LAYERS;
        let names =
            layers.flat_map(|layer| ["q_a", "q_b", "kv_a", "kv_b", "o"].map(|name| (layer, name)));
        let names = names.map(|(layer, name)| {
            [
                begin,
                "layers",
                point,
                &layer.to_string(),
                point,
                "self_attn",
                point,
                name,
                "_proj",
            ]
            .concat()
        });
        names.collect()
    };
    let limit = Limits::default().steps;
    for ignore in [
        published,
        attention(r"re:.*\.", r"\."),
        attention("model.", "."),
    ] {
        let directory = ScratchDir::new("many-modules");
        let path = experts(&directory, &ignore).path().unwrap().to_owned();
        let usage = Usage::new();
        let checkpoint = OpenOptions::new().usage(&usage).open(path).unwrap();
        let plan = remember(&checkpoint).plan().unwrap();
        assert!(plan.refused.is_empty() && plan.unexplained.is_empty());
        let made = plan
            .jobs
            .iter()
            .filter(|job| job.scheme == "compressed-tensors");
        assert_eq!(made.count(), 3 * LAYERS * EXPERTS);
        let steps = usage.steps();
        assert!(steps < limit / 10, "{} entries: {steps}", ignore.len());
    }
}
