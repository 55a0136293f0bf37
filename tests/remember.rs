//! `remember` against the reference outputs of every scheme in the shared corpus.

mod common;

use std::path::Path;

use anamnesis::{Checkpoint, Dtype, remember};
use common::corpus;

/// Where the manifest and this library part, and why.
static EXCEPTIONS: &[(&str, &str)] = &[];

#[test]
fn every_reference_output_is_met() {
    let sets = ["public", "real"].map(|set| corpus::corpus(set, &["gguf", "safetensors"]));
    let entries: Vec<_> = sets.into_iter().flatten().flatten().filter(|entry| !entry.oracle.is_empty()).collect();
    if entries.is_empty() {
        return;
    }
    let (mut outputs, mut wrong) = (0, Vec::new());
    for entry in &entries {
        if EXCEPTIONS.iter().any(|(name, _)| entry.name.contains(name)) {
            continue;
        }
        for oracle in &entry.oracle {
            let name = oracle.path.to_string_lossy();
            let dtype = match () {
                () if name.ends_with("oracle.f32.safetensors") => Dtype::F32,
                () if name.ends_with("oracle.bf16.safetensors") => Dtype::BF16,
                () => continue, // native: see the arithmetic contract
            };
            match compare(&entry.path, &oracle.path, dtype) {
                Ok(n) => outputs += n,
                Err(what) => wrong.push(format!("{} {dtype}: {what}", entry.name)),
            }
        }
    }
    println!("{} files, {outputs} weights equal, {} wrong", entries.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(entries.len() > 110, "only {} files with reference outputs", entries.len());
}

fn compare(path: &Path, oracle: &Path, dtype: Dtype) -> Result<usize, String> {
    let checkpoint = Checkpoint::open(path).map_err(|e| e.to_string())?;
    let oracle = Checkpoint::open(oracle).map_err(|e| e.to_string())?;
    let plan = remember(&checkpoint).dtype(dtype).plan().map_err(|e| e.to_string())?;
    if let Some(refused) = plan.refused.first() {
        return Err(format!("refused: {}", refused.error));
    }
    for expected in oracle.tensors() {
        let name = &*expected.info().name;
        let found = remember(&checkpoint).dtype(dtype).cast(true).tensor(name).map_err(|e| e.to_string())?;
        if found.spec.shape != expected.info().shape {
            return Err(format!("{name}: {:?} instead of {:?}", found.spec.shape, expected.info().shape));
        }
        common::same_bits(&found.bytes, &expected.bytes().map_err(|e| e.to_string())?, dtype)
            .map_err(|what| format!("{name}: {what}"))?;
    }
    Ok(oracle.tensors().len())
}
