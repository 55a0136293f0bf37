//! Evaluates page-cache policies as the paper does in its section 5: loads a cold model with several loaders, natively and
//! with each policy, with sufficient and limited memory, with and without a throttled device.
//!
//! ```text
//! cargo run --release -- evaluate --python PYTHON --dir DIR [--scenario NAME]… [--rounds N]
//! cargo run --release -- overhead --dir DIR     cost of an empty policy for reads and copies from a mapping
//! cargo run --release -- report                 render the results into docs/page-cache.md
//! ```
//!
//! Needs root: it creates control groups, evicts files from the page cache and throttles the device, and undoes all of it
//! at the end.

mod cgroup;
mod clock;
mod device;
mod document;
mod evaluate;
mod load_run;
mod mounted_image;
mod overhead;
mod page_cache;
mod report;
mod results;
mod scenario;
mod subprocess;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// An error with a message.
type Failure = Box<dyn std::error::Error>;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure loads with each policy.
    Evaluate(Evaluate),
    /// Measure the cost of an empty policy.
    Overhead(Overhead),
    /// Render the results into the document.
    Report(Report),
}

/// Paths that the measurements need.
#[derive(Args)]
struct Paths {
    /// Directory on the device to measure; needs 6 GB.
    #[arg(long)]
    dir: PathBuf,
    /// Path of the `anamnesis` command.
    #[arg(long, default_value = "target/release/anamnesis")]
    anamnesis: PathBuf,
}

#[derive(Args)]
struct Evaluate {
    #[command(flatten)]
    paths: Paths,
    /// File that results are added to; an interrupted evaluation is resumed from it.
    #[arg(long, default_value = "benches/pagecache/results.json")]
    results: PathBuf,
    /// Python interpreter with torch and safetensors.
    #[arg(long)]
    python: PathBuf,
    /// Only these scenarios (default: all).
    #[arg(long)]
    scenario: Vec<String>,
    /// Only these loaders (default: all).
    #[arg(long)]
    loader: Vec<String>,
    /// Only these variants (default: all).
    #[arg(long)]
    variant: Vec<String>,
    /// Runs per variant.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Size of the model in GB.
    #[arg(long, default_value_t = 3.0)]
    gb: f64,
}

#[derive(Args)]
struct Overhead {
    #[command(flatten)]
    paths: Paths,
    /// File that the results replace.
    #[arg(long, default_value = "benches/pagecache/overhead.json")]
    results: PathBuf,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Size of the file in GiB.
    #[arg(long, default_value_t = 4)]
    gb: u64,
}

#[derive(Args)]
struct Report {
    #[arg(long, default_value = "benches/pagecache/results.json")]
    results: PathBuf,
    #[arg(long, default_value = "benches/pagecache/overhead.json")]
    overhead: PathBuf,
    /// Document whose blocks are rendered.
    #[arg(long, default_value = "docs/page-cache.md")]
    document: PathBuf,
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Evaluate(args) => evaluate::evaluate(&args),
        Verb::Overhead(args) => overhead::overhead(&args),
        Verb::Report(args) => document::report(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pagecache: {failure}");
            ExitCode::FAILURE
        }
    }
}
