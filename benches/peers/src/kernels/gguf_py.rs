//! The decoders of gguf-py, which are written in numpy.

use anamnesis::Dtype;

use super::parse_allocating;
use super::variants::{DecodeInput, target};
use crate::case::Variant;

pub const LABEL: &str = "gguf-py";
const SCRIPT: &str = include_str!("gguf_py.py");

/// The variant for one block type, on the same blocks as the others; or the reason why there is none.
pub fn variant(input: DecodeInput, python: Result<String, String>) -> Result<Variant, String> {
    let DecodeInput::Blocks(blocks) = input else {
        return Err("decodes ggml block types only".to_owned());
    };
    let python = python?;
    let folder = target().join("blocks");
    let path = folder.join(blocks.name);
    let written =
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, &*blocks.input()));
    written.map_err(|e| format!("{}: {e}", path.display()))?;
    let path = path.to_str().expect("a path in UTF-8");
    let elements = input.elements().to_string();
    let variant = Variant::new(
        LABEL,
        &[&python, "-c", SCRIPT, blocks.format.name, path, &elements],
        parse_allocating,
    );
    let bytes = [variant.command.clone(), vec!["bytes".to_owned()]].concat();
    let decoded = crate::child_process::run(
        std::process::Command::new(&bytes[0]).args(&bytes[1..]),
        false,
    )?;
    let expected =
        input.elements() * Dtype::F32.item_bytes().expect("a dtype of whole bytes") as usize;
    if decoded.stdout.len() == expected {
        Ok(variant)
    } else {
        Err(format!(
            "decodes to {} bytes, expected {expected}",
            decoded.stdout.len()
        ))
    }
}
