//! The architectures whose GGUF files can be made into Hugging Face checkpoints, one row each.
//!
//! llama.cpp's converters rename the tensors of a model, change some of their values (rows of the query projection in
//! another order, one added to the norms of Gemma, experts stacked) and keep its configuration as metadata. A row of
//! [`ARCHITECTURES`] undoes all three: [`TensorRule`]s give names and values, a function the configuration. Values are
//! changed by decoders that wrap the decoder of the stored tensor, so an output is still made tile by tile, with one
//! rounding, into every dtype.
//!
//! Names and changes of values are facts of llama.cpp's `conversion/*.py` and `gguf-py/gguf/tensor_mapping.py`, and of
//! transformers' `modeling_gguf_pytorch_utils.py`; names on the other side are those of the checkpoints that transformers
//! saves (`save_pretrained`): experts are separate tensors there except where an architecture stores them stacked.

mod config;
mod conversion;
mod decoders;
mod deepseek;
mod files;
mod gemma;
mod gpt;
mod gpt_oss;
mod llama;
mod mamba;
mod mapped_elements;
mod model;
mod phi;
mod qwen;
mod rows;
mod rules;
mod t5;

use crate::base::error::Result;

pub(crate) use conversion::{ConvertedJob, convert};
pub(crate) use files::files;
pub(crate) use model::Model;

use config::CheckpointConfig;
use rules::TensorRule;

/// Which names the outputs have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// The names in the file: those of llama.cpp in a GGUF.
    #[default]
    Stored,
    /// Those of the model's class in transformers, with the values that this class stores. Formats other than GGUF have
    /// them already. A GGUF of an unknown architecture keeps its names, and a note of the plan says so.
    HuggingFace,
}

/// How the GGUF files of one architecture become a Hugging Face checkpoint.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// The value of `general.architecture`, and the prefix of its metadata.
    name: &'static str,
    /// Outputs by stored name. The first list with a rule for a name decides.
    tensors: &'static [&'static [TensorRule]],
    /// Stored tensors that are no parameter of the model, such as tables derived from its configuration.
    omitted: &'static [&'static str],
    /// The configuration, from the metadata.
    config: fn(&Model<'_>) -> Result<CheckpointConfig>,
}

/// All architectures.
static ARCHITECTURES: &[Architecture] = &[
    llama::LLAMA,
    qwen::QWEN2,
    qwen::QWEN2MOE,
    qwen::QWEN3,
    qwen::QWEN3MOE,
    gemma::GEMMA2,
    gemma::GEMMA3,
    phi::PHI3,
    gpt_oss::GPT_OSS,
    deepseek::DEEPSEEK2,
    decoders::GLM4,
    decoders::COMMAND_R,
    decoders::GRANITE,
    decoders::STARCODER2,
    gpt::FALCON,
    gpt::GPT2,
    decoders::STABLELM,
    gpt::BLOOM,
    mamba::MAMBA,
    t5::T5,
];

impl Architecture {
    fn find(name: &str) -> Option<&'static Self> {
        ARCHITECTURES.iter().find(|row| row.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::ARCHITECTURES;

    #[test]
    fn names_of_architectures_and_stored_tensors_are_unique() {
        for (i, row) in ARCHITECTURES.iter().enumerate() {
            assert!(
                ARCHITECTURES[..i]
                    .iter()
                    .all(|other| other.name != row.name),
                "{}",
                row.name
            );
            for rules in row.tensors {
                for (i, rule) in rules.iter().enumerate() {
                    let repeated = rules[..i].iter().find(|other| {
                        other.stored[0] == rule.stored[0] && other.needs == rule.needs
                    });
                    // one tensor may make several outputs, of different names
                    assert!(
                        repeated.is_none_or(|other| other.output != rule.output),
                        "{}: {}",
                        row.name,
                        rule.stored[0]
                    );
                }
            }
        }
    }
}
