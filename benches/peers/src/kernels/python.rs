//! gguf-py's decoders, which are numpy's loops.

use anamnesis::Dtype;

use super::read_fresh;
use super::variant::{Row, target};
use crate::alternate::Contender;

pub const LABEL: &str = "gguf-py";
const SCRIPT: &str = include_str!("decode.py");

/// One type in gguf-py, on the blocks that everyone decodes; or why not.
pub fn contender(row: Row, python: Result<String, String>) -> Result<Contender, String> {
    let Row::Blocks(blocks) = row else {
        return Err("it decodes ggml's types only".to_owned());
    };
    let python = python?;
    let folder = target().join("blocks");
    let path = folder.join(blocks.name);
    let written =
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, &*blocks.input()));
    written.map_err(|e| format!("{}: {e}", path.display()))?;
    let path = path.to_str().expect("a printable path");
    let elements = row.elements().to_string();
    let contender = Contender::new(
        LABEL,
        &[&python, "-c", SCRIPT, blocks.format.name, path, &elements],
        read_fresh,
    );
    let bytes = [contender.command.clone(), vec!["bytes".to_owned()]].concat();
    let tried = crate::child::run(
        std::process::Command::new(&bytes[0]).args(&bytes[1..]),
        false,
    )?;
    let expected = row.elements() * Dtype::F32.item_bytes().expect("whole bytes") as usize;
    if tried.said.len() == expected {
        Ok(contender)
    } else {
        Err(format!("{} bytes, not {expected}", tried.said.len()))
    }
}
