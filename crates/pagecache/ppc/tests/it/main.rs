//! The integration tests of the page-cache runtime: one binary, as each binary links the library again. A test that
//! changes the state of its whole process is a binary of its own next to this folder.
//!
//! `cargo test -p anamnesis-ppc --test it prefetch::` runs the tests of one module.

mod support {
    pub(crate) mod files;
    pub(crate) mod gcc;
}

mod abi_layout;
mod deadlines;
mod directory_watch;
mod evictor;
mod library_policies;
mod mapped_eviction;
mod registry;
mod runtime;
mod sources;
mod supervisor;

/// The prefetcher, on files of a disk.
mod prefetch {
    mod interruption;
    mod limits;
    mod queues;
    mod reads;
}
