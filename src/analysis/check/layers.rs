//! Rules about layers: what one layer lacks that the layers like it have, and tensors of another dtype than the same ones of
//! other layers. Names and dtypes alone decide, so that these rules cost nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::models::names::LayerName;
use crate::read::catalog::{Catalog, Encoding, TensorInfo};

use super::check_rules;
use super::report::Finding;

/// Sets of names that layers are compared with: kinds of layers, of which a model has a few.
const MOST_KINDS: usize = 16;

/// Compares the layers of a model.
pub(super) fn compare(
    catalog: &Catalog,
    wanted: &dyn Fn(&str) -> bool,
    budget: &Budget,
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<()> {
    let tensors: Vec<(&TensorInfo, &str, u64, &str)> = {
        let count = catalog.tensors().len() as u64;
        // a tensor costs entries of two trees and a set, with what they leave free
        budget.memory(400 * count, "the comparison of layers")?;
        let named = catalog.tensors().iter().filter(|info| wanted(&info.name));
        let named = named.filter_map(|info| {
            let LayerName {
                stack,
                number,
                rest,
            } = LayerName::in_stack(&info.name)?;
            // with the dots around the number, to be put together again
            let prefix = info.name.get(..=stack.len())?;
            let dot = usize::from(!rest.is_empty());
            let rest = info.name.get(info.name.len() - rest.len() - dot..)?;
            Some((info, prefix, number, rest))
        });
        named.collect()
    };
    let mut stacks: BTreeMap<&str, BTreeMap<u64, BTreeSet<&str>>> = BTreeMap::new();
    for (_, prefix, number, rest) in &tensors {
        let layers = stacks.entry(prefix).or_default();
        layers.entry(*number).or_default().insert(rest);
    }
    for (prefix, layers) in &stacks {
        let is_kept = |kept: u64, quantised: u64, lacking: &str| {
            is_scale_of_kept_weight(catalog, prefix, kept, quantised, lacking)
        };
        missing(prefix, layers, &is_kept, add)?;
    }
    odd_dtypes(catalog, &tensors, add)
}

/// The dtype of numbers in floating point that models compute with.
fn float(encoding: &Encoding) -> Option<Dtype> {
    match encoding {
        Encoding::Plain(dtype @ (Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64)) => {
            Some(*dtype)
        }
        _ => None,
    }
}

/// Whether a name is of a scale, a zero point or an index of a weight that one layer has in floating point, and another one as codes:
/// quantisers leave some layers as they are.
fn is_scale_of_kept_weight(
    catalog: &Catalog,
    prefix: &str,
    kept: u64,
    quantised: u64,
    lacking: &str,
) -> bool {
    let encoding = |layer: u64, weight: &str| {
        let info = catalog.get(&format!("{prefix}{layer}{weight}"))?;
        (info.shape.len() >= 2).then_some(&info.encoding)
    };
    let is_kept = |weight: &str| {
        let (own, other) = (encoding(kept, weight), encoding(quantised, weight));
        own.and_then(float).is_some() && other.is_some_and(|other| float(other).is_none())
    };
    // `fc.weight_scale` and `fc.scales` are of `fc.weight`, `fc.weight.absmax` too
    let Some((module, _)) = lacking.rsplit_once('.') else {
        return false;
    };
    is_kept(&format!("{module}.weight")) || is_kept(module)
}

/// Layers that lack a few names of those that at least two others have, and that no other layer is like. `is_kept`: whether a layer
/// may lack a name that another one has, since the weight that it belongs to is not quantised.
fn missing(
    prefix: &str,
    layers: &BTreeMap<u64, BTreeSet<&str>>,
    is_kept: &dyn Fn(u64, u64, &str) -> bool,
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<()> {
    // how many layers are of a kind, and the first of them
    let mut kinds: HashMap<&BTreeSet<&str>, (u64, u64)> = HashMap::new();
    for (number, names) in layers {
        kinds.entry(names).or_insert((0, *number)).0 += 1;
    }
    let mut common: Vec<(&BTreeSet<&str>, u64, u64)> = kinds
        .iter()
        .filter(|(_, (count, _))| *count >= 2)
        .map(|(names, (count, first))| (*names, *count, *first))
        .collect();
    // the most frequent first, and names last: a table's order would differ from run to run
    common.sort_by_key(|(names, count, _)| (std::cmp::Reverse(*count), names.len(), *names));
    // bounds the comparisons, which would be quadratic in layers that a file makes all different
    common.truncate(MOST_KINDS);
    for (number, names) in layers {
        // a layer like another one is a kind of its own: hybrids have layers with attention and layers without
        if kinds[names].0 > 1 {
            continue;
        }
        let like = common
            .iter()
            // a layer with less than half of the names is of another kind
            .filter(|(kind, ..)| names.is_subset(kind) && 2 * names.len() >= kind.len())
            .min_by_key(|(kind, ..)| kind.len());
        let Some((kind, count, other)) = like else {
            continue;
        };
        let mut lacking = kind
            .difference(names)
            .filter(|lacking| !is_kept(*number, *other, lacking));
        let Some(first) = lacking.next() else {
            continue;
        };
        let lacks = 1 + lacking.count() as u64;
        let more = if lacks > 1 {
            format!(" and {} more", lacks - 1)
        } else {
            String::new()
        };
        let text = format!("is not there{more}; {count} layers like this one have it");
        let found = Finding::new(&check_rules::MISSING_SIBLING, text).count(lacks);
        add(found.of_tensor(&format!("{prefix}{number}{first}")))?;
    }
    Ok(())
}

/// Matrices whose dtype is not the one of most layers; of two dtypes as frequent, the one of most matrices.
fn odd_dtypes(
    catalog: &Catalog,
    tensors: &[(&TensorInfo, &str, u64, &str)],
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<()> {
    // norms are often kept in F32 on purpose
    let matrix = |info: &TensorInfo| float(&info.encoding).filter(|_| info.shape.len() >= 2);
    let mut all: HashMap<Dtype, u64> = HashMap::new();
    for dtype in catalog.tensors().iter().filter_map(matrix) {
        *all.entry(dtype).or_default() += 1;
    }
    let mut groups: BTreeMap<(&str, &str), Vec<(&TensorInfo, Dtype)>> = BTreeMap::new();
    for (info, prefix, _, rest) in tensors {
        if let Some(dtype) = matrix(info) {
            groups
                .entry((prefix, rest))
                .or_default()
                .push((info, dtype));
        }
    }
    for group in groups.values() {
        let mut counts: BTreeMap<Dtype, u64> = BTreeMap::new();
        for (_, dtype) in group {
            *counts.entry(*dtype).or_default() += 1;
        }
        if counts.len() < 2 {
            continue;
        }
        let usual = counts
            .iter()
            .max_by_key(|(dtype, count)| (**count, all[*dtype]));
        let Some((&usual, _)) = usual else { continue };
        for (info, dtype) in group.iter().filter(|(_, dtype)| *dtype != usual) {
            let text = format!("is {dtype}, and {usual} in other layers");
            let mut found = Finding::new(&check_rules::ODD_DTYPE, text).of_tensor(&info.name);
            found.dtype = Some(dtype.name().to_owned());
            add(found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_lacks_a_name_is_found_and_other_kinds_are_not() {
        let names = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
        let dense = [".a", ".b", ".c", ".d"];
        let mut layers: BTreeMap<u64, BTreeSet<&str>> =
            (0..4).map(|n| (n, names(&dense))).collect();
        layers.insert(4, names(&[".a", ".b", ".d"]));
        // another kind of layer: it has what the others have not
        layers.insert(5, names(&[".a", ".b", ".state"]));
        let mut found = Vec::new();
        missing("model.layers.", &layers, &|_, _, _| false, &mut |finding| {
            found.push(finding);
            Ok(())
        })
        .unwrap();
        let [only] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(only.tensor.as_deref(), Some("model.layers.4.c"));
        assert_eq!((only.rule, only.count), ("missing-sibling", Some(1)));
    }
}
