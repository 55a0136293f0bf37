//! Layouts as people upload them, built in code: each kind is refused or named, and the harmless files beside it are not.

use serde_json::{Value, json};

use super::StoredCheckpoint;
use super::said::Said::{self, Nothing, Refused, Warned};
use super::said::statements;

/// A tensor of a file: name, dtype, shape. Its bytes are small and not zero.
pub(super) type Row = (&'static str, &'static str, &'static [usize]);

pub(super) fn stored(rows: &[Row]) -> StoredCheckpoint {
    let mut stored = StoredCheckpoint::default();
    for (name, dtype, shape) in rows {
        let width = match *dtype {
            "F32" | "I32" | "U32" => 4,
            "BF16" | "F16" | "I16" | "U16" => 2,
            "I64" => 8,
            _ => 1,
        };
        let bytes = vec![1; width * shape.iter().product::<usize>()];
        stored.add_tensor(name, dtype, shape, &bytes);
    }
    stored
}

pub(super) fn with_metadata(mut stored: StoredCheckpoint, metadata: Value) -> StoredCheckpoint {
    stored.metadata = metadata.as_object().unwrap().clone();
    stored
}

pub(super) fn with_file(mut stored: StoredCheckpoint, name: &str, text: &str) -> StoredCheckpoint {
    stored.beside.push((name.to_owned(), text.into()));
    stored
}

pub(super) fn hold(cases: impl IntoIterator<Item = (String, StoredCheckpoint, Said)>) {
    hold_in("model.safetensors", cases);
}

/// Like [`hold`], for a file of this name.
pub(super) fn hold_in(
    file: &str,
    cases: impl IntoIterator<Item = (String, StoredCheckpoint, Said)>,
) {
    let mut failures = Vec::new();
    for (case, stored, said) in cases {
        let plan = stored.plan(file);
        if !said.holds(&plan) {
            failures.push(format!("{case}, {said:?}: {}", statements(&plan)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

const INT8: &[Row] = &[
    ("b.0.q.weight", "I8", &[8, 64]),
    ("b.0.q.weight_scale", "F32", &[8, 1]),
];
const FP8: &[Row] = &[
    ("layers.0.q.weight", "F8_E4M3", &[8, 16]),
    ("layers.0.q.weight_scale", "F32", &[1]),
];

#[test]
fn markers_of_a_header_name_layers() {
    let header = |layer: &str| {
        let layers =
            json!({layer: {"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 64}});
        let text = json!({"format_version": "1.0", "layers": layers}).to_string();
        json!({ "_quantization_metadata": text })
    };
    let cases = [
        ("b.0.q", INT8, Nothing),
        (
            "model.diffusion_model.b.0.q",
            INT8,
            Refused("model.diffusion_model.b.0.q"),
        ),
        ("b.0.q.weight", INT8, Refused("b.0.q.weight` in")),
        ("x.y", INT8, Refused("x.y")),
        ("x.y", &[("norm.weight", "BF16", &[4])], Warned("x.y")),
    ];
    hold(cases.map(|(layer, rows, said)| {
        (
            layer.to_owned(),
            with_metadata(stored(rows), header(layer)),
            said,
        )
    }));
}

#[test]
fn a_configuration_speaks_outside_of_its_sections() {
    let plain: &[Row] = &[("layers.0.q.weight", "BF16", &[8, 16])];
    let cases = [
        (FP8, json!({"rotation": "hadamard"}), Refused("`rotation`")),
        (
            FP8,
            json!({"use_hadamard": true}),
            Refused("`use_hadamard`"),
        ),
        (
            FP8,
            json!({"text_config": {"online_hadamard": 1}}),
            Refused("`online_hadamard`"),
        ),
        (
            FP8,
            json!({"quant_transform": "x"}),
            Refused("`quant_transform`"),
        ),
        (
            FP8,
            json!({"spinquant_config": {"a": 1}}),
            Refused("`spinquant_config`"),
        ),
        (
            FP8,
            json!({"quantization_config": "zz-rot"}),
            Refused("zz-rot"),
        ),
        (
            FP8,
            json!({"quantization_config": [{"bits": 4}]}),
            Refused("a list"),
        ),
        (
            FP8,
            json!({"rotation": false, "use_hadamard": 0, "quantization_config": "none"}),
            Nothing,
        ),
        (
            FP8,
            json!({"transformer_layers": 3, "transforms": ["resize"], "rotary_pct": 0.5, "expert_layer_offset": 1}),
            Nothing,
        ),
        (
            plain,
            json!({"rotation": "hadamard", "quantization_config": "zz"}),
            Nothing,
        ),
    ];
    hold(cases.map(|(rows, config, said)| {
        let text = config.to_string();
        (
            text.clone(),
            with_file(stored(rows), "config.json", &text),
            said,
        )
    }));
}

#[test]
fn a_scale_of_fp8_is_under_another_name_or_missing() {
    let weight = |name| (name, "F8_E4M3", &[8, 16][..]);
    let scale = |name| (name, "F32", &[1][..]);
    let cases = [
        (
            vec![weight("m.l.0.q.weight"), scale("scales.m.l.0.q")],
            Refused("scales.m.l.0.q"),
        ),
        (
            vec![weight("m.l.0.q.weight"), scale("m_l_0_q_weight_scale")],
            Warned("m_l_0_q_weight_scale"),
        ),
        (
            vec![
                weight("l.0.q.weight"),
                scale("l.0.q.weight_scale"),
                weight("l.1.q.weight"),
            ],
            Refused("it has no scale, unlike `l.0.q.weight`"),
        ),
        (
            vec![("scaled_fp8", "F8_E4M3", &[0]), weight("l.0.q.weight")],
            Refused("`scaled_fp8`"),
        ),
        // casts
        (
            vec![
                weight("l.0.q.weight"),
                scale("l.0.q.weight_scale"),
                weight("l.0.norm.weight"),
                weight("embed.weight"),
                scale("logit_scale"),
            ],
            Nothing,
        ),
        (
            vec![
                ("scaled_fp8", "F8_E4M3", &[0]),
                weight("embed_tokens.weight"),
            ],
            Nothing,
        ),
    ];
    hold(cases.map(|(rows, said)| (rows[0].0.to_owned(), stored(&rows), said)));
    let marked = &[
        ("scaled_fp8", "F8_E4M3", &[0][..]),
        ("l.0.q.weight", "F8_E4M3", &[8, 16]),
        ("l.0.q.scale_weight", "F32", &[1]),
    ];
    let metadata = json!({"scaled_fp8": "true"});
    hold([(
        "scaled_fp8".to_owned(),
        with_metadata(stored(marked), metadata),
        Nothing,
    )]);
}

#[test]
fn tensors_and_files_that_alter_weights_are_named() {
    let with = |row: Row| [FP8, &[row]].concat();
    let cases = [
        (
            with(("model.rotation_matrix", "F32", &[16, 16])),
            Warned("model.rotation_matrix"),
        ),
        (with(("hadamard", "BF16", &[16, 16])), Warned("hadamard")),
        (with(("rotary_emb.inv_freq", "F32", &[16])), Nothing),
        (with(("transformer.proj", "F32", &[4, 4])), Nothing),
        (vec![("pose.rotation", "F32", &[4, 4])], Nothing),
    ];
    hold(cases.map(|(rows, said)| (rows[rows.len() - 1].0.to_owned(), stored(&rows), said)));
    let files = [
        ("rotation.json", Warned("rotation.json")),
        ("hadamard.json", Warned("hadamard.json")),
        ("rotation_config.json", Warned("rotation_config.json")),
        ("quarot.safetensors", Warned("quarot.safetensors")),
        ("rotations.safetensors", Warned("rotations.safetensors")),
        ("smooth_scales.json", Warned("smooth_scales.json")),
        ("kv_cache_scales.json", Nothing),
        ("act_scales.json", Nothing),
        ("transformer.json", Nothing),
    ];
    hold(files.map(|(name, said)| (name.to_owned(), with_file(stored(FP8), name, "{}"), said)));
}

#[test]
fn scales_beside_floats_are_named() {
    let names = [
        "weight_scale",
        "qscale",
        "weight_shift",
        "weight_rotation",
        "weight_lut",
    ];
    let factor = |name: &'static str| ["q.", name].concat();
    hold(names.map(|name| {
        let mut stored = stored(&[("q.weight", "BF16", &[8, 8])]);
        stored.add_tensor(&factor(name), "F32", &[1], &1f32.to_le_bytes());
        (name.to_owned(), stored, Warned(name))
    }));
    for name in ["input_scale", "weight_g", "bias", "layer_scale"] {
        let mut stored = stored(&[("q.weight", "BF16", &[8, 8])]);
        stored.add_tensor(&factor(name), "F32", &[1], &1f32.to_le_bytes());
        hold([(name.to_owned(), stored, Nothing)]);
    }
}

#[test]
fn names_of_codes_are_refused_in_any_dtype() {
    let float: Row = ("a.weight", "BF16", &[64, 64]);
    let cases: &[(Row, Said)] = &[
        (
            ("q.qweight", "I64", &[8, 8]),
            Refused("I64 under a weight's name"),
        ),
        (
            ("q.qweight", "F32", &[8, 8]),
            Refused("F32 under a weight's name"),
        ),
        (
            ("q.weight_packed", "F16", &[8, 8]),
            Refused("F16 under a weight's name"),
        ),
        (
            ("q.weight", "BOOL", &[8, 8]),
            Refused("BOOL under a weight's name"),
        ),
        (("x.weight_q", "I8", &[8, 8]), Refused("x.weight_q")),
        (("x.weights", "U32", &[8, 8]), Refused("x.weights")),
        (("x.packed", "I32", &[8, 8]), Refused("x.packed")),
        (("x.qw", "I8", &[8, 8]), Refused("x.qw")),
        (("x.kernel", "I8", &[8, 8]), Refused("x.kernel")),
        (
            ("x.weight_indices", "U16", &[8, 8]),
            Refused("x.weight_indices"),
        ),
        (("x.weight_data", "I8", &[8, 8]), Refused("x.weight_data")),
        (("wte", "I8", &[8, 8]), Refused("wte")),
        (("x.weight_mask", "U8", &[8, 8]), Nothing),
        (("x.mask.weight", "BOOL", &[8, 8]), Nothing),
        (("x.weight_shape", "I64", &[1, 2]), Nothing),
        (("tokenizer", "U8", &[8, 8]), Nothing),
        (("quantizer.codebook", "F32", &[8, 8]), Nothing),
        (("relative_position_index", "I64", &[8, 8]), Nothing),
    ];
    hold(
        cases
            .iter()
            .map(|&(row, said)| (row.0.to_owned(), stored(&[float, row]), said)),
    );
    // states of optimizers, and grids
    let cases: &[&[Row]] = &[
        &[
            ("state.0.state1", "U8", &[64, 64]),
            ("state.0.absmax1", "F32", &[16]),
            ("state.0.qmap1", "F32", &[256]),
        ],
        &[
            ("optimizer.exp_avg.q", "I8", &[64, 64]),
            ("optimizer.exp_avg.s", "F32", &[64]),
        ],
        &[
            ("hash_table.params", "F16", &[100, 2]),
            ("occupancy_grid", "U8", &[64, 64, 4]),
        ],
    ];
    hold(
        cases
            .iter()
            .map(|rows| (rows[0].0.to_owned(), stored(rows), Nothing)),
    );
}

#[test]
fn metadata_of_a_training_run_is_no_evidence() {
    let metadata = json!({
        "quantize": "true",
        "ot_config": r#"{"quantization": {"layer_filter": ""}, "weight_dtype": "NFLOAT_4"}"#,
        "comment": "dequantized from Q4",
    });
    let float: &[Row] = &[("a.lora_A.weight", "BF16", &[4, 4])];
    hold([
        (
            "floats".to_owned(),
            with_metadata(stored(float), metadata.clone()),
            Nothing,
        ),
        (
            "fp8".to_owned(),
            with_metadata(stored(FP8), metadata),
            Warned("ot_config"),
        ),
    ]);
}
