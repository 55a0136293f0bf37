//! The cases: one file per subject.

mod kernels;
mod loads;
mod memory;
mod opening;
mod schemes;
mod templates;

use crate::case::Case;

/// All of them, each with its own name.
pub(crate) fn all() -> Vec<Case> {
    let subjects = [
        opening::cases(),
        kernels::cases(),
        schemes::cases(),
        memory::cases(),
        templates::cases(),
        loads::cases(),
    ];
    subjects.into_iter().flatten().collect()
}
