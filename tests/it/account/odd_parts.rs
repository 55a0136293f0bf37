//! Parts that are none by their shape: matrices under the names of scales of activations and of biases.

use serde_json::json;

use super::StoredCheckpoint;
use super::said::Said::{self, Nothing, Refused, Warned};
use super::uploads::{Row, hold, stored, with_file};

pub(super) const INT8: &[Row] = &[
    ("l.0.q.weight", "I8", &[8, 64]),
    ("l.0.q.weight_scale", "F32", &[8, 1]),
];
const CAST: &[Row] = &[("l.0.q.weight", "F8_E4M3", &[8, 64])];

/// Weights with one more tensor.
pub(super) fn with(
    weights: &[Row],
    name: &'static str,
    dtype: &'static str,
    shape: &'static [usize],
) -> StoredCheckpoint {
    stored(&[weights, &[(name, dtype, shape)]].concat())
}

/// Names of scales of activations and caches, on the stem of a weight.
static ACTIVATIONS: &[&str] = &[
    "l.0.q.input_scale",
    "l.0.q.input_global_scale",
    "l.0.q.act_scale",
    "l.0.q.activation_scaling_factor",
    "l.0.q.q_scale",
    "l.0.q.k_scale",
    "l.0.q.v_scale",
    "l.0.q.kv_scale",
    "l.0.q.kv_cache_scaling_factor",
    "l.0.q.input_quantizer._amax",
];

#[test]
fn matrices_are_no_scales_of_activations() {
    let mut cases = Vec::new();
    for name in ACTIVATIONS {
        for shape in [&[8, 64][..], &[8, 4]] {
            cases.push((
                format!("{name} {shape:?}"),
                with(INT8, name, "F32", shape),
                Refused(name),
            ));
            cases.push((
                format!("cast, {name} {shape:?}"),
                with(CAST, name, "F32", shape),
                Warned(name),
            ));
        }
        cases.push((format!("{name} []"), with(INT8, name, "F32", &[]), Nothing));
        // by head or channel, for those that have more than one
        if !name.ends_with("act_scale") {
            cases.push((
                format!("{name} [8]"),
                with(INT8, name, "F32", &[8, 1, 1]),
                Nothing,
            ));
        }
    }
    // one expert of a layer alone
    let one = "l.0.mlp.experts.3.w1.input_scale";
    let expert: &[Row] = &[
        ("l.0.mlp.experts.3.w1.weight", "I8", &[8, 64]),
        ("l.0.mlp.experts.3.w1.weight_scale", "F32", &[8, 1]),
    ];
    cases.push((
        "expert".to_owned(),
        with(expert, one, "F32", &[8, 4]),
        Refused(one),
    ));
    cases.push((
        "expert's own".to_owned(),
        with(expert, one, "F32", &[1]),
        Nothing,
    ));
    hold(cases);
}

#[test]
fn matrices_are_no_biases() {
    const BIAS: &str = "l.0.q.bias";
    let nvfp4: &[Row] = &[
        ("l.0.q.weight", "U8", &[8, 32]),
        ("l.0.q.weight_scale", "F8_E4M3", &[8, 4]),
        ("l.0.q.weight_scale_2", "F32", &[]),
    ];
    let gptq: &[Row] = &[
        ("l.0.q.qweight", "I32", &[8, 8]),
        ("l.0.q.qzeros", "I32", &[1, 1]),
        ("l.0.q.scales", "F16", &[1, 8]),
    ];
    let scaled: &[Row] = &[CAST[0], ("l.0.q.weight_scale", "F32", &[1])];
    let mlx: &[Row] = &[
        ("m.experts.q.weight", "U32", &[2, 4, 8]),
        ("m.experts.q.scales", "F32", &[2, 4, 1]),
        ("m.experts.q.biases", "F32", &[2, 4, 1]),
    ];
    let cases: Vec<(&str, StoredCheckpoint, Said)> = vec![
        ("int8", with(INT8, BIAS, "F32", &[8, 64]), Refused(BIAS)),
        ("groups", with(INT8, BIAS, "F32", &[8, 4]), Refused(BIAS)),
        ("gptq", with(gptq, BIAS, "F16", &[8, 64]), Refused(BIAS)),
        (
            "scaled",
            with(scaled, BIAS, "BF16", &[8, 64]),
            Refused(BIAS),
        ),
        // a table of positions beside FP8 that was cast
        ("cast", with(CAST, BIAS, "BF16", &[8, 64]), Warned(BIAS)),
        ("vector", with(INT8, BIAS, "F32", &[8]), Nothing),
        ("row", with(INT8, BIAS, "F32", &[1, 8]), Nothing),
        (
            "experts",
            with(mlx, "m.experts.q.bias", "F32", &[2, 4]),
            Nothing,
        ),
        (
            "experts' matrix",
            with(mlx, "m.experts.q.bias", "F32", &[4, 2]),
            Refused("m.experts.q.bias"),
        ),
    ];
    let cases = cases
        .into_iter()
        .map(|(case, stored, said)| (case.to_owned(), stored, said));
    hold(cases);
    // the ambiguous order of NVFP4 without a configuration is a warning of its own
    let config =
        json!({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}});
    let model = with_file(
        with(nvfp4, BIAS, "BF16", &[8, 64]),
        "config.json",
        &config.to_string(),
    );
    hold([("nvfp4".to_owned(), model, Refused(BIAS))]);
}
