//! The digests of tensors, and what a list says about them.

use std::collections::HashSet;

use crate::base::error::Result;
use crate::read::checkpoint::Checkpoint;
use crate::read::digest::{Sha256Digest, digest};

use super::expected::ExpectedTensor;
use super::report::Finding;
use super::{Check, check_rules};

/// The digests of the tensors of each checkpoint, and what is found where a list has others. A listed tensor may be in any of
/// the checkpoints.
pub(super) fn digest_tensors(
    check: &Check<'_>,
    checkpoints: &[&Checkpoint],
    expected: &[ExpectedTensor],
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<Vec<Vec<Option<Sha256Digest>>>> {
    let listed: HashSet<&str> = expected.iter().map(|(name, ..)| &**name).collect();
    let wanted = |name: &str| {
        check.options.selection.contains(name) && (check.tensor_digests || listed.contains(name))
    };
    let mut made = Vec::with_capacity(checkpoints.len());
    for checkpoint in checkpoints {
        let digests = digest(*checkpoint)
            .filter(wanted)
            .threads(check.options.threads)
            .run_with(&check.options.control)?;
        made.push(digests.tensors);
    }
    for (name, digest, origin) in expected {
        let places = checkpoints.iter().zip(&made);
        let places = places.filter_map(|(c, made)| Some((c.catalog().position(name)?, made)));
        let found: Vec<Option<Sha256Digest>> = places.map(|(row, made)| made[row]).collect();
        if found.is_empty() {
            // a list of a whole model that misses a tensor: the file that it was in may be missing too
            let text = format!("is in {origin}, and not in the model");
            add(Finding::new(&check_rules::HASH_MISSING_FILE, text).of_tensor(name))?;
        } else if !found.contains(&Some(*digest))
            && let Some(other) = found.into_iter().flatten().next()
        {
            let text = format!("{other}, expected {digest} ({origin})");
            add(Finding::new(&check_rules::HASH, text).of_tensor(name))?;
        }
    }
    Ok(made)
}
