//! The architectures: one file per family, one line in the table.
//!
//! A row holds everything that is known about an architecture: its names, the caches of its layers, and how its GGUF files
//! become a Hugging Face checkpoint. Keys of configurations that several architectures have are in
//! [`config::keys`](super::config::keys), names of modules in [`names`](super::names).

mod bert;
mod decoders;
mod deepseek;
mod gemma;
mod gpt;
mod gpt_oss;
mod hybrids;
mod llama;
mod mamba;
mod phi;
mod qwen;
mod t5;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::read::checkpoint::Checkpoint;

use super::caches::{self, CacheRules, ModelLayers};
use super::config::ModelConfig;
use super::config::keys::CLASSES;
use super::conversion::{self, GgufConversion, Model, SourceModel};
use super::model_folder::ModelFolder;

/// The facts about one architecture, or about several that differ in their names alone.
#[derive(Debug)]
struct Architecture {
    /// Values of `model_type`, of the language model where several are nested.
    model_types: &'static [&'static str],
    /// Values of `general.architecture` in GGUF files whose caches follow these rules.
    gguf: &'static [&'static str],
    /// The caches of the layers.
    caches: CacheRules,
    /// How GGUF files become Hugging Face checkpoints, one entry for each name that is known.
    conversions: &'static [GgufConversion],
}

/// All architectures, by family.
static ARCHITECTURES: &[&[Architecture]] = &[
    llama::LLAMA_FAMILY,
    qwen::QWEN_FAMILY,
    gemma::GEMMA_FAMILY,
    phi::PHI_FAMILY,
    gpt_oss::GPT_OSS_FAMILY,
    deepseek::DEEPSEEK_FAMILY,
    decoders::DECODERS,
    gpt::GPT_FAMILY,
    mamba::MAMBA_FAMILY,
    hybrids::HYBRIDS,
    t5::ENCODER_DECODERS,
    bert::ENCODERS,
];

fn rows() -> impl Iterator<Item = &'static Architecture> {
    ARCHITECTURES.iter().copied().flatten()
}

/// The layers that a configuration describes. `expanded`: whether the engine keeps heads of keys and values as it computes
/// with them.
///
/// # Errors
/// An architecture that is in no row, or a configuration without a value that its row needs.
pub(crate) fn layers(config: &ModelConfig, expanded: bool, budget: &Budget) -> Result<ModelLayers> {
    let Some(name) = config.model_type() else {
        return Err(Error::unsupported(
            "the configuration names no architecture",
        ));
    };
    let row = rows().find(|row| {
        // by two lists: one name may stand for other models in a GGUF, where `llama` is Mixtral too
        let names = if config.is_gguf() {
            row.gguf
        } else {
            row.model_types
        };
        names.contains(&name)
    });
    let Some(row) = row else {
        return Err(Error::unsupported(format!(
            "the architecture {} is not known",
            quote(name)
        )));
    };
    caches::layers(config, &row.caches, expanded, budget)
}

/// The model of a GGUF checkpoint whose architecture has a conversion.
pub(crate) fn gguf_model(checkpoint: &Checkpoint) -> Option<Model<'_>> {
    // other formats have the names of transformers already
    if checkpoint.catalog().format() != "gguf" {
        return None;
    }
    let name = Model::name(checkpoint)?;
    let mut all = rows().flat_map(|row| row.conversions);
    let conversion = all.find(|conversion| conversion.name == name)?;
    Model::new(checkpoint, conversion)
}

/// The model of a checkpoint in the form of Hugging Face that becomes a GGUF.
///
/// # Errors
/// A configuration whose class has no way into a GGUF.
pub(crate) fn source_model<'c>(
    config: &'c ModelConfig,
    folder: Option<&ModelFolder<'_>>,
) -> Result<SourceModel<'c>> {
    let classes = config
        .value(&CLASSES)
        .and_then(|classes| classes.as_array());
    let class = classes.and_then(|classes| classes.first()?.as_str());
    let class = class.ok_or_else(|| {
        Error::unsupported(match config.is_empty() {
            true => "no config.json beside the weights names the class of the model, by which a GGUF is made",
            false => "config.json names no class of the model (`architectures`), by which a GGUF is made",
        })
    })?;
    let all = rows().flat_map(|row| row.conversions);
    let mut all = all.filter_map(|conversion| Some((conversion, conversion.writing?)));
    let found = all.find(|(_, writing)| writing.classes.contains(&class));
    let (conversion, writing) = found.ok_or_else(|| {
        Error::unsupported(format!("no GGUF is written of the class {}", quote(class)))
    })?;
    Ok(SourceModel {
        config,
        conversion,
        writing,
        class,
        pooling: folder.map_or(Ok(None), conversion::pooling)?,
    })
}

/// The small files of the Hugging Face checkpoint that a GGUF becomes, each with its name. `dtype` is the dtype of the
/// weights. Empty if the architecture has no conversion.
pub(crate) fn files(
    checkpoint: &Checkpoint,
    dtype: Dtype,
    budget: &Budget,
) -> Result<Vec<(String, Vec<u8>)>> {
    match gguf_model(checkpoint) {
        Some(model) => conversion::files(&model, dtype, budget),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_architectures_and_stored_tensors_are_unique() {
        let all: Vec<_> = rows().flat_map(|row| row.conversions).collect();
        assert!(all.len() >= 20, "{}", all.len());
        for (i, row) in all.iter().enumerate() {
            assert!(
                all[..i].iter().all(|other| other.name != row.name),
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

    #[test]
    fn an_architecture_has_one_row() {
        for gguf in [false, true] {
            let names = rows().flat_map(|row| if gguf { row.gguf } else { row.model_types });
            let mut names: Vec<_> = names.collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
            assert!(all > 40, "{all}");
        }
    }

    #[test]
    fn documents_name_every_architecture() {
        let lists = [
            (
                "docs/fit.md",
                "Architectures with a row",
                "deepseek_v4 has no",
                rows().flat_map(|row| row.model_types).collect::<Vec<_>>(),
            ),
            (
                "docs/guide.md",
                "Known are the",
                "Others keep",
                rows()
                    .flat_map(|row| row.conversions)
                    .map(|row| &row.name)
                    .collect(),
            ),
        ];
        for (path, from, until, names) in lists {
            let page = std::fs::read_to_string(path).unwrap();
            let list = page.split(from).nth(1).unwrap();
            let list = list.split(until).next().unwrap();
            let is_word = |c: char| c.is_alphanumeric() || "_-".contains(c);
            let words: Vec<&str> = list.split(|c| !is_word(c)).collect();
            for name in names {
                // a nested language model is listed as its model is
                let base = name.trim_end_matches("_model").trim_end_matches("_text");
                assert!(words.contains(&base), "{path} lacks {name}");
            }
        }
    }
}
