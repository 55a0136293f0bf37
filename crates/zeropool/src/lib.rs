#![doc = include_str!("../README.md")]

mod alert;
mod barrier;
mod budget;
mod buffer;
mod builder;
mod cache;
mod cells;
mod class;
mod clockpro;
mod engine;
mod error;
mod evict;
mod future;
mod gate;
#[cfg(test)]
mod gate_tests;
mod home;
mod make;
mod near;
mod numa;
mod part;
mod pool;
mod pressure;
mod region;
mod shared;
mod slab;
mod slot;
mod stack;
mod stats;
mod sync;
mod wait;

pub use buffer::Buffer;
pub use builder::{Builder, Pinning};
pub use error::{BuildError, GetError};
pub use evict::EvictionPolicy;
pub use future::Get;
pub use part::Part;
pub use pool::BufferPool;
pub use pressure::Relief;
pub use shared::Shared;
pub use stats::Stats;
