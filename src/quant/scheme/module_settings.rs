//! The settings that a configuration has of a single module, whatever its method calls them.

use serde_json::Value;

use crate::base::error::Result;

use super::context::Context;
use super::{autoround, compressed_tensors, mlx, quantized_layers, quark, qweight};

/// The settings of a module, where the configuration has settings of single modules and one entry names it.
pub(crate) fn settings_of_module<'c>(cx: &Context<'c>, module: &str) -> Result<Option<&'c Value>> {
    if cx.config.is_empty() {
        return Ok(None);
    }
    if let Some(own) = compressed_tensors::settings_of_module(cx, module)? {
        return Ok(Some(own));
    }
    if let Some(own) = autoround::settings_of_module(cx, module)? {
        return Ok(Some(own));
    }
    let own = quantized_layers::layer(cx, module)
        .or_else(|| quark::settings_of_module(cx, module))
        .or_else(|| mlx::settings_of_module(cx, module));
    Ok(own.or_else(|| qweight::settings_of_module(cx, module)))
}
