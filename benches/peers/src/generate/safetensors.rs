//! Writes F32 tensors as a safetensors file.

use std::io::{self, Write};

use super::{Random, TensorSpec};

/// Writes a file with the weights that this seed gives.
pub fn write_seeded(to: &mut impl Write, specs: &[TensorSpec], seed: u64) -> io::Result<()> {
    write_header(to, specs)?;
    let mut random = Random(seed);
    specs
        .iter()
        .try_for_each(|spec| random.weights(spec.elements(), to))
}

/// Writes a file with the weights that all files of the comparison begin with.
pub fn write(to: &mut impl Write, specs: &[TensorSpec]) -> io::Result<()> {
    write_seeded(to, specs, 1)
}

/// Writes what is in front of the tensors; returns the length of the whole file.
pub fn write_header(to: &mut impl Write, specs: &[TensorSpec]) -> io::Result<u64> {
    let mut header = serde_json::Map::new();
    header.insert(
        "__metadata__".to_owned(),
        serde_json::json!({"format": "pt"}),
    );
    let mut at = 0;
    for spec in specs {
        let end = at + spec.elements() * 4;
        let entry =
            serde_json::json!({"dtype": "F32", "shape": spec.shape, "data_offsets": [at, end]});
        header.insert(spec.name.clone(), entry);
        at = end;
    }
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    to.write_all(&(header.len() as u64).to_le_bytes())?;
    to.write_all(&header)?;
    Ok(8 + header.len() as u64 + at)
}
