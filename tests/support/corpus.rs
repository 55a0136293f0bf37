//! The shared corpus: its files, and what the manifests say of them (the manifests are written with the reference
//! libraries: safetensors, gguf-py, numpy and PyTorch).

use std::path::{Path, PathBuf};

use anamnesis::Format;
use serde::Deserialize;

/// How a reader has to treat a file, according to its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expectation {
    Ok,
    OkOrUnsupported,
    OkOrRejectObject,
    /// The reference implementations agree on the bytes and disagree on the values.
    Ambiguous,
    Reject,
    RejectOrUnsupported,
    MustReject,
    ShouldReject,
    MayAccept,
    MustAccept,
}

/// A file of the corpus and its content according to the manifest.
#[derive(Debug, Deserialize)]
pub struct CorpusEntry {
    #[serde(rename = "path")]
    pub name: String,
    #[serde(skip)]
    pub path: PathBuf,
    pub format: String,
    pub expect: Expectation,
    #[serde(default)]
    pub why: String,
    pub tensors: Option<Vec<ExpectedTensor>>,
    /// Files with the output of the reference implementation.
    #[serde(default)]
    pub oracle: Vec<OracleFile>,
}

/// A file of reference outputs. The manifest gives its path relative to the corpus, as for the entry.
#[derive(Debug, Deserialize)]
pub struct OracleFile {
    pub path: PathBuf,
}

/// One tensor according to a manifest.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedTensor {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    /// Absent, like the hash, if the tensor is not dense.
    pub nbytes: Option<u64>,
    pub sha256: Option<String>,
    /// SHA-256 of the stored bytes, if they are big-endian.
    pub raw_sha256: Option<String>,
    pub fortran_order: Option<bool>,
    pub stride: Option<Vec<u64>>,
    pub storage_offset: Option<u64>,
    /// Equal for tied tensors.
    pub storage_id: Option<u64>,
    pub storage_nbytes: Option<u64>,
    /// PyTorch's name of a layout that is not dense.
    pub layout: Option<String>,
    pub qscheme: Option<String>,
    pub scale: Option<Scale>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Scale {
    PerTensor(f64),
    PerChannel(Vec<f64>),
}

impl CorpusEntry {
    /// Whether a reader may or must list the tensors of this file.
    pub fn is_valid(&self) -> bool {
        use Expectation::{Ambiguous, MustAccept, Ok, OkOrRejectObject, OkOrUnsupported};
        matches!(
            self.expect,
            Ok | OkOrUnsupported | OkOrRejectObject | Ambiguous | MustAccept
        )
    }

    /// The tensors that a reader has to list.
    pub fn tensors(&self) -> &[ExpectedTensor] {
        self.tensors.as_deref().unwrap_or_default()
    }

    /// The format of the file; `None` for an index, which has no tensors of its own.
    pub fn format(&self) -> Option<&'static Format> {
        let format = Format::from_name(&self.format);
        assert!(
            format.is_some() || self.format == "safetensors-index",
            "{}: not a known format",
            self.format
        );
        format
    }
}

/// The entries of a corpus set in these formats. `None`, with a note on stderr, if the corpus is not installed.
pub fn corpus_entries(set: &str, formats: &[&str]) -> Option<Vec<CorpusEntry>> {
    let directory = set_directory(set);
    let manifest = directory.join("manifest.json");
    if !manifest.is_file() {
        super::skip(&format!(
            "no corpus at {} (set ANAMNESIS_CORPUS)",
            directory.display()
        ));
        return None;
    }
    Some(manifest_entries(&manifest, &directory, formats))
}

/// Safetensors files of quantised weights: the fixtures, and the files of the corpus if it is installed.
pub fn quantised_files() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for folder in [super::fixture("quant"), set_directory("public/quant")] {
        if folder.is_dir() {
            paths.extend(super::files_below(&folder));
        } else {
            super::skip(&format!("no quantised files at {}", folder.display()));
        }
    }
    paths.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".safetensors") && !name.contains("oracle")
    });
    paths
}

/// The directory of a corpus set, which need not exist.
pub fn set_directory(set: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    std::env::var_os("ANAMNESIS_CORPUS")
        .map_or_else(default, PathBuf::from)
        .join(set)
}

/// The entries of a manifest in these formats, with paths below this directory.
pub fn manifest_entries(manifest: &Path, directory: &Path, formats: &[&str]) -> Vec<CorpusEntry> {
    #[derive(Deserialize)]
    struct Manifest {
        entries: Vec<CorpusEntry>,
    }
    let text = std::fs::read(manifest).unwrap();
    let manifest: Manifest =
        serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", manifest.display()));
    let mut entries = manifest.entries;
    entries.retain(|entry| formats.contains(&&*entry.format));
    for entry in &mut entries {
        entry.path = directory.join(&entry.name);
        entry
            .oracle
            .iter_mut()
            .for_each(|oracle| oracle.path = directory.join(&oracle.path));
        if entry.format == "gguf" {
            entry
                .tensors
                .iter_mut()
                .flatten()
                .for_each(|tensor| tensor.shape.reverse()); // the manifest has ggml's order, innermost first
        }
    }
    entries
}
