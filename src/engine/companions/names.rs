//! Which files in a directory belong to the model in it, by their names.
//!
//! The names are those that clients open: transformers and its tokenizers, diffusers, sentence-transformers, peft, OpenCLIP and
//! Mistral's own. Nothing else is carried over, because a directory, and even more the surroundings of a single file, may
//! hold files that must stay there, such as notes and passwords.

use crate::read::checkpoint::has_tensor_ending;

/// Names of models' configurations, which describe the weights: of transformers and diffusers, and of Mistral.
pub(super) static CONFIGURATIONS: &[&str] = &["config.json", "params.json"];

/// The list of modules of sentence-transformers, some of which have a folder of their own.
pub(super) const MODULES: &str = "modules.json";

/// Endings of files that are carried over.
static ENDINGS: &[&str] = &[
    ".json",
    // chat templates
    ".jinja",
    // vocabularies: SentencePiece, tiktoken, WordPiece's `vocab.txt` and BPE's `merges.txt`
    ".model",
    ".spm",
    ".tiktoken",
    ".txt",
    ".bpe",
    ".codes",
];

/// The part of a name before its first dot, of files that are carried over.
static STEMS: &[&str] = &[
    // the model
    "config",
    "params",
    "configuration",
    "generation_config",
    "adapter_config",
    "model_index",
    "scheduler_config",
    "modules",
    "config_sentence_transformers",
    "config_setfit",
    "open_clip_config",
    "id2label",
    "labels",
    // its inputs
    "preprocessor_config",
    "processor_config",
    "image_processor",
    "video_preprocessor_config",
    "feature_extractor",
    "normalizer",
    "mel_filters",
    // its tokenizer
    "tokenizer",
    "tekken",
    "special_tokens",
    "special_tokens_map",
    "added_tokens",
    "chat_template",
    "vocab",
    "vocabs",
    "merges",
    "spiece",
    "sentencepiece",
    "spm",
    "source",
    "target",
    "unigram",
    "bpe",
    "dict",
    "encoder",
    "emoji",
    "entity_vocab",
    "alphabet",
];

/// Beginnings of such parts, with a `_` or `-` behind: `tokenizer_config`, `sentence_bert_config`, `vocab-src`.
static FAMILIES: &[&str] = &["tokenizer", "sentence", "vocab", "dict", "chat_template"];

/// Beginnings of names that are carried over, whatever their ending: what a copy of the weights must be accompanied by.
static NOTICES: &[&str] = &["LICENSE", "LICENCE", "NOTICE", "USE_POLICY"];

/// Files that describe how the tensors were stored, which is no longer true of the output.
static STORAGE_SETTINGS: &[&str] = &[
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "quantization_map.json",
    "quanto_qmap.json",
    "quant_log.csv",
    "recipe.yaml",
];

/// Files that describe how weights were altered or stored, and that no scheme reads. They are left out too, and named: the
/// output may need what they say.
static DESCRIPTIONS: &[&str] = &[
    "quant_model_description.json",
    "quantization_config.json",
    "rotation.json",
    "rotation_config.json",
    "hadamard.json",
];

/// The files that are looked for next to a file on a web server, which does not list its files.
pub(super) static TRIED: &[&str] = &[
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "preprocessor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];

/// The meaning of a file's name in the directory of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameClass {
    /// It belongs to the model, whose weights are stored anew.
    Known,
    /// Code, which clients run.
    Code,
    /// It describes stored weights, and no scheme reads it.
    Description,
    /// It holds tensors, or describes how they were stored: it has a counterpart in the output, or needs none. Hidden files
    /// are of other tools.
    OfStorage,
    /// No client opens it.
    Unknown,
}

/// The class of a name, where weights stay `quantised` no less than before or not: descriptions are then true of the output.
pub(super) fn class_of(name: &str, quantised: bool) -> NameClass {
    let is_index = name.contains(".index.") && name.ends_with(".json");
    let settings = STORAGE_SETTINGS.contains(&name);
    if name.starts_with('.')
        // also the index of a variant of diffusers, `….index.fp16.json`
        || is_index
        || (settings && !quantised)
        // read, or named as not read, when the directory is opened
        || has_tensor_ending(name)
    {
        return NameClass::OfStorage;
    }
    if name.ends_with(".py") {
        return NameClass::Code;
    }
    if DESCRIPTIONS.contains(&name) {
        return match quantised {
            true => NameClass::Known,
            false => NameClass::Description,
        };
    }
    let stem = name.split('.').next().unwrap_or_default();
    let is_of_family = FAMILIES.iter().any(|family| {
        stem.strip_prefix(family)
            .is_some_and(|rest| rest.starts_with(['_', '-']))
    });
    // Mistral numbers the versions of its tokenizers, `tokenizer.model.v3`
    let has_ending =
        ENDINGS.iter().any(|ending| name.ends_with(ending)) || name.starts_with("tokenizer.model.");
    let is_known = has_ending && (STEMS.contains(&stem) || is_of_family)
        // named after the model
        || name.ends_with(".tiktoken")
        || NOTICES.iter().any(|notice| name.starts_with(notice));
    match is_known || settings {
        true => NameClass::Known,
        false => NameClass::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_clients_open_are_known() {
        for known in [
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer.model",
            "tokenizer.model.v3",
            "tokenizer_config.json",
            "vocab.txt",
            "vocab-src.json",
            "merges.txt",
            "qwen.tiktoken",
            "source.spm",
            "sentencepiece.bpe.model",
            "sentence_bert_config.json",
            "chat_template.jinja",
            "preprocessor_config.json",
            "adapter_config.json",
            "LICENSE",
            "LICENSE.md",
            "NOTICE.txt",
        ] {
            assert_eq!(class_of(known, false), NameClass::Known, "{known}");
        }
        // settings that no scheme has consumed still describe the weights
        assert_eq!(class_of("quantize_config.json", true), NameClass::Known);
        assert_eq!(class_of("rotation.json", true), NameClass::Known);
        for (name, class) in [
            ("rotation.json", NameClass::Description),
            ("modeling_x.py", NameClass::Code),
            ("model.safetensors.index.json", NameClass::OfStorage),
            ("pytorch_model.bin.index.json", NameClass::OfStorage),
            (
                "diffusion_pytorch_model.safetensors.index.fp16.json",
                NameClass::OfStorage,
            ),
            ("quantize_config.json", NameClass::OfStorage),
            ("hf_quant_config.json", NameClass::OfStorage),
            ("model.safetensors", NameClass::OfStorage),
            ("training_args.bin", NameClass::OfStorage),
            (".gitattributes", NameClass::OfStorage),
            (".hidden.json", NameClass::OfStorage),
            ("trainer_state.json", NameClass::Unknown),
            ("README.md", NameClass::Unknown),
            ("passwords.txt", NameClass::Unknown),
            ("credentials.json", NameClass::Unknown),
            ("config_prod.json", NameClass::Unknown),
        ] {
            assert_eq!(class_of(name, false), class, "{name}");
        }
    }
}
