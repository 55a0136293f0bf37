//! Weights of compressed-tensors, ModelOpt, Quark, DeepSeek-V4, FBGEMM and gpt-oss against the SHA-256 of their reference
//! outputs, and the same weights decoded in tiles of other sizes.

use std::path::PathBuf;

use crate::support::fixture;
use anamnesis::plan::JobWork;
use anamnesis::sink::MemorySink;
use anamnesis::{Checkpoint, Dtype, OpenOptions, remember};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// A fixture and the outputs of the reference implementation for it.
#[derive(Deserialize)]
pub(super) struct ReferenceEntry {
    pub(super) path: PathBuf,
    pub(super) outputs: Vec<Output>,
}

#[derive(Deserialize)]
pub(super) struct Output {
    pub(super) name: String,
    dtype: String,
    shape: Vec<u64>,
    sha256: String,
}

/// The reference outputs that are listed in `fixtures/quant`.
pub(super) fn reference_entries() -> Vec<ReferenceEntry> {
    let lists = ["packed.json", "written.json"]
        .map(|list| std::fs::read(fixture("quant").join(list)).unwrap());
    lists
        .iter()
        .flat_map(|list| serde_json::from_slice::<Vec<ReferenceEntry>>(list).unwrap())
        .collect()
}

#[test]
fn weights_have_the_hashes_of_reference_outputs() {
    let (mut failures, mut weights) = (Vec::new(), 0);
    for entry in reference_entries() {
        let checkpoint = Checkpoint::open(fixture("quant").join(&entry.path)).unwrap();
        for output in &entry.outputs {
            let dtype = Dtype::from_name(&output.dtype).unwrap();
            weights += 1;
            if let Err(difference) = compare(&checkpoint, output, dtype) {
                failures.push(format!(
                    "{} {} {dtype}: {difference}",
                    entry.path.display(),
                    output.name
                ));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {weights}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(weights > 200, "only {weights} weights");
}

fn compare(checkpoint: &Checkpoint, output: &Output, dtype: Dtype) -> Result<(), String> {
    let plan = remember(checkpoint).plan().map_err(|e| e.to_string())?;
    if let Some(refused) = plan.refused.first() {
        return Err(format!("refused: {}", refused.error));
    }
    if let Some(part) = plan
        .jobs
        .iter()
        .find(|job| job.scheme == "plain" && is_part(&job.output.name))
    {
        return Err(format!("the part {} is an output", part.output.name));
    }
    let found = remember(checkpoint)
        .dtype(dtype)
        .tensor(&output.name)
        .map_err(|e| e.to_string())?;
    if found.spec.shape[..] != output.shape[..] {
        return Err(format!(
            "{:?} instead of {:?}",
            found.spec.shape, output.shape
        ));
    }
    let hash: String = Sha256::digest(&found.bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    if hash == output.sha256 {
        Ok(())
    } else {
        Err("the bits differ".into())
    }
}

/// Whether this is the name of a part, which must not be an output.
fn is_part(name: &str) -> bool {
    !name.ends_with("bias") && !name.ends_with("weight")
}

/// From mapped and from read parts.
#[test]
fn tiles_of_any_size_give_the_same_bytes() {
    let mut tiles = 0;
    for entry in reference_entries() {
        let path = fixture("quant").join(&entry.path);
        for map in [true, false] {
            let checkpoint = OpenOptions::new().mmap(map).open(&path).unwrap();
            for output in entry.outputs.iter().filter(|o| o.dtype == "F32") {
                let options = remember(&checkpoint)
                    .dtype(Dtype::F32)
                    .filter(|name| name == output.name);
                let whole = options.tensor(&output.name).unwrap().bytes;
                for factor in [1, 3, 5] {
                    let mut plan = options.plan().unwrap();
                    let JobWork::Tiles { decoder, rows } = &mut plan.jobs[0].work else {
                        panic!("a stream")
                    };
                    *rows = decoder.grid().step * factor;
                    tiles += plan.jobs[0].tiles().count();
                    let mut bytes = vec![0xaa; whole.len()];
                    options
                        .run(&plan, &mut MemorySink::new(vec![&mut bytes]))
                        .unwrap();
                    assert!(
                        bytes == whole,
                        "{} in tiles of {factor}",
                        entry.path.display()
                    );
                }
            }
        }
    }
    assert!(tiles > 5000, "only {tiles} tiles");
}
