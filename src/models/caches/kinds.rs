//! Which layer is of which kind: the patterns that several architectures have.

use serde_json::Value as Json;

use crate::base::error::{Error, Result};
use crate::base::quote::quote;
use crate::models::config::ModelConfig;
use crate::models::config::keys::{self, ConfigField};

/// The tokens that a layer attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models) enum LayerKind {
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

use LayerKind::{Both, Chunk, Full, Linear, Nothing, Window};

/// The layer whose cache is made.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct CachedLayer {
    pub(in crate::models) kind: LayerKind,
    pub(in crate::models) number: usize,
    /// Whether the engine keeps heads of keys and values as it computes with them: Falcon's are repeated for all queries.
    pub(in crate::models) expanded: bool,
}

impl CachedLayer {
    pub(in crate::models) fn of_kind(self, kind: LayerKind) -> Self {
        Self { kind, ..self }
    }
}

/// The kind of each layer, and what decided it.
pub(in crate::models) type LayerKinds = (Vec<LayerKind>, &'static str);

/// By the architecture alone.
pub(in crate::models) const OWN: &str = "the architecture";

/// The kinds of a list that the configuration has.
pub(in crate::models) fn listed(config: &ModelConfig, n: usize) -> Result<Option<LayerKinds>> {
    let field = &keys::LAYER_KINDS;
    if config.value(field).is_none() {
        return Ok(None);
    }
    let (key, list) = (field.key(false), config.list(field));
    let list = list.ok_or_else(|| config.missing(field))?;
    // a list for another number of layers belongs to another model, and must not be stretched
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

pub(in crate::models) fn named(
    config: &ModelConfig,
    name: &Json,
    field: &'static ConfigField,
) -> Result<LayerKind> {
    let name = name.as_str().ok_or_else(|| config.missing(field))?;
    Ok(match name {
        "full_attention" | "attention" | "indexed_attention" => Full,
        "sliding_attention" => Window,
        "chunked_attention" => Chunk,
        "linear_attention" | "mamba" | "mamba2" | "recurrent" | "conv" | "short_conv" => Linear,
        "hybrid" => Both,
        "mlp" | "moe" => Nothing,
        _ => {
            // refused and not guessed: a wrong kind changes an estimate by orders of magnitude
            return Err(Error::unsupported(format!(
                "the configuration's {} has layers of the unknown kind {}",
                field.key(false),
                quote(name)
            )));
        }
    })
}

/// The list is part of every configuration of the architecture.
pub(in crate::models) fn must_be_listed(config: &ModelConfig, _: usize) -> Result<LayerKinds> {
    Err(config.missing(&keys::LAYER_KINDS))
}

pub(in crate::models) fn full(_: &ModelConfig, n: usize) -> Result<LayerKinds> {
    Ok((vec![Full; n], OWN))
}

/// Attention to all tokens: a window without a list of layers is not used.
pub(in crate::models) fn windows_if_listed(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    // Qwen 3 reads `use_sliding_window` as Qwen 2 does
    if config.truth(&keys::USES_WINDOW) == Some(true) {
        return windows_after(config, n);
    }
    full(config, n)
}

pub(in crate::models) fn linear(_: &ModelConfig, n: usize) -> Result<LayerKinds> {
    Ok((vec![Linear; n], OWN))
}

pub(in crate::models) fn both(_: &ModelConfig, n: usize) -> Result<LayerKinds> {
    Ok((vec![Both; n], OWN))
}

pub(in crate::models) fn all_windows(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    match config.sliding_window() {
        Some(_) => Ok((vec![Window; n], keys::SLIDING_WINDOW.key(false))),
        None => full(config, n),
    }
}

/// Windows from layer `max_window_layers` on, if `use_sliding_window` is set.
pub(in crate::models) fn windows_after(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.truth(&keys::USES_WINDOW) != Some(true) || config.sliding_window().is_none() {
        return full(config, n);
    }
    // transformers' default of `max_window_layers`
    let first = config.number(&keys::FIRST_WINDOW_LAYER).unwrap_or(28);
    let kind = |i: usize| if i as u64 >= first { Window } else { Full };
    Ok((
        (0..n).map(kind).collect(),
        keys::FIRST_WINDOW_LAYER.key(false),
    ))
}

/// Every `period`-th layer attends to all tokens, and the others are of the kind `rest`. The configuration may state another
/// period for windows.
pub(in crate::models) fn every(
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

/// A list with a number per layer: those with the number `full` attend to all tokens, the others are of the kind `rest`. `None`
/// if it has not one for each layer.
pub(in crate::models) fn flagged(
    config: &ModelConfig,
    n: usize,
    field: &'static ConfigField,
    full: u64,
    rest: LayerKind,
) -> Option<LayerKinds> {
    // a list for another number of layers says nothing about these
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

/// Layers by number: layers of a list attend to all tokens, the others are recurrent.
pub(in crate::models) fn listed_numbers(
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
