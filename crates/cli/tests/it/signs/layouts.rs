//! The layouts, each with what is said of it.

use super::Said::{Nothing, Refused, Warned};
use super::{PLAIN_CASE, Row, SignCase};

pub(super) static CASES: &[&[SignCase]] = &[
    MAPPINGS, MARKERS, PAIRS, STATEMENTS, BESIDE, KEYS, ASSUMED, HONEST,
];

const FP8: Row = ("model.fc.weight", "F8_E4M3", &[24, 96]);
const ROWS: &[Row] = &[
    ("fc.weight", "I8", &[24, 96]),
    ("fc.weight_scale", "BF16", &[24, 1]),
];
const FP8_SCALED: &[Row] = &[
    ("fc.weight", "F8_E4M3", &[24, 96]),
    ("fc.weight_scale", "F32", &[24, 1]),
];
const INT8: Row = ("model.fc.weight", "I8", &[24, 96]);
const INT8_SCALE: Row = ("model.fc.weight_scale", "F32", &[24, 1]);

/// Parts in a second mapping beside the one of the weights, as a state dict of two dictionaries has them.
static MAPPINGS: &[SignCase] = &[
    SignCase {
        name: "scales",
        tensors: &[FP8, ("scales.fc.weight", "F32", &[24, 1])],
        said: Refused("`scales.fc.weight` has its name in another mapping"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "scales by module",
        tensors: &[FP8, ("scales.fc", "F32", &[])],
        said: Refused("`scales.fc` has its name in another mapping"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "zero points",
        tensors: &[INT8, INT8_SCALE, ("zero_points.fc.weight", "F32", &[24, 1])],
        said: Refused("`zero_points.fc.weight` has its name in another mapping"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "orders",
        tensors: &[INT8, INT8_SCALE, ("perms.fc", "I64", &[96])],
        said: Refused("`perms.fc` has its name in another mapping"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "integers under no weight's name",
        tensors: &[
            ("model.fc", "I8", &[24, 96]),
            ("scales.fc", "F32", &[24, 1]),
            ("model.head", "F32", &[96, 96]),
        ],
        said: Refused("`scales.fc` has its name in another mapping"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "a list of scales",
        tensors: &[FP8, ("scales.0", "F32", &[24, 1])],
        said: Warned("`scales.0` is in a list of parts of weights by its name"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "modules that are called after scales",
        tensors: &[
            ("model.enc.fc.weight", "F8_E4M3", &[24, 96]),
            ("model.quantizer.fc.weight", "F32", &[24, 96]),
            ("logit_scale", "F32", &[]),
        ],
        said: Nothing,
        ..PLAIN_CASE
    },
];

/// Markers of ComfyUI by which all weights of a file are refused.
static MARKERS: &[SignCase] = &[
    SignCase {
        name: "a header's unknown format",
        tensors: &[INT8, INT8_SCALE],
        metadata: &[(
            "_quantization_metadata",
            r#"{"format_version": "1.0", "layers": {"model.fc": {"format": "zz"}}}"#,
        )],
        said: Refused("ComfyUI's format `zz`"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "a marker's unknown format",
        tensors: &[INT8, INT8_SCALE],
        texts: &[("model.fc.comfy_quant", r#"{"format": "zz"}"#)],
        said: Refused("ComfyUI's format `zz`"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "a marker's unknown option",
        tensors: &[FP8, ("model.fc.weight_scale", "F32", &[])],
        texts: &[(
            "model.fc.comfy_quant",
            r#"{"format": "float8_e4m3fn", "zz": 3}"#,
        )],
        said: Refused("its marker says `zz`: 3"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "codes of a method that is refused, alone",
        tensors: &[
            ("fc.codes", "I16", &[24, 12, 1]),
            ("fc.codebooks", "F16", &[1, 16, 1, 8]),
            ("fc.scales", "F16", &[24, 1, 1, 1]),
        ],
        said: Refused("AQLM"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "integers that no scheme claims, alone",
        tensors: &[("fc.weight", "I8", &[24, 96])],
        said: Refused("I8 under a weight's name"),
        ..PLAIN_CASE
    },
];

const MLX: &[Row] = &[
    ("fc.weight", "U32", &[24, 12]),
    ("fc.scales", "F16", &[24, 3]),
    ("fc.biases", "F16", &[24, 3]),
];

/// Pairs of width and group of MLX that contradict the shapes.
static PAIRS: &[SignCase] = &[
    SignCase {
        name: "a pair that fits",
        tensors: MLX,
        config: r#"{"quantization": {"bits": 4, "group_size": 32}}"#,
        said: Nothing,
        ..PLAIN_CASE
    },
    SignCase {
        name: "another width",
        tensors: MLX,
        config: r#"{"quantization": {"bits": 8, "group_size": 32}}"#,
        said: Refused("no codes of 8 bits in groups of 32, as configured"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "another group",
        tensors: MLX,
        config: r#"{"quantization": {"bits": 4, "group_size": 64}}"#,
        said: Refused("no codes of 4 bits in groups of 64, as configured"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "the settings of one module",
        tensors: MLX,
        config: r#"{"quantization": {"bits": 4, "group_size": 32, "fc": {"bits": 8, "group_size": 32}}}"#,
        said: Refused("no codes of 8 bits in groups of 32, as configured"),
        ..PLAIN_CASE
    },
];

const NVFP4: &[Row] = &[
    ("fc.weight", "U8", &[32, 64]),
    ("fc.weight_scale", "F8_E4M3", &[32, 8]),
    ("fc.weight_scale_2", "F32", &[]),
];
const SCB: &[Row] = &[("fc.weight", "I8", &[24, 96]), ("fc.SCB", "F32", &[24])];
const NF4: &[Row] = &[
    ("fc.weight", "U8", &[1024, 1]),
    ("fc.weight.absmax", "F32", &[32]),
    ("fc.weight.quant_map", "F32", &[16]),
];
const NF4_STATE: &[(&str, &str)] = &[(
    "fc.weight.quant_state.bitsandbytes__nf4",
    r#"{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [32, 64]}"#,
)];
const GPTQ: &[Row] = &[
    ("fc.qweight", "I32", &[12, 24]),
    ("fc.qzeros", "I32", &[3, 3]),
    ("fc.scales", "F16", &[3, 24]),
];

/// Statements of configurations that the stored numbers contradict.
static STATEMENTS: &[SignCase] = &[
    SignCase {
        name: "ModelOpt's groups",
        tensors: NVFP4,
        config: r#"{"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}}"#,
        said: Nothing,
        ..PLAIN_CASE
    },
    SignCase {
        name: "other groups than ModelOpt's",
        tensors: NVFP4,
        config: r#"{"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}}"#,
        said: Refused("a scale for each 32 columns"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "other groups, by module",
        tensors: NVFP4,
        config: r#"{"quantization_config": {"quant_method": "modelopt", "config_groups": {"group_0": {"targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "group_size": 32}}}}}"#,
        said: Refused("a scale for each 32 columns"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "zero points that are missing",
        tensors: &[
            ("fc.weight", "U8", &[16, 128]),
            ("fc.weight_scale", "F16", &[32, 1]),
        ],
        config: r#"{"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128, "has_zero_point": true}}"#,
        said: Refused("`has_zero_point`: true"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "factors of smoothing that are missing",
        tensors: NVFP4,
        config: r#"{"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ", "group_size": 16, "pre_quant_scale": true}}"#,
        said: Warned("`pre_quant_scale`: true"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "scales of another kind",
        tensors: &[
            ("fc.weight", "F8_E4M3", &[24, 96]),
            ("fc.weight_scale", "BF16", &[24, 1]),
        ],
        config: r#"{"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "scale_dtype": "torch.float8_e8m0fnu"}}}}}"#,
        said: Refused("in exponents"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "scales of another width",
        tensors: ROWS,
        config: r#"{"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "scale_dtype": "torch.float16"}}}}}"#,
        said: Warned("scales in BF16, as they are stored"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "8 bits for bitsandbytes' 4",
        tensors: NF4,
        texts: NF4_STATE,
        config: r#"{"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": true}}"#,
        said: Refused("states codes of 8 bits"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "4 bits for bitsandbytes' 8",
        tensors: SCB,
        config: r#"{"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": false}}"#,
        said: Refused("states codes of 4 bits"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "another type of bitsandbytes",
        tensors: NF4,
        texts: NF4_STATE,
        config: r#"{"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "fp4"}}"#,
        said: Warned("`bnb_4bit_quant_type` is `fp4`"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "scales of bitsandbytes that are not quantised",
        tensors: NF4,
        texts: NF4_STATE,
        config: r#"{"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true}}"#,
        said: Warned("`bnb_4bit_use_double_quant` is true"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "what bitsandbytes writes",
        tensors: NF4,
        texts: NF4_STATE,
        config: r#"{"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": false}}"#,
        said: Nothing,
        ..PLAIN_CASE
    },
    SignCase {
        name: "quanto's other type",
        tensors: &[
            ("fc.weight._data", "I8", &[24, 96]),
            ("fc.weight._scale", "BF16", &[24, 1]),
        ],
        config: r#"{"quantization_config": {"quant_method": "quanto", "weights": "float8"}}"#,
        said: Refused("states floats E4M3"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "groups of no elements",
        tensors: GPTQ,
        config: r#"{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 0, "desc_act": false, "sym": true}}"#,
        said: Warned("`group_size`: 0"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "groups of another size than GPTQ's shapes",
        tensors: GPTQ,
        config: r#"{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": false, "sym": true}}"#,
        said: Refused("a scale for each 64 columns"),
        ..PLAIN_CASE
    },
];

const CONFIGURED: &str = r#"{"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": {
    "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}}}"#;
const CONFIGURED_CASE: SignCase = SignCase {
    config: CONFIGURED,
    tensors: ROWS,
    ..PLAIN_CASE
};

/// Tensors and keys in a weight's module.
static BESIDE: &[SignCase] = &[
    SignCase {
        name: "a key of the header that is a module's name",
        metadata: &[("fc", r#"{"order": "turned"}"#)],
        said: Warned("`fc`"),
        ..CONFIGURED_CASE
    },
    SignCase {
        name: "the norm of a parametrised weight",
        tensors: &[
            ROWS[0],
            ROWS[1],
            ("fc.parametrizations.weight.original0", "F32", &[24, 1]),
        ],
        said: Refused("fc.parametrizations.weight.original0"),
        ..CONFIGURED_CASE
    },
    SignCase {
        name: "a strength without an adapter",
        tensors: &[ROWS[0], ROWS[1], ("fc.alpha", "F32", &[1])],
        said: Refused("fc.alpha"),
        ..CONFIGURED_CASE
    },
    SignCase {
        name: "a strength with an adapter",
        tensors: &[
            ROWS[0],
            ROWS[1],
            ("fc.alpha", "F32", &[1]),
            ("fc.lora_A.weight", "F32", &[4, 96]),
            ("fc.lora_B.weight", "F32", &[24, 4]),
        ],
        said: Nothing,
        ..CONFIGURED_CASE
    },
    SignCase {
        name: "a norm in a weight's module",
        tensors: &[ROWS[0], ROWS[1], ("fc.norm.weight", "F32", &[96])],
        said: Warned("fc.norm.weight"),
        ..CONFIGURED_CASE
    },
    SignCase {
        name: "the norm of a convolution that was cast",
        tensors: &[
            ("conv.weight", "F8_E4M3", &[24, 96]),
            ("conv.norm.weight", "F32", &[24]),
        ],
        said: Nothing,
        ..PLAIN_CASE
    },
    SignCase {
        name: "norms beside a weight's module",
        tensors: &[
            ROWS[0],
            ROWS[1],
            ("norm.weight", "F32", &[96]),
            ("fc_norm.weight", "F32", &[96]),
        ],
        said: Nothing,
        ..CONFIGURED_CASE
    },
];

/// Keys of configurations, at the top and in a section.
static KEYS: &[SignCase] = &[
    SignCase {
        name: "pre_transform",
        config: r#"{"quantization_config": {"quant_method": "fp8"}, "pre_transform": "had"}"#,
        tensors: FP8_SCALED,
        said: Warned("`pre_transform`"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "zero_point_offset",
        config: r#"{"quantization_config": {"quant_method": "fp8"}, "zero_point_offset": 1}"#,
        tensors: FP8_SCALED,
        said: Warned("`zero_point_offset`"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "codebook_size",
        config: r#"{"quantization_config": {"quant_method": "fp8"}, "codebook_size": 16}"#,
        tensors: FP8_SCALED,
        said: Warned("`codebook_size`"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "the codebooks of a model of audio",
        config: r#"{"quantization_config": {"quant_method": "fp8"}, "codebook_size": 2051, "num_codebooks": 32, "scale_embedding": true,
            "pre_norm": true, "weight_decay": 0.1, "zero_init": 1}"#,
        tensors: FP8_SCALED,
        said: Nothing,
        ..PLAIN_CASE
    },
    SignCase {
        name: "perm of a section",
        config: r#"{"quantization_config": {"quant_method": "fp8", "perm": [1, 0]}}"#,
        tensors: FP8_SCALED,
        said: Refused("`perm`"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "lut_size of a section",
        config: r#"{"quantization_config": {"quant_method": "fp8", "lut_size": 16}}"#,
        tensors: FP8_SCALED,
        said: Refused("`lut_size`"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "rot of a section",
        config: r#"{"quantization_config": {"quant_method": "fp8", "rot": true}}"#,
        tensors: FP8_SCALED,
        said: Refused("`rot`"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "any other key of a section",
        config: r#"{"quantization_config": {"quant_method": "fp8", "zz": 3}}"#,
        tensors: FP8_SCALED,
        said: Warned("`zz`"),
        ..PLAIN_CASE
    },
];

/// Readings that nothing in the files confirms.
static ASSUMED: &[SignCase] = &[
    SignCase {
        name: "INT8",
        tensors: ROWS,
        said: Warned("I8 without configuration and marker"),
        ..PLAIN_CASE
    },
    SignCase {
        name: "scales in U8",
        tensors: &[
            ("fc.weight_packed", "U8", &[32, 48]),
            ("fc.weight_scale", "U8", &[32, 3]),
        ],
        said: Warned("MXFP4 is assumed"),
        ..PLAIN_CASE
    },
];

/// Layouts that libraries write.
static HONEST: &[SignCase] = &[SignCase {
    name: "AutoRound's settings of activations by module",
    tensors: GPTQ,
    config: r#"{"quantization_config": {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": true, "data_type": "int",
        "packing_format": "auto_round:auto_gptq", "extra_config": {"fc": {"bits": 4, "group_size": 32, "sym": true, "data_type": "int",
        "act_bits": 16, "act_data_type": "float", "act_dynamic": true, "act_group_size": 32, "act_sym": true}}}}"#,
    said: Nothing,
    ..PLAIN_CASE
}];
