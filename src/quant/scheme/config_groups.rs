//! The groups of a configuration of compressed-tensors.

use super::QuantConfig;

/// The statements of the configured groups about their weights. A configuration may have thousands of groups, so it is read once.
#[derive(Default)]
pub(crate) struct ConfigGroups {
    /// `num_bits`, each once.
    pub(super) bits: Vec<u32>,
    /// The group size, if it is the same for all groups.
    pub(super) size: Option<u64>,
    /// `block_structure` of the first group that has one.
    pub(super) block: Option<(u64, u64)>,
}

/// Distinct numbers of bits that are kept. Codes have 1 to 8 bits.
const MAX_WIDTHS: usize = 64;

impl ConfigGroups {
    pub(super) fn of(config: &QuantConfig) -> Self {
        let weights = || {
            let groups = config
                .get("config_groups")
                .and_then(|groups| groups.as_object());
            groups
                .into_iter()
                .flat_map(|groups| groups.values())
                .filter_map(|group| group.get("weights"))
        };
        let all = weights().filter_map(|w| u32::try_from(w.get("num_bits")?.as_u64()?).ok());
        let mut bits = std::collections::BTreeSet::new();
        for width in all {
            bits.insert(width);
            if bits.len() > MAX_WIDTHS {
                bits.pop_last();
            }
        }
        let mut sizes = weights().filter_map(|w| w.get("group_size")?.as_u64());
        let size = sizes
            .next()
            .filter(|first| sizes.all(|size| size == *first));
        let block = weights()
            .find_map(|w| w.get("block_structure"))
            .and_then(block_sizes);
        Self {
            bits: bits.into_iter().collect(),
            size,
            block,
        }
    }
}

/// A block `[rows, cols]` of the configuration.
pub(super) fn block_sizes(sizes: &serde_json::Value) -> Option<(u64, u64)> {
    let sizes = sizes.as_array()?;
    Some((sizes.first()?.as_u64()?, sizes.get(1)?.as_u64()?))
}
