//! Layers that keep the same, as one.

use std::collections::HashMap;

use super::NumberedCache;
use super::shape::LayerCache;

/// Layers that keep the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerGroup {
    /// The cache of each of them.
    pub cache: LayerCache,
    /// Their numbers, ascending.
    pub layers: Vec<u32>,
    /// The reason for the kind of the first of them.
    pub why: &'static str,
}

/// Combines equal layers, in the order of their first.
pub(crate) fn grouped(caches: impl IntoIterator<Item = NumberedCache>) -> Vec<LayerGroup> {
    let mut groups: Vec<LayerGroup> = Vec::new();
    let mut known: HashMap<LayerCache, usize> = HashMap::new();
    for NumberedCache { number, cache, why } in caches {
        let group = *known.entry(cache).or_insert_with(|| {
            // in a list and not by iteration over the map, whose order is random
            groups.push(LayerGroup {
                cache,
                layers: Vec::new(),
                why,
            });
            groups.len() - 1
        });
        groups[group].layers.push(number);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::AttentionShape;
    use super::*;

    #[test]
    fn equal_layers_are_one_group() {
        let full = LayerCache::Full(AttentionShape::new(1, 2, 3));
        let caches = [LayerCache::None, full, LayerCache::None];
        let caches = (0..).zip(caches);
        let groups = grouped(caches.map(|(number, cache)| NumberedCache {
            number,
            cache,
            why: "x",
        }));
        assert_eq!(groups.len(), 2);
        assert_eq!(
            (groups[0].layers.as_slice(), groups[1].layers.as_slice()),
            (&[0, 2][..], &[1][..])
        );
    }
}
