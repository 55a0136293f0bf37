//! The parts of a weight, compared with the parts of the same weight in other layers.
//!
//! A writer stores a module of all layers and experts in one way, so that a factor, an offset, an index or a marker that other layers
//! have was lost where one lacks it. Most schemes read a weight without such a part too, with other values.
//!
//! Names are compared without the numbers in them, but for a module that is called by a number: `mlp.0` and `mlp.2` of a sequence
//! are two modules. Only weights of one scheme, one kind of numbers and the same settings are compared: layers may be quantised in
//! several ways.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::base::error::Result;
use crate::base::limits::text_cost;
use crate::plan::NumberKind;
use crate::quant::scheme::{Context, Weight, module_of_weight, settings_of_module};
use crate::read::catalog::quote;

use super::integers::is_float;
use super::tensor_claim::{Refusals, TensorClaim, add};

const WHAT: &str = "the layers of the weights";

/// Parts that do not change the values of a weight.
static WITHOUT_EFFECT: &[&str] = &["codes", "activation", "activation_step", "weight_format"];

/// Schemes whose descriptors list the parts of each weight, which are compared with it where they are read.
static DESCRIBED: &[&str] = &["bitsandbytes", "hqq", "torchao"];

/// A name without the numbers of its layers: `model.layers.*.mlp.down_proj.weight`.
pub(super) fn role(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (i, part) in name.split('.').enumerate() {
        if i > 0 {
            out.push('.');
        }
        out.push_str(if is_number(part) { "*" } else { part });
    }
    out
}

pub(super) fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())
}

/// The role of a weight, in which the last component of its module stands as it is. `None` for one that is in no layer.
fn role_of_module(name: &str) -> Option<String> {
    let module = module_of_weight(name);
    let (front, last) = module.rsplit_once('.')?;
    let layers = role(front);
    let rest = &name[module.len()..];
    layers
        .contains('*')
        .then(|| [&layers, ".", last, rest].concat())
}

/// Adds weights that lack a part which other layers have to `refused`. The types of GGUF say how their blocks are read, and converters
/// leave out a factor of 1, so that these weights are made, with a warning.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    unclaimed_codes(cx, slots, refused)?;
    // most models have weights of one kind each, of which none lacks anything
    if are_alike(cx, slots)? {
        return Ok(());
    }
    let mut missing = missing_parts(cx, slots, false)?;
    // settings of single modules are patterns, with which few models' weights are compared
    if !missing.is_empty() {
        missing = missing_parts(cx, slots, true)?;
    }
    for (tensor, part) in missing {
        let TensorClaim::Weight(weight) = &slots[tensor] else {
            continue;
        };
        let why = lacks(cx, module_of_weight(&weight.name), part);
        if weight.scheme == "ggml" {
            let text = format!(
                "{}: {why}; the weight is made without it",
                quote(&weight.name)
            );
            cx.budget.text(text.len(), WHAT)?;
            warnings.push(text);
        } else {
            add(cx, refused, tensor, why)?;
        }
    }
    Ok(())
}

/// The reason for a weight that lacks what `part` is in another layer. `module`: the components that both names have in front.
fn lacks(cx: &Context<'_>, module: &str, part: usize) -> String {
    let part = &*cx.info(part).name;
    let (rest, part) = (quote(behind(part, module)), quote(part));
    format!("{rest} is missing, which the same weight of another layer has ({part})")
}

/// The rest of a part's name behind as many components as a module's name has.
fn behind<'n>(part: &'n str, module: &str) -> &'n str {
    let depth = module.split('.').count();
    let rest = part.splitn(depth + 1, '.').nth(depth);
    // stacked experts are named after the parameter
    rest.unwrap_or(part.rsplit_once('.').map_or(part, |(_, last)| last))
}

/// The claimed weights that are compared.
fn compared(slots: &[TensorClaim]) -> impl Iterator<Item = (usize, &Weight)> {
    slots.iter().enumerate().filter_map(|(tensor, slot)| {
        let TensorClaim::Weight(weight) = slot else {
            return None;
        };
        // FP8 without scales is compared with the rest of its layers too (`distant_scales.rs`)
        let is_compared = !DESCRIBED.contains(&weight.scheme) && !weight.is_unscaled();
        is_compared.then_some((tensor, &**weight))
    })
}

/// Whether all weights of a scheme have the same parts.
fn are_alike(cx: &Context<'_>, slots: &[TensorClaim]) -> Result<bool> {
    let mut first: Vec<&Weight> = Vec::new();
    for (_, weight) in compared(slots) {
        cx.budget.steps(1, WHAT)?;
        let like = first.iter().find(|like| like.scheme == weight.scheme);
        let Some(like) = like else {
            first.push(weight);
            continue;
        };
        let mut pairs = like.parts.iter().zip(&weight.parts);
        let is_alike = like.parts.len() == weight.parts.len();
        if !is_alike || pairs.any(|(like, part)| like.role != part.role) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Weights that are compared with each other.
#[derive(PartialEq, Eq, Hash)]
struct Neighbours {
    /// The role of the weight, and the settings of its module.
    role: String,
    scheme: &'static str,
    bits: u32,
    format: &'static str,
}

/// A part that a weight has, and the block of the weight that shares a scale. Finer blocks may have parts that coarser ones lack.
struct KnownPart {
    role: &'static str,
    block: Option<(u64, u64)>,
    tensor: usize,
}

/// Weights without a part, each with the first such part of another layer's. `by_settings`: whether weights with settings of their own
/// are compared with the weights that have the same ones.
fn missing_parts(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    by_settings: bool,
) -> Result<Vec<(usize, usize)>> {
    let mut known: HashMap<Neighbours, Vec<KnownPart>> = HashMap::new();
    for (_, weight) in compared(slots) {
        let Some(neighbours) = Neighbours::of(cx, weight, by_settings)? else {
            continue;
        };
        let block = block(weight);
        let cost = text_cost(neighbours.role.len()) + 128;
        let parts = match known.get_mut(&neighbours) {
            Some(parts) => parts,
            None => {
                cx.budget.memory(cost, WHAT)?;
                known.entry(neighbours).or_default()
            }
        };
        for part in &weight.parts {
            cx.budget.steps(1 + parts.len() as u64 / 8, WHAT)?;
            let is_known = |known: &KnownPart| known.role == part.role && known.block == block;
            if !WITHOUT_EFFECT.contains(&part.role) && !parts.iter().any(is_known) {
                let (role, tensor) = (part.role, part.tensor);
                let row = KnownPart {
                    role,
                    block,
                    tensor,
                };
                cx.budget.push(parts, row, WHAT)?;
            }
        }
    }
    let mut found = Vec::new();
    for (tensor, weight) in compared(slots) {
        let Some(neighbours) = Neighbours::of(cx, weight, by_settings)? else {
            continue;
        };
        let known = known.get(&neighbours).map_or(&[][..], Vec::as_slice);
        cx.budget.steps(1 + known.len() as u64, WHAT)?;
        let own = block(weight);
        let lacks = |known: &&KnownPart| {
            let mut parts = weight.parts.iter();
            (known.block == own || own.is_none() || known.block.is_none())
                && parts.all(|part| part.role != known.role)
        };
        if let Some(missing) = known.iter().find(lacks) {
            cx.budget.push(&mut found, (tensor, missing.tensor), WHAT)?;
        }
    }
    Ok(found)
}

impl Neighbours {
    fn of(cx: &Context<'_>, weight: &Weight, by_settings: bool) -> Result<Option<Self>> {
        cx.budget.steps(1 + weight.name.len() as u64 / 8, WHAT)?;
        let _role = cx
            .budget
            .temporary(2 * text_cost(weight.name.len()), WHAT)?;
        let Some(mut role) = role_of_module(&weight.name) else {
            return Ok(None);
        };
        if by_settings
            && let Some(settings) = settings_of_module(cx, module_of_weight(&weight.name))?
        {
            let text = settings.to_string();
            cx.budget.steps(text.len() as u64 / 16, WHAT)?;
            role.push(' ');
            role.push_str(&text);
        }
        let numbers = weight.decoder.numbers();
        let format = match numbers.map(|numbers| numbers.kind) {
            Some(NumberKind::Integer) => "integers",
            Some(NumberKind::Float(format)) => format,
            Some(NumberKind::Other) | None => "",
        };
        Ok(Some(Self {
            role,
            scheme: weight.scheme,
            bits: numbers.map_or(0, |numbers| numbers.bits),
            format,
        }))
    }
}

fn block(weight: &Weight) -> Option<(u64, u64)> {
    weight.decoder.numbers().and_then(|numbers| numbers.block)
}

/// Refuses matrices that no scheme has claimed, where other layers have codes in the same dtype under the same name.
fn unclaimed_codes(cx: &Context<'_>, slots: &[TensorClaim], refused: &mut Refusals) -> Result<()> {
    let is_candidate = |tensor: usize| {
        let info = cx.info(tensor);
        matches!(slots[tensor], TensorClaim::Free)
            && info.shape.len() > 1
            && !is_float(&info.encoding)
    };
    // most models have none
    let Some(first) = (0..slots.len()).find(|&tensor| is_candidate(tensor)) else {
        return Ok(());
    };
    let mut codes: HashMap<String, &Weight> = HashMap::new();
    for (tensor, slot) in slots.iter().enumerate() {
        let TensorClaim::Weight(weight) = slot else {
            continue;
        };
        // blocks of GGUF have no other parts
        if weight.parts.len() < 2 {
            continue;
        }
        let name = &cx.info(tensor).name;
        cx.budget.steps(1 + name.len() as u64 / 8, WHAT)?;
        let role = role(name);
        let cost = text_cost(role.len()) + 64;
        if let Entry::Vacant(first) = codes.entry(role) {
            cx.budget.memory(cost, WHAT)?;
            first.insert(weight);
        }
    }
    if codes.is_empty() {
        return Ok(());
    }
    for tensor in (first..slots.len()).filter(|&tensor| is_candidate(tensor)) {
        let info = cx.info(tensor);
        cx.budget.steps(1 + info.name.len() as u64 / 8, WHAT)?;
        let Some(like) = codes.get(&role(&info.name)) else {
            continue;
        };
        let (first, rest) = (like.parts[0].tensor, &like.parts[1..]);
        if cx.info(first).encoding == info.encoding {
            let module = info.name.rsplit_once('.').map_or("", |(module, _)| module);
            let is_here = |part: usize| {
                let rest = behind(&cx.info(part).name, module);
                cx.sibling(module, &[".", rest].concat()).is_some()
            };
            let missing = rest.iter().find(|part| !is_here(part.tensor));
            let part = missing.unwrap_or(&rest[0]).tensor;
            add(cx, refused, tensor, lacks(cx, module, part))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{behind, role, role_of_module};

    #[test]
    fn roles_are_names_without_numbers() {
        assert_eq!(
            role("model.layers.17.mlp.w1.weight"),
            "model.layers.*.mlp.w1.weight"
        );
        assert_eq!(role("experts.0.1.weight"), "experts.*.*.weight");
        assert_eq!(role("norm2.weight"), "norm2.weight");
    }

    #[test]
    fn a_module_that_is_a_number_stands_for_itself() {
        let cases = [
            ("layers.3.mlp.fc.weight", Some("layers.*.mlp.fc.weight")),
            ("layers.3.mlp.2.weight", Some("layers.*.mlp.2.weight")),
            (
                "layers.3.experts.gate_up_proj",
                Some("layers.*.experts.gate_up_proj"),
            ),
            ("mlp.2.weight", None),
            ("lm_head.weight", None),
        ];
        for (name, expected) in cases {
            assert_eq!(role_of_module(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn parts_are_named_behind_their_module() {
        assert_eq!(behind("l.0.fc.weight_scale", "l.1.fc"), "weight_scale");
        assert_eq!(behind("l.0.fc.weight._scale", "l.1.fc"), "weight._scale");
        assert_eq!(
            behind("l.0.experts.up_proj_scale", "l.1.experts.up_proj"),
            "up_proj_scale"
        );
    }
}
