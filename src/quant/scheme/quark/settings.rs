//! The settings of configurations of Quark that are known.

use crate::quant::settings::KnownValues::{Any, Count, Flag, Texts, Version};
use crate::quant::settings::{KnownValues, SchemeSettings};

/// Rows of settings, and rows of the settings of a weight: for all layers and for one, for one step of quantisation and for
/// several.
macro_rules! settings {
    ($($row:expr),* ; $(($key:literal, $values:expr)),* $(,)?) => {
        &[
            $($row,)*
            $(
                (concat!("global_quant_config.weight.", $key), $values),
                (concat!("global_quant_config.weight.*.", $key), $values),
                (concat!("layer_quant_config.*.weight.", $key), $values),
                (concat!("layer_quant_config.*.weight.*.", $key), $values),
            )*
        ]
    };
}

/// Algorithms that are folded into the weights and their inputs. Rotations are not on the list.
const ALGORITHMS: KnownValues = Texts(&["awq", "smooth", "gptq", "autosmoothquant"]);

pub(in crate::quant::scheme) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["quark"],
    keys: settings![
        ("version", Version),
        // names and packing of other libraries, for which Quark has exported
        ("custom_mode", Texts(&["quark"])),
        ("quant_mode", Any),
        ("exclude", Any),
        ("kv_cache_quant_config", Any),
        ("kv_cache_group", Any),
        ("kv_cache_post_rope", Any),
        ("min_kv_scale", Any),
        ("softmax_quant_spec", Any),
        // the types of layers are not in a checkpoint, so that no weight can be read by them
        ("layer_type_quant_config", Texts(&[])),
        // smoothing is folded into the weights and their inputs; rotations are not on the list
        (
            "algo_config.name",
            ALGORITHMS,
        ),
        (
            "algo_config.*.name",
            ALGORITHMS,
        ),
        ("algo_config.*.alpha", Any),
        ("algo_config.*.block_size", Any),
        ("algo_config.*.damp_percent", Any),
        ("algo_config.*.desc_act", Any),
        ("algo_config.*.inside_layer_modules", Any),
        ("algo_config.*.static_groups", Any),
        ("algo_config.alpha", Any),
        ("algo_config.block_size", Any),
        ("algo_config.damp_percent", Any),
        ("algo_config.desc_act", Any),
        ("algo_config.inside_layer_modules", Any),
        ("algo_config.model_decoder_layers", Any),
        ("algo_config.scaling_layers", Any),
        ("algo_config.static_groups", Any),
        ("algo_config.*.scaling_layers", Any),
        ("algo_config.*.model_decoder_layers", Any),
        ("algo_config.*.embedding_layers", Any),
        ("algo_config.*.num_attention_heads", Any),
        ("algo_config.*.num_key_value_heads", Any),
        ("export.pack_method", Texts(&["reorder", "order"])),
        (
            "export.weight_format",
            Texts(&["real_quantized", "fake_quantized"]),
        ),
        ("export.kv_cache_group", Any),
        ("export.min_kv_scale", Any),
        ("export.weight_merge_groups", Any),
        ("global_quant_config.input_tensors", Any),
        ("global_quant_config.output_tensors", Any),
        ("global_quant_config.bias", Any),
        ("global_quant_config.target_device", Any),
        ("layer_quant_config.*.input_tensors", Any),
        ("layer_quant_config.*.output_tensors", Any),
        ("layer_quant_config.*.bias", Any),
        ("layer_quant_config.*.target_device", Any) ;
        (
            "dtype",
            Texts(&[
                "int2",
                "uint2",
                "int3",
                "int4",
                "uint4",
                "int8",
                "uint8",
                "fp4",
                "fp6_e2m3",
                "fp6_e3m2",
                "fp8_e4m3",
                "fp8_e5m2",
                "mx",
                "bfloat16",
                "float16",
            ])
        ),
        ("mx_element_dtype", Texts(&["fp4", "fp6_e2m3", "fp6_e3m2", "fp8_e4m3", "fp8_e5m2", "int8"])),
        ("qscheme", Texts(&["per_tensor", "per_channel", "per_group"])),
        ("scale_format", Texts(&["e8m0", "e5m3", "e4m3", "float32", "float16", "bfloat16"])),
        ("symmetric", Flag),
        ("is_dynamic", Flag),
        ("is_scale_quant", Flag),
        ("group_size", Count),
        ("ch_axis", KnownValues::Number),
        ("observer_cls", Any),
        ("requires_grad", Any),
        ("round_method", Any),
        ("scale_calculation_mode", Any),
        ("scale_type", Any),
        ("zero_point_type", Texts(&["int32", "float32"])),
    ],
};
