//! Dequantised weights of every scheme in the shared corpus against the reference outputs in it, which each scheme's own library
//! made.

use std::path::Path;

use crate::support;
use crate::support::corpus;
use anamnesis::{Checkpoint, Dtype, remember};

/// Files whose reference outputs the library does not reproduce, each with the reason.
static EXCEPTIONS: &[(&str, &str)] = &[];

/// Files whose reference outputs are square matrices stored as `[in, out]`.
static TRANSPOSED: &[&str] = &["quant_slices/gptq_", "quant_slices/awq_"];

/// Files with several reference outputs for one weight, as implementations disagree: the file, the output with which the library
/// agrees, and the weight.
static AMBIGUOUS: &[(&str, &str, &str)] = &[(
    "gptq/4bit_v1_zero_overflow",
    "gptqmodel_packed_add.weight",
    "ambiguous.proj.weight",
)];

#[test]
fn weights_equal_all_reference_outputs_of_the_corpus() {
    let sets = ["public", "real"].map(|set| corpus::corpus_entries(set, &["gguf", "safetensors"]));
    let entries: Vec<_> = sets
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.oracle.is_empty())
        .collect();
    if entries.is_empty() {
        return;
    }
    let (mut outputs, mut failures) = (0, Vec::new());
    for entry in &entries {
        if EXCEPTIONS.iter().any(|(name, _)| entry.name.contains(name)) {
            continue;
        }
        for oracle in &entry.oracle {
            let name = oracle.path.to_string_lossy();
            let dtype = match () {
                () if name.ends_with("oracle.f32.safetensors") => Dtype::F32,
                () if name.ends_with("oracle.bf16.safetensors") => Dtype::BF16,
                () => continue, // `native` has the rounding of the reference, which is tested on the fixtures
            };
            match compare(&entry.name, &entry.path, &oracle.path, dtype) {
                Ok(n) => outputs += n,
                Err(difference) => failures.push(format!("{} {dtype}: {difference}", entry.name)),
            }
        }
    }
    println!(
        "{} files, {outputs} weights equal, {} failures",
        entries.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        entries.len() > 110,
        "only {} files with reference outputs",
        entries.len()
    );
}

fn compare(entry: &str, path: &Path, oracle: &Path, dtype: Dtype) -> Result<usize, String> {
    let checkpoint = Checkpoint::open(path).map_err(|e| e.to_string())?;
    let oracle = Checkpoint::open(oracle).map_err(|e| e.to_string())?;
    let plan = remember(&checkpoint)
        .dtype(dtype)
        .plan()
        .map_err(|e| e.to_string())?;
    if let Some(refused) = plan.refused.first() {
        return Err(format!("refused: {}", refused.error));
    }
    for expected in oracle.tensors() {
        let mut name = &*expected.info().name;
        if let Some((_, variant, weight)) = AMBIGUOUS.iter().find(|(file, ..)| entry.contains(file))
        {
            if name != *variant {
                continue;
            }
            name = weight;
        }
        let found = remember(&checkpoint)
            .dtype(dtype)
            .cast(true)
            .tensor(name)
            .map_err(|e| e.to_string())?;
        if found.spec.shape != expected.info().shape {
            return Err(format!(
                "{name}: {:?} instead of {:?}",
                found.spec.shape,
                expected.info().shape
            ));
        }
        let mut bytes = expected.bytes().map_err(|e| e.to_string())?.into_owned();
        if TRANSPOSED.iter().any(|file| entry.contains(file)) {
            bytes = transposed(&bytes, found.spec.shape[0], dtype);
        }
        support::compare_bits(&found.bytes, &bytes, dtype)
            .map_err(|difference| format!("{name}: {difference}"))?;
    }
    Ok(oracle.tensors().len())
}

/// The transpose of a square matrix.
fn transposed(bytes: &[u8], side: u64, dtype: Dtype) -> Vec<u8> {
    let width = usize::try_from(dtype.item_bytes().unwrap()).unwrap();
    let (elements, side): (Vec<&[u8]>, _) = (
        bytes.chunks(width).collect(),
        usize::try_from(side).unwrap(),
    );
    (0..side * side)
        .flat_map(|i| elements[i % side * side + i / side])
        .copied()
        .collect()
}
