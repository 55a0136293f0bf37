//! No failure of a runtime or of its policies, and no change of the files that it watches, changes a byte that a service
//! loads, and none leaves anything behind: `docs/page-cache.md` ("Robustness") lists the tests. Most need CAP_PERFMON and a
//! file system on a device, and are skipped with a message elsewhere.

mod changed_files;
mod fuse;
mod kills;
mod layers;
mod many_files;
pub(crate) mod memory_group;
mod memory_limit;
mod model;
mod mounts;
mod policies;
mod read_errors;
mod stops;
mod templates;
