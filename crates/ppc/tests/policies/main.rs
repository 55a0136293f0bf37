//! Policies in shared libraries, compiled here and run in host processes.

#[path = "../cc/mod.rs"]
mod cc;

mod calls;
mod faults;
mod processes;
mod rust;
mod stage;
