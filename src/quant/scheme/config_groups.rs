//! The groups of a configuration of compressed-tensors.

use serde_json::Value;

use crate::quant::settings::is_off;

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
    /// Widths of integers that have zero points in all groups.
    asymmetric: Vec<u32>,
    /// Widths whose groups all have an `actorder` by which columns are not in the order of their groups, and the first of it.
    act_order: Vec<(u32, String)>,
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
        let integers = |bits: u32| {
            weights()
                .filter(|w| w.get("type").and_then(Value::as_str) != Some("float"))
                .filter(move |w| w.get("num_bits").and_then(Value::as_u64) == Some(bits.into()))
        };
        let is_asymmetric = |w: &Value| w.get("symmetric").is_some_and(is_off);
        let widths = || {
            bits.iter()
                .copied()
                .filter(|b| integers(*b).next().is_some())
        };
        let asymmetric = widths()
            .filter(|bits| integers(*bits).all(is_asymmetric))
            .collect();
        let act_order = widths()
            .filter_map(|bits| {
                let mut orders = integers(bits).map(|w| w.get("actorder").and_then(reordering));
                let first = orders.next()??;
                orders.all(|order| order.is_some()).then_some((bits, first))
            })
            .collect();
        Self {
            bits: bits.into_iter().collect(),
            size,
            block,
            asymmetric,
            act_order,
        }
    }

    /// Whether all groups of integers of this width say that they are not symmetric.
    pub(super) fn is_asymmetric(&self, bits: u32) -> bool {
        self.asymmetric.contains(&bits)
    }

    /// The setting by which each weight of this width has an index of its columns' groups.
    pub(super) fn act_order(&self, bits: u32) -> Option<&str> {
        let found = self.act_order.iter().find(|(width, _)| *width == bits);
        found.map(|(_, order)| &**order)
    }
}

/// The value of `actorder`, unless groups are consecutive columns by it. `true` stands for `group`.
fn reordering(value: &Value) -> Option<String> {
    const MAX_CHARS: usize = 32;
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some("true".to_owned()),
        Value::String(text) if ["", "weight", "static"].contains(&&*text.to_ascii_lowercase()) => {
            None
        }
        Value::String(text) => Some(text.chars().take(MAX_CHARS).collect()),
        _ => Some("a value that is no text".to_owned()),
    }
}

/// A block `[rows, cols]` of the configuration.
pub(super) fn block_sizes(sizes: &Value) -> Option<(u64, u64)> {
    let sizes = sizes.as_array()?;
    Some((sizes.first()?.as_u64()?, sizes.get(1)?.as_u64()?))
}
