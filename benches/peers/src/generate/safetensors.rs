//! Writes F32 tensors as a safetensors file.

use std::io::{self, Write};

use super::{Random, TensorSpec};

pub fn write(to: &mut impl Write, specs: &[TensorSpec]) -> io::Result<()> {
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
    let mut random = Random(1);
    specs
        .iter()
        .try_for_each(|spec| random.weights(spec.elements(), to))
}
