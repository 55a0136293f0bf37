//! The containers that quantised checkpoints are in, each with the signs of unknown quantisation that it can have, and with
//! those that explain themselves.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::StoredCheckpoint;
use crate::support::state_dict::has_dtype;
use crate::support::{files_below, fixture};

/// The first quantised weight of a checkpoint.
pub(super) struct Target {
    /// Its name without `.weight`.
    pub(super) stem: String,
    /// The tensor with its codes.
    pub(super) codes: String,
}

/// A change; `false` if the checkpoint has no place for it.
type Change = fn(&mut StoredCheckpoint, &Target) -> bool;

/// Something that is added under an unknown name.
pub(super) struct Addition {
    /// The text that a refusal or a warning must have.
    pub(super) name: &'static str,
    /// Whether a warning will not do.
    pub(super) refused: bool,
    pub(super) add: Change,
}

/// A container, with the correct checkpoints that are changed in it.
pub(super) struct Container {
    /// The name of a file of this container.
    pub(super) file: &'static str,
    pub(super) checkpoints: fn() -> Vec<(PathBuf, StoredCheckpoint)>,
    /// The number of checkpoints with quantised weights.
    pub(super) at_least: usize,
    pub(super) additions: &'static [&'static [Addition]],
    /// Additions that change nothing. Each adds one tensor, or none.
    pub(super) harmless: &'static [&'static [Change]],
}

pub(super) static CONTAINERS: &[Container] = &[
    Container {
        file: "model.safetensors",
        checkpoints: written,
        at_least: 100,
        additions: &[
            ON_STEM, IN_MAPPING, INNER, MARKER, CONFIGURED, KEYS, FIELD, BESIDE,
        ],
        harmless: &[TENSORS, INTEGERS],
    },
    Container {
        file: "model.pth",
        checkpoints: pickled,
        at_least: 100,
        additions: &[
            ON_STEM, IN_MAPPING, INNER, MARKER, CONFIGURED, KEYS, PICKLED, BESIDE,
        ],
        harmless: &[TENSORS, INTEGERS, STATE_OF_TRAINING],
    },
    Container {
        file: "model.gguf",
        checkpoints: of_gguf,
        at_least: 20,
        additions: &[ON_STEM, KEYS, OF_GGUF],
        harmless: &[TENSORS, DESCRIPTIONS],
    },
];

/// The safetensors files of `fixtures/quant` that are a checkpoint each, without their reference outputs.
pub(super) fn written() -> Vec<(PathBuf, StoredCheckpoint)> {
    let is_checkpoint = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".safetensors") && !name.contains("oracle") && !name.contains("-of-")
    };
    let all = files_below(&fixture("quant")).into_iter();
    all.filter(|path| is_checkpoint(path))
        .map(|path| (path.clone(), StoredCheckpoint::read(&path)))
        .collect()
}

/// The same as state dicts, and the state dicts of `fixtures/quant`. Quantised tensors of PyTorch, which no safetensors file
/// has, are left out.
fn pickled() -> Vec<(PathBuf, StoredCheckpoint)> {
    let all = files_below(&fixture("quant")).into_iter();
    let saved = all.filter(|path| path.extension().is_some_and(|e| e == "pt" || e == "pth"));
    let saved = saved.map(|path| (path.clone(), StoredCheckpoint::opened(&path)));
    written()
        .into_iter()
        .chain(saved)
        .filter(|(_, stored)| stored.tensors.iter().all(|tensor| has_dtype(&tensor.dtype)))
        .collect()
}

fn of_gguf() -> Vec<(PathBuf, StoredCheckpoint)> {
    let types = files_below(&fixture("gguf/types")).into_iter();
    types
        .chain([fixture("model/scribe-Q8_0.gguf")])
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .map(|path| (path.clone(), StoredCheckpoint::opened(&path)))
        .collect()
}

fn tensor(stored: &mut StoredCheckpoint, name: &str, dtype: &str, shape: &[usize]) -> bool {
    let width = match dtype {
        "F32" | "I32" => 4,
        "I64" => 8,
        _ => 1,
    };
    let bytes = vec![1; width * shape.iter().product::<usize>()];
    stored.add_tensor(name, dtype, shape, &bytes);
    true
}

fn key(stored: &mut StoredCheckpoint, name: &str, value: Value) -> bool {
    stored.metadata.insert(name.to_owned(), value);
    true
}

fn setting(stored: &mut StoredCheckpoint, name: &'static str, value: Value) -> bool {
    stored.change_settings(&|map| {
        map.insert(name.to_owned(), value.clone());
    })
}

static ON_STEM: &[Addition] = &[
    Addition {
        name: "unknown_part",
        refused: false,
        add: |stored, target| {
            let name = format!("{}.unknown_part", target.stem);
            tensor(stored, &name, "F32", &[1])
        },
    },
    Addition {
        name: "unknown_scale",
        refused: false,
        add: |stored, target| {
            let name = format!("{}_unknown_scale", target.stem);
            tensor(stored, &name, "F32", &[1])
        },
    },
    Addition {
        name: "hidden.rotation_matrix",
        refused: false,
        add: |stored, _| tensor(stored, "hidden.rotation_matrix", "F32", &[4, 4]),
    },
    Addition {
        name: "hidden.hadamard.weight",
        refused: false,
        add: |stored, _| tensor(stored, "hidden.hadamard.weight", "F32", &[4, 4]),
    },
    Addition {
        name: "hidden.3.self_attn.R2",
        refused: false,
        add: |stored, _| tensor(stored, "hidden.3.self_attn.R2", "F32", &[4, 4]),
    },
];

/// Modules inside of the module of a weight, and parts of weights that the file does not have.
static INNER: &[Addition] = &[
    Addition {
        name: "unknown_inner",
        refused: false,
        add: |stored, target| {
            let name = format!("{}.unknown_inner.weight", target.stem);
            tensor(stored, &name, "F32", &[4, 4])
        },
    },
    Addition {
        name: "deep.low_rank_a",
        refused: false,
        add: |stored, target| {
            let name = format!("{}.deep.low_rank_a.weight", target.stem);
            tensor(stored, &name, "F32", &[4, 4])
        },
    },
    Addition {
        name: ".alpha",
        refused: false,
        add: |stored, target| {
            let name = format!("{}.alpha", target.stem);
            tensor(stored, &name, "F32", &[24, 1])
        },
    },
    Addition {
        name: "parametrizations.weight.0.scale",
        refused: false,
        add: |stored, target| {
            let name = format!("{}.parametrizations.weight.0.scale", target.stem);
            tensor(stored, &name, "F32", &[1])
        },
    },
    Addition {
        name: "elsewhere.3.proj.weight_scale",
        refused: true,
        add: |stored, _| tensor(stored, "elsewhere.3.proj.weight_scale", "F32", &[1]),
    },
];

/// Parts in a second mapping, under the name of the weight or of its module.
static IN_MAPPING: &[Addition] = &[
    Addition {
        name: "perms.",
        refused: true,
        add: |stored, target| {
            let name = format!("perms.{}", target.stem);
            tensor(stored, &name, "I64", &[96])
        },
    },
    Addition {
        name: "zero_points.",
        refused: true,
        add: |stored, target| {
            let name = format!("zero_points.{}.weight", target.stem);
            tensor(stored, &name, "F32", &[24])
        },
    },
];

static MARKER: &[Addition] = &[Addition {
    name: "unknown_marker",
    refused: true,
    add: |stored, target| {
        let (name, text) = (
            format!("{}.unknown_marker", target.stem),
            br#"{"rotation": 64}"#,
        );
        stored.add_tensor(&name, "U8", &[text.len()], text);
        true
    },
}];

static CONFIGURED: &[Addition] = &[
    Addition {
        name: "unknown_key",
        refused: false,
        add: |stored, _| setting(stored, "unknown_key", json!(5)),
    },
    Addition {
        name: "hidden_rotation",
        refused: true,
        add: |stored, _| setting(stored, "hidden_rotation", json!({"size": 64})),
    },
    Addition {
        name: "unknown_method",
        refused: true,
        add: |stored, _| setting(stored, "quant_method", json!("unknown_method")),
    },
    Addition {
        name: "unknown_of_part",
        refused: true,
        add: |stored, _| {
            let section = json!({"quantization_config": {"quant_method": "unknown_of_part"}});
            stored.change_file("config.json", &|whole| {
                whole.insert("vision_config".to_owned(), section.clone());
            });
            true
        },
    },
    Addition {
        name: "unknown_of_list",
        refused: true,
        add: |stored, _| {
            let section = json!([{"quant_method": "gptq"}]);
            stored.change_file("config.json", &|whole| {
                whole.insert("unknown_of_list_quant".to_owned(), section.clone());
            });
            true
        },
    },
];

static KEYS: &[Addition] = &[
    Addition {
        name: "unknown_quantisation",
        refused: false,
        add: |stored, _| key(stored, "unknown_quantisation", json!("by rows")),
    },
    Addition {
        name: "weight_encoding",
        refused: false,
        add: |stored, _| key(stored, "weight_encoding", json!("by rows")),
    },
    Addition {
        name: "hadamard_of_rows",
        refused: false,
        add: |stored, _| key(stored, "hadamard_of_rows", json!("64")),
    },
    // a key on the stem of a weight, and one whose value names a tensor
    Addition {
        name: "unknown_detail",
        refused: false,
        add: |stored, target| {
            let name = format!("{}.unknown_detail", target.stem);
            key(stored, &name, json!("by rows"))
        },
    },
    Addition {
        name: "unknown_list",
        refused: false,
        add: |stored, target| {
            let text = json!({target.codes.as_str(): "by rows"}).to_string();
            key(stored, "unknown_list", json!(text))
        },
    },
];

static FIELD: &[Addition] = &[Addition {
    name: "unknown_field",
    refused: false,
    add: |stored, target| {
        let field = (
            target.codes.clone(),
            "unknown_field".to_owned(),
            json!("q4"),
        );
        stored.fields.push(field);
        true
    },
}];

static BESIDE: &[Addition] = &[
    Addition {
        name: "unknown_quantisation.json",
        refused: false,
        add: |stored, _| {
            let name = "unknown_quantisation.json".to_owned();
            stored.beside.push((name, b"{}".to_vec()));
            true
        },
    },
    Addition {
        name: "unknown_description.json",
        refused: false,
        add: |stored, target| {
            let text = json!({target.codes.as_str(): 4}).to_string();
            let name = "unknown_description.json".to_owned();
            stored.beside.push((name, text.into_bytes()));
            true
        },
    },
];

static PICKLED: &[Addition] = &[
    Addition {
        name: "`format`",
        refused: false,
        add: |stored, _| key(stored, "format", json!("unknown_format")),
    },
    Addition {
        name: "quant_state.group",
        refused: false,
        add: |stored, _| key(stored, "quant_state", json!({"group": 32})),
    },
    Addition {
        name: "unknown_number",
        refused: false,
        add: |stored, target| {
            let name = format!("{}.unknown_number", target.stem);
            key(stored, &name, json!(3))
        },
    },
    Addition {
        name: "unknown_scale_of_rows",
        refused: true,
        add: |stored, target| {
            let name = format!("{}.unknown_scale_of_rows", target.stem);
            key(stored, &name, json!(0.5))
        },
    },
];

static OF_GGUF: &[Addition] = &[
    Addition {
        name: "general.quantization_version",
        refused: false,
        add: |stored, _| key(stored, "general.quantization_version", json!(3)),
    },
    Addition {
        name: "quantize.unknown",
        refused: false,
        add: |stored, _| key(stored, "quantize.unknown", json!(1)),
    },
    Addition {
        name: "comfy.gguf.unknown",
        refused: false,
        add: |stored, _| key(stored, "comfy.gguf.unknown", json!(1)),
    },
    Addition {
        name: "comfy.gguf.orig_shape.absent",
        refused: false,
        add: |stored, _| key(stored, "comfy.gguf.orig_shape.absent", json!("4, 4")),
    },
    // a shape is an array
    Addition {
        name: "comfy.gguf.orig_shape",
        refused: false,
        add: |stored, target| {
            let name = format!("comfy.gguf.orig_shape.{}", target.codes);
            key(stored, &name, json!("4, 4"))
        },
    },
    Addition {
        name: "unknown_codes",
        refused: true,
        add: |stored, target| {
            let name = format!("{}.unknown_codes.weight", target.stem);
            tensor(stored, &name, "I8", &[8, 8])
        },
    },
];

static TENSORS: &[Change] = &[
    |stored, target| {
        let name = format!("{}.lora_A.weight", target.stem);
        tensor(stored, &name, "F32", &[1, 2])
    },
    |stored, target| {
        let name = format!("{}.bias", target.stem);
        let is_new = stored.tensors.iter().all(|tensor| tensor.name != name);
        is_new && tensor(stored, &name, "F32", &[2])
    },
    |stored, _| tensor(stored, "rotary_emb.inv_freq", "F32", &[2]),
];

static INTEGERS: &[Change] = &[
    |stored, _| tensor(stored, "embeddings.position_ids", "I64", &[1, 2]),
    |stored, _| tensor(stored, "bn.num_batches_tracked", "I64", &[]),
    |stored, _| {
        stored.add_tensor("spiece_model", "U8", &[3], b"{a}");
        true
    },
    |stored, _| tensor(stored, "gate.tid2eid", "I32", &[2, 1]),
];

static STATE_OF_TRAINING: &[Change] = &[
    |stored, _| key(stored, "epoch", json!(3)),
    |stored, _| key(stored, "pytorch-lightning_version", json!("2.1.0")),
    |stored, _| {
        let settings = json!({"delta": 0.5, "image": {"format": "jpg"}});
        key(stored, "hyper_parameters", settings)
    },
    |stored, _| key(stored, "vae", json!({"quantizer": {"codebook_size": 1024}})),
    |stored, target| key(stored, &format!("{}.extra", target.stem), json!(null)),
];

static DESCRIPTIONS: &[Change] = &[
    |stored, _| key(stored, "general.quantization_version", json!(2)),
    |stored, _| key(stored, "general.quantized_by", json!("a person")),
    |stored, _| key(stored, "general.name", json!("Model 4bit AWQ")),
    |stored, _| key(stored, "mradermacher.quantize_version", json!("2")),
    |stored, _| key(stored, "quantize.imatrix.file", json!("imatrix.dat")),
    |stored, _| {
        let text = json!("{% if a %}int8{% endif %}");
        key(stored, "tokenizer.chat_template", text)
    },
    |stored, _| key(stored, "llama.attention.compress_ratio", json!(4)),
];
