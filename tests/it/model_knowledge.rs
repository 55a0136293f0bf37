//! Keys of configurations and names of modules are known in `src/models` alone: no other code has one of them as text.

use std::collections::BTreeSet;

use anamnesis::ModelConfig;

use crate::support::rust_code::crates;

/// Words of the tables that other code may have, each with the reason. A file stands for itself or for the files below it.
static EXCEPTIONS: &[(&str, &[&str], &str)] = &[
    (
        "",
        &["dtype"],
        "a field of safetensors headers, of pickled tensors and of our own documents",
    ),
    (
        "src/read/format/gguf.rs",
        &["general.architecture"],
        "whose type 4 is Ollama's",
    ),
    (
        "src/read/format/gguf/details.rs",
        &[
            "general.architecture",
            "tokenizer.ggml.tokens",
            "context_length",
            "block_count",
            "embedding_length",
        ],
        "the container's header as `inspect` shows it, below `models`",
    ),
    (
        "crates/cli/src/output/overview.rs",
        &["context_length"],
        "a name among the details of a catalog",
    ),
    (
        "crates/cli/src/plan.rs",
        &["decoder"],
        "a member of the document",
    ),
    (
        "src/analysis/fit/terms.rs",
        &["projector"],
        "the role of an additional model in the document",
    ),
    (
        "src/quant/account/distant_scales.rs",
        &["embed", "shared", "wte", "wpe"],
        "words in names of matrices that files of scaled FP8 cast, in models of any kind",
    ),
    (
        "src/quant/account/metadata.rs",
        &["general.architecture"],
        "the namespace of a container's keys",
    ),
    (
        "src/read/checkpoint/other_files.rs",
        &["optimizer", "scaler"],
        "words in names of files of training",
    ),
    (
        "src/quant/account/sidecars.rs",
        &["output"],
        "a word in names of files",
    ),
    (
        "src/quant/account/unclaimed.rs",
        &["wte", "wpe"],
        "words in names of weights that are no integers, in models of any kind",
    ),
    (
        "src/quant/account/harmless.rs",
        &["attn.bias", "attention.bias"],
        "names of masks, whose modules are of any model",
    ),
    (
        "src/quant/scheme/comfyui",
        &["num_experts"],
        "an option of ComfyUI's markers",
    ),
    (
        "src/quant/settings.rs",
        &["lm_head", "torch_dtype"],
        "keys of configurations of quantisation",
    ),
    (
        "crates/template/src/parallel",
        &["*"],
        "patterns by which workers split tensors; a test of `models::names` compares them",
    ),
];

/// A literal without the wildcards, dots and endings around a module's name.
fn module(literal: &str) -> &str {
    let bare = literal.trim_matches(['*', '.', '?']);
    let ending = [".weight", ".bias"].iter();
    ending.fold(bare, |name, end| name.strip_suffix(end).unwrap_or(name))
}

/// The key at the end of a literal that inserts something in front: `{architecture}.block_count`.
fn key(literal: &str) -> &str {
    literal
        .rsplit_once("}.")
        .map_or(literal, |(_, behind)| behind)
}

#[test]
fn keys_and_names_are_in_models_alone() {
    let fields = ModelConfig::fields().iter();
    let keys: BTreeSet<&str> = fields
        .flat_map(|field| field.config_json().iter().chain(field.gguf()))
        .copied()
        .collect();
    assert!(keys.len() > 100, "{}", keys.len());
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<(String, Vec<String>)> = Vec::new();
    for krate in crates() {
        for file in krate.files() {
            let path = file.path.strip_prefix(root).unwrap();
            files.push((path.to_str().unwrap().to_owned(), file.literals));
        }
    }
    let lists = files
        .iter()
        .find(|(path, _)| path == "src/models/names/modules.rs");
    let names: BTreeSet<&str> = lists.unwrap().1.iter().map(|name| module(name)).collect();
    assert!(names.len() > 60, "{}", names.len());
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for (path, literals) in &files {
        if path.starts_with("src/models/") {
            continue;
        }
        for literal in literals {
            let word = [key(literal), module(literal)];
            if !keys.contains(word[0]) && !names.contains(word[1]) {
                continue;
            }
            let exception = EXCEPTIONS.iter().position(|(file, words, _)| {
                path.starts_with(file)
                    && (*words == ["*"] || word.iter().any(|w| words.contains(w)))
            });
            match exception {
                Some(exception) => {
                    used.insert(exception);
                }
                None => wrong.push(format!("{path}: {literal:?}")),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "known in src/models/config/keys.rs or src/models/names/modules.rs, and here too:\n{}",
        wrong.join("\n")
    );
    let unused: Vec<_> = EXCEPTIONS
        .iter()
        .enumerate()
        .filter(|(i, _)| !used.contains(i))
        .map(|(_, row)| row)
        .collect();
    assert!(unused.is_empty(), "without a use: {unused:?}");
}

#[test]
fn a_key_and_a_name_are_found_in_a_literal() {
    assert_eq!(key("{architecture}.block_count"), "block_count");
    assert_eq!(module("*.q_proj.*"), "q_proj");
    assert_eq!(module("lm_head.weight"), "lm_head");
    assert_eq!(module("mlp.gate."), "mlp.gate");
}
