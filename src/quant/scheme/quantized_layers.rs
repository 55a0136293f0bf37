//! ModelOpt's settings of single layers, `quantized_layers`.

use serde_json::{Map, Value as Json};

use crate::models::names::LayerName;

use super::MODELOPT;
use super::context::Context;

/// The layers that have an algorithm each: of `MIXED_PRECISION`.
pub(super) fn layers<'c>(cx: &Context<'c>) -> Option<&'c Map<String, Json>> {
    let is_own = cx.config.is_of(&MODELOPT[..3]);
    let layers = cx.config.get("quantized_layers").filter(|_| is_own);
    layers.and_then(Json::as_object)
}

/// The settings of a module among them. A multimodal model has its language model under a prefix that the configuration may lack.
pub(super) fn layer<'c>(cx: &Context<'c>, module: &str) -> Option<&'c Json> {
    let layers = layers(cx)?;
    let inner = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
    let mut names = std::iter::once(module).chain(inner);
    names.find_map(|name| layers.get(name)).or_else(|| {
        // or has another one, as its first layer does
        let own = LayerName::of(module)?;
        let stack = layers.keys().find_map(|name| LayerName::of(name))?.stack;
        layers.get(&format!("{stack}.{}.{}", own.number, own.rest))
    })
}

/// The algorithm of a module: of its layer, else of all.
pub(super) fn algorithm<'c>(cx: &Context<'c>, module: &str) -> Option<&'c str> {
    let own = layer(cx, module).and_then(|own| own.get("quant_algo")?.as_str());
    own.or_else(|| cx.config.text("quant_algo"))
}
