//! Which files in a directory belong to the model in it, by their names.
//!
//! The names are those that clients open: transformers and its tokenizers, diffusers, sentence-transformers, peft, OpenCLIP and
//! Mistral's own. Nothing else is carried over, because a directory, and even more the surroundings of a single file, may
//! hold files that must stay there, such as notes and passwords.

use crate::base::template::is_weight_file;

/// Names of models' configurations, which describe the weights: of transformers and diffusers, and of Mistral.
pub(super) static CONFIGURATIONS: &[&str] = &["config.json", "params.json"];

/// The list of modules of sentence-transformers, some of which have a folder of their own.
pub(super) const MODULES: &str = "modules.json";

/// Names of files that are carried over. Whole names, and no beginnings: beside a `config.json` may lie a
/// `config.production.json`.
static NAMES: &[&str] = &[
    // the model
    "config.json",
    "params.json",
    "configuration.json",
    "generation_config.json",
    "adapter_config.json",
    "model_index.json",
    "scheduler_config.json",
    "modules.json",
    "config_sentence_transformers.json",
    "config_setfit.json",
    "open_clip_config.json",
    "id2label.json",
    "labels.json",
    "labels.txt",
    // its inputs
    "preprocessor_config.json",
    "processor_config.json",
    "image_processor.json",
    "video_preprocessor_config.json",
    "feature_extractor.json",
    "normalizer.json",
    "mel_filters.json",
    // its tokenizer
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.spm",
    "tokenizer.tiktoken",
    "tokenizer_config.json",
    "tokenizer_file.json",
    "tekken.json",
    "special_tokens.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "chat_template.jinja",
    "vocab.json",
    "vocab.txt",
    "vocab.bpe",
    "vocab.model",
    "vocab.spm",
    "vocab-src.json",
    "vocab-tgt.json",
    "vocabs.json",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.model",
    "sentencepiece.bpe.model",
    "bpe.codes",
    "bpe.model",
    "source.spm",
    "target.spm",
    "unigram.json",
    "dict.txt",
    "encoder.json",
    "emoji.json",
    "entity_vocab.json",
    "alphabet.json",
];

/// Files that a copy of the weights must be accompanied by, in letters of any case.
static NOTICES: &[&str] = &[
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "LICENSE-CODE",
    "LICENSE-MODEL",
    "LICENCE",
    "LICENCE.txt",
    "LICENCE.md",
    "NOTICE",
    "NOTICE.txt",
    "NOTICE.md",
    "USE_POLICY",
    "USE_POLICY.txt",
    "USE_POLICY.md",
];

/// The architectures of sentence-transformers, whose settings are in `sentence_ARCHITECTURE_config.json`.
static SENTENCE_MODELS: &[&str] = &[
    "albert",
    "bert",
    "camembert",
    "distilbert",
    "roberta",
    "xlm-roberta",
    "xlnet",
];

/// Whether a client opens a file of this name.
fn is_known(name: &str) -> bool {
    let is_notice = |notice: &&str| notice.eq_ignore_ascii_case(name);
    NAMES.contains(&name) || NOTICES.iter().any(is_notice) || has_known_pattern(name)
}

/// Whether a file of this name is of a model, and holds no tensors.
pub(super) fn is_of_a_model(name: &str) -> bool {
    is_known(name) || STORAGE_SETTINGS.contains(&name) || DESCRIPTIONS.contains(&name)
}

/// Whether a name is one of a family whose members have a part of their own.
fn has_known_pattern(name: &str) -> bool {
    let middle = |start: &str, end: &str| {
        let rest = name.strip_prefix(start)?.strip_suffix(end)?;
        (!rest.is_empty()).then(|| rest.to_owned())
    };
    // Mistral numbers the versions of its tokenizers: `tokenizer.model.v3`, `tokenizer.model.v7m1`
    let version = middle("tokenizer.model.v", "").is_some_and(|rest| {
        let is_sign = |c: char| c.is_ascii_digit() || c == 'm';
        rest.len() <= 4
            && rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.chars().all(is_sign)
    });
    // `tekken_240911.json`, by their dates
    let dated =
        middle("tekken_", ".json").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    // fairseq has a dictionary for each language: `dict.en.txt`, `dict.de_DE.txt`
    let language = middle("dict.", ".txt").is_some_and(|rest| {
        let (language, region) = rest.split_once('_').unwrap_or((&rest, "XX"));
        matches!(language.len(), 2 | 3)
            && language.bytes().all(|b| b.is_ascii_lowercase())
            && region.len() == 2
            && region.bytes().all(|b| b.is_ascii_uppercase())
    });
    let sentence =
        middle("sentence_", "_config.json").is_some_and(|rest| SENTENCE_MODELS.contains(&&*rest));
    // named after the model
    let tiktoken = name.strip_suffix(".tiktoken").is_some_and(|stem| {
        !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    });
    version || dated || language || sentence || tiktoken
}

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
    /// It holds tensors, or describes how they were stored: it has a counterpart in the output, or needs none.
    OfStorage,
    /// It has tensors of another checkpoint.
    OtherTensors,
    /// It is another tool's, or private.
    Hidden,
    /// No client opens it.
    Unknown,
}

/// The class of a name, where weights stay `quantised` no less than before or not: descriptions are then true of the output.
pub(super) fn class_of(name: &str, quantised: bool) -> NameClass {
    let is_index = name.contains(".index.") && name.ends_with(".json");
    let settings = STORAGE_SETTINGS.contains(&name);
    // the manifest of torch.distributed.checkpoint
    if name.starts_with('.') && name != ".metadata" {
        return NameClass::Hidden;
    }
    if name == ".metadata"
        // also the index of a variant of diffusers, `….index.fp16.json`
        || is_index
        || (settings && !quantised)
        // read, or named as not read, when the directory is opened
        || is_weight_file(name)
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
    match is_known(name) || settings {
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
            "license.txt",
            "NOTICE.txt",
            "tokenizer.model.v7m1",
            "tekken_240911.json",
            "dict.en.txt",
            "dict.de_DE.txt",
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
            (".gitattributes", NameClass::Hidden),
            (".hidden.json", NameClass::Hidden),
            (".env", NameClass::Hidden),
            (".metadata", NameClass::OfStorage),
            ("trainer_state.json", NameClass::Unknown),
            ("README.md", NameClass::Unknown),
            ("passwords.txt", NameClass::Unknown),
            ("credentials.json", NameClass::Unknown),
            ("config_prod.json", NameClass::Unknown),
            ("config.production.json", NameClass::Unknown),
            ("tokenizer-passwords.txt", NameClass::Unknown),
            ("tokenizer.secrets.txt", NameClass::Unknown),
            ("tokenizer_api_token.txt", NameClass::Unknown),
            ("tokenizer.model.bak", NameClass::Unknown),
            ("tokenizer.model.v3.bak", NameClass::Unknown),
            ("vocab_private.txt", NameClass::Unknown),
            ("dict.private.txt", NameClass::Unknown),
            ("sentence_notes_config.json", NameClass::Unknown),
            ("adapter_config.secret.json", NameClass::Unknown),
            ("LICENSE.key", NameClass::Unknown),
            ("LICENSE_KEY.pem", NameClass::Unknown),
            ("NOTICE-of-termination.docx", NameClass::Unknown),
            ("api-keys.tiktoken", NameClass::Unknown),
        ] {
            assert_eq!(class_of(name, false), class, "{name}");
        }
    }
}
