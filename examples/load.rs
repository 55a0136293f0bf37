//! Loads all tensors of a checkpoint into pooled memory, twice: the second load reuses the memory of the first.
//!
//! ```text
//! cargo run --release --example load -- [PATH]
//! ```

use std::time::Instant;

use anamnesis::pool::BufferPool;
use anamnesis::{Checkpoint, load};

fn main() -> anamnesis::Result<()> {
    let path = std::env::args().nth(1);
    let path = path
        .as_deref()
        .unwrap_or("fixtures/model/scribe.safetensors");

    let pool = BufferPool::new();
    for round in 1..=2 {
        let checkpoint = Checkpoint::open(path)?;
        let start = Instant::now();
        let tensors = load(&checkpoint).pool(&pool).run()?;
        println!(
            "round {round}: {} tensors, {} bytes in {:.1?}",
            tensors.tensors().len(),
            tensors.nbytes(),
            start.elapsed()
        );
        // A typed view exists if the stored dtype is F32; other dtypes are read as bytes.
        for tensor in tensors.tensors().iter().take(3) {
            match tensor.view::<f32>() {
                Some(values) => println!("  {}: {:?} …", tensor.name(), values.first()),
                None => println!("  {}: {} bytes", tensor.name(), tensor.bytes().len()),
            }
        }
    }
    Ok(())
}
