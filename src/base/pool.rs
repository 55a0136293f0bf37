//! The buffer pool that checkpoints are loaded into: the types of `anamnesis-zeropool` that occur in this
//! crate's signatures.
//!
//! A [`BufferPool`] hands out zeroed buffers and takes their memory back when they are dropped. Memory that
//! has been used once needs no page faults the next time, which is most of the cost of loading a file that
//! is in the page cache: pass the same pool to every [`load`](crate::load()).
//!
//! ```
//! use anamnesis::pool::BufferPool;
//! use anamnesis::{Checkpoint, load};
//!
//! let pool = BufferPool::new();
//! for _ in 0..2 {
//!     let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
//!     let tensors = load(&checkpoint).pool(&pool).run()?;
//!     assert!(tensors.nbytes() > 0);
//! } // the second round reuses the memory of the first
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! [`PoolBuilder::on_slab`] registers the memory of a pool with a device, so that it can copy from loaded tensors.

pub use zeropool::{
    Buffer, BufferPart, BufferPool, DividedBuffer, GetError, PoolBuilder, SharedBuffer, Stats,
};
