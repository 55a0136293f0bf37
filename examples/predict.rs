//! Predicts which bytes each worker of an inference service will read, before its first run.
//!
//! ```text
//! cargo run --example predict -- [PATH] [WORKERS]
//! ```

use anamnesis::predict::ReadOrder;
use anamnesis::{Checkpoint, predict};

fn main() -> anamnesis::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next();
    let path = path
        .as_deref()
        .unwrap_or("fixtures/model/scribe.safetensors");
    let workers = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(2);

    let checkpoint = Checkpoint::open(path)?;
    // Tensor parallelism: each matrix is divided among the workers, layer after layer.
    let template = predict(&checkpoint)
        .tp(workers)
        .order(ReadOrder::Layer)
        .template()?;
    for rank in 0..workers {
        let Some(group) = template.group(rank) else {
            continue;
        };
        println!(
            "worker {rank}: {} accesses, {} bytes",
            group.accesses().len(),
            group.nbytes()
        );
    }
    // `template.save(path)` writes the file that the page-cache policy replays.
    Ok(())
}
