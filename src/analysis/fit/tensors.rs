//! The statements of the tensors about the caches. They win over the configuration: the rows of a key projection are what a
//! layer keeps, whatever a file says about heads.

use std::collections::{BTreeMap, HashMap};

use crate::base::error::Result;
use crate::base::limits::Budget;

use crate::models::caches::{AttentionShape, LayerCache, NumberedCache};
use crate::models::names::{LayerName, ModuleRole};

/// The rows of one layer's projections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LayerRows {
    pub(super) keys: Option<u64>,
    pub(super) values: Option<u64>,
    /// Compressed keys and values with the rotated keys.
    pub(super) latent: Option<u64>,
    /// Channels of a convolution over a recurrent layer's inputs.
    pub(super) conv: Option<u64>,
}

/// The decoder's layers by number.
pub(super) type StackRows = BTreeMap<u32, LayerRows>;

/// Memory of a stack, whose first node has room for several layers, and of a layer.
const STACK: u64 = 1536;
const LAYER: u64 = 3 * size_of::<(u32, LayerRows)>() as u64;

/// Reads the rows from names and shapes of weights, as `[outputs, inputs]`.
pub(super) fn rows<'w>(
    weights: impl Iterator<Item = (&'w str, &'w [u64])>,
    budget: &Budget,
) -> Result<StackRows> {
    let mut stacks: HashMap<&str, StackRows> = HashMap::new();
    for (name, shape) in weights {
        let layer = LayerName::in_stack(name).filter(LayerName::is_decoder);
        // a number at the end names a parameter and no layer
        let Some(layer) = layer.filter(|layer| !layer.rest.is_empty()) else {
            continue;
        };
        let (stack, role) = (layer.stack, layer.role());
        let Ok(number) = u32::try_from(layer.number) else {
            continue;
        };
        let rows = shape.first().copied();
        if !stacks.contains_key(stack) {
            budget.memory(STACK, "the layers")?;
        }
        let layers = stacks.entry(stack).or_default();
        if !layers.contains_key(&number) {
            budget.memory(LAYER, "the layers")?;
        }
        // also without a projection, so that the layer is known to exist
        let layer = layers.entry(number).or_default();
        match role {
            Some(ModuleRole::Key) => layer.keys = rows,
            Some(ModuleRole::Value) => layer.values = rows,
            Some(ModuleRole::LatentKeysValues) => layer.latent = rows,
            Some(ModuleRole::Convolution) => layer.conv = rows,
            _ => {}
        }
    }
    // a model of text and images has several stacks: the decoder's has most projections
    let known = |rows: &StackRows| {
        rows.values()
            .filter(|layer| **layer != LayerRows::default())
            .count()
    };
    // a tie is broken by name: the iteration order of the map is random
    let decoder = stacks
        .into_iter()
        .max_by(|(a, m), (b, n)| known(m).cmp(&known(n)).then_with(|| b.cmp(a)));
    Ok(decoder.map_or_else(BTreeMap::new, |(_, rows)| rows))
}

/// Corrects the caches by the rows of the tensors, and says where they differ from the configuration.
pub(super) fn correct(
    caches: &mut [NumberedCache],
    rows: &StackRows,
    notes: &mut Vec<String>,
    unknown: &mut Vec<String>,
) {
    let mut differing: Vec<(u32, String)> = Vec::new();
    let has_keys = rows.values().any(|layer| layer.keys.is_some());
    let mut without_keys = 0usize;
    for NumberedCache { number, cache, why } in caches.iter_mut() {
        let Some(layer) = rows.get(number) else {
            continue;
        };
        let before = *cache;
        match cache {
            LayerCache::Full(shape)
            | LayerCache::Window { shape, .. }
            | LayerCache::Chunk { shape, .. } => match layer.keys {
                Some(keys) => correct_shape(shape, keys, layer.values),
                // only where other layers have one: a fused projection has another name in all of them
                None if has_keys || layer.conv.is_some() => without_keys += 1,
                None => {}
            },
            LayerCache::Latent { rank, rope, .. } => {
                // the projection makes both; the rotated part is as stated
                if let Some(own) = layer.latent.and_then(|rows| rows.checked_sub(*rope)) {
                    *rank = own;
                }
            }
            _ => {}
        }
        if *cache != before {
            *why = "tensors";
            differing.push((*number, difference(&before, cache)));
        }
    }
    if let Some((first, what)) = differing.first() {
        notes.push(match differing.len() {
            1 => format!("layer {first}: {what}"),
            n => format!("{n} layers, the first of them {first}: {what}"),
        });
    }
    if without_keys > 0 {
        unknown.push(format!(
            "{without_keys} layers have no projection of keys in the tensors, and count as layers with attention"
        ));
    }
}

fn correct_shape(shape: &mut AttentionShape, keys: u64, values: Option<u64>) {
    let same_values = values.is_none() || values == shape.v_elements();
    if shape.k_elements() == Some(keys) && same_values {
        return;
    }
    let heads = keys
        .checked_div(shape.k_dim)
        .filter(|heads| *heads > 0 && keys.is_multiple_of(shape.k_dim));
    // the product is what counts: where heads do not divide it, one head of all rows
    let heads = heads.unwrap_or(1);
    let values = values.unwrap_or_else(|| heads.saturating_mul(shape.v_dim));
    *shape = if values.is_multiple_of(heads) {
        AttentionShape::new(heads, keys / heads, values / heads)
    } else {
        AttentionShape::new(1, keys, values)
    };
}

fn difference(before: &LayerCache, after: &LayerCache) -> String {
    let elements = |cache: &LayerCache| match cache {
        LayerCache::Latent { rank, rope, .. } => rank.saturating_add(*rope),
        cache => cache.attention().map_or(0, |shape| {
            let k = shape.k_elements().unwrap_or(u64::MAX);
            k.saturating_add(shape.v_elements().unwrap_or(u64::MAX))
        }),
    };
    format!(
        "the tensors have {} elements of keys and values per token, the configuration {}; the tensors count",
        elements(after),
        elements(before)
    )
}

/// Caches of an architecture whose configuration says nothing usable: attention to all tokens where there are keys.
pub(super) fn alone(rows: &StackRows) -> Vec<NumberedCache> {
    let layers = rows.iter().filter_map(|(number, layer)| {
        let cache = match (layer.keys, layer.latent) {
            (Some(keys), _) => {
                LayerCache::Full(AttentionShape::new(1, keys, layer.values.unwrap_or(keys)))
            }
            (None, Some(latent)) => LayerCache::Latent {
                rank: latent,
                // the split is unknown, and only the sum counts
                rope: 0,
                index: 0,
            },
            (None, None) => return None,
        };
        Some(NumberedCache {
            number: *number,
            cache,
            why: "tensors",
        })
    });
    layers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_decoder() {
        let weights: [(&str, &[u64]); 5] = [
            ("vision_tower.layers.0.self_attn.k_proj.weight", &[7, 7]),
            ("model.layers.0.self_attn.k_proj.weight", &[32, 64]),
            ("model.layers.0.self_attn.v_proj.weight", &[16, 64]),
            ("model.layers.1.mlp.up_proj.weight", &[96, 64]),
            ("lm_head.weight", &[160, 64]),
        ];
        let budget = Budget::new(crate::base::limits::Limits::default());
        let rows = rows(weights.into_iter(), &budget).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (rows[&0].keys, rows[&0].values, rows[&1].keys),
            (Some(32), Some(16), None)
        );
    }

    #[test]
    fn tensors_win_over_heads() {
        let mut caches = vec![NumberedCache {
            number: 0,
            cache: LayerCache::Full(AttentionShape::new(4, 16, 16)),
            why: "config",
        }];
        let rows = StackRows::from([(
            0,
            LayerRows {
                keys: Some(32),
                values: Some(32),
                ..LayerRows::default()
            },
        )]);
        let (mut notes, mut unknown) = (Vec::new(), Vec::new());
        correct(&mut caches, &rows, &mut notes, &mut unknown);
        assert_eq!(
            caches[0].cache,
            LayerCache::Full(AttentionShape::new(2, 16, 16))
        );
        assert_eq!((notes.len(), unknown.len()), (1, 0));
        correct(&mut caches, &rows, &mut notes, &mut unknown);
        assert_eq!(notes.len(), 1);
    }
}
