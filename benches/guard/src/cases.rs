//! The cases: one file per subject.

mod kernels;
mod loads;
mod opening;
mod pool;
mod schemes;
mod templates;

use crate::case::Case;

/// All cases; names are unique.
pub(crate) fn all() -> Vec<Case> {
    let subjects = [
        opening::cases(),
        kernels::cases(),
        schemes::cases(),
        pool::cases(),
        templates::cases(),
        loads::cases(),
    ];
    subjects.into_iter().flatten().collect()
}
