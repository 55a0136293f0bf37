//! The rule about tensors with the same values. The counts of each tensor find candidates; their digests decide.

use std::collections::BTreeMap;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::base::progress::{RunControl, RunProgress};
use crate::models::names;
use crate::read::catalog::natural_order;
use crate::read::checkpoint::Checkpoint;
use crate::read::digest::{Sha256Digest, of_tensor};

use super::check_rules;
use super::checked_weight::ScannedWeight;
use super::level::FindingLevel;
use super::report::Finding;
use super::scan::ScanForm;

/// The properties that equal weights have in common: shape, dtype, the sum of their bits, zeros, the first value.
type Likeness<'p> = (&'p [u64], Dtype, u64, u64, u64);

/// Smaller tensors are constants of a model, such as frequencies, which its layers have in common.
const LEAST: u64 = 256;

/// Finds the weights that have the values of another one and bytes of their own.
pub(super) fn compare(
    checkpoint: &Checkpoint,
    looked: &[ScannedWeight],
    control: &RunControl<'_>,
    budget: &Budget,
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<()> {
    budget.memory(160 * looked.len() as u64, "the comparison of tensors")?;
    let mut alike: BTreeMap<Likeness<'_>, Vec<&ScannedWeight>> = BTreeMap::new();
    for weight in looked {
        let (output, scan) = (&weight.job.output, &weight.values.scan);
        let is_float = matches!(ScanForm::of(output.dtype), Some((ScanForm::Float(..), _)));
        // biases and norms are often equal by their initialisation
        let matrix = output.shape.iter().filter(|size| **size > 1).count() >= 2;
        // a tensor of one value has a finding of its own
        if is_float && matrix && scan.varies && weight.elements() >= LEAST {
            let key = (
                &output.shape[..],
                output.dtype,
                scan.sum,
                scan.zeros,
                scan.first_bits,
            );
            alike.entry(key).or_default().push(weight);
        }
    }
    let progress = RunProgress::new(0, control);
    // only candidates are read a second time: in a sound model there are none
    for group in alike.into_values().filter(|group| group.len() > 1) {
        let mut by_digest: BTreeMap<Vec<Sha256Digest>, Vec<&ScannedWeight>> = BTreeMap::new();
        for weight in group {
            let parts = weight.job.parts.iter();
            let digests: Result<Vec<_>> = parts
                .map(|part| of_tensor(&checkpoint.tensor_at(part.tensor), &progress))
                .collect();
            control.check()?;
            // one that cannot be read has a finding of its own
            if let Ok(digests) = digests {
                by_digest.entry(digests).or_default().push(weight);
            }
        }
        for weights in by_digest.into_values() {
            duplicate(checkpoint, &weights).map_or(Ok(()), &mut *add)?;
        }
    }
    Ok(())
}

fn duplicate(checkpoint: &Checkpoint, weights: &[&ScannedWeight]) -> Option<Finding> {
    let place = |weight: &ScannedWeight| {
        let info = &checkpoint.catalog().tensors()[weight.job.parts[0].tensor];
        (info.bytes.file, info.bytes.start, info.member)
    };
    // names of one storage are tied, not doubled
    let mut places: Vec<_> = weights
        .iter()
        .map(|weight| (place(weight), *weight))
        .collect();
    places.sort_by_key(|(place, _)| *place);
    places.dedup_by_key(|(place, _)| *place);
    if places.len() < 2 {
        return None;
    }
    let mut names: Vec<String> = places
        .iter()
        .map(|(_, w)| w.job.output.name.to_string())
        .collect();
    // the first layer names the finding, whatever order the file has
    names.sort_by(|a, b| natural_order(a, b));
    // an embedding that is stored twice costs space and is no damage
    let level = if names.iter().all(|name| names::is_tied(name)) {
        FindingLevel::Note
    } else {
        FindingLevel::Warning
    };
    let text = match &names[..] {
        [_, other] => format!("has the values of {}", crate::base::quote::quote(other)),
        [_, other, rest @ ..] => {
            format!(
                "has the values of {} and {} more",
                crate::base::quote::quote(other),
                rest.len()
            )
        }
        _ => return None,
    };
    let mut found = Finding::new(&check_rules::DUPLICATE, text)
        .of_tensor(&names[0])
        .level(level);
    found.tensors = Some(names);
    Some(found)
}
