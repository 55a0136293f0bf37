//! The layouts, each with what is said of it.

use super::Said::{Nothing, Refused, Warned};
use super::{PLAIN_CASE, Row, SignCase};

pub(super) static CASES: &[&[SignCase]] = &[MAPPINGS, MARKERS, PAIRS, ASSUMED];

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
