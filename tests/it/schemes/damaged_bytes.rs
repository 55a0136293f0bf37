//! The quantised fixtures with bytes changed: each gives an error or other values, never a panic, within a memory limit.

use std::path::Path;

use crate::support::random::random_bytes;
use crate::support::{files_below, fixture};
use anamnesis::{Dtype, Limits, OpenOptions, QuantConfig, remember};

/// Changes per file.
const CHANGES: u64 = 120;

#[test]
fn changed_bytes_give_an_error_or_other_values() {
    let (mut files, mut decoded, mut refused) = (0, 0, 0);
    for path in files_below(&fixture("quant")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !matches!(&*name, "model.safetensors" | "model.pth" | "qmodel.pt") {
            continue;
        }
        files += 1;
        let intact = std::fs::read(&path).unwrap();
        let config = config(path.parent().unwrap());
        for seed in 0..CHANGES {
            match dequantise_all(changed(&intact, seed), &config) {
                Ok(()) => decoded += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{files} files: {decoded} changed files were decoded, {refused} were refused");
    assert!(files > 50 && decoded > 0 && refused > 0);
}

fn config(folder: &Path) -> QuantConfig {
    std::fs::read(folder.join("config.json")).map_or_else(
        |_| QuantConfig::default(),
        |text| QuantConfig::from_json(&text).unwrap(),
    )
}

/// The file with one to three changes. The seeds of the first half change any byte, the seeds of the second half change
/// digits of the safetensors header.
fn changed(intact: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = intact.to_vec();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let header = usize::try_from(header)
        .ok()
        .filter(|n| *n + 8 < bytes.len())
        .map_or(0, |n| n + 8);
    let random = random_bytes(seed + 1, 16);
    for numbers in random
        .as_chunks::<5>()
        .0
        .iter()
        .take(1 + usize::from(random[15] % 3))
    {
        let position =
            usize::from(numbers[0]) << 16 | usize::from(numbers[1]) << 8 | usize::from(numbers[2]);
        if seed >= CHANGES / 2 && header > 0 {
            let digits: Vec<usize> = (8..header).filter(|i| bytes[*i].is_ascii_digit()).collect();
            bytes[digits[position % digits.len()]] = b'0' + numbers[3] % 10;
        } else {
            let offset = position % bytes.len();
            bytes[offset] = numbers[3];
        }
    }
    bytes
}

fn dequantise_all(bytes: Vec<u8>, config: &QuantConfig) -> anamnesis::Result<()> {
    let limits = Limits {
        tensor_bytes: 64 << 20,
        ..Limits::default()
    };
    let checkpoint = OpenOptions::new()
        .limits(limits)
        .from_source(anamnesis::source::MemorySource::new(bytes))?;
    let remember = remember(&checkpoint).config(config.clone()).threads(1);
    // the other weights are decoded although one is refused
    let plan = remember.plan()?;
    let names: Vec<_> = plan
        .jobs
        .iter()
        .map(|job| job.output.name.clone())
        .collect();
    for name in names {
        for (dtype, native) in [(Dtype::F32, false), (Dtype::BF16, true)] {
            remember
                .clone()
                .dtype(dtype)
                .native_rounding(native)
                .tensor(&name)?;
        }
    }
    plan.refused
        .into_iter()
        .next()
        .map_or(Ok(()), |refused| Err(refused.error))
}
