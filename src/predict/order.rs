//! In which order tensors are read: as they lie, layer by layer, or by name.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::stack::Place;
use crate::catalog::{TensorInfo, natural, quote};
use crate::error::{Error, Result};

/// In which order a loader reads tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// File after file, as the bytes lie in them.
    #[default]
    File,
    /// Embeddings, then layer after layer with numbers as numbers, then the last norm, and the head at the end.
    Layer,
    /// By the bytes of their names: `layers.10` before `layers.2`, as sorted dictionaries have them.
    Name,
}

const NAMES: [(&str, Order); 3] = [
    ("file", Order::File),
    ("layer", Order::Layer),
    ("name", Order::Name),
];

impl Order {
    /// Sorts what is read.
    pub(super) fn sort(self, list: &mut [(&TensorInfo, Place<'_>)]) {
        match self {
            // what lies at one place stays as the catalog has it
            Self::File => list.sort_by_key(|(info, _)| (info.bytes.file, info.bytes.start)),
            Self::Name => list.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name)),
            Self::Layer => {
                list.sort_by(|(a, x), (b, y)| layers(x, y).then_with(|| natural(&a.name, &b.name)))
            }
        }
    }
}

fn layers(a: &Place<'_>, b: &Place<'_>) -> Ordering {
    match (a, b) {
        (
            Place::Layer { stack, number },
            Place::Layer {
                stack: other,
                number: another,
            },
        ) => natural(stack, other).then_with(|| number.cmp(another)),
        _ => a.rank().cmp(&b.rank()),
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(
            NAMES
                .iter()
                .find(|(_, order)| order == self)
                .map_or("", |(name, _)| name),
        )
    }
}

impl FromStr for Order {
    type Err = Error;

    /// `file`, `layer` or `name`.
    fn from_str(name: &str) -> Result<Self> {
        let found = NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, order)| order);
        found.ok_or_else(|| {
            Error::misuse(format!(
                "{} is no order; there are file, layer and name",
                quote(name)
            ))
        })
    }
}
