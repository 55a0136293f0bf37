//! The dtype of a model in its configuration.

use serde_json::{Map, Value as Json};

use crate::base::kernel::Dtype;

use super::keys;

/// The dtype that an object of a configuration states, if weights are dequantised to it.
pub(super) fn stated(map: &Map<String, Json>) -> Option<Dtype> {
    let mut stated = keys::DTYPE.config_json().iter();
    let name = stated.find_map(|key| map.get(*key))?.as_str()?;
    // some programs write the name with its module
    match name.strip_prefix("torch.").unwrap_or(name) {
        "bfloat16" => Some(Dtype::BF16),
        "float16" | "half" => Some(Dtype::F16),
        "float32" | "float" => Some(Dtype::F32),
        _ => None,
    }
}

/// PyTorch's name of a dtype that weights are dequantised to.
pub(crate) fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "float16",
        Dtype::F32 => "float32",
        _ => "bfloat16",
    }
}
