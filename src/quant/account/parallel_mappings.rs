//! A second mapping beside the one of the weights, with the same keys: `{"model": {"fc.weight": codes}, "scales": {"fc.weight": scale}}`.
//!
//! Its names are `scales.fc.weight` beside `model.fc.weight`, so that no part stands on a weight's stem. The first words of both names
//! differ, or only the part has one; behind them the names are the same, with or without the name of the parameter.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::quant::scheme::{Context, module_of_weight, plain};
use crate::read::catalog::quote;

use super::across_layers::is_number;
use super::harmless::{is_data, is_integer, is_of_activations};
use super::integers::is_float;
use super::tensor_claim::{Refusals, TensorClaim, add, is_unscaled};

const WHAT: &str = "the mappings of the weights";

/// Components in front of a name that a mapping's own may have.
const MAX_FRONT: usize = 3;

/// Weights of one key that are compared with the front of a part's name.
const MAX_ALIKE: usize = 16;

/// Whether a component is the name of a mapping of parts: `scales`, `zero_points`, `weight_scale_inv`, `perms`. Every word of it says
/// so, and one of them that it is of parts: a module may be called after a scale too (`scale_proj`, `quantizer`).
fn is_mapping(component: &str) -> bool {
    let mut has_part = false;
    // most components, of all models' names
    if component.len() < 2 || component.as_bytes()[0].is_ascii_digit() {
        return false;
    }
    for word in component.split(['_', '-', ' ']) {
        match word {
            "scale" | "scales" | "scaling" | "scalings" | "zero" | "zeros" | "zp" | "zps"
            | "qzeros" | "zeropoints" | "absmax" | "quant" | "quants" | "qparams"
            | "quantizers" | "perm" | "perms" | "permutation" | "permutations" | "rot" | "rots"
            | "rotation" | "rotations" | "hadamard" | "hadamards" | "lut" | "luts" | "codebook"
            | "codebooks" | "shifts" | "offsets" | "idx" | "amax" | "exponent" | "exponents"
            | "multiplier" | "multipliers" | "Scale" | "Scales" | "SCALES" => {
                has_part = true;
            }
            "weight" | "weights" | "w" | "g" | "inv" | "inverse" | "global" | "block" | "group"
            | "channel" | "tensor" | "model" | "all" | "fp8" | "f8" | "float8" | "int8"
            | "int4" | "fp4" | "map" | "maps" | "dict" | "table" | "state" | "states"
            | "params" | "factor" | "factors" | "point" | "points" => {}
            _ => return false,
        }
    }
    has_part
}

/// The mapping that a name is of: what stands in front of it, and the rest behind it.
fn mapping_of(name: &str) -> Option<(&str, &str)> {
    let mut start = 0;
    for _ in 0..MAX_FRONT {
        let end = start + name[start..].find('.')?;
        let component = &name[start..end];
        if is_mapping(component) {
            return Some((&name[..start], &name[end + 1..]));
        }
        // a mapping contains layers, and is in none
        if is_number(component) {
            return None;
        }
        start = end + 1;
    }
    None
}

/// Names of one front after the other: thousands of tensors of a layer have the same first components, which are looked at once.
#[derive(Default)]
struct Fronts<'s> {
    /// The last front that is of no mapping, with the dot behind it.
    plain: Option<&'s str>,
}

impl<'s> Fronts<'s> {
    /// Whether [`mapping_of`] finds the mapping of a name.
    fn has_mapping(&mut self, name: &'s str) -> bool {
        if self.plain.is_some_and(|front| name.starts_with(front)) {
            return false;
        }
        if mapping_of(name).is_some() {
            return true;
        }
        self.plain = front_of(name);
        false
    }
}

/// The components that [`mapping_of`] looks at, of a name that has more behind them: all names of this front have the same answer.
fn front_of(name: &str) -> Option<&str> {
    let mut start = 0;
    for _ in 0..MAX_FRONT {
        let end = start + name[start..].find('.')?;
        let is_layer = is_number(&name[start..end]);
        start = end + 1;
        if is_layer {
            break;
        }
    }
    Some(&name[..start])
}

/// The keys of the weights without the components in front, sorted.
pub(super) struct ParallelMappings<'s> {
    rows: Vec<(&'s str, usize)>,
}

impl<'s> ParallelMappings<'s> {
    /// The claimed weights, and integers that none has claimed.
    pub(super) fn of<'c: 's>(cx: &Context<'c>, slots: &'s [TensorClaim]) -> Result<Self> {
        let mut rows = Vec::new();
        for (tensor, slot) in slots.iter().enumerate() {
            let name = match slot {
                TensorClaim::Weight(weight) => &*weight.name,
                TensorClaim::Free if may_be_codes(cx, tensor) => &*cx.info(tensor).name,
                _ => continue,
            };
            cx.budget.steps(2 + name.len() as u64 / 16, WHAT)?;
            let mut key = module_of_weight(name);
            for _ in 0..MAX_FRONT {
                cx.budget.push(&mut rows, (key, tensor), WHAT)?;
                match key.split_once('.') {
                    Some((first, rest)) if !is_number(first) => key = rest,
                    _ => break,
                }
            }
        }
        rows.sort_unstable();
        Ok(Self { rows })
    }

    /// The weight that a tensor or a value of this name is a part of.
    pub(super) fn owner(&self, cx: &Context<'_>, name: &str) -> Result<Option<usize>> {
        let Some((front, rest)) = mapping_of(name) else {
            return Ok(None);
        };
        cx.budget.steps(4 + rest.len() as u64 / 8, WHAT)?;
        // a parameter, a part of it or a position in a tuple is behind the name of a module
        let inner = rest.rsplit_once('.');
        let inner = inner.filter(|(_, last)| {
            *last == "weight" || is_number(last) || last.split('_').any(is_mapping)
        });
        let is_of = |weight: &str| {
            let all = front.split_terminator('.');
            weight.starts_with(front) || all.clone().all(is_mapping)
        };
        for key in [Some(rest), inner.map(|(module, _)| module)]
            .into_iter()
            .flatten()
        {
            let from = self.rows.partition_point(|(other, _)| *other < key);
            let alike = self.rows[from..]
                .iter()
                .take_while(|(other, _)| *other == key);
            for (_, tensor) in alike.take(MAX_ALIKE) {
                let weight = &*cx.info(*tensor).name;
                if is_of(weight) && mapping_of(weight).is_none() {
                    return Ok(Some(*tensor));
                }
            }
        }
        Ok(None)
    }
}

fn may_be_codes(cx: &Context<'_>, tensor: usize) -> bool {
    let info = cx.info(tensor);
    info.shape.len() > 1 && is_integer(&info.encoding) && !is_data(&info.name)
}

/// Whether a tensor may be a part in a second mapping.
fn is_candidate<'c>(
    cx: &Context<'c>,
    slots: &[TensorClaim],
    tensor: usize,
    fronts: &mut Fronts<'c>,
) -> bool {
    let (info, slot) = (cx.info(tensor), &slots[tensor]);
    // any FP8 tensor is claimed as a weight without scales, also one that is a scale
    if !matches!(slot, TensorClaim::Free) && !is_unscaled(slot) {
        return false;
    }
    let is_part = is_float(&info.encoding)
        || is_integer(&info.encoding)
        || matches!(
            plain(info),
            Some(Dtype::I64 | Dtype::F8_E8M0 | Dtype::F8_E4M3 | Dtype::BOOL)
        );
    is_part
        && fronts.has_mapping(&info.name)
        && !info.name.ends_with(".bias")
        && !is_of_activations(info)
}

/// The name of the list of parts that a name is an item of: `scales.0`. Its items are of weights by their order, which only the program
/// that wrote them knows.
fn list_of(name: &str) -> Option<&str> {
    let (list, item) = name.split_once('.')?;
    (is_mapping(list) && is_number(item)).then_some(list)
}

/// Adds weights that have a part in a second mapping to `refused`, and takes the parts. Lists of parts are added to `warnings`.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &mut [TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    // the types of GGUF say how their blocks are read; arrays of NumPy are data of any kind
    if matches!(cx.catalog.format, "gguf" | "npy" | "npz") {
        return Ok(());
    }
    // most files have no such name: then no list of keys is made
    let mut fronts = Fronts::default();
    let candidate = (0..slots.len()).find(|&tensor| is_candidate(cx, slots, tensor, &mut fronts));
    let Some(first) = candidate else {
        return Ok(());
    };
    let is_weight = |slot: &TensorClaim| matches!(slot, TensorClaim::Weight(_));
    let has_weights = slots.iter().any(is_weight);
    let (mut parts, mut list) = (Vec::new(), None);
    {
        let mappings = ParallelMappings::of(cx, slots)?;
        for tensor in first..slots.len() {
            if !is_candidate(cx, slots, tensor, &mut fronts) {
                continue;
            }
            let name = &*cx.info(tensor).name;
            let owner = mappings.owner(cx, name)?;
            let Some(weight) = owner.filter(|weight| *weight != tensor) else {
                // one of them is enough
                let own = list_of(name).filter(|own| has_weights && list != Some(*own));
                if own.is_some() {
                    list = own;
                    let text = format!(
                        "{} is in a list of parts of weights by its name; they are made without it",
                        quote(name)
                    );
                    cx.budget.text(text.len(), WHAT)?;
                    warnings.push(text);
                }
                continue;
            };
            let name = quote(name);
            let why = format!("{name} has its name in another mapping, and is not read");
            add(cx, refused, weight, why)?;
            cx.budget.push(&mut parts, tensor, WHAT)?;
        }
    }
    // they are no tensors of the model, unless the caller takes them for some
    if !cx.assume_plain {
        parts
            .into_iter()
            .for_each(|tensor| slots[tensor] = TensorClaim::Taken);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Fronts, front_of, is_mapping, list_of, mapping_of};

    #[test]
    fn names_of_mappings() {
        for name in [
            "scales",
            "zero_points",
            "weight_scale_inv",
            "perms",
            "g_idx",
            "quant_state",
            "fp8_scales",
        ] {
            assert!(is_mapping(name), "{name}");
        }
        for name in [
            "model",
            "quantizer",
            "scale_proj",
            "act_scales",
            "kv_scales",
            "layers",
            "0",
            "weight",
        ] {
            assert!(!is_mapping(name), "{name}");
        }
    }

    #[test]
    fn a_front_is_looked_at_once_and_says_of_each_name_what_the_name_says() {
        assert_eq!(
            front_of("model.layers.0.fc.weight"),
            Some("model.layers.0.")
        );
        assert_eq!(front_of("layers.0.fc.weight"), Some("layers.0."));
        assert_eq!(front_of("a.b.c.scales.fc"), Some("a.b.c."));
        // another name of its front may have a mapping
        assert_eq!(front_of("model.norm.weight"), None);
        let words = ["model", "scales", "perms", "fc", "0", "weight", "a"];
        let mut names = Vec::new();
        for count in 1..=4u32 {
            names.extend((0..7usize.pow(count)).map(|number| {
                let component = |place| words[number / 7usize.pow(place) % 7];
                (0..count).map(component).collect::<Vec<_>>().join(".")
            }));
        }
        for is_sorted in [false, true] {
            if is_sorted {
                names.sort_unstable();
            }
            let mut fronts = Fronts::default();
            let of_none = names.iter().filter(|name| {
                let found = fronts.has_mapping(name);
                assert_eq!(found, mapping_of(name).is_some(), "{name}");
                !found
            });
            assert!(of_none.count() > 100);
        }
    }

    #[test]
    fn mappings_are_in_front_of_layers() {
        assert_eq!(mapping_of("scales.fc.weight"), Some(("", "fc.weight")));
        assert_eq!(mapping_of("a.scales.fc"), Some(("a.", "fc")));
        assert_eq!(mapping_of("l.0.scale.proj"), None);
        assert_eq!(mapping_of("scales"), None);
        assert_eq!(list_of("scales.0"), Some("scales"));
        assert_eq!(list_of("layers.0"), None);
    }
}
