//! The one home of what is known about models: keys of configurations, names of tensors and their roles, architectures,
//! tokenizers, and how workers share a model.
//!
//! | module | content |
//! |---|---|
//! | `config` | `config.json` or the metadata of a GGUF, read by one type; the only place with their keys |
//! | `names` | names of tensors: layers, and the roles of modules; the only lists of them |
//! | `parallel` | the shares of tensor-parallel workers |
//! | `model_folder` | the small files beside the weights of a Hugging Face checkpoint |
//! | `model_card` | the general keys of a GGUF, from the name, the card and the settings of a Hugging Face checkpoint |
//! | `tokenizer` | `tokenizer.json` from a GGUF's metadata, and a GGUF's keys from the files of a tokenizer |
//! | `caches` | the cache of each layer: rules that architectures have in common |
//! | `gguf_types` | the type of each tensor of a quantised GGUF: file types, mixtures |
//! | `conversion` | between a GGUF and a Hugging Face checkpoint: names, values, configuration |
//! | `architectures` | one file per family, one line in the table: names, caches, conversions |
//!
//! For example, `fit` calls `ModelConfig::experts_used` and does not know whether the number was `num_experts_per_tok`,
//! `moe_topk` or a GGUF's `expert_used_count`: the row of this size in `config` has all of its keys.
//!
//! # Why it is as it is
//!
//! - A size has one table row with all its keys. Otherwise two verbs know different synonyms, and give two answers for one
//!   model.
//! - A family has one file. The names in a GGUF, the values that its converter changed and the layers' caches are facts of
//!   one model, which are read together when it is added.
//! - The rules by which workers split tensors stay in `anamnesis-template`: they are patterns for byte ranges, which that
//!   crate's own tests hold to vLLM's files, and its users have them without a model's configuration.

pub(crate) mod architectures;
pub(crate) mod caches;
pub(crate) mod config;
pub(crate) mod conversion;
pub(crate) mod gguf_types;
pub(crate) mod model_card;
pub(crate) mod model_folder;
pub(crate) mod names;
pub(crate) mod parallel;
pub(crate) mod tokenizer;
