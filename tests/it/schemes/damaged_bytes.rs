//! Quantised checkpoints with bytes changed: an error or other numbers, never a panic, and never more memory
//! than the file accounts for.

use std::path::Path;

use crate::support::random::random_bytes;
use crate::support::{files_below, fixture};
use anamnesis::{Dtype, Limits, OpenOptions, QuantConfig, remember};

/// Changes per file.
const CHANGES: u64 = 120;

#[test]
fn changed_bytes_never_panic() {
    let (mut files, mut made, mut refused) = (0, 0, 0);
    for path in files_below(&fixture("quant")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !matches!(&*name, "model.safetensors" | "model.pth" | "qmodel.pt") {
            continue;
        }
        files += 1;
        let whole = std::fs::read(&path).unwrap();
        let config = config(path.parent().unwrap());
        for seed in 0..CHANGES {
            match remembered(change(&whole, seed), &config) {
                Ok(()) => made += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{files} files: {made} changes made other numbers, {refused} were refused");
    assert!(files > 50 && made > 0 && refused > 0);
}

fn config(folder: &Path) -> QuantConfig {
    std::fs::read(folder.join("config.json")).map_or_else(
        |_| QuantConfig::default(),
        |text| QuantConfig::from_json(&text).unwrap(),
    )
}

/// One to three changes: any byte, anywhere in the first half of the changes and in the header in the second,
/// where digits become other digits.
fn change(whole: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let header = usize::try_from(header)
        .ok()
        .filter(|n| *n + 8 < bytes.len())
        .map_or(0, |n| n + 8);
    let random = random_bytes(seed + 1, 16);
    for dice in random
        .as_chunks::<5>()
        .0
        .iter()
        .take(1 + usize::from(random[15] % 3))
    {
        let place = usize::from(dice[0]) << 16 | usize::from(dice[1]) << 8 | usize::from(dice[2]);
        if seed >= CHANGES / 2 && header > 0 {
            let digits: Vec<usize> = (8..header).filter(|i| bytes[*i].is_ascii_digit()).collect();
            bytes[digits[place % digits.len()]] = b'0' + dice[3] % 10;
        } else {
            let at = place % bytes.len();
            bytes[at] = dice[3];
        }
    }
    bytes
}

fn remembered(bytes: Vec<u8>, config: &QuantConfig) -> anamnesis::Result<()> {
    let limits = Limits {
        tensor_bytes: 64 << 20,
        ..Limits::default()
    };
    let checkpoint = OpenOptions::new()
        .limits(limits)
        .from_source(anamnesis::source::MemorySource::new(bytes))?;
    let remember = remember(&checkpoint).config(config.clone()).threads(1);
    // what is refused does not keep the rest from being made
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
