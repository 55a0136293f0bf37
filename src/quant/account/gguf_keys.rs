//! Keys of a GGUF that are no model's, and that may say how its tensors are stored.
//!
//! The types of the tensors say how blocks are decoded. A fork that packs, scales or orders them in its own way says so in keys of
//! its own: in a namespace that no model has, as a general key that the format does not have, or among the keys of the model.
//!
//! Source: gguf-py `constants.py` (`Keys`), and the keys that uploaders add.

use std::cell::OnceCell;
use std::collections::HashSet;

use crate::base::error::Result;
use crate::models::config::ModelConfig;
use crate::quant::scheme::Context;
use crate::read::catalog::{Catalog, Encoding, Value};

const WHAT: &str = "the metadata";

/// Namespaces whose keys are about models, tokenizers, the file, or the run that made it.
static NAMESPACES: &[&str] = &[
    "adapter",
    "clip",
    "comfy",
    "controlvector",
    "diffusion",
    "general",
    "imatrix",
    "koboldcpp",
    "mradermacher",
    "quantize",
    "split",
    "tokenizer",
    "training",
    "xielu",
];

/// General keys that the format has, beside those whose last word is one of a description.
static GENERAL: &[&str] = &[
    "alignment",
    "architecture",
    "basename",
    "endianess",
    "file_type",
    "finetune",
    "languages",
    "parameter_count",
    "quantization_version",
    "size_label",
    "tags",
    "type",
];

/// Groups of general keys.
static GROUPS: &[&str] = &["sampling", "source", "base_model", "dataset", "license"];

/// Last words of general keys that are texts about the model.
static DESCRIPTIONS: &[&str] = &[
    "author",
    "by",
    "count",
    "date",
    "datasets",
    "description",
    "doi",
    "id",
    "license",
    "link",
    "name",
    "organization",
    "repository",
    "repo",
    "url",
    "uuid",
    "version",
];

/// Values of `general.type`.
static TYPES: &[&str] = &[
    "model",
    "adapter",
    "imatrix",
    "mmproj",
    "controlvector",
    "vocab",
];

/// Words of a model's keys that say that stored numbers are not the weights themselves.
static WORDS: &[&str] = &[
    "interleaved",
    "lut",
    "offset",
    "packed",
    "smooth",
    "sparse",
    "swizzled",
    "transposed",
];

/// The keys of a GGUF.
pub(super) struct GgufKeys<'c> {
    catalog: &'c Catalog,
    /// The architecture of the file's model.
    architecture: Option<&'c str>,
    /// Further namespaces of models, of which a file may have several: a language model and its codec. Few files need them.
    further: OnceCell<HashSet<&'c str>>,
    /// Whether tensors are stored as blocks. Programs put keys of any name into files of plain numbers, which need no decoder.
    has_blocks: bool,
}

impl<'c> GgufKeys<'c> {
    /// `architecture`: of the file's model.
    pub(super) fn of(cx: &Context<'c>, architecture: Option<&'c str>) -> Result<Self> {
        let catalog = cx.catalog;
        let keys = catalog.metadata.len() as u64;
        cx.budget.steps(1 + keys, WHAT)?;
        cx.budget.memory(48 * keys, WHAT)?;
        let mut tensors = catalog.tensors().iter();
        Ok(Self {
            catalog,
            architecture,
            further: OnceCell::new(),
            has_blocks: tensors.any(|info| matches!(info.encoding, Encoding::Block(_))),
        })
    }

    /// Whether a key is known to say nothing of stored numbers.
    pub(super) fn are_of_model(&self, key: &str, value: &Value) -> bool {
        // no namespace: it is judged by its words
        let Some((namespace, rest)) = key.split_once('.') else {
            return true;
        };
        if !self.has_blocks || self.architecture == Some(namespace) {
            return !alters(rest);
        }
        if namespace == "general" {
            return is_general(rest, value);
        }
        if NAMESPACES.contains(&namespace) {
            return true;
        }
        let further = self.further.get_or_init(|| models(self.catalog));
        further.contains(namespace) && !alters(rest)
    }
}

/// The namespaces in which a file has keys of models.
fn models(catalog: &Catalog) -> HashSet<&str> {
    let fields = ModelConfig::fields().iter();
    let fields: HashSet<&str> = fields.flat_map(|field| field.gguf()).copied().collect();
    let of_model = catalog.metadata.iter().filter_map(|(key, _)| {
        let (namespace, rest) = key.split_once('.')?;
        // keys of a part of a model, such as `vision.`, count too
        let last = rest.rsplit_once('.').map_or(rest, |(_, last)| last);
        let is_field = fields.contains(rest) || fields.contains(last) || last == "sample_rate";
        is_field.then_some(namespace)
    });
    of_model.collect()
}

fn is_general(rest: &str, value: &Value) -> bool {
    if rest == "type" {
        return matches!(value, Value::Text(text) if TYPES.contains(&&**text));
    }
    let (group, last) = (
        rest.split('.').next().unwrap_or(rest),
        rest.rsplit(['.', '_']).next().unwrap_or(rest),
    );
    GENERAL.contains(&rest) || GROUPS.contains(&group) || DESCRIPTIONS.contains(&last)
}

/// Whether a key of a model speaks of its weights. Factors of embeddings, logits and the sums of experts are a model's.
fn alters(rest: &str) -> bool {
    let mut words = rest.split(['.', '_']);
    // the sections of positions may be interleaved
    let has_word = words.any(|word| WORDS.contains(&word)) && !rest.starts_with("rope.");
    let of_weights = rest == "weight_scale" || rest == "weights_scale";
    has_word || of_weights || rest.ends_with(".weight_scale")
}

#[cfg(test)]
mod tests {
    use super::{alters, is_general};
    use crate::read::catalog::Value;

    #[test]
    fn keys_of_models_and_of_forks() {
        let is = |rest| is_general(rest, &Value::U64(1));
        for rest in [
            "base_model.0.repo_url",
            "quantized_by",
            "sampling.top_k",
            "alignment",
            "source.hf.repository",
        ] {
            assert!(is(rest), "{rest}");
        }
        for rest in ["block_size", "transposed", "scale", "compressed", "type"] {
            assert!(!is(rest), "{rest}");
        }
        for rest in [
            "expert_weights_scale",
            "rope.scaling.factor",
            "attention.scale",
            "embedding_scale",
            "activation_sparsity_scale",
        ] {
            assert!(!alters(rest), "{rest}");
        }
        for rest in ["weight_scale", "weights_offset", "lut.size", "smooth"] {
            assert!(alters(rest), "{rest}");
        }
    }
}
