//! The tests of the pool's public API: one binary, as each binary links the pool again. Tests that read or change the state
//! of the whole process (`process_memory.rs`, `address_space_limit.rs`) and the models of the model checkers
//! (`interleavings/`) are binaries of their own. All but `uring_reads` run under Miri, with fewer rounds (`.ci/prove`).

mod buffers;
mod eviction;
mod registered_slabs;
mod request_queue;
mod shared_buffers;
mod stress;
mod uring_reads;
