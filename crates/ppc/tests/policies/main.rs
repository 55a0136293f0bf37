//! Policies in shared libraries, compiled here and run in host processes.

#[path = "../cc/mod.rs"]
mod cc;

mod calls;
mod faults;
mod rust;
mod stage;
