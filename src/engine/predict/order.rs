//! The order in which tensors are read: file order, layer by layer, or by name.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::stack::ModelPosition;
use crate::base::error::{Error, Result};
use crate::read::catalog::{TensorInfo, natural_order, quote};

/// The order in which a service reads tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadOrder {
    /// File after file, in file order.
    #[default]
    File,
    /// Embeddings, then layer by layer in numeric order, then the final norm, then the head.
    Layer,
    /// By the bytes of their names, as sorted dictionaries are: `layers.10` before `layers.2`.
    Name,
}

const NAMES: [(&str, ReadOrder); 3] = [
    ("file", ReadOrder::File),
    ("layer", ReadOrder::Layer),
    ("name", ReadOrder::Name),
];

impl ReadOrder {
    /// Sorts tensors. Stable.
    pub(super) fn sort(self, list: &mut [(&TensorInfo, ModelPosition<'_>)]) {
        match self {
            // tensors of the same bytes stay in catalog order
            Self::File => list.sort_by_key(|(info, _)| (info.bytes.file, info.bytes.start)),
            Self::Name => list.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name)),
            Self::Layer => list.sort_by(|(a, x), (b, y)| {
                layers(x, y).then_with(|| natural_order(&a.name, &b.name))
            }),
        }
    }
}

fn layers(a: &ModelPosition<'_>, b: &ModelPosition<'_>) -> Ordering {
    match (a, b) {
        (
            ModelPosition::Layer { stack, number },
            ModelPosition::Layer {
                stack: other,
                number: another,
            },
        ) => natural_order(stack, other).then_with(|| number.cmp(another)),
        // tensors of different positions, or two outside of the layers
        _ => a.rank().cmp(&b.rank()),
    }
}

impl fmt::Display for ReadOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(
            NAMES
                .iter()
                .find(|(_, order)| order == self)
                .map_or("", |(name, _)| name),
        )
    }
}

impl FromStr for ReadOrder {
    type Err = Error;

    /// `file`, `layer` or `name`.
    fn from_str(name: &str) -> Result<Self> {
        let found = NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, order)| order);
        found.ok_or_else(|| {
            Error::invalid_argument(format!(
                "{} is not an order; the orders are file, layer and name",
                quote(name)
            ))
        })
    }
}
