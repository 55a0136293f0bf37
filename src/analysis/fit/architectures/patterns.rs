//! Which layer is of which kind.

use serde_json::Value as Json;

use crate::base::error::{Error, Result};
use crate::base::quote::quote;
use crate::models::config::ModelConfig;

use super::{missing, required, window};

/// What a layer attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis::fit) enum LayerKind {
    Full,
    Window,
    Chunk,
    /// A recurrent state, or a convolution.
    Linear,
    /// Full attention and a state.
    Both,
    /// Outputs of an encoder only.
    Cross,
    Shared,
    Nothing,
}

use LayerKind::{Both, Chunk, Cross, Full, Linear, Nothing, Window};

/// The kind of each layer, and what decided it.
pub(super) type LayerKinds = (Vec<LayerKind>, &'static str);

/// By the architecture alone.
const OWN: &str = "the architecture";

/// The kinds of a list that the configuration has: `layer_types`, or `layers_block_type`.
pub(super) fn listed(config: &ModelConfig, n: usize) -> Result<Option<LayerKinds>> {
    let lists = [
        ("layer_types", "layer_types"),
        ("layers_block_type", "layers_block_type"),
    ];
    let Some((key, why)) = lists
        .into_iter()
        .find(|(key, _)| config.get(key).is_some_and(|v| !v.is_null()))
    else {
        return Ok(None);
    };
    let list = config.list(key).ok_or_else(|| missing(key))?;
    if list.len() != n {
        return Err(Error::malformed(format!(
            "the configuration's {key} has {} entries, for {n} layers",
            list.len()
        )));
    }
    let kinds: Result<Vec<LayerKind>> = list.iter().map(|name| named(name, key)).collect();
    Ok(Some((kinds?, why)))
}

fn named(name: &Json, key: &str) -> Result<LayerKind> {
    let name = name.as_str().ok_or_else(|| missing(key))?;
    Ok(match name {
        "full_attention" | "attention" | "indexed_attention" => Full,
        "sliding_attention" => Window,
        "chunked_attention" => Chunk,
        "linear_attention" | "mamba" | "mamba2" | "recurrent" | "conv" | "short_conv" => Linear,
        "hybrid" => Both,
        "mlp" | "moe" => Nothing,
        _ => {
            return Err(Error::unsupported(format!(
                "the configuration's {key} has layers of the unknown kind {}",
                quote(name)
            )));
        }
    })
}

/// The list is part of every configuration of the architecture.
pub(super) fn must_be_listed(_: &ModelConfig, _: usize) -> Result<LayerKinds> {
    Err(missing("layer_types"))
}

pub(super) fn full(_: &ModelConfig, n: usize) -> Result<LayerKinds> {
    Ok((vec![Full; n], OWN))
}

/// Attention to all tokens: a window without a list of layers is not used.
pub(super) fn windows_if_listed(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    // Qwen 3 reads `use_sliding_window` as Qwen 2 does
    if config.flag("use_sliding_window") == Some(true) {
        return windows_after(config, n);
    }
    full(config, n)
}

pub(super) fn linear(_: &ModelConfig, n: usize) -> Result<LayerKinds> {
    Ok((vec![Linear; n], OWN))
}

pub(super) fn both(_: &ModelConfig, n: usize) -> Result<LayerKinds> {
    Ok((vec![Both; n], OWN))
}

pub(super) fn all_windows(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    match window(config) {
        Some(_) => Ok((vec![Window; n], "sliding_window")),
        None => full(config, n),
    }
}

/// Windows from layer `max_window_layers` on, if `use_sliding_window` is set.
pub(super) fn windows_after(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.flag("use_sliding_window") != Some(true) || window(config).is_none() {
        return full(config, n);
    }
    let first = config.size(&["max_window_layers"]).unwrap_or(28);
    let kind = |i: usize| if i as u64 >= first { Window } else { Full };
    Ok(((0..n).map(kind).collect(), "max_window_layers"))
}

/// Every `period`-th layer attends to all tokens, and the others are of the kind `rest`. The configuration may state another
/// period for windows.
pub(super) fn every(
    config: &ModelConfig,
    n: usize,
    period: u64,
    rest: LayerKind,
) -> Result<LayerKinds> {
    let (mut period, mut why) = (period, OWN);
    if rest == Window {
        for key in ["sliding_window_pattern", "_sliding_window_pattern"] {
            if let Some(stated) = config.size(&[key]) {
                (period, why) = (stated, "sliding_window_pattern");
            } else if let Some(letters) = config.text(key).filter(|text| !text.is_empty()) {
                return letter_pattern(letters, n);
            }
        }
    }
    if period == 0 {
        return full(config, n);
    }
    let kind = |i: usize| {
        if (i as u64 + 1).is_multiple_of(period) {
            Full
        } else {
            rest
        }
    };
    Ok(((0..n).map(kind).collect(), why))
}

/// Letters that are repeated: `LLLG` for three layers with windows and one without. The last layer has none.
fn letter_pattern(letters: &str, n: usize) -> Result<LayerKinds> {
    let letters = letters.as_bytes();
    let kind = |i: usize| match letters[i % letters.len()] {
        b'G' => Ok(Full),
        b'L' if i + 1 == n => Ok(Full),
        b'L' => Ok(Window),
        _ => Err(missing("sliding_window_pattern")),
    };
    let kinds: Result<Vec<LayerKind>> = (0..n).map(kind).collect();
    Ok((kinds?, "sliding_window_pattern"))
}

/// Every sixth layer and the last attend to all tokens.
pub(super) fn gemma4(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let (mut kinds, why) = every(config, n, 6, Window)?;
    if let Some(last) = kinds.last_mut() {
        *last = Full;
    }
    Ok((kinds, why))
}

/// A list with a number per layer: those with the number `full` attend to all tokens, the others are of the kind `rest`. `None`
/// if it has not one for each layer.
fn flagged(
    config: &ModelConfig,
    n: usize,
    key: &'static str,
    full: u64,
    rest: LayerKind,
) -> Option<LayerKinds> {
    let list = config.list(key).filter(|list| list.len() == n)?;
    let kind = |flag: &Json| {
        if flag.as_u64() == Some(full) {
            Full
        } else {
            rest
        }
    };
    Some((list.iter().map(kind).collect(), key))
}

/// Layers with rotated positions attend to chunks.
pub(super) fn llama4(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.size(&["attention_chunk_size"]).is_none() {
        return full(config, n);
    }
    // despite its name, the list has 1 for layers with rotation
    if let Some(kinds) = flagged(config, n, "no_rope_layers", 0, Chunk) {
        return Ok(kinds);
    }
    let interval = config.size(&["no_rope_layer_interval"]).unwrap_or(4);
    every(config, n, interval, Chunk)
}

/// The first layer and every sixth attend to all tokens.
pub(super) fn mimo(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if let Some(kinds) = flagged(config, n, "hybrid_layer_pattern", 0, Window) {
        return Ok(kinds);
    }
    let (mut kinds, why) = every(config, n, 6, Window)?;
    if let Some(first) = kinds.first_mut() {
        *first = Full;
    }
    Ok((kinds, why))
}

/// Layers by number: those of a list attend to all tokens, the others are recurrent.
pub(super) fn listed_numbers(
    config: &ModelConfig,
    n: usize,
    key: &'static str,
    base: usize,
) -> Result<LayerKinds> {
    let list = config.list(key).ok_or_else(|| missing(key))?;
    numbered(list, n, key, base)
}

fn numbered(list: &[Json], n: usize, key: &'static str, base: usize) -> Result<LayerKinds> {
    let mut kinds = vec![Linear; n];
    for number in list {
        let at = number
            .as_u64()
            .and_then(|at| usize::try_from(at).ok()?.checked_sub(base));
        let kind = at.and_then(|at| kinds.get_mut(at));
        *kind.ok_or_else(|| missing(key))? = Full;
    }
    Ok((kinds, key))
}

pub(super) fn kimi(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let listed = config
        .get("linear_attn_config")
        .and_then(|inside| inside.get("full_attn_layers"));
    match listed.and_then(Json::as_array) {
        // numbers from 1
        Some(list) => numbered(list, n, "full_attn_layers", 1),
        None => every(config, n, 4, Linear),
    }
}

pub(super) fn jamba(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let period = required(config, &["attn_layer_period"])?.max(1);
    let offset = required(config, &["attn_layer_offset"])?;
    let kind = |i: usize| {
        if i as u64 % period == offset {
            Full
        } else {
            Linear
        }
    };
    Ok(((0..n).map(kind).collect(), "attn_layer_period"))
}

/// Number of layers of Nemotron-H: the length of its list or pattern.
pub(super) fn nemotron_layers(config: &ModelConfig) -> Option<u64> {
    let listed = config
        .list("layers_block_type")
        .or_else(|| config.list("layer_types"));
    let listed = listed.map(|list| list.len() as u64);
    let letters = || {
        config
            .text("hybrid_override_pattern")
            .map(|text| text.len() as u64)
    };
    listed
        .or_else(letters)
        .or_else(|| config.size(&["num_hidden_layers"]))
}

pub(super) fn nemotron(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let key = "hybrid_override_pattern";
    let letters = config.text(key).ok_or_else(|| missing(key))?;
    let kind = |letter: u8| match letter {
        b'M' => Ok(Linear),
        b'*' => Ok(Full),
        b'-' | b'E' => Ok(Nothing),
        _ => Err(missing(key)),
    };
    let kinds: Result<Vec<LayerKind>> = letters.bytes().map(kind).collect();
    let kinds = kinds?;
    if kinds.len() != n {
        return Err(missing(key));
    }
    Ok((kinds, key))
}

/// Seven layers of lightning attention, then one that attends to all tokens.
pub(super) fn minimax(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    match flagged(config, n, "attn_type_list", 1, Linear) {
        Some(kinds) => Ok(kinds),
        None => every(config, n, 8, Linear),
    }
}

pub(super) fn lfm2(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    match config.list("full_attn_idxs") {
        Some(list) => numbered(list, n, "full_attn_idxs", 0),
        None => Err(missing("layer_types")),
    }
}

/// Two recurrent layers, then one with a window; or the list that is repeated.
pub(super) fn recurrent_gemma(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let kind = |name: &Json| match named(name, "block_types")? {
        Full => Ok(Window),
        kind => Ok(kind),
    };
    let (types, why) = match config.list("block_types").filter(|list| !list.is_empty()) {
        Some(list) => (
            list.iter().map(kind).collect::<Result<Vec<_>>>()?,
            "block_types",
        ),
        None => (vec![Linear, Linear, Window], OWN),
    };
    Ok((types.iter().copied().cycle().take(n).collect(), why))
}

/// Layers of a list attend to the image alone.
pub(super) fn mllama(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let mut kinds = vec![Full; n];
    for number in config.list("cross_attention_layers").unwrap_or_default() {
        let at = number.as_u64().and_then(|at| usize::try_from(at).ok());
        let kind = at.and_then(|at| kinds.get_mut(at));
        *kind.ok_or_else(|| missing("cross_attention_layers"))? = Cross;
    }
    Ok((kinds, "cross_attention_layers"))
}
