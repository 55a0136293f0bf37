//! What the integration tests share: fixtures, the corpus and its manifests, hashes.
#![allow(dead_code, missing_docs, unreachable_pub)] // each test uses its part

pub mod sparse;

use std::path::{Path, PathBuf};

use anamnesis::format::FORMATS;
use anamnesis::{Checkpoint, Format, Layout, Result, Tensor};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// Every fixture of a format, with that format.
pub fn fixtures() -> Vec<(PathBuf, &'static Format)> {
    let format = |path: &Path| {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        FORMATS.iter().copied().find(|f| f.extensions.contains(&extension))
    };
    let all = files_below(&fixture("")).into_iter();
    let all: Vec<_> = all.filter_map(|path| format(&path).map(|format| (path, format))).collect();
    assert!(all.len() > 200, "the fixtures are gone");
    all
}

/// Every file below a directory, sorted.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// SHA-256 of a tensor's logical bytes.
pub fn sha256(tensor: &Tensor<'_>) -> Result<String> {
    let mut hash = Sha256::new();
    tensor.chunks(|piece| {
        hash.update(piece);
        Ok(())
    })?;
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// What one tensor looks like to us.
#[derive(Debug)]
pub struct Listed {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    pub nbytes: u64,
    pub sha256: Option<String>,
}

/// Lists and hashes everything that has bytes.
pub fn listing(checkpoint: &Checkpoint) -> Result<Vec<Listed>> {
    checkpoint
        .tensors()
        .map(|tensor| {
            let info = tensor.info();
            let whole = !matches!(info.layout, Layout::Absent | Layout::Sparse(_));
            // a hostile view may repeat its storage a million times over
            let sha256 = if whole && info.nbytes() < 1 << 32 { Some(sha256(&tensor)?) } else { None };
            Ok(Listed {
                name: info.name.to_string(),
                dtype: info.encoding.name().to_owned(),
                shape: info.shape.to_vec(),
                nbytes: info.nbytes(),
                sha256,
            })
        })
        .collect()
}

#[derive(Debug, PartialEq)]
pub enum Expect {
    Accept,
    Refuse,
    Either,
}

pub struct Entry {
    pub name: String,
    pub path: PathBuf,
    pub format: String,
    pub expect: Expect,
    pub why: String,
    tensors: Option<Vec<Json>>,
}

/// The entries of a corpus set, or `None`, said aloud, where the corpus is not there.
pub fn corpus(set: &str, formats: &[&str]) -> Option<Vec<Entry>> {
    let root = match std::env::var_os("ANAMNESIS_CORPUS") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"),
    };
    let directory = root.join(set);
    let Ok(manifest) = std::fs::read(directory.join("manifest.json")) else {
        eprintln!("SKIPPED: no corpus at {} (set ANAMNESIS_CORPUS)", directory.display());
        return None;
    };
    let manifest: Json = serde_json::from_slice(&manifest).unwrap();
    let entries = manifest["entries"].as_array().unwrap().iter();
    let entries = entries.filter(|e| formats.contains(&e["format"].as_str().unwrap())).map(|e| {
        let name = e["path"].as_str().unwrap().to_owned();
        let expect = match e["expect"].as_str().unwrap() {
            "ok" | "must_accept" => Expect::Accept,
            "reject" | "must_reject" | "should_reject" | "reject_or_unsupported" => Expect::Refuse,
            _ => Expect::Either,
        };
        Entry {
            path: directory.join(&name),
            format: e["format"].as_str().unwrap().to_owned(),
            expect,
            why: e["why"].as_str().unwrap_or_default().to_owned(),
            tensors: e["tensors"].as_array().cloned(),
            name,
        }
    });
    Some(entries.collect())
}

impl Entry {
    /// Where a listing differs from the manifest.
    pub fn differences<'a>(&'a self, listing: &'a [Listed]) -> impl Iterator<Item = String> + 'a {
        let expected = self.tensors.as_deref();
        let count = expected.filter(|e| e.len() != listing.len()).map(|e| {
            let names: Vec<&str> = listing.iter().map(|t| t.name.as_str()).take(40).collect();
            format!("{} tensors instead of {}: {names:?}", listing.len(), e.len())
        });
        let each = expected.unwrap_or_default().iter().filter_map(move |e| self.difference(e, listing));
        count.into_iter().chain(each)
    }

    fn difference(&self, expected: &Json, listing: &[Listed]) -> Option<String> {
        let name = expected["name"].as_str().unwrap();
        let Some(found) = listing.iter().find(|t| t.name == name) else { return Some(format!("{name:?} is missing")) };
        let mut shape: Vec<u64> = expected["shape"].as_array()?.iter().map(|d| d.as_u64().unwrap()).collect();
        if self.format == "gguf" {
            shape.reverse(); // the manifest has ggml's ne[]
        }
        let mut bad = Vec::new();
        if found.shape != shape {
            bad.push(format!("shape {:?} instead of {shape:?}", found.shape));
        }
        if let Some(dtype) = expected["dtype"].as_str().and_then(|d| safetensors_name(&self.format, d))
            && found.dtype != dtype
        {
            bad.push(format!("dtype {} instead of {dtype}", found.dtype));
        }
        if let Some(nbytes) = expected["nbytes"].as_u64()
            && found.nbytes != nbytes
        {
            bad.push(format!("{} bytes instead of {nbytes}", found.nbytes));
        }
        if let (Some(sha256), Some(found)) = (expected["sha256"].as_str(), &found.sha256)
            && found != sha256
        {
            bad.push(format!("sha256 {found} instead of {sha256}"));
        }
        (!bad.is_empty()).then(|| format!("{name:?}: {}", bad.join(", ")))
    }
}

/// A manifest's dtype as this crate spells it; `None` where numpy's name has no such spelling.
fn safetensors_name<'a>(format: &str, dtype: &'a str) -> Option<&'a str> {
    if !format.starts_with("np") {
        return Some(dtype);
    }
    Some(match dtype {
        "bool" => "BOOL",
        "int8" => "I8",
        "int16" => "I16",
        "int32" => "I32",
        "int64" => "I64",
        "uint8" => "U8",
        "uint16" => "U16",
        "uint32" => "U32",
        "uint64" => "U64",
        "float16" => "F16",
        "float32" => "F32",
        "float64" => "F64",
        "complex64" => "C64",
        "complex128" => "C128",
        _ => return None,
    })
}
