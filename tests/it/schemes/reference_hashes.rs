//! Weights of compressed-tensors, ModelOpt, Quark, DeepSeek-V4, FBGEMM and gpt-oss against the SHA-256 of their reference
//! outputs, and the same weights decoded in tiles of other sizes.

use std::path::PathBuf;

use crate::support::fixture;
use anamnesis::plan::JobWork;
use anamnesis::sink::MemorySink;
use anamnesis::{Checkpoint, Dtype, OpenOptions, remember};
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
pub(super) struct Entry {
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

/// The lists of reference outputs of `fixtures/quant`.
pub(super) fn entries() -> Vec<Entry> {
    let lists = ["packed.json", "written.json"]
        .map(|list| std::fs::read(fixture("quant").join(list)).unwrap());
    lists
        .iter()
        .flat_map(|list| serde_json::from_slice::<Vec<Entry>>(list).unwrap())
        .collect()
}

#[test]
fn reference_outputs_are_met() {
    let (mut wrong, mut weights) = (Vec::new(), 0);
    for entry in entries() {
        let checkpoint = Checkpoint::open(fixture("quant").join(&entry.path)).unwrap();
        for output in &entry.outputs {
            let dtype = Dtype::from_name(&output.dtype).unwrap();
            weights += 1;
            if let Err(what) = met(&checkpoint, output, dtype) {
                wrong.push(format!(
                    "{} {} {dtype}: {what}",
                    entry.path.display(),
                    output.name
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {weights}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(weights > 200, "only {weights} weights");
}

fn met(checkpoint: &Checkpoint, output: &Output, dtype: Dtype) -> Result<(), String> {
    let plan = remember(checkpoint).plan().map_err(|e| e.to_string())?;
    if let Some(refused) = plan.refused.first() {
        return Err(format!("refused: {}", refused.error));
    }
    if let Some(part) = plan
        .jobs
        .iter()
        .find(|job| job.scheme == "plain" && leftover(&job.output.name))
    {
        return Err(format!("{} is left over", part.output.name));
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
        Err("other bits".into())
    }
}

/// Names of parts, which must not come out as tensors of their own.
fn leftover(name: &str) -> bool {
    !name.ends_with("bias") && !name.ends_with("weight")
}

/// However an output is cut, and however its parts are read, the bytes are the same.
#[test]
fn tiles_of_any_size_give_the_same_bytes() {
    let mut cuts = 0;
    for entry in entries() {
        let path = fixture("quant").join(&entry.path);
        for map in [true, false] {
            let checkpoint = OpenOptions::new().mmap(map).open(&path).unwrap();
            for output in entry.outputs.iter().filter(|o| o.dtype == "F32") {
                let one = remember(&checkpoint)
                    .dtype(Dtype::F32)
                    .filter(|name| name == output.name);
                let whole = one.tensor(&output.name).unwrap().bytes;
                for factor in [1, 3, 5] {
                    let mut plan = one.plan().unwrap();
                    let JobWork::Tiles { decoder, rows } = &mut plan.jobs[0].work else {
                        panic!("a stream")
                    };
                    *rows = decoder.grid().step * factor;
                    cuts += plan.jobs[0].tiles().count();
                    let mut bytes = vec![0xaa; whole.len()];
                    one.run(&plan, &mut MemorySink::new(vec![&mut bytes]))
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
    assert!(cuts > 5000, "only {cuts} tiles");
}
