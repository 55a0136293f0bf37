//! The corpus, where it is there: its entries, and what their manifest says.

use std::path::{Path, PathBuf};

use anamnesis::Format;
use serde::Deserialize;

/// What a manifest expects of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    Ok,
    OkOrUnsupported,
    OkOrRejectObject,
    /// The references disagree on what the values mean, not on the bytes.
    Ambiguous,
    Reject,
    RejectOrUnsupported,
    MustReject,
    ShouldReject,
    MayAccept,
    MustAccept,
}

/// One file, and what is in it according to its manifest.
#[derive(Debug, Deserialize)]
pub struct Entry {
    #[serde(rename = "path")]
    pub name: String,
    #[serde(skip)]
    pub path: PathBuf,
    pub format: String,
    pub expect: Expect,
    #[serde(default)]
    pub why: String,
    pub tensors: Option<Vec<Want>>,
    /// What the reference implementation makes of it.
    #[serde(default)]
    pub oracle: Vec<Oracle>,
}

/// A file of reference outputs, its path like that of the entry.
#[derive(Debug, Deserialize)]
pub struct Oracle {
    pub path: PathBuf,
}

/// One tensor according to a manifest.
#[derive(Clone, Debug, Deserialize)]
pub struct Want {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    /// Absent, like the hash, where the tensor is not dense.
    pub nbytes: Option<u64>,
    pub sha256: Option<String>,
    /// Of the bytes as stored, where those are big-endian.
    pub raw_sha256: Option<String>,
    pub fortran_order: Option<bool>,
    pub stride: Option<Vec<u64>>,
    pub storage_offset: Option<u64>,
    /// Equal for tied tensors.
    pub storage_id: Option<u64>,
    pub storage_nbytes: Option<u64>,
    /// PyTorch's name for a layout that is not dense.
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

impl Entry {
    /// Whether the manifest lets a reader list it.
    pub fn is_good(&self) -> bool {
        use Expect::{Ambiguous, MustAccept, Ok, OkOrRejectObject, OkOrUnsupported};
        matches!(
            self.expect,
            Ok | OkOrUnsupported | OkOrRejectObject | Ambiguous | MustAccept
        )
    }

    /// What a reader should list.
    pub fn tensors(&self) -> &[Want] {
        self.tensors.as_deref().unwrap_or_default()
    }

    /// The format of the file; `None` for an index, which has no tensors of its own.
    pub fn format(&self) -> Option<&'static Format> {
        let format = Format::from_name(&self.format);
        assert!(
            format.is_some() || self.format == "safetensors-index",
            "{}: a format the test does not know",
            self.format
        );
        format
    }
}

/// The entries of a corpus set in these formats, or `None`, said aloud, where the corpus is not there.
pub fn corpus(set: &str, formats: &[&str]) -> Option<Vec<Entry>> {
    let directory = directory(set);
    let manifest = directory.join("manifest.json");
    if !manifest.is_file() {
        super::skip(&format!(
            "no corpus at {} (set ANAMNESIS_CORPUS)",
            directory.display()
        ));
        return None;
    }
    Some(entries(&manifest, &directory, formats))
}

/// Files of quantised weights: the fixtures, and the corpus where it is.
pub fn quantised() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for folder in [super::fixture("quant"), directory("public/quant")] {
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

/// Where a set of the corpus is, if it is.
fn directory(set: &str) -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    std::env::var_os("ANAMNESIS_CORPUS")
        .map_or_else(beside, PathBuf::from)
        .join(set)
}

/// The entries of a manifest in these formats, their paths in this directory.
pub fn entries(manifest: &Path, directory: &Path, formats: &[&str]) -> Vec<Entry> {
    #[derive(Deserialize)]
    struct Manifest {
        entries: Vec<Entry>,
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
                .for_each(|want| want.shape.reverse()); // ggml's ne[]
        }
    }
    entries
}
