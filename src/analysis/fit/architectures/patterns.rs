//! Which layer is of which kind.

use serde_json::Value as Json;

use crate::base::error::{Error, Result};
use crate::base::quote::quote;
use crate::models::config::ModelConfig;
use crate::models::config::keys::{self, ConfigField};

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

/// The kinds of a list that the configuration has.
pub(super) fn listed(config: &ModelConfig, n: usize) -> Result<Option<LayerKinds>> {
    let field = &keys::LAYER_KINDS;
    if config.value(field).is_none() {
        return Ok(None);
    }
    let (key, list) = (field.key(false), config.list(field));
    let list = list.ok_or_else(|| config.missing(field))?;
    if list.len() != n {
        return Err(Error::malformed(format!(
            "the configuration's {key} has {} entries, for {n} layers",
            list.len()
        )));
    }
    let kinds: Result<Vec<LayerKind>> =
        list.iter().map(|name| named(config, name, field)).collect();
    Ok(Some((kinds?, key)))
}

fn named(config: &ModelConfig, name: &Json, field: &'static ConfigField) -> Result<LayerKind> {
    let name = name.as_str().ok_or_else(|| config.missing(field))?;
    Ok(match name {
        "full_attention" | "attention" | "indexed_attention" => Full,
        "sliding_attention" => Window,
        "chunked_attention" => Chunk,
        "linear_attention" | "mamba" | "mamba2" | "recurrent" | "conv" | "short_conv" => Linear,
        "hybrid" => Both,
        "mlp" | "moe" => Nothing,
        _ => {
            return Err(Error::unsupported(format!(
                "the configuration's {} has layers of the unknown kind {}",
                field.key(false),
                quote(name)
            )));
        }
    })
}

/// The list is part of every configuration of the architecture.
pub(super) fn must_be_listed(config: &ModelConfig, _: usize) -> Result<LayerKinds> {
    Err(config.missing(&keys::LAYER_KINDS))
}

pub(super) fn full(_: &ModelConfig, n: usize) -> Result<LayerKinds> {
    Ok((vec![Full; n], OWN))
}

/// Attention to all tokens: a window without a list of layers is not used.
pub(super) fn windows_if_listed(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    // Qwen 3 reads `use_sliding_window` as Qwen 2 does
    if config.truth(&keys::USES_WINDOW) == Some(true) {
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
    match config.sliding_window() {
        Some(_) => Ok((vec![Window; n], keys::SLIDING_WINDOW.key(false))),
        None => full(config, n),
    }
}

/// Windows from layer `max_window_layers` on, if `use_sliding_window` is set.
pub(super) fn windows_after(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.truth(&keys::USES_WINDOW) != Some(true) || config.sliding_window().is_none() {
        return full(config, n);
    }
    let first = config.number(&keys::FIRST_WINDOW_LAYER).unwrap_or(28);
    let kind = |i: usize| if i as u64 >= first { Window } else { Full };
    Ok((
        (0..n).map(kind).collect(),
        keys::FIRST_WINDOW_LAYER.key(false),
    ))
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
        let field = &keys::WINDOW_PATTERN;
        if let Some(stated) = config.number(field) {
            (period, why) = (stated, field.key(false));
        } else if let Some(letters) = config.setting(field).filter(|text| !text.is_empty()) {
            return letter_pattern(config, letters, n);
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
fn letter_pattern(config: &ModelConfig, letters: &str, n: usize) -> Result<LayerKinds> {
    let letters = letters.as_bytes();
    let kind = |i: usize| match letters[i % letters.len()] {
        b'G' => Ok(Full),
        b'L' if i + 1 == n => Ok(Full),
        b'L' => Ok(Window),
        _ => Err(config.missing(&keys::WINDOW_PATTERN)),
    };
    let kinds: Result<Vec<LayerKind>> = (0..n).map(kind).collect();
    Ok((kinds?, keys::WINDOW_PATTERN.key(false)))
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
    field: &'static ConfigField,
    full: u64,
    rest: LayerKind,
) -> Option<LayerKinds> {
    let list = config.list(field).filter(|list| list.len() == n)?;
    let kind = |flag: &Json| {
        if flag.as_u64() == Some(full) {
            Full
        } else {
            rest
        }
    };
    Some((list.iter().map(kind).collect(), field.key(false)))
}

/// Layers with rotated positions attend to chunks.
pub(super) fn llama4(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.number(&keys::CHUNK).is_none() {
        return full(config, n);
    }
    // despite its name, the list has 1 for layers with rotation
    if let Some(kinds) = flagged(config, n, &keys::ROTATED_LAYERS, 0, Chunk) {
        return Ok(kinds);
    }
    let interval = config.number(&keys::UNROTATED_INTERVAL).unwrap_or(4);
    every(config, n, interval, Chunk)
}

/// The first layer and every sixth attend to all tokens.
pub(super) fn mimo(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if let Some(kinds) = flagged(config, n, &keys::WINDOW_FLAGS, 0, Window) {
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
    field: &'static ConfigField,
    base: usize,
) -> Result<LayerKinds> {
    let list = config.list(field).ok_or_else(|| config.missing(field))?;
    let mut kinds = vec![Linear; n];
    for number in list {
        let at = number
            .as_u64()
            .and_then(|at| usize::try_from(at).ok()?.checked_sub(base));
        let kind = at.and_then(|at| kinds.get_mut(at));
        *kind.ok_or_else(|| config.missing(field))? = Full;
    }
    Ok((kinds, field.key(false)))
}

pub(super) fn kimi(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.list(&keys::ATTENTION_NUMBERS).is_none() {
        return every(config, n, 4, Linear);
    }
    listed_numbers(config, n, &keys::ATTENTION_NUMBERS, 1)
}

pub(super) fn jamba(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let period = config.required(&keys::ATTENTION_PERIOD)?.max(1);
    let offset = config.required(&keys::ATTENTION_OFFSET)?;
    let kind = |i: usize| {
        if i as u64 % period == offset {
            Full
        } else {
            Linear
        }
    };
    Ok((
        (0..n).map(kind).collect(),
        keys::ATTENTION_PERIOD.key(false),
    ))
}

/// Number of layers of Nemotron-H: the length of its list or pattern.
pub(super) fn nemotron_layers(config: &ModelConfig) -> Option<u64> {
    let listed = config.list(&keys::LAYER_KINDS);
    let listed = listed.map(|list| list.len() as u64);
    let letters = || Some(config.setting(&keys::LAYER_LETTERS)?.len() as u64);
    listed.or_else(letters).or_else(|| config.layers())
}

pub(super) fn nemotron(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let field = &keys::LAYER_LETTERS;
    let letters = config.setting(field);
    let letters = letters.ok_or_else(|| config.missing(field))?;
    let kind = |letter: u8| match letter {
        b'M' => Ok(Linear),
        b'*' => Ok(Full),
        b'-' | b'E' => Ok(Nothing),
        _ => Err(config.missing(field)),
    };
    let kinds: Result<Vec<LayerKind>> = letters.bytes().map(kind).collect();
    let kinds = kinds?;
    if kinds.len() != n {
        return Err(config.missing(field));
    }
    Ok((kinds, field.key(false)))
}

/// Seven layers of lightning attention, then one that attends to all tokens.
pub(super) fn minimax(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    match flagged(config, n, &keys::ATTENTION_FLAGS, 1, Linear) {
        Some(kinds) => Ok(kinds),
        None => every(config, n, 8, Linear),
    }
}

pub(super) fn lfm2(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.list(&keys::ATTENTION_IDXS).is_none() {
        return must_be_listed(config, n);
    }
    listed_numbers(config, n, &keys::ATTENTION_IDXS, 0)
}

/// Two recurrent layers, then one with a window; or the list that is repeated.
pub(super) fn recurrent_gemma(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let field = &keys::REPEATED_KINDS;
    let kind = |name: &Json| match named(config, name, field)? {
        Full => Ok(Window),
        kind => Ok(kind),
    };
    let (types, why) = match config.list(field).filter(|list| !list.is_empty()) {
        Some(list) => (
            list.iter().map(kind).collect::<Result<Vec<_>>>()?,
            field.key(false),
        ),
        None => (vec![Linear, Linear, Window], OWN),
    };
    Ok((types.iter().copied().cycle().take(n).collect(), why))
}

/// Layers of a list attend to the image alone.
pub(super) fn mllama(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let mut kinds = vec![Full; n];
    let field = &keys::CROSS_LAYERS;
    for number in config.list(field).unwrap_or_default() {
        let at = number.as_u64().and_then(|at| usize::try_from(at).ok());
        let kind = at.and_then(|at| kinds.get_mut(at));
        *kind.ok_or_else(|| config.missing(field))? = Cross;
    }
    Ok((kinds, field.key(false)))
}
