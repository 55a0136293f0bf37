#![doc = include_str!("../README.md")]

mod barrier;
mod budget;
mod buffer;
mod builder;
mod callbacks;
mod class;
mod clockpro;
mod engine;
mod error;
mod evict;
mod flags;
mod future;
#[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
mod huge_pages;
mod idle;
mod magazine;
mod part;
mod pool;
mod pressure;
mod recycle;
mod region;
mod settings;
mod shared;
mod slab;
mod stack;
mod stats;
mod sync;
#[cfg(all(target_os = "linux", feature = "tokio-uring"))]
mod uring;
mod wait;

pub use buffer::Buffer;
pub use builder::PoolBuilder;
pub use error::{BuildError, GetError};
pub use evict::EvictionPolicy;
pub use future::Get;
pub use part::{BufferPart, DividedBuffer};
pub use pool::BufferPool;
pub use pressure::PressureTrim;
pub use settings::Pinning;
pub use shared::SharedBuffer;
pub use stats::Stats;
