//! The integration tests: one binary, as each binary links the library again. `peak_memory.rs` measures its process and is a
//! binary of its own.

mod build_and_compare;
mod checkpoint_shapes;
mod damaged_files;
mod file_sizes;
mod golden_files;
mod parallel_slices;
mod random_templates;
mod round_trip;
mod service_id;
