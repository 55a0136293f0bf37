//! Makes a Hugging Face checkpoint of a GGUF: names, values, configuration and tokenizer.
//!
//! `cargo run --example gguf_to_hugging_face -- MODEL.gguf OUT_DIR [bf16|f16|f32]`

use std::error::Error;

use anamnesis::{Checkpoint, Dtype, Names, remember};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, output, dtype @ ..] = &arguments[..] else {
        return Err("usage: gguf_to_hugging_face MODEL.gguf OUT_DIR [bf16|f16|f32]".into());
    };
    let dtype = match dtype.first().map(String::as_str) {
        None | Some("bf16") => Dtype::BF16,
        Some("f16") => Dtype::F16,
        Some("f32") => Dtype::F32,
        Some(other) => return Err(format!("{other} is not bf16, f16 or f32").into()),
    };
    let checkpoint = Checkpoint::open(source)?;
    let remember = remember(&checkpoint)
        .names(Names::HuggingFace)
        .dtype(dtype)
        .cast(true)
        .overwrite(true);
    for note in remember.plan()?.output_notes {
        println!("note: {note}");
    }
    remember.to_dir(output, 5_000_000_000)?;
    Ok(())
}
