//! The digests of tensors, and what a list says about them.

use std::collections::HashMap;

use crate::base::error::Result;
use crate::read::checkpoint::Checkpoint;
use crate::read::digest::{Sha256Digest, digest};

use super::report::Finding;
use super::{Check, check_rules};

/// The digests of tensors, and what is found where a list has others.
pub(super) fn digest_tensors(
    check: &Check<'_>,
    checkpoint: &Checkpoint,
    expected: &[(String, Sha256Digest)],
    origin: &str,
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<Vec<Option<Sha256Digest>>> {
    let listed: HashMap<&str, Sha256Digest> = expected
        .iter()
        .map(|(name, digest)| (&**name, *digest))
        .collect();
    let wanted = |name: &str| {
        check.options.selection.contains(name)
            && (check.tensor_digests || listed.contains_key(name))
    };
    let made = digest(checkpoint)
        .filter(wanted)
        .threads(check.options.threads)
        .run_with(&check.options.control)?;
    for (name, digest) in expected {
        match checkpoint.catalog().position(name) {
            // a list of a whole model that misses a tensor: the file that it was in may be missing too
            None => {
                let text = format!("is in {origin}, and not in the model");
                add(Finding::new(&check_rules::HASH_MISSING_FILE, text).of_tensor(name))?;
            }
            Some(row) => {
                if let Some(found) = made.tensors[row].filter(|found| found != digest) {
                    let text = format!("{found}, expected {digest} ({origin})");
                    add(Finding::new(&check_rules::HASH, text).of_tensor(name))?;
                }
            }
        }
    }
    Ok(made.tensors)
}
