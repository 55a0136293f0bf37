//! Code that the integration tests share: fixtures, the shared corpus with its manifests, file writers, and comparisons.
#![allow(dead_code, missing_docs, unreachable_pub)] // not every test binary uses all of it

#[path = "../hostile/files/amplifiers.rs"]
pub mod amplifiers;
pub mod cancelled_load;
pub mod checkpoint_builder;
pub mod corpus;
#[cfg(target_os = "linux")]
#[path = "../hostile/files/faulty_files.rs"]
pub mod faulty_files;
pub mod fn_sources;
pub mod loaders;
#[path = "../hostile/files/malformed_files.rs"]
pub mod malformed_files;
pub mod manifest_comparison;
pub mod manifest_dtypes;
pub mod manifest_exceptions;
#[path = "../hostile/files/model_amplifiers.rs"]
pub mod model_amplifiers;
pub mod mounted;
#[path = "../hostile/files/object_amplifiers.rs"]
pub mod object_amplifiers;
pub mod object_references;
pub mod open_modes;
pub mod process_status;
pub mod random;
pub mod recording_source;
pub mod rust_code;
pub mod scheme_checks;
pub mod scratch_dir;
pub mod slices;
pub mod sparse_file;
pub mod state_dict;
pub mod tensor_files;
#[path = "../../src/base/testing.rs"]
pub mod testing;
pub mod valid_files;
#[path = "../../crates/remote/tests/it/server.rs"]
pub mod web_server;
pub mod writers;

use std::io::Write;
use std::path::{Path, PathBuf};

use anamnesis::format::FORMATS;
use anamnesis::{Dtype, ErrorKind, Format, Result, Tensor};
use sha2::{Digest, Sha256};

/// Notes as lines, with their remedies.
pub fn texts(notes: &[anamnesis::Note]) -> String {
    let lines = notes.iter().map(ToString::to_string);
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether the limit on memory refused something.
pub fn is_memory_limit(error: &anamnesis::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Limit {
            limit: "memory",
            ..
        }
    )
}

/// The path of a fixture.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// Every fixture of a container format, with that format. The fixtures of schemes and of `diff` are left out:
/// they add no container variants.
pub fn fixtures() -> Vec<(PathBuf, &'static Format)> {
    let format = |path: &Path| {
        let extension = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        FORMATS
            .iter()
            .copied()
            .find(|f| f.extensions.contains(&extension))
    };
    let all = files_below(&fixture(""))
        .into_iter()
        .filter(|path| !path.starts_with(fixture("quant")) && !path.starts_with(fixture("ask")));
    let all: Vec<_> = all
        .filter_map(|path| format(&path).map(|format| (path, format)))
        .collect();
    assert!(all.len() > 200, "fixtures are missing");
    all
}

/// Every file below a directory, sorted.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found.sort();
    found
}

/// SHA-256 of a tensor's logical bytes.
pub fn sha256(tensor: &Tensor<'_>) -> Result<String> {
    let mut hash = Sha256::new();
    tensor.chunks(|chunk| {
        hash.update(chunk);
        Ok(())
    })?;
    Ok(hex(&hash.finalize()))
}

/// SHA-256 of a tensor's bytes in stored order.
pub fn stored_sha256(tensor: &Tensor<'_>) -> Result<String> {
    Ok(hex(&Sha256::digest(tensor.stored()?)))
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// Compares elements bit by bit, where any NaN equals any NaN. The error names the first element that differs.
pub fn compare_bits(found: &[u8], expected: &[u8], dtype: Dtype) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!(
            "{} bytes instead of {}",
            found.len(),
            expected.len()
        ));
    }
    let width = usize::try_from(dtype.item_bytes().unwrap()).unwrap();
    let nan = |bytes: &[u8]| match dtype {
        Dtype::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        Dtype::BF16 => half::bf16::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        _ => half::f16::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
    };
    for (i, (a, b)) in found.chunks(width).zip(expected.chunks(width)).enumerate() {
        if !(a == b || nan(a) && nan(b)) {
            return Err(format!("element {i}: {a:02x?} instead of {b:02x?}"));
        }
    }
    Ok(())
}

/// Reports on stderr that something is not tested, and why. Written to the descriptor, as the test harness hides what passing
/// tests print.
pub fn skip(why: &str) {
    let line = format!("SKIPPED: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes()); // one write, as tests run concurrently
}
