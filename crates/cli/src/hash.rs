//! `inspect --hash`: the SHA-256 of each tensor's values.

use anamnesis::{Checkpoint, Summary, digest};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::progress;
use crate::text::plural;

/// Adds the hashes of the tensors whose name passes `wanted`. Tensors without bytes of their own (sparse, absent) are
/// counted in a warning instead.
///
/// # Errors
///
/// A tensor that cannot be read has no hash and is no reason not to hash the others; the first such error is returned
/// once they are done. If the system fails or the user interrupts, the work ends with that.
pub(crate) fn fill(
    checkpoint: &Checkpoint,
    summary: &mut Summary,
    wanted: impl Fn(&str) -> bool + Send + Sync,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let infos = checkpoint.catalog().tensors().iter();
    let chosen = infos.filter(|info| wanted(&info.name));
    let nbytes = chosen.map(|info| info.nbytes());
    let bar = progress::bar("hashing", nbytes.fold(0, u64::saturating_add));
    interrupt.handle();
    let made = digest(checkpoint)
        .filter(wanted)
        .progress(progress::on(&bar))
        .cancel(interrupt.token())
        .run();
    bar.finish_and_clear();
    // after the bar is cleared, so that a message does not follow it on its line
    let made = made?;
    if made.without_bytes > 0 {
        let text = format!(
            "no hash for {}: sparse, or saved without data",
            plural(made.without_bytes, "tensor")
        );
        summary.warnings.push(text.into());
    }
    for (tensor, digest) in summary.tensors.iter_mut().zip(made.tensors) {
        tensor.sha256 = digest.map(|digest| digest.to_string());
    }
    made.failure.map_or(Ok(()), |error| Err(error.into()))
}
