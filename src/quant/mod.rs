//! Quantisation: which stored tensors are one weight, and by which formula their bytes become elements.
//!
//! [`scheme`] has one file per scheme and the table `SCHEMES`. A scheme is offered one tensor at a time and returns the weight
//! that it belongs to; the decoders that several schemes describe their weights with are in `plan::decode`. A decoder that a
//! single scheme uses is in the folder of that scheme. [`settings`] has what configurations may say, and [`account`] what is made
//! of everything that no scheme has consumed.
//!
//! For example, `model.layers.0.mlp.up_proj.qweight` is offered to every scheme: `scheme/gptq.rs` recognises it by the shapes
//! of the tensors next to it, and returns the weight `model.layers.0.mlp.up_proj.weight` with four parts and a decoder.
//!
//! # Why it is as it is
//!
//! - A scheme is offered one tensor at a time, so several schemes can share a checkpoint without knowing of each other.
//!   Tensors that no scheme claims are unquantised, unless their name and dtype show that they are packed.

pub(crate) mod account;
pub mod scheme;
pub(crate) mod settings;
