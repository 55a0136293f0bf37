//! Schemes: how quantised weights are stored, one file each.
//!
//! Planning offers every stored tensor to the schemes in the order of [`SCHEMES`]. A scheme claims a tensor that is the
//! principal part of a weight (its codes): it decides by dtype first, then by the names and shapes of sibling tensors, and
//! last by the configuration. The first claim counts, and the weight's other parts are not offered again. The rest is
//! for `quant::account`.
//!
//! The files that are not schemes: `context` (what a scheme may read), `config` (configuration files), `attributes`
//! (settings stored as tensors or metadata), `module_names` (lists of modules and patterns), `granularity` (how many elements share a scale), `qweight` (shared by GPTQ, AWQ
//! and AutoRound), `smooth` (undoes smoothing), `swizzled_scales` (scales in tiles), `config_groups` and `layer_configs` (parts of configurations), `stated`
//! (the numbers that a configuration states), `statements` (compares them with those that are read), `absent_modules` (settings of modules that are not there), `module_entries` (the entries that are for a module), `module_overrides` (MLX's settings of single modules), `module_settings` (settings of single modules in any method).

mod absent_modules;
mod attributes;
mod autoround;
mod awq;
mod bitnet;
mod bitsandbytes;
mod comfyui;
mod compressed_tensors;
mod config;
mod config_groups;
mod context;
mod eetq;
mod exclusions;
mod fp4;
mod fp8;
mod ggml;
mod gptoss;
mod gptq;
mod granularity;
mod hqq;
mod int8;
mod layer_configs;
mod listed_modules;
mod mlx;
mod modelopt;
mod module_entries;
mod module_lists;
mod module_names;
mod module_overrides;
mod module_settings;
mod name_regex;
mod pth_quantizer;
mod quantized_layers;
mod quanto;
mod quark;
mod qweight;
mod smooth;
mod stated;
mod statements;
mod swizzled_scales;
mod target_groups;
mod torchao;
mod unsupported;

use std::sync::Arc;

use crate::base::error::Result;
use crate::plan::{Decoder, StoredPart};
use crate::quant::settings::SchemeSettings;
use crate::read::catalog::Shape;

pub(crate) use absent_modules::settings_of_no_module;
pub(crate) use comfyui::{
    HEADER as COMFYUI_HEADER, MARKED as COMFYUI_MARKED, MARKER as COMFYUI_MARKER,
    headers_contradict, markers_of_header, unknown_beside_markers,
};
pub(crate) use compressed_tensors::lacks_index;
pub use config::QuantConfig;
pub(crate) use config::{FoundSections, MAX_DEPTH, TextEdit, is_configuration, method_of};
pub(crate) use context::{Context, ContextCaches, Sidecars, not_known, plain, unsupported};
pub(crate) use exclusions::{exclusion, plain_although_listed, unknown_patterns};
pub(crate) use fp8::SCALED as SCALED_FP8;
pub(crate) use ggml::decoder as ggml_blocks;
pub(crate) use module_entries::{ModuleEntry, entries_of_module};
pub(crate) use module_lists::Exclusion;
pub(crate) use module_names::{
    MODULE_LISTS, QUANTISATION_SECTIONS, SKIPPED_LISTS, TENSOR_NAMES, module_of_weight,
};
pub(crate) use module_settings::settings_of_module;
pub(crate) use name_regex::{NamePatterns, PatternKind};
pub(crate) use statements::{contradiction, note_assumptions, odd_scales};

/// A quantised weight: its name and shape, the stored tensors it is made from, and its decoder.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Name of the PyTorch parameter, such as `model.layers.0.mlp.up_proj.weight`.
    pub name: Box<str>,
    /// Shape of the PyTorch parameter.
    pub shape: Shape,
    /// Name of its scheme.
    pub scheme: &'static str,
    /// The stored tensors that it is made from; the first is the one that was claimed. Decoders refer to them by index.
    pub parts: Vec<StoredPart>,
    /// Which bytes make which rows, and how.
    pub decoder: Arc<dyn Decoder>,
}

impl Weight {
    /// Whether it is FP8 that has no scale.
    pub(crate) fn is_unscaled(&self) -> bool {
        self.scheme == "fp8" && self.parts.len() == 1
    }
}

/// One way to store quantised weights.
pub struct Scheme {
    /// Name of the scheme. Plans and JSON show [`Weight::scheme`], which may be more specific.
    pub name: &'static str,
    /// The settings of its configuration that are known. Keys and values that no scheme lists are evidence for the account.
    pub(crate) settings: &'static SchemeSettings,
    /// Values of `quant_method`, in lower case, whose configurations may describe its weights; the empty one stands for those that
    /// name none. `None` for a scheme whose weights say themselves how they are stored.
    pub(crate) described_by: Option<&'static [&'static str]>,
    /// The weight whose principal part is the tensor with this index, or `None` if it is not of this scheme. An error
    /// means that the tensor is of this scheme and cannot be decoded.
    pub(crate) claim: fn(&Context<'_>, usize) -> Result<Option<Weight>>,
}

/// All schemes, in the order in which tensors are offered to them.
pub static SCHEMES: &[Scheme] = &[
    Scheme {
        // the type of a GGUF tensor alone decides
        name: "ggml",
        settings: &SchemeSettings::NONE,
        described_by: None,
        claim: ggml::claim,
    },
    Scheme {
        // a marker alone decides, in spite of names and shapes of other schemes
        name: "comfyui",
        settings: &SchemeSettings::NONE,
        described_by: None,
        claim: comfyui::claim,
    },
    // before `fp8`, which reads FP8 tensors without a known scale as unscaled
    Scheme {
        name: "quanto",
        settings: &quanto::SETTINGS,
        described_by: Some(&["quanto", ""]),
        claim: quanto::claim,
    },
    Scheme {
        name: "torchao",
        settings: &torchao::SETTINGS,
        described_by: Some(&["torchao", ""]),
        claim: torchao::claim,
    },
    Scheme {
        name: "fp8",
        settings: &fp8::SETTINGS,
        described_by: Some(&[
            "",
            "fp8",
            "fbgemm_fp8",
            "mxfp8",
            "finegrained_fp8",
            "compressed-tensors",
            MODELOPT[0],
            MODELOPT[1],
            MODELOPT[2],
            "quark",
            "auto-round",
        ]),
        claim: fp8::claim,
    },
    Scheme {
        name: "bitsandbytes",
        settings: &bitsandbytes::SETTINGS,
        described_by: Some(&["bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit", ""]),
        claim: bitsandbytes::claim,
    },
    Scheme {
        name: "compressed-tensors",
        settings: &compressed_tensors::SETTINGS,
        described_by: Some(&["compressed-tensors", ""]),
        claim: compressed_tensors::claim,
    },
    Scheme {
        name: "quark",
        settings: &quark::SETTINGS,
        described_by: Some(&["quark"]),
        claim: quark::claim,
    },
    Scheme {
        name: "modelopt",
        settings: &modelopt::SETTINGS,
        described_by: Some(&MODELOPT),
        claim: modelopt::claim,
    },
    Scheme {
        name: "fp4",
        settings: &SchemeSettings::NONE,
        described_by: Some(&[
            "",
            // DeepSeek-V4's experts
            "fp8",
            "mxfp4",
            "compressed-tensors",
            MODELOPT[0],
            MODELOPT[1],
            MODELOPT[2],
            "quark",
            "auto-round",
        ]),
        claim: fp4::claim,
    },
    Scheme {
        name: "int8",
        settings: &int8::SETTINGS,
        described_by: Some(&[
            "",
            "blockwise_int8",
            // SGLang's blocks of INT8 have the method of FP8 too
            "fp8",
            "compressed-tensors",
            MODELOPT[0],
            MODELOPT[1],
            MODELOPT[2],
        ]),
        claim: int8::claim,
    },
    Scheme {
        name: "gpt-oss",
        settings: &gptoss::SETTINGS,
        described_by: Some(&["mxfp4", "quark", ""]),
        claim: gptoss::claim,
    },
    Scheme {
        name: "hqq",
        settings: &hqq::SETTINGS,
        described_by: Some(&["hqq", ""]),
        claim: hqq::claim,
    },
    Scheme {
        name: "mlx",
        settings: &mlx::SETTINGS,
        described_by: Some(&["metal", ""]),
        claim: mlx::claim,
    },
    Scheme {
        name: "bitnet",
        settings: &bitnet::SETTINGS,
        described_by: Some(&["bitnet", ""]),
        claim: bitnet::claim,
    },
    Scheme {
        name: "pth_quantizer",
        settings: &SchemeSettings::NONE,
        described_by: None,
        claim: pth_quantizer::claim,
    },
    Scheme {
        // before `gptq` and `awq`, whose tensors it has: only its configuration determines how zero points are stored
        name: "auto-round",
        settings: &autoround::SETTINGS,
        described_by: Some(&["auto-round"]),
        claim: autoround::claim,
    },
    Scheme {
        name: "gptq",
        settings: &gptq::SETTINGS,
        described_by: Some(&["gptq", "gptqmodel", ""]),
        claim: gptq::claim,
    },
    Scheme {
        name: "awq",
        settings: &awq::SETTINGS,
        described_by: Some(&["awq", ""]),
        claim: awq::claim,
    },
    Scheme {
        name: "eetq",
        settings: &eetq::SETTINGS,
        described_by: Some(&["eetq", ""]),
        claim: eetq::claim,
    },
    Scheme {
        name: "unsupported",
        settings: &SchemeSettings::NONE,
        described_by: None,
        claim: unsupported::claim,
    },
];

/// The settings of the schemes that a method's configurations may have.
pub(crate) fn settings_of(method: &str) -> impl Iterator<Item = &'static SchemeSettings> {
    let settings = SCHEMES.iter().map(|scheme| scheme.settings);
    settings.filter(move |settings| settings.methods.contains(&method))
}

/// Whether a scheme has configurations of this method.
pub(crate) fn is_known_method(method: &str) -> bool {
    settings_of(method).next().is_some()
}

/// ModelOpt's methods, and none: TensorRT-LLM's files, and others that name no method.
const MODELOPT: [&str; 4] = ["modelopt", "modelopt_fp4", "modelopt_mixed", ""];

impl std::fmt::Debug for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheme")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
