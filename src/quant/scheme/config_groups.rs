//! The groups of a configuration of compressed-tensors.

use serde_json::Value;

use crate::base::kernel::Dtype;
use crate::quant::settings::{is_nothing, is_off};
use crate::read::format::TorchDtype;

use super::QuantConfig;
use super::stated::{Alternatives, ScaleNumbers, StatedGranularity, StatedNumbers};

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
    /// Widths of integers that have none in any.
    symmetric: Vec<u32>,
    /// Widths whose groups all have an `actorder` by which columns are not in the order of their groups, and the first of it.
    act_order: Vec<(u32, String)>,
    /// The numbers that the groups state, each once.
    pub(super) stated: Alternatives,
    /// Whether there are several groups, of which a module has one.
    pub(super) are_several: bool,
}

/// The numbers that the settings of a module state.
pub(super) fn stated_by(weights: &Value) -> Alternatives {
    of_weights(weights)
        .map(|numbers| vec![numbers])
        .into_iter()
        .collect()
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
        let is_symmetric = |w: &Value| w.get("symmetric") == Some(&Value::Bool(true));
        let symmetric = widths()
            .filter(|bits| integers(*bits).all(is_symmetric))
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
            symmetric,
            act_order,
            stated: alternatives(config),
            are_several: weights().nth(1).is_some(),
        }
    }

    /// Whether all groups of integers of this width say that they are not symmetric.
    pub(super) fn is_asymmetric(&self, bits: u32) -> bool {
        self.asymmetric.contains(&bits)
    }

    /// Whether all groups of integers of this width say that they are symmetric.
    pub(super) fn is_symmetric(&self, bits: u32) -> bool {
        self.symmetric.contains(&bits)
    }

    /// The setting by which each weight of this width has an index of its columns' groups.
    pub(super) fn act_order(&self, bits: u32) -> Option<&str> {
        let found = self.act_order.iter().find(|(width, _)| *width == bits);
        found.map(|(_, order)| &**order)
    }
}

/// The numbers that the groups state, each once. Empty if one states nothing, or they are more than are kept.
fn alternatives(config: &QuantConfig) -> Alternatives {
    let groups = config.get("config_groups").and_then(Value::as_object);
    let groups = groups.into_iter().flat_map(|groups| groups.values());
    let groups = groups.filter(|group| group.get("weights").is_some_and(|w| !is_nothing(w)));
    let mut all = Alternatives::new();
    for group in groups.clone() {
        let Some(of_weights) = group.get("weights").and_then(of_weights) else {
            return Alternatives::new();
        };
        let mut stated = vec![of_weights];
        let of_group = group.get("format").and_then(Value::as_str);
        stated.extend(of_group.and_then(of_format));
        if !all.contains(&stated) {
            all.push(stated);
        }
        if all.len() > MAX_WIDTHS {
            return Alternatives::new();
        }
    }
    // the format of all, where the groups do not differ
    if let [only] = &mut all[..]
        && only.len() == 1
    {
        only.extend(config.text("format").and_then(of_format));
    }
    all
}

/// The numbers that a group states of its weights.
fn of_weights(weights: &Value) -> Option<StatedNumbers> {
    let text = |key: &str| weights.get(key).and_then(Value::as_str);
    let bits = weights.get("num_bits").and_then(Value::as_u64);
    let bits = bits.and_then(|bits| u32::try_from(bits).ok());
    let numbers = match text("type") {
        Some("int") => StatedNumbers::integers(bits).scaled_by(ScaleNumbers::Floats),
        // the only floats of 8 bits that its writers have
        Some("float") if bits == Some(8) => {
            let is_mx = weights.get("group_size").and_then(Value::as_u64) == Some(32);
            let numbers = StatedNumbers::float8("E4M3");
            match text("scale_dtype") {
                None if !is_mx => numbers.scaled_by(ScaleNumbers::Floats),
                _ => numbers,
            }
        }
        Some("float") => StatedNumbers::floats(bits),
        _ => return None,
    };
    let size = || weights.get("group_size").and_then(Value::as_i64);
    let scales = match text("strategy") {
        Some("tensor") => Some(StatedGranularity::Tensor),
        Some("channel") => Some(StatedGranularity::Channel),
        Some("group" | "tensor_group") => size().and_then(StatedGranularity::of_size),
        Some("block") => {
            let block = weights.get("block_structure").and_then(block_sizes);
            block.map(|(high, wide)| StatedGranularity::Block(high, wide))
        }
        // the writer's default
        None => size().and_then(StatedGranularity::of_size),
        _ => None,
    };
    let dtype = text("scale_dtype").and_then(scale_dtype);
    let numbers = numbers.with_scales(scales).scaled_in(dtype);
    Some(numbers.shifted_in(text("zp_dtype").and_then(zero_dtype)))
}

/// The dtype of zero points by its name in PyTorch. Symmetric groups have none, and often the dtype of one in spite of that.
fn zero_dtype(name: &str) -> Option<Dtype> {
    use Dtype::{BF16, F8_E4M3, F16, F32, F64, I8, I16, I32, I64, U8};
    torch_dtype(name).filter(|dtype| {
        matches!(
            dtype,
            I8 | I16 | I32 | I64 | U8 | F8_E4M3 | F16 | BF16 | F32 | F64
        )
    })
}

/// The dtype of scales by its name in PyTorch. Bytes are exponents, also in U8.
fn scale_dtype(name: &str) -> Option<Dtype> {
    match torch_dtype(name)? {
        Dtype::U8 => Some(Dtype::F8_E8M0),
        dtype => {
            use Dtype::{BF16, F8_E4M3, F8_E8M0, F16, F32, F64};
            matches!(dtype, F64 | F32 | F16 | BF16 | F8_E4M3 | F8_E8M0).then_some(dtype)
        }
    }
}

/// A dtype by its name in PyTorch, with its module or without.
fn torch_dtype(name: &str) -> Option<Dtype> {
    TorchDtype::named(name.strip_prefix("torch.").unwrap_or(name))?.dtype()
}

/// The numbers of a format.
fn of_format(format: &str) -> Option<StatedNumbers> {
    let groups = |size| Some(StatedGranularity::Group(size));
    let exponents = |bits| StatedNumbers::floats(Some(bits)).scaled_by(ScaleNumbers::Exponents);
    Some(match format {
        "pack-quantized" => StatedNumbers::integers(None).scaled_by(ScaleNumbers::Floats),
        "int-quantized" => StatedNumbers::integers(None).scaled_by(ScaleNumbers::Floats),
        "float-quantized" => StatedNumbers::floats(Some(8)).scaled_by(ScaleNumbers::Floats),
        "mxfp8-quantized" => exponents(8).with_scales(groups(32)),
        "mxfp6-pack-quantized" => exponents(6).with_scales(groups(32)),
        "mxfp4-pack-quantized" => exponents(4).with_scales(groups(32)),
        "nvfp4-pack-quantized" => StatedNumbers::floats(Some(4))
            .scaled_by(ScaleNumbers::Float8)
            .with_scales(groups(16)),
        "nvfp4-e5m3-pack-quantized" => StatedNumbers::floats(Some(4)),
        _ => return None,
    })
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
