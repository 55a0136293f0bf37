//! The numbers that a configuration states, against those that are stored: a weight whose dtype, width or grid of scales
//! contradicts its configuration is refused, and one that agrees is decoded.

use serde_json::{Value, json};

use super::changes::{Change, check, set};
use super::said::Said::{self, Nothing, Refused, Warned};
use super::said::statements;
use super::uploads::{Row, stored};

/// A checkpoint of these tensors and this configuration.
fn hold(cases: &[(&[Row], Value, Said)]) {
    let mut failures = Vec::new();
    for (rows, config, said) in cases {
        let mut stored = stored(rows);
        stored.change_file("config.json", &|whole| {
            whole.insert("quantization_config".to_owned(), config.clone());
        });
        let plan = stored.plan("model.safetensors");
        if !said.holds(&plan) {
            failures.push(format!("{rows:?} {config} {said:?}: {}", statements(&plan)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn groups(settings: Value) -> Value {
    json!({
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": settings}},
    })
}

#[test]
fn bytes_of_floats_are_no_integers() {
    let rows: &[Row] = &[
        ("q.weight", "I8", &[8, 64]),
        ("q.weight_scale", "F32", &[8, 1]),
    ];
    let one: &[Row] = &[
        ("q.weight", "I8", &[8, 64]),
        ("q.weight_scale", "F32", &[1]),
    ];
    let inverse: &[Row] = &[
        ("q.weight", "I8", &[8, 64]),
        ("q.weight_scale_inv", "F32", &[8, 1]),
    ];
    let quanto: &[Row] = &[
        ("q.weight._data", "I8", &[8, 64]),
        ("q.weight._scale", "F32", &[8, 1]),
    ];
    let float8: &[Row] = &[
        ("q.weight", "F8_E4M3", &[8, 64]),
        ("q.weight_scale", "F32", &[8, 1]),
    ];
    let number = |kind: &str, bits: u64| json!({"num_bits": bits, "type": kind, "strategy": "channel", "symmetric": true});
    let integers = Refused("the tensors are integers of 8 bits");
    let floats = Refused("the tensors are floats E4M3 of 8 bits");
    hold(&[
        (rows, groups(number("float", 8)), integers),
        (rows, groups(number("int", 8)), Nothing),
        // codes of 4 bits in a byte each
        (rows, groups(number("int", 4)), Nothing),
        (rows, json!({"quant_method": "fbgemm_fp8"}), integers),
        (
            rows,
            json!({"quant_method": "modelopt", "quant_algo": "FP8"}),
            integers,
        ),
        (
            rows,
            json!({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}),
            integers,
        ),
        (
            rows,
            json!({"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL"}),
            Nothing,
        ),
        (
            one,
            json!({"quant_method": "bitnet", "linear_class": "bitlinear"}),
            integers,
        ),
        (
            inverse,
            json!({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [1, 64]}),
            integers,
        ),
        (
            quanto,
            json!({"quant_method": "quanto", "weights": "float8"}),
            integers,
        ),
        (
            quanto,
            json!({"quant_method": "quanto", "weights": "int8"}),
            Nothing,
        ),
        (
            one,
            json!({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}}),
            Refused("fp8_e4m3"),
        ),
        (float8, groups(number("int", 8)), floats),
        (float8, groups(number("float", 8)), Nothing),
        (
            float8,
            json!({"quant_method": "fp8", "fmt": "e5m2"}),
            floats,
        ),
        (
            float8,
            json!({"quant_method": "fp8", "fmt": "e4m3"}),
            Nothing,
        ),
        (
            float8,
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}),
            floats,
        ),
        (
            float8,
            json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"q": {"quant_algo": "NVFP4"}}}),
            floats,
        ),
        // a list of what is not quantised, and two groups
        (
            float8,
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["q"]}),
            Nothing,
        ),
        (
            float8,
            json!({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": number("int", 4)}, "b": {"weights": number("float", 8)}}}),
            Nothing,
        ),
    ]);
}

#[test]
fn grids_of_scales_are_those_of_the_configuration() {
    let scaled = |shape: &'static [usize]| -> Vec<Row> {
        vec![
            ("q.weight", "F8_E4M3", &[256, 128]),
            ("q.weight_scale_inv", "F32", shape),
        ]
    };
    let blocks =
        |high: u64, wide: u64| json!({"quant_method": "fp8", "weight_block_size": [high, wide]});
    let cases = [
        (scaled(&[2, 1]), blocks(128, 128), Nothing),
        // turned, cut, and of another size
        (
            scaled(&[1, 2]),
            blocks(128, 128),
            Refused("for each 128 by 128"),
        ),
        (scaled(&[1, 1]), blocks(128, 128), Refused("with one scale")),
        (
            scaled(&[2, 1]),
            blocks(64, 64),
            Refused("for each 64 by 64"),
        ),
        (scaled(&[4, 2]), blocks(64, 64), Nothing),
        (
            scaled(&[256, 1]),
            blocks(128, 128),
            Refused("for each 1 by 128"),
        ),
    ];
    let cases: Vec<(&[Row], Value, Said)> = cases
        .iter()
        .map(|(rows, config, said)| (&rows[..], config.clone(), *said))
        .collect();
    hold(&cases);
    // a column that was stored as a row, with and without a configuration
    let row: &[Row] = &[
        ("q.weight", "F8_E4M3", &[24, 96]),
        ("q.weight_scale", "F32", &[1, 24]),
    ];
    let square: &[Row] = &[
        ("q.weight", "I8", &[64, 64]),
        ("q.weight_scale", "F32", &[1, 64]),
    ];
    let channel = |kind: &str| groups(json!({"num_bits": 8, "type": kind, "strategy": "channel"}));
    let turned = Refused("one scale for each row");
    hold(&[
        (row, channel("float"), turned),
        (row, json!({"quant_method": "fbgemm_fp8"}), turned),
        (row, Value::Null, turned),
        (square, channel("int"), turned),
    ]);
}

/// Sets a setting of the weights of all groups.
fn of_groups(key: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        let changed = stored.change_settings(&|map| {
            for group in map["config_groups"].as_object_mut().unwrap().values_mut() {
                group["weights"][key] = value.clone();
            }
        });
        assert!(changed, "no configuration");
    })
}

/// The dtype of zero points is compared where there are some: the writer packs none but I8, and stores others in it.
#[test]
fn zero_points_in_another_dtype_are_refused() {
    const PACKED: &str = "ct_written/w4a16_asym_g128";
    const STORED: &str = "ct_written/int8_channel_asym";
    const NONE: &str = "ct_written/w4a16_sym_g128";
    let of = |name: &str| of_groups("zp_dtype", json!(name));
    check(vec![
        (PACKED, of("torch.int8"), Nothing),
        (PACKED, of("int8"), Nothing),
        (
            PACKED,
            of("torch.uint8"),
            Refused("zero points packed in I32"),
        ),
        (
            PACKED,
            of("torch.float16"),
            Refused("zero points packed in I32"),
        ),
        (PACKED, of("torch.int3"), Warned("zp_dtype")),
        (STORED, of("torch.int8"), Nothing),
        (STORED, of("torch.int32"), Nothing),
        (STORED, of("torch.uint8"), Refused("zero points in I8")),
        (
            STORED,
            of("torch.float8_e4m3fn"),
            Refused("zero points in I8"),
        ),
        // symmetric groups of the writer's own presets have such a dtype and no zero points
        (NONE, of("torch.uint8"), Nothing),
        ("ct_written/mxfp4", of("torch.uint8"), Nothing),
        ("ct_written/nvfp4", of("torch.float8_e4m3fn"), Nothing),
        (NONE, of("torch.int3"), Warned("zp_dtype")),
    ]);
}

/// Quark's zero points are integers unless it says that they are floats.
#[test]
fn zero_points_of_quark_in_another_kind_of_numbers_are_refused() {
    const FLOATS: &str = "quark_more/uint2_float";
    const INTEGERS: &str = "quark_more/int2_per_group";
    let of = |value: Value| set("global_quant_config/weight/zero_point_type", value);
    check(vec![
        (FLOATS, of(json!("float32")), Nothing),
        (FLOATS, of(json!("int32")), Refused("zero points in F32")),
        (FLOATS, of(Value::Null), Refused("zero points in F32")),
        (FLOATS, of(json!("int3")), Refused("zero_point_type")),
        (INTEGERS, of(json!("int32")), Nothing),
        (INTEGERS, of(Value::Null), Nothing),
        (INTEGERS, of(json!("float32")), Refused("zero points in")),
    ]);
}

/// TensorRT-LLM writes `group_size`: 128 of all algorithms; ModelOpt writes the size that its groups have.
#[test]
fn the_default_size_of_groups_says_nothing_of_an_algorithm_with_its_own() {
    let four: &[Row] = &[
        ("q.weight", "U8", &[8, 64]),
        ("q.weight_scale", "F8_E4M3", &[8, 8]),
        ("q.weight_scale_2", "F32", &[]),
    ];
    let wide: &[Row] = &[
        ("q.weight", "U8", &[4, 256]),
        ("q.weight_scale", "F16", &[8, 4]),
        ("q.pre_quant_scale", "F16", &[256]),
    ];
    let of = |settings: &[(&str, Value)]| {
        let mut config = json!({"quant_method": "modelopt", "quant_algo": "NVFP4"});
        for (key, value) in settings {
            config[*key] = value.clone();
        }
        config
    };
    let smooth = ("smoothquant_val", json!(0.5));
    let size = |size: u64| ("group_size", json!(size));
    let mixed = ("quant_algo", json!("MIXED_PRECISION"));
    let layer = |settings: Value| ("quantized_layers", json!({"q": settings}));
    let refused = Refused("with a scale for each 1 by 16");
    let int4 = || ("quant_algo", json!("W4A16_AWQ"));
    hold(&[
        (four, of(&[size(16)]), Nothing),
        (four, of(&[size(128), smooth.clone()]), Nothing),
        (four, of(&[size(16), smooth.clone()]), Nothing),
        // another size than the default, and another writer
        (four, of(&[size(64), smooth.clone()]), refused),
        (four, of(&[size(128)]), refused),
        (
            four,
            of(&[
                mixed.clone(),
                size(128),
                layer(json!({"quant_algo": "NVFP4"})),
            ]),
            Nothing,
        ),
        (
            four,
            of(&[
                mixed.clone(),
                size(128),
                layer(json!({"quant_algo": "NVFP4", "group_size": 16})),
            ]),
            Nothing,
        ),
        (
            four,
            of(&[
                mixed,
                size(16),
                layer(json!({"quant_algo": "NVFP4", "group_size": 128})),
            ]),
            refused,
        ),
        // a setting of the algorithm
        (wide, of(&[int4(), size(64), smooth.clone()]), Nothing),
        (
            wide,
            of(&[int4(), size(128), smooth]),
            Refused("with a scale for each 1 by 64"),
        ),
    ]);
}

#[test]
fn written_weights_are_compared() {
    const INT4: &str = "ct_written/w4a16_sym_g128";
    const MXFP4: &str = "ct_written/mxfp4";
    const NVFP4: &str = "modelopt/nvfp4";
    const MLX: &str = "mlx/affine4_g64";
    let integers = Refused("the tensors are integers of 4 bits");
    let floats = Refused("the tensors are floats E2M1 of 4 bits");
    check(vec![
        (INT4, set("format", json!("nvfp4-pack-quantized")), integers),
        (INT4, of_groups("type", json!("float")), integers),
        (INT4, of_groups("num_bits", json!(8)), integers),
        (INT4, of_groups("strategy", json!("channel")), integers),
        (MXFP4, set("format", json!("nvfp4-pack-quantized")), floats),
        (MXFP4, of_groups("type", json!("int")), floats),
        (NVFP4, set("quant_algo", json!("FP8")), floats),
        (NVFP4, set("quant_algo", json!("W4A16_AWQ")), floats),
        (NVFP4, set("quant_algo", json!("NVFP4_AWQ")), Nothing),
        ("awq/g128", set("bits", json!(2)), integers),
        (
            "awq/g128",
            set("dynamic", json!({"+:.*": {"bits": 4}})),
            Nothing,
        ),
        (
            "quanto/qfloat8",
            set("weights", json!("int4")),
            Refused("the tensors are floats E4M3"),
        ),
        ("quanto/qfloat8", set("weights", json!("float8")), Nothing),
        (MLX, set("mode", json!("mxfp4")), integers),
        (MLX, set("mode", json!("affine")), Nothing),
        (
            "autoround/auto_gptq",
            set("data_type", json!("fp")),
            Refused("states floats"),
        ),
    ]);
}
