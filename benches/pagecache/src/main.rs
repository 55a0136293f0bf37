//! Evaluates the page cache's policies as the paper does in its section 5: loads of a cold model by several loaders,
//! native and with each policy, memory sufficient and limited, the device as it is and throttled.
//!
//! ```text
//! cargo run --release -- evaluate --python PYTHON --dir DIR [--scene NAME]… [--rounds N]
//! cargo run --release -- overhead --dir DIR     an empty policy: reads and copies out of a map, warm and cold
//! cargo run --release -- report                 the results into docs/page-cache.md, and as plots
//! ```
//!
//! Needs root: it makes cgroups, drops files from the page cache, and throttles the device for what it runs. All of
//! that is undone.

mod cgroup;
mod clock;
mod device;
mod document;
mod evaluate;
mod filesystem;
mod overhead;
mod plot;
mod program;
mod report;
mod results;
mod run;
mod scene;
mod warmth;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// What went wrong, in words.
type Failure = Box<dyn std::error::Error>;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Time the loads.
    Evaluate(Evaluate),
    /// Time reads beside an empty policy.
    Overhead(Overhead),
    /// Put the results into the document, and make plots of them.
    Report(Report),
}

/// Where things are.
#[derive(Args)]
struct Places {
    /// A directory on the device that is measured; takes 6 GB.
    #[arg(long)]
    dir: PathBuf,
    /// The command.
    #[arg(long, default_value = "target/release/anamnesis")]
    anamnesis: PathBuf,
}

#[derive(Args)]
struct Evaluate {
    #[command(flatten)]
    places: Places,
    /// Results are added to this file, so an interrupted evaluation goes on where it was.
    #[arg(long, default_value = "benches/pagecache/results.json")]
    results: PathBuf,
    /// A Python with torch and safetensors.
    #[arg(long)]
    python: PathBuf,
    /// Only these scenes; all if not given.
    #[arg(long)]
    scene: Vec<String>,
    /// Only these loaders.
    #[arg(long)]
    loader: Vec<String>,
    /// Only these variants.
    #[arg(long)]
    variant: Vec<String>,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Size of the model.
    #[arg(long, default_value_t = 3.0)]
    gb: f64,
}

#[derive(Args)]
struct Overhead {
    #[command(flatten)]
    places: Places,
    /// Results replace this file.
    #[arg(long, default_value = "benches/pagecache/overhead.json")]
    results: PathBuf,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Size of the file.
    #[arg(long, default_value_t = 4)]
    gb: u64,
}

#[derive(Args)]
struct Report {
    #[arg(long, default_value = "benches/pagecache/results.json")]
    results: PathBuf,
    #[arg(long, default_value = "benches/pagecache/overhead.json")]
    overhead: PathBuf,
    /// Plots go here.
    #[arg(long, default_value = "docs/plots")]
    plots: PathBuf,
    /// The tables go into its blocks.
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
