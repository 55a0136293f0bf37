//! Quantisation: which stored tensors are one weight, and by which formula their bytes become elements.
//!
//! [`scheme`] has one file per scheme and the table `SCHEMES`. A scheme is offered one tensor at a time and returns the weight
//! that it belongs to; the decoders that several schemes describe their weights with are in `plan::decode`. A decoder that a
//! single scheme uses is in the folder of that scheme.
//!
//! # Why it is as it is
//!
//! - A scheme is offered one tensor at a time, so several schemes can share a checkpoint without knowing of each other.
//!   What no scheme claims is unquantised, unless its name and dtype show that it is packed.

pub mod scheme;
