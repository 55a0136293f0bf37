//! Lists the tensors of a checkpoint and its totals. Reads headers only.
//!
//! ```text
//! cargo run --example inspect -- [PATH]
//! ```

use anamnesis::Checkpoint;

fn main() -> anamnesis::Result<()> {
    let path = std::env::args().nth(1);
    let path = path.as_deref().unwrap_or("fixtures/gguf/plain_v3.gguf");

    let checkpoint = Checkpoint::open(path)?;
    for tensor in checkpoint.catalog().tensors() {
        println!(
            "{:40} {:8} {:?}",
            tensor.name,
            tensor.encoding,
            tensor.shape.as_slice()
        );
    }

    let summary = checkpoint.inspect()?;
    println!(
        "{}: {} tensors, {} elements, {} bytes",
        summary.format, summary.totals.tensors, summary.totals.elements, summary.totals.nbytes
    );
    for weight in &summary.weights {
        println!("quantised: {} ({:?})", weight.name, weight.scheme);
    }
    Ok(())
}
