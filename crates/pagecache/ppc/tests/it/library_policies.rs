//! Policies in shared libraries, compiled here and run in host processes.

mod callbacks;
mod deadlines;
mod faults;
mod host_conversation;
mod host_process;
mod registered_policy;
mod rust_policies;
