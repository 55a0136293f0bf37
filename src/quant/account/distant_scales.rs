//! Scales of FP8 weights that are under other names than the schemes know, or that are missing.
//!
//! FP8 without scales is often no more than a cast. It is not where a tensor names the weight and says `scale`, as
//! `scales.X` and `a_b_weight_scale` do, nor where other weights of the same layers have a scale.
//!
//! A scale and its weight are compared by their words, whatever stands between these: `.`, `_`, `/` or `:`. Both may lack or
//! have names in front (`model.diffusion_model.`, `_orig_mod.`, `scales.`), so that the last components decide, from the number
//! of the layer on.

use std::collections::{HashMap, HashSet};

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::text_cost;
use crate::models::names::is_output_layer;
use crate::quant::scheme::{Context, SCALED_FP8, module_of_weight, plain};
use crate::read::catalog::quote;

use super::across_layers::{is_number, role};
use super::harmless::is_of_activations;
use super::integers::is_float;
use super::leftovers::MAX_WORDS;
use super::scale_columns;
use super::tensor_claim::{Refusals, TensorClaim, add, is_unscaled};

const WHAT: &str = "the scales of FP8";

/// Adds unscaled weights whose scale is missing to `refused`, and those whose scale may be elsewhere.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if !slots.iter().any(is_unscaled) {
        return Ok(());
    }
    missing(cx, slots, refused, warnings)?;
    let first = slots.iter().position(is_unscaled);
    if let (true, Some(first)) = (cx.is_part(), first) {
        let text = format!(
            "{}: it has no scale, which may be in another file of the checkpoint",
            quote(&cx.info(first).name)
        );
        cx.budget.text(text.len(), WHAT)?;
        warnings.push(text);
    }
    scale_columns::find(cx, slots, warnings)?;
    elsewhere(cx, slots, refused, warnings)
}

/// The layers that a role is of: `model.layers.*`.
fn layers(role: &str) -> Option<&str> {
    let end = role.rfind(".*.")? + ".*".len();
    Some(&role[..end])
}

/// Whether an unscaled weight is a matrix of a layer, which files of scaled FP8 scale. Embeddings and norms may be casts.
fn is_matrix(cx: &Context<'_>, tensor: usize) -> bool {
    let info = cx.info(tensor);
    let is_cast = ["embed", "norm", "shared", "wte", "wpe"]
        .iter()
        .any(|word| info.name.contains(word));
    info.shape.len() > 1 && info.name.ends_with(".weight") && !is_cast
}

/// The names in front of ComfyUI's older marks: a file of several models has one for each that is scaled.
fn marked<'c>(cx: &Context<'c>) -> Result<Vec<&'c str>> {
    let mut found = Vec::new();
    for info in cx.catalog.tensors() {
        cx.budget.steps(1, WHAT)?;
        if let Some(front) = info.name.strip_suffix(SCALED_FP8)
            && (front.is_empty() || front.ends_with('.'))
        {
            cx.budget.push(&mut found, front, WHAT)?;
        }
    }
    Ok(found)
}

/// A weight with scales, beside an output layer without one. Both are matrices of the same model, whatever is not quantised of it.
fn beside_output<'s>(scaled: &'s HashMap<String, &'s str>, name: &str) -> Option<&'s &'s str> {
    match is_output_layer(name) {
        true => scaled.values().min(),
        false => None,
    }
}

fn missing(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let fp8 = || {
        slots
            .iter()
            .enumerate()
            .filter_map(|(tensor, slot)| match slot {
                TensorClaim::Weight(weight) if weight.scheme == "fp8" => Some((tensor, weight)),
                _ => None,
            })
    };
    // the roles of weights with scales and the layers that these are of, each with one of them
    let mut scaled: HashMap<String, &str> = HashMap::new();
    for (_, weight) in fp8().filter(|(_, weight)| weight.parts.len() > 1) {
        cx.budget.steps(1 + weight.name.len() as u64 / 16, WHAT)?;
        cx.budget
            .memory(2 * (text_cost(weight.name.len()) + 64), WHAT)?;
        let role = role(&weight.name);
        if let Some(layers) = layers(&role)
            && !scaled.contains_key(layers)
        {
            scaled.entry(layers.to_owned()).or_insert(&weight.name);
        }
        scaled.entry(role).or_insert(&weight.name);
    }
    let marks = marked(cx)?;
    if scaled.is_empty() && marks.is_empty() {
        return Ok(());
    }
    // a model has a weight of each role in all of its layers
    let mut named: HashSet<String> = HashSet::new();
    for (tensor, weight) in fp8().filter(|(_, weight)| weight.is_unscaled()) {
        cx.budget
            .steps(1 + weight.name.len() as u64 / 16 + marks.len() as u64, WHAT)?;
        let _role = cx.budget.temporary(text_cost(weight.name.len()), WHAT)?;
        let role = role(&weight.name);
        if let Some(like) = scaled.get(&role) {
            let why = format!("it has no scale, unlike {}", quote(like));
            add(cx, refused, tensor, why)?;
            continue;
        }
        if !is_matrix(cx, tensor) {
            continue;
        }
        if let Some(front) = marks.iter().find(|front| weight.name.starts_with(**front)) {
            let mark = [front, SCALED_FP8].concat();
            let why = format!(
                "it has no scale, and {} says that there is one",
                quote(&mark)
            );
            add(cx, refused, tensor, why)?;
        } else if let Some(like) = layers(&role)
            .and_then(|layers| scaled.get(layers))
            .or_else(|| beside_output(&scaled, &weight.name))
            && !named.contains(&role)
        {
            let text = format!(
                "{}: it has no scale, unlike {}; the weight is made without one",
                quote(&weight.name),
                quote(like)
            );
            cx.budget
                .memory(text_cost(text.len()) + text_cost(role.len()) + 64, WHAT)?;
            warnings.push(text);
            named.insert(role);
        }
    }
    Ok(())
}

/// Words that the name of a scale has beside the words of its weight.
static SCALES: &[&str] = &[
    "scale",
    "scales",
    "scaling",
    "descale",
    "dequant",
    "absmax",
    "amax",
    "multiplier",
    "rescale",
    "factor",
    "factors",
    "inv",
    "inverse",
    "weight",
    "weights",
    "w",
    "w8",
    "s",
    "fp8",
    "f8",
    "float8",
    "e4m3",
    "quant",
    "quantizer",
    "global",
    "all",
    "dict",
];

fn is_of_scale(word: &str) -> bool {
    SCALES.contains(&word) || is_number(word)
}

/// A name in lower case, with one sign between its words.
fn joined(name: &str) -> String {
    name.to_ascii_lowercase().replace(['.', '/', ':'], "_")
}

/// Whether a name at the top of a file says no more than that it is a scale, so that it may be of all weights.
pub(super) fn is_scale_of_all(name: &str) -> bool {
    let mut words = name.split('_');
    words
        .clone()
        .any(|word| word.starts_with("scal") || word == "absmax")
        && words.all(is_of_scale)
}

/// The weights without scales, by the words of their modules.
struct UnscaledModules {
    /// The weight, and whether the words are all of its name.
    rows: HashMap<String, (usize, bool)>,
    /// The same, by names of one word, which is a part of many names.
    words: HashMap<String, usize>,
    first: Option<usize>,
}

impl UnscaledModules {
    fn of(cx: &Context<'_>, slots: &[TensorClaim]) -> Result<Self> {
        let mut found = Self {
            rows: HashMap::new(),
            words: HashMap::new(),
            first: None,
        };
        let unscaled = (0..slots.len()).filter(|&tensor| is_unscaled(&slots[tensor]));
        for tensor in unscaled {
            let info = cx.info(tensor);
            // vectors are no weights that scales are of
            if info.shape.len() < 2 {
                continue;
            }
            found.first.get_or_insert(tensor);
            let name = &*info.name;
            match name.strip_suffix(".weight") {
                Some(module) => {
                    found.add(cx, module, tensor, true)?;
                    // PEFT's name in front of a weight, which its scale may lack
                    if let Some(module) = module.strip_suffix(".base_layer") {
                        found.add(cx, module, tensor, false)?;
                    }
                }
                None => {
                    found.add(cx, name, tensor, true)?;
                    // `{"qdata": codes, "scale": scale}` under the name of a module
                    let module = name.rsplit_once('.').map_or("", |(module, _)| module);
                    found.add(cx, module, tensor, false)?;
                }
            }
        }
        Ok(found)
    }

    /// Adds a module under its name, and under its last components from the number of the layer on.
    fn add(&mut self, cx: &Context<'_>, module: &str, tensor: usize, whole: bool) -> Result<()> {
        if !module.contains(['.', '_', '/', ':']) {
            cx.budget.memory(text_cost(module.len()) + 48, WHAT)?;
            self.words.entry(joined(module)).or_insert(tensor);
            return Ok(());
        }
        let all = joined(module);
        let starts: Vec<usize> = std::iter::once(0)
            .chain(module.match_indices('.').map(|(at, _)| at + 1))
            .collect();
        let is_layer = |at: &usize| is_number(module[*at..].split('.').next().unwrap_or(""));
        let last = starts.iter().rposition(is_layer);
        // two components at least
        let end = last.map_or(starts.len(), |at| at + 1).min(starts.len() - 1);
        for (i, &start) in starts[..end.max(1)].iter().take(MAX_WORDS).enumerate() {
            let words = &all[start..];
            cx.budget.steps(1 + words.len() as u64 / 16, WHAT)?;
            cx.budget.memory(text_cost(words.len()) + 64, WHAT)?;
            let row = (tensor, whole && i == 0);
            self.rows.entry(words.to_owned()).or_insert(row);
        }
        Ok(())
    }

    /// The weight that a scale of this name may be of.
    fn owner(&self, cx: &Context<'_>, name: &str) -> Result<Option<usize>> {
        let _joined = cx.budget.temporary(text_cost(name.len()), WHAT)?;
        let words = joined(name);
        let starts = std::iter::once(0).chain(words.match_indices('_').map(|(at, _)| at + 1));
        for (i, start) in starts.take(MAX_WORDS).enumerate() {
            let rest = &words[start..];
            let ends = std::iter::once(rest.len())
                .chain(rest.rmatch_indices('_').map(|(at, _)| at))
                .take(MAX_WORDS);
            for end in ends {
                cx.budget.steps(1 + end as u64 / 64, WHAT)?;
                let Some(&(tensor, whole)) = self.rows.get(&rest[..end]) else {
                    continue;
                };
                // behind a whole name any word may follow; behind the last components of one, words of scales
                if (whole && i < 3) || rest[end..].split('_').skip(1).all(is_of_scale) {
                    return Ok(Some(tensor));
                }
            }
        }
        // a name of one word, beside words of scales
        let mut all = words.split('_').take(MAX_WORDS);
        let own = || {
            all.clone()
                .find_map(|word| Some((word, *self.words.get(word)?)))
        };
        if let Some((word, tensor)) = own().filter(|_| !self.words.is_empty())
            && all.all(|other| other == word || is_of_scale(other))
        {
            return Ok(Some(tensor));
        }
        Ok(match is_scale_of_all(name) {
            true => self.first,
            false => None,
        })
    }
}

/// Whether a name says scale, in any case.
fn is_scale_by_name(name: &str) -> bool {
    const WORDS: &[&[u8]] = &[b"scal", b"amax", b"absmax", b"multiplier"];
    // no copy in lower case: a file decides how long a name is
    WORDS.iter().any(|word| {
        let mut parts = name.as_bytes().windows(word.len());
        parts.any(|part| part.eq_ignore_ascii_case(word))
    })
}

fn elsewhere(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let is_scale = |tensor: usize| {
        let info = cx.info(tensor);
        let name = &*info.name;
        matches!(slots[tensor], TensorClaim::Free)
            && (is_float(&info.encoding) || plain(info) == Some(Dtype::F8_E8M0))
            && is_scale_by_name(name)
            && !is_of_activations(info)
    };
    if !(0..slots.len()).any(is_scale) {
        return Ok(());
    }
    let modules = UnscaledModules::of(cx, slots)?;
    for scale in (0..slots.len()).filter(|&tensor| is_scale(tensor)) {
        let name = &*cx.info(scale).name;
        cx.budget.steps(1 + name.len() as u64 / 16, WHAT)?;
        let Some(weight) = modules.owner(cx, name)? else {
            continue;
        };
        // names on the stem itself are left-over tensors
        let own = &*cx.info(weight).name;
        let stem = module_of_weight(own);
        let rest = name.strip_prefix(stem).unwrap_or("");
        if rest.starts_with('.') || (rest.starts_with('_') && !rest.contains('.')) {
            continue;
        }
        let why = format!(
            "{} may be its scale, under a name that is not known",
            quote(name)
        );
        if cx.config.claims_scales() {
            add(cx, refused, weight, why)?;
        } else {
            cx.budget.text(why.len() + own.len(), WHAT)?;
            let own = quote(own);
            warnings.push(format!("{own}: {why}; the weight is made without it"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{is_scale_of_all, joined, layers};

    #[test]
    fn roles_name_their_layers() {
        assert_eq!(
            layers("model.layers.*.mlp.w1.weight"),
            Some("model.layers.*")
        );
        assert_eq!(layers("experts.*.*.weight"), Some("experts.*.*"));
        assert_eq!(layers("norm2.weight"), None);
    }

    #[test]
    fn names_at_the_top_that_are_scales() {
        for name in ["scales", "fp8_scales", "weight_scale", "global_scale"] {
            assert!(is_scale_of_all(name), "{name}");
        }
        for name in ["logit_scale", "scale_shift_table", "weight", "layer_scale"] {
            assert!(!is_scale_of_all(name), "{name}");
        }
        assert_eq!(joined("a.b/c:scale"), "a_b_c_scale");
    }
}
