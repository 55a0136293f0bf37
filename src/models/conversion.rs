//! From the GGUF of a known architecture to a Hugging Face checkpoint.
//!
//! llama.cpp's converters rename the tensors of a model, change some of their values (rows of the query projection in
//! another order, one added to the norms of Gemma, experts stacked) and keep its configuration as metadata. A
//! [`GgufConversion`] undoes all three: [`TensorRule`]s give names and values, a function the configuration. Values are
//! changed by decoders that wrap the decoder of the stored tensor, so an output is still made tile by tile, with one
//! rounding, into every dtype.
//!
//! Names and changes of values are facts of llama.cpp's `conversion/*.py` and `gguf-py/gguf/tensor_mapping.py`, and of
//! transformers' `modeling_gguf_pytorch_utils.py`; names on the other side come from the checkpoints that transformers saves
//! (`save_pretrained`): experts are separate tensors there except where an architecture stores them stacked.

mod checkpoint_config;
mod files;
mod jobs;
mod mapped_elements;
mod model;
mod row_gather;
mod tensor_rules;

use crate::base::error::Result;

pub(crate) use jobs::{ConvertedJob, convert};
pub(crate) use model::Model;

pub(in crate::models) use checkpoint_config::CheckpointConfig;
pub(in crate::models) use files::files;
pub(in crate::models) use model::Need;
pub(in crate::models) use row_gather::{RowGather, RowOrder, RowSource};
pub(in crate::models) use tensor_rules::{
    ChangedTensor, StoredTensors, TensorRule, changed, expert, one_row, rotary_key, rotary_query,
    same,
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
}
