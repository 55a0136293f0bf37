//! The ground floor: what every other storey stands on, and what knows of no file and no tensor.
//!
//! | module | content |
//! |---|---|
//! | `error` | the one error type: a kind, a place, and a remedy as data |
//! | `limits` | the budget on which every allocation that a file sizes is charged first |
//! | `progress`, `threads`, `sync` | a run's reports and its end; its threads; locks that a model checker can replace |
//! | `note` | the one form of notes and warnings |
//! | `quote` | text of strangers, shown without its control characters |
//! | `kernel`, `pool`, `template`, `remote` | the parts of other crates that occur in this crate's signatures |
//!
//! For example, a header that states 2⁴⁰ tensors is refused before a list of them is allocated: the count is charged on the
//! budget (`limits`), the error names file, offset and limit, and its remedy is `Remedy::RaiseLimit`, which the command words
//! as `--no-limits` and the Python package as `limits={…}`.
//!
//! Nothing is added here because several storeys need it: it is added where its subject is, and imported from there. This
//! storey has only what has no other subject.

pub(crate) mod error;
pub mod kernel;
pub(crate) mod limits;
pub(crate) mod note;
pub mod pool;
pub(crate) mod progress;
pub mod quote;
#[cfg(feature = "remote")]
pub mod remote;
pub(crate) mod sync;
pub mod template;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod threads;
