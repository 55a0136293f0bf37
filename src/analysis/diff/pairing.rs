//! Which tensor of A is which of B: by name, then by the names of GGUF's architectures.

use std::collections::HashMap;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::base::progress::CancelToken;

use super::rename::RenameRules;
use super::sides::{Side, WHAT};

/// How the two sides of a pair were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairedBy {
    /// By name, after the caller's renames.
    Name,
    /// By the naming scheme of a format.
    Scheme,
    /// By equal bytes.
    Content,
}

/// A tensor of both sides, by index.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorPair {
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) by: PairedBy,
}

/// The pairs, and what is left on each side.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    pub(super) pairs: Vec<TensorPair>,
    pub(super) only_a: Vec<usize>,
    pub(super) only_b: Vec<usize>,
}

impl Pairing {
    /// Pairs all tensors of two sides; the tensors of a GGUF may be replaced by converted ones.
    pub(super) fn new<'c>(
        a: &mut Side<'c>,
        b: &mut Side<'c>,
        rename: &RenameRules<'_>,
        cancel: Option<&CancelToken>,
        budget: &Budget,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let none = RenameRules::default();
        let (mut free_a, mut free_b) = (vec![true; a.tensors.len()], vec![true; b.tensors.len()]);
        let mut named = by_key(a, b, &mut free_a, &mut free_b, budget)?;
        let is_gguf = |side: &Side<'_>| side.catalog().format == "gguf";
        let left = |free: &[bool]| free.contains(&true);
        // equal names pair two GGUFs; conversion is for two schemes of names
        if is_gguf(a) != is_gguf(b) && left(&free_a) && left(&free_b) {
            let by_a = is_gguf(a);
            let (gguf, other, free, free_other, rules) = if by_a {
                (&mut *a, &*b, &mut free_a, &free_b, rename)
            } else {
                // the caller's rules rename A's tensors
                (&mut *b, &*a, &mut free_b, &free_a, &none)
            };
            let keys = keys(other, free_other, budget)?;
            // a conversion that makes no name of the other side pairs nothing
            let wanted = |name: &str| keys.contains_key(&(name, 0));
            gguf.convert(free, &wanted, rules, cancel, budget, notes)?;
            if gguf.converted {
                // the indices of what was paired before are others now
                let settled = |side: &Side<'_>, free: &[bool]| {
                    let paired = (0..side.tensors.len()).filter(|i| !free[*i]);
                    paired.collect::<Vec<_>>()
                };
                if by_a {
                    let places = settled(a, &free_a);
                    named.sort_by_key(|pair| pair.a);
                    named
                        .iter_mut()
                        .zip(places)
                        .for_each(|(pair, at)| pair.a = at);
                } else {
                    let places = settled(b, &free_b);
                    named.sort_by_key(|pair| pair.b);
                    named
                        .iter_mut()
                        .zip(places)
                        .for_each(|(pair, at)| pair.b = at);
                }
                let more = by_key(a, b, &mut free_a, &mut free_b, budget)?;
                named.extend(more.into_iter().map(|pair| TensorPair {
                    by: PairedBy::Scheme,
                    ..pair
                }));
            }
        }
        named.sort_by_key(|pair| pair.a);
        let left = |free: &[bool]| (0..free.len()).filter(|i| free[*i]).collect();
        Ok(Self {
            pairs: named,
            only_a: left(&free_a),
            only_b: left(&free_b),
        })
    }
}

/// A key, and how many tensors in front of this one have it: a weight and a stored tensor may share a name.
type CountedKey<'s> = (&'s str, usize);

/// The free tensors of a side with their keys.
fn counted_keys<'s>(side: &'s Side<'_>, free: &[bool]) -> Vec<(CountedKey<'s>, usize)> {
    let mut counts = HashMap::<&str, usize>::new();
    let tensors = side.tensors.iter().enumerate();
    let tensors = tensors.filter(|(i, _)| free[*i]).map(|(i, tensor)| {
        let count = counts.entry(tensor.key()).or_default();
        *count += 1;
        ((tensor.key(), *count - 1), i)
    });
    tensors.collect()
}

/// The free tensors of a side by key.
fn keys<'s>(
    side: &'s Side<'_>,
    free: &[bool],
    budget: &Budget,
) -> Result<HashMap<CountedKey<'s>, usize>> {
    // with the counts, and the list that the map is made of
    const ROW: u64 = 8 * size_of::<(CountedKey<'_>, usize)>() as u64;
    // not released: the map lives as long as the pairing, and is about as large as the list of names
    budget.memory(ROW * side.tensors.len() as u64, WHAT)?;
    Ok(counted_keys(side, free).into_iter().collect())
}

/// Pairs free tensors with equal keys.
fn by_key(
    a: &Side<'_>,
    b: &Side<'_>,
    free_a: &mut [bool],
    free_b: &mut [bool],
    budget: &Budget,
) -> Result<Vec<TensorPair>> {
    let keys = keys(b, free_b, budget)?;
    let mut pairs = Vec::new();
    for (key, i) in counted_keys(a, free_a) {
        if let Some(&j) = keys.get(&key) {
            (free_a[i], free_b[j]) = (false, false);
            let pair = TensorPair {
                a: i,
                b: j,
                by: PairedBy::Name,
            };
            budget.push(&mut pairs, pair, WHAT)?;
        }
    }
    Ok(pairs)
}
