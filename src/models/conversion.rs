//! From the GGUF of a known architecture to a Hugging Face checkpoint, and back.
//!
//! llama.cpp's converters rename the tensors of a model, change some of their values (rows of the query projection in
//! another order, one added to the norms of Gemma, experts stacked) and keep its configuration as metadata. A
//! [`GgufConversion`] undoes all three, and does them: [`TensorRule`]s give names and values, a function the configuration. Values are
//! changed by decoders that wrap the decoder of the stored tensor, so an output is still made tile by tile, with one
//! rounding, into every dtype.
//!
//! Names and changes of values are facts of llama.cpp's `conversion/*.py` and `gguf-py/gguf/tensor_mapping.py`, and of
//! transformers' `modeling_gguf_pytorch_utils.py`; names on the other side come from the checkpoints that transformers saves
//! (`save_pretrained`): experts are separate tensors there except where an architecture stores them stacked.

mod architecture_keys;
mod changes;
mod checkpoint_config;
mod files;
mod jobs;
mod mapped_elements;
mod model;
mod output_names;
mod pooling;
mod row_gather;
mod source_model;
mod tensor_rules;
mod to_gguf;

use crate::base::error::Result;
use crate::models::config::keys::HEAD_DIM;
use crate::models::tokenizer::TokenizerReading;

pub(crate) use architecture_keys::ArchitectureKeys;
pub(crate) use jobs::{ConvertedJob, convert};
pub(crate) use model::Model;
pub(crate) use pooling::pooling;
pub(crate) use source_model::SourceModel;
pub(crate) use to_gguf::{GgufOutput, GgufOutputs, to_gguf};

pub(in crate::models) use changes::{EXPERT, ONE_ROW, ROTARY_KEY, ROTARY_QUERY, TRANSPOSED};

pub(in crate::models) use checkpoint_config::CheckpointConfig;
pub(in crate::models) use files::files;
pub(in crate::models) use model::Need;
pub(in crate::models) use row_gather::{RowGather, RowOrder, RowSource};
pub(in crate::models) use tensor_rules::{
    Change, ChangedTensor, StoredTensors, TensorRule, changed, same,
};

/// Which names the outputs have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// The names in the file: llama.cpp's in a GGUF.
    #[default]
    Stored,
    /// The names of the model's class in transformers, with the values that this class stores. Formats other than GGUF have
    /// them already. A GGUF of an unknown architecture keeps its names, and a note of the plan says so.
    HuggingFace,
}

/// How the GGUF files of one architecture become a Hugging Face checkpoint.
#[derive(Debug)]
pub(in crate::models) struct GgufConversion {
    /// The value of `general.architecture`, and the prefix of its metadata.
    pub(in crate::models) name: &'static str,
    /// Outputs by stored name. The first list with a rule for a name decides.
    pub(in crate::models) tensors: &'static [&'static [TensorRule]],
    /// Stored tensors that are no parameter of the model, such as tables derived from its configuration.
    pub(in crate::models) omitted: &'static [&'static str],
    /// The configuration, from the metadata.
    pub(in crate::models) config: fn(&Model<'_>) -> Result<CheckpointConfig>,
    /// The way back; `None` if no GGUF of the architecture is written.
    pub(in crate::models) writing: Option<&'static GgufWriting>,
}

/// How a Hugging Face checkpoint becomes a GGUF of an architecture, by the same rules.
#[derive(Debug)]
pub(in crate::models) struct GgufWriting {
    /// The classes in transformers whose models are of the architecture.
    pub(in crate::models) classes: &'static [&'static str],
    /// The module around the model, whose name a class without a head leaves out: `model.`.
    pub(in crate::models) prefix: &'static str,
    /// In front of names that rules know without it.
    pub(in crate::models) dropped_prefix: &'static str,
    /// Names of parameters that no GGUF has. A `*` at the end stands for any text.
    pub(in crate::models) left_out: &'static [&'static str],
    /// Names of one tensor, of which the first is written, under the name that the last one has.
    pub(in crate::models) shared: &'static [&'static str],
    /// Whether an output layer is written that shares the weight of the embedding.
    pub(in crate::models) keeps_tied_head: bool,
    /// Whether layers behind the last one are no part of the GGUF.
    pub(in crate::models) drops_further_layers: bool,
    /// The keys of the architecture.
    pub(in crate::models) keys: fn(&SourceModel<'_>, &mut ArchitectureKeys) -> Result<()>,
    /// Tables that are computed from the configuration: name and values.
    pub(in crate::models) tables: Tables,
    /// The key of the configuration with the kinds of sentences, if the model tells them apart.
    pub(in crate::models) token_types: Option<&'static str>,
    /// How its tokenizer is read.
    pub(in crate::models) tokenizer: TokenizerReading,
    /// Refuses a model that llama.cpp cannot read, and so does not quantise.
    pub(in crate::models) check: fn(&SourceModel<'_>) -> Result<()>,
}

/// Makes tables from a configuration.
pub(in crate::models) type Tables = fn(&SourceModel<'_>) -> Result<Vec<(&'static str, Vec<f32>)>>;

impl GgufWriting {
    /// The way of a decoder without anything of its own.
    pub(in crate::models) const DECODER: Self = Self {
        classes: &[],
        prefix: "model.",
        dropped_prefix: "",
        left_out: &[],
        shared: &[],
        keeps_tied_head: true,
        drops_further_layers: false,
        keys: |model, keys| keys.language_model(model, model.config.number(&HEAD_DIM)),
        tables: |_| Ok(Vec::new()),
        token_types: None,
        tokenizer: TokenizerReading::ByteLevel,
        check: |_| Ok(()),
    };
}
