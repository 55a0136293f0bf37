//! The one home of what is known about models: keys of configurations, names of tensors and their roles, architectures,
//! tokenizers, and how workers share a model.
//!
//! | module | content |
//! |---|---|
//! | `config` | `config.json` or the metadata of a GGUF, read by one type; the only place with key strings |
//! | `architecture` | GGUF architectures as Hugging Face checkpoints, one row each |
//! | `parallel` | the shares of tensor-parallel workers |
//! | `tokenizer` | `tokenizer.json` from a GGUF's metadata |
//!
//! # Why it is as it is
//!
//! - The share of a tensor-parallel worker is such a slice. `predict`, `load` and `remember` use one arithmetic for it.

pub(crate) mod architecture;
pub(crate) mod config;
pub(crate) mod parallel;
pub(crate) mod tokenizer;
