//! Dequantises the weights of a checkpoint to BF16 and writes them to a safetensors file.
//!
//! ```text
//! cargo run --example dequantise -- [PATH] [OUTPUT]
//! ```

use std::path::PathBuf;

use anamnesis::{Checkpoint, Dtype, remember};

fn main() -> anamnesis::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next();
    let path = path.as_deref().unwrap_or("fixtures/model/scribe-Q8_0.gguf");
    let output = arguments.next().map_or_else(
        || std::env::temp_dir().join("anamnesis-dequantised.safetensors"),
        PathBuf::from,
    );

    let checkpoint = Checkpoint::open(path)?;
    let weights = remember(&checkpoint).dtype(Dtype::BF16).overwrite(true);

    // The plan lists what will be made, before any tensor is read.
    let plan = weights.plan()?;
    for job in &plan.jobs {
        println!("{} from {}", job.output, job.scheme);
    }

    // Weights are made tile by tile and streamed, so that memory stays bounded.
    weights.to_file(&output)?;
    println!("{} bytes in {}", plan.nbytes(), output.display());
    Ok(())
}
