//! Output layers that one side alone stores: a note where they equal the input embedding, from which clients restore them.

use std::collections::HashMap;

use crate::base::error::Result;
use crate::base::progress::RunControl;
use crate::models::names::{is_in_front, is_output_layer};
use crate::read::catalog::quote;

use super::content::equal_pairs;
use super::pairing::Pairing;
use super::sides::Side;

/// Tensors that an output layer is compared with at most.
const MOST: usize = 4;

/// The notes by index of the tensor, of each side.
#[derive(Debug, Default)]
pub(super) struct HeadNotes {
    pub(super) a: HashMap<usize, String>,
    pub(super) b: HashMap<usize, String>,
}

pub(super) fn notes(
    pairing: &Pairing,
    a: &Side<'_>,
    b: &Side<'_>,
    threads: usize,
    control: &RunControl<'_>,
) -> Result<HeadNotes> {
    Ok(HeadNotes {
        a: of_side(a, &pairing.only_a, threads, control)?,
        b: of_side(b, &pairing.only_b, threads, control)?,
    })
}

fn of_side(
    side: &Side<'_>,
    alone: &[usize],
    threads: usize,
    control: &RunControl<'_>,
) -> Result<HashMap<usize, String>> {
    let heads = alone.iter().copied();
    // by key: in a GGUF the tensor is called `output`
    let heads = heads.filter(|i| is_output_layer(side.tensors[*i].key()));
    let mut pairs = Vec::new();
    // a model has one or two
    for head in heads.take(MOST) {
        let own = &side.tensors[head];
        let others = side.tensors.iter().enumerate().filter(|(_, other)| {
            let (key, part) = (other.key(), side.part(other, 0));
            is_in_front(key)
                && part.encoding == side.part(own, 0).encoding
                && side.shape(other) == side.shape(own)
                && side.scheme(other) == side.scheme(own)
                && other.parts.len() == own.parts.len()
        });
        pairs.extend(others.take(MOST).map(|(other, _)| (head, other)));
    }
    let equal = equal_pairs(pairs, side, side, threads, control)?;
    let note = |(head, other): (usize, usize)| {
        let name = quote(&side.tensors[other].name);
        (head, format!("equals {name} of the same side"))
    };
    Ok(equal.into_iter().map(note).collect())
}
