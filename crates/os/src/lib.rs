//! Queries and single system calls about memory and files: page-cache residency, memory pressure, NUMA, control groups, and
//! opening, locking and naming files.
//!
//! Each function is one query or one request to the operating system. None of them decides what to do with the result.
//! The interfaces are Linux's; on other systems a call returns
//! [`io::ErrorKind::Unsupported`](std::io::ErrorKind::Unsupported), an empty list or `None`, as documented per function.
//!
//! | module | |
//! |---|---|
//! | [`residency`] | bytes of a file that are in the page cache; whether memory has pages |
//! | [`populate`] | read a range of a file into the page cache in large folios (Linux only) |
//! | [`process`] | page out mapped memory of another process (Linux only) |
//! | [`numa`] | memory nodes, and memory policy of a thread or a range |
//! | [`topology`] | memory nodes with their cores, and accelerators |
//! | [`cgroup`] | the control groups of a process |
//! | [`memory`] | memory limit and usage of a control group or the machine |
//! | [`pressure`] | memory pressure (PSI) |
//! | [`writeback`] | begin to write a file's dirty pages (Linux only) |
//! | [`files`] | opening without waiting; files under construction and their names |
//! | [`pipe_reader`] | reading a pipe for as long as the bytes are wanted |
//! | [`whole_file`] | read a short file; write a file as a whole, under a temporary name first |
//! | [`entries`] | the entries of a directory below another one, for a search |
//! | [`links`] | which links in other users' directories are followed |
//! | [`trust`] | who else may change what a path names |
//! | [`hub_cache`] | the parts of a path in the cache of the Hugging Face hub |
//! | [`directory_lock`] | one process at a time changes the files of a directory |
//! | [`directories`] | exchange two directories (Linux only) |
//! | [`attributes`] | extended attributes and times that a copy keeps |
//! | [`lease`] | no other process has a file open or mapped (Linux only) |
//! | [`ranges`] | room in front of a file's bytes; extents that two files share (Linux only) |
//! | [`range_copier`] | copies from file to file within the system (Linux only) |

pub mod attributes;
pub mod cgroup;
#[cfg(target_os = "linux")]
pub mod directories;
pub mod directory_lock;
pub mod entries;
mod error;
mod file_place;
pub mod files;
pub mod hub_cache;
#[cfg(target_os = "linux")]
pub mod lease;
pub mod links;
pub mod memory;
pub mod numa;
pub mod pipe_reader;
#[cfg(target_os = "linux")]
pub mod populate;
pub mod pressure;
#[cfg(target_os = "linux")]
pub mod process;
#[cfg(target_os = "linux")]
pub mod range_copier;
#[cfg(target_os = "linux")]
pub mod ranges;
#[cfg(target_os = "linux")]
mod renames;
pub mod residency;
pub mod topology;
pub mod trust;
pub mod whole_file;
#[cfg(target_os = "linux")]
pub mod writeback;

pub use error::{Error, Result};

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
