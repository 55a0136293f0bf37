//! The description of a tensor of torchao: JSON under the weight's name.

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::quant::scheme::context::{Context, missing, not_known};
use crate::quant::settings::KnownValues::Any;
use crate::quant::settings::SchemeSettings;
use crate::read::catalog::{TensorInfo, quote};
use crate::read::json::{JsonReader, Tree};

/// Names of torchao's configurations, and the older names in transformers.
pub(super) static CONFIGURATIONS: &[&str] = &[
    "AOPerModuleConfig",
    "Float8DynamicActivationFloat8SemiSparseWeightConfig",
    "Float8DynamicActivationFloat8WeightConfig",
    "Float8DynamicActivationInt4WeightConfig",
    "Float8StaticActivationFloat8WeightConfig",
    "Float8WeightOnlyConfig",
    "FPXWeightOnlyConfig",
    "FqnToConfig",
    "GemliteUIntXWeightOnlyConfig",
    "Int4DynamicActivationInt4WeightConfig",
    "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt4WeightConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "Int8DynamicActivationIntxWeightConfig",
    "Int8StaticActivationInt8WeightConfig",
    "Int8WeightOnlyConfig",
    "IntxWeightOnlyConfig",
    "ModuleFqnToConfig",
    "MXDynamicActivationMXWeightConfig",
    "MXFPInferenceConfig",
    "NVFP4DynamicActivationNVFP4WeightConfig",
    "NVFP4InferenceConfig",
    "NVFP4WeightOnlyConfig",
    "UIntXWeightOnlyConfig",
    "autoquant",
    "float8_dynamic_activation_float8_weight",
    "float8_weight_only",
    "fpx_weight_only",
    "gemlite_uintx_weight_only",
    "int4_dynamic_activation_int4_weight",
    "int4_weight_only",
    "int8_dynamic_activation_int4_weight",
    "int8_dynamic_activation_int8_semi_sparse_weight",
    "int8_dynamic_activation_int8_weight",
    "int8_weight_only",
    "uintx_weight_only",
];

/// Parts without which each class is refused where it is read, or that have other names in files of older classes. All others
/// that a description lists must be there.
static OF_CLASSES: &[&str] = &[
    "qdata",
    "scale",
    "int_data",
    "float8_data",
    "packed_weight",
    "packed_weights",
    "scale_and_zero",
    "group_scale",
    "group_zero",
    "row_scale",
    "tensor_impl",
];

/// The keys of a tensor's description, and the attributes of torchao's classes.
static DESCRIPTION: SchemeSettings = SchemeSettings {
    methods: &[],
    keys: &[
        ("_type", Any),
        ("_tensor_data_names", Any),
        ("_data.act_quant_kwargs", Any),
        ("_data.activation_dtype", Any),
        ("_data.activation_quantization", Any),
        ("_data.block_size", Any),
        ("_data.dtype", Any),
        ("_data.elem_dtype", Any),
        ("_data.gemm_kernel_choice", Any),
        ("_data.group_size", Any),
        ("_data.hp_value_lb", Any),
        ("_data.hp_value_ub", Any),
        ("_data.is_swizzled_scales", Any),
        ("_data.kernel_preference", Any),
        ("_data.mm_config", Any),
        ("_data.orig_dtype", Any),
        ("_data.pack_fp6", Any),
        ("_data.quant_max", Any),
        ("_data.quant_min", Any),
        ("_data.reduce_range", Any),
        ("_data.requires_grad", Any),
        ("_data.shape", Any),
        ("_data.target_dtype", Any),
        ("_data.transposed", Any),
        ("_data.use_triton_kernel", Any),
        ("_data.zero_point_domain", Any),
        // the older class's layout object, and the function that quantises inputs
        ("_data._layout", Any),
        // PyTorch's own attribute of parameters, which pickles have
        ("_data._is_param", Any),
        ("_data.input_quant_func", Any),
        ("_data.quant_kwargs", Any),
    ],
};

/// Reads a description, and refuses one whose parts are not all there. `flat` is the name of the parts without their suffix.
pub(super) fn parsed(cx: &Context<'_>, info: &TensorInfo, flat: &str, text: &str) -> Result<Json> {
    let reader = JsonReader::new(cx.budget, "a tensor's description");
    let description = reader.parse(text, Tree(&reader), |e| {
        not_known(info, format!("its description: {e}"))
    })?;
    if let Json::Object(map) = &description {
        cx.know_descriptor(info, "its description", map, &DESCRIPTION)?;
    }
    let names = description
        .get("_tensor_data_names")
        .and_then(Json::as_array);
    let names = names.into_iter().flatten().filter_map(Json::as_str);
    for part in names.filter(|name| !OF_CLASSES.contains(name)) {
        cx.budget
            .steps(1 + flat.len() as u64 / 16, "the parts of a weight")?;
        if cx.sibling(flat, &["_", part].concat()).is_none() {
            return Err(missing(info, part));
        }
    }
    Ok(description)
}

/// Refuses a part that the description does not list: torchao counts the parts that a file has, and reads no weight with others.
pub(super) fn check_listed(
    cx: &Context<'_>,
    info: &TensorInfo,
    flat: &str,
    description: &Json,
    parts: impl Iterator<Item = usize>,
) -> Result<()> {
    // the descriptions that are made of pickled attributes list none
    let Some(listed) = description
        .get("_tensor_data_names")
        .and_then(Json::as_array)
    else {
        return Ok(());
    };
    for part in parts {
        let name = &*cx.info(part).name;
        let own = name
            .strip_prefix(flat)
            .and_then(|rest| rest.strip_prefix('_'));
        cx.budget
            .steps(1 + listed.len() as u64, "the parts of a weight")?;
        if !listed.iter().any(|listed| listed.as_str() == own) {
            let what = format!("its description does not list its part {}", quote(name));
            return Err(not_known(info, what));
        }
    }
    Ok(())
}

/// The block `(rows, cols)`: the last two entries of `block_size`.
pub(super) fn sides(block: Option<&Json>) -> Option<(u64, u64)> {
    match block?.as_array()?.as_slice() {
        [.., high, wide] => Some((high.as_u64()?, wide.as_u64()?)),
        _ => None,
    }
}

/// The name in `{"_type": "torch.dtype", "_data": name}`.
pub(super) fn dtype_name(description: &Json) -> Option<&str> {
    description
        .as_str()
        .or_else(|| description.get("_data")?.as_str())
}
