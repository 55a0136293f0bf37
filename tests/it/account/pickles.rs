//! Values, sections and containers of pickles: a scale or a marker need not be a tensor, and a scale need not be beside its weight.

use anamnesis::{Checkpoint, remember};
use serde_json::{Value, json};

use super::StoredCheckpoint;
use super::said::Said::{self, Nothing, Refused, Warned};
use super::said::statements;
use super::uploads::{Row, hold_in, stored, with_file, with_metadata};
use crate::support::fixture;

const MODULE: &str = "model.layers.0.mlp.down_proj";

fn hold(cases: Vec<(&[Row], Value, Said)>) {
    let cases = cases.into_iter();
    hold_in(
        "model.pth",
        cases.map(|(rows, values, said)| {
            let case = format!("{} {values}", rows[0].0);
            (case, with_metadata(stored(rows), values), said)
        }),
    );
}

#[test]
fn scales_and_markers_that_are_no_tensors() {
    let fp8: &[Row] = &[("model.layers.0.mlp.down_proj.weight", "F8_E4M3", &[24, 96])];
    let int8: &[Row] = &[
        ("x.weight", "I8", &[24, 64]),
        ("x.weight_scale", "F32", &[24, 1]),
    ];
    let marker = json!({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 64});
    let at = |name: &str, value: Value| json!({format!("{MODULE}.{name}"): value});
    hold(vec![
        (
            fp8,
            at("weight_scale", json!(0.02)),
            Refused("weight_scale"),
        ),
        (fp8, at("scale_f", json!(0.02)), Refused("scale_f")),
        (fp8, at("block", json!(128)), Warned("block")),
        (fp8, at("eps", json!(null)), Nothing),
        (fp8, json!({"scales": [0.1, 0.2]}), Warned("`scales`")),
        // under the key of the weight in another dictionary
        (
            fp8,
            json!({"scales.layers.0.mlp.down_proj.weight": 0.02}),
            Refused("scales.layers.0.mlp.down_proj.weight"),
        ),
        (
            fp8,
            json!({"scales.layers.0.mlp.down_proj": 0.02}),
            Refused("scales.layers.0.mlp.down_proj"),
        ),
        (
            fp8,
            json!({"logit_scale": 4.6, "scaler": {"scale": 65536.0}}),
            Nothing,
        ),
        (
            int8,
            json!({"x.comfy_quant": marker}),
            Refused("x.comfy_quant"),
        ),
        (
            int8,
            json!({"x.comfy_quant": marker.to_string()}),
            Refused("x.comfy_quant"),
        ),
        (
            int8,
            json!({"_quantization_metadata": {"layers": {"x": marker}}}),
            Refused("_quantization_metadata"),
        ),
        (
            int8,
            json!({"x.rotation": "hadamard"}),
            Refused("x.rotation"),
        ),
    ]);
}

#[test]
fn configurations_inside_of_a_pickle() {
    let gptq = fixture("quant/gptq/4bit_act_asym_v2/model.safetensors");
    let settings =
        |section: &str| json!({section: {"quant_method": "gptq", "checkpoint_format": "gptq_v2"}});
    let alone = |section: &str| {
        let mut intact = StoredCheckpoint::read(&gptq);
        intact.beside.clear();
        with_metadata(intact, settings(section))
    };
    let beside = with_metadata(
        StoredCheckpoint::read(&gptq),
        settings("quantization_config"),
    );
    hold_in(
        "model.pth",
        [
            (
                "quantization_config",
                alone("quantization_config"),
                Refused("quantization_config."),
            ),
            (
                "quantize_config",
                alone("quantize_config"),
                Refused("quantize_config."),
            ),
            // the file beside it has the settings
            ("both", beside, Warned("quantization_config.")),
        ]
        .map(|(case, stored, said)| (case.to_owned(), stored, said)),
    );
}

#[test]
fn codes_and_scales_in_containers() {
    let plain: Row = ("x.weight", "BF16", &[300, 300]);
    let cases: Vec<(Vec<Row>, Said)> = vec![
        // parallel dictionaries
        (
            vec![
                ("model.layers.0.q.weight", "F8_E4M3", &[24, 96]),
                ("scales.layers.0.q.weight", "F32", &[24, 1]),
            ],
            Refused("`scales.layers.0.q.weight` has its name in another mapping"),
        ),
        (
            vec![
                ("weights.layers.0.q", "F8_E4M3", &[24, 96]),
                ("scales.layers.0.q", "F32", &[24, 1]),
            ],
            Refused("`scales.layers.0.q` has its name in another mapping"),
        ),
        (
            vec![
                ("layers.0.q.qdata", "F8_E4M3", &[24, 96]),
                ("layers.0.q.scale", "F32", &[24, 1]),
            ],
            Warned("layers.0.q.scale"),
        ),
        // tuples and lists
        (
            vec![
                ("q.weight.0", "F8_E4M3", &[24, 96]),
                ("q.weight.1", "F32", &[24, 1]),
            ],
            Refused("q.weight.1"),
        ),
        (
            vec![
                ("q.weight.0", "U8", &[24, 48]),
                ("q.weight.1", "F32", &[24, 3]),
                plain,
            ],
            Refused("q.weight.1"),
        ),
        (
            vec![
                ("layers.0", "I8", &[24, 48]),
                ("layers.1", "BF16", &[24, 1]),
                plain,
            ],
            Refused("layers.1"),
        ),
        // data and labels
        (
            vec![("set.0", "U8", &[24, 48]), ("set.1", "F32", &[24]), plain],
            Nothing,
        ),
        (
            vec![
                ("set.0", "U8", &[24, 48]),
                ("set.1", "F32", &[24, 48]),
                plain,
            ],
            Nothing,
        ),
    ];
    let cases = cases.into_iter();
    hold_in(
        "model.pth",
        cases.map(|(rows, said)| (rows[0].0.to_owned(), stored(&rows), said)),
    );
    let beside = |name| {
        let rows: &[Row] = &[("layers.0.q.weight", "F8_E4M3", &[24, 96])];
        with_file(stored(rows), name, "")
    };
    let files = [
        ("scale.pt", Refused("`scale.pt`")),
        (
            "fp8_scales.safetensors",
            Refused("`fp8_scales.safetensors`"),
        ),
        (
            "model_scales.safetensors",
            Refused("`model_scales.safetensors`"),
        ),
        ("upscale.pt", Warned("`upscale.pt`")),
        ("kv_scales.pt", Nothing),
    ];
    hold_in(
        "model.pth",
        files.map(|(name, said)| (name.to_owned(), beside(name), said)),
    );
}

/// Attributes that `torch.save` keeps with a parameter (`tensor.pth`: a scale that is a tensor; `plain.pth`: Megatron's settings of a
/// float) and with a tensor (`number.pth`: a scale that is a number).
#[test]
fn attributes_of_tensors_are_seen() {
    for (file, said) in [
        ("tensor.pth", Refused("fc.weight.weight_scale")),
        ("number.pth", Refused("fc.weight.scale")),
        ("plain.pth", Nothing),
    ] {
        let path = fixture(&format!("unexplained/attributes/{file}"));
        let checkpoint = Checkpoint::open(&path).unwrap();
        let plan = remember(&checkpoint).plan().unwrap();
        assert!(said.holds(&plan), "{file}: {}", statements(&plan));
        let keys: Vec<&str> = checkpoint
            .catalog()
            .metadata()
            .iter()
            .map(|(key, _)| key)
            .collect();
        assert!(
            keys.iter().all(|key| key.starts_with("fc.weight.")) && !keys.is_empty(),
            "{keys:?}"
        );
    }
}
