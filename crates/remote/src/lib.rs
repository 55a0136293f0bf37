#![doc = include_str!("../README.md")]

mod address;
mod answer;
mod blocks;
mod bucket;
mod client;
mod connections;
mod credentials;
mod error;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod guess;
mod header_cache;
mod hub;
mod json_fields;
mod modelscope;
mod names;
mod options;
mod registry;
mod resource;
mod retry_after;
mod runtime;
mod stated;
mod stats;
mod status;
mod store;
mod uploads;
mod writes;

pub use error::{Error, ErrorKind, Result};
pub use file::{RangeReceiver, RemoteFile, StartedRange};
pub use guess::shard_names;
pub use hub::blobs::{StatedDigests, hub_digests};
pub use options::{CancelCheck, RemoteOptions, RequestHeaders, Variables};
pub use stats::{RequestCounters, RequestStats};
pub use store::{OpenedUrl, Store};
pub use uploads::{NewObject, UploadLeftovers, Uploads};
