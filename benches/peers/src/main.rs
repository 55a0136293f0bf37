//! Times us against the peers: one process per variant, the variants alternating.
//!
//! ```text
//! cargo run --release -- report [SECTION…]   everything below into benches/results: JSON, tables, plots
//! cargo run --release -- experiments [NAME…] [--render]  the experiments of docs/perf-experiments.md
//! cargo run --release -- render              the committed results into README.md and docs/
//! cargo run --release -- open FILE…          opening these files
//! cargo run --release -- kernels [TYPE…]     decoding, one thread, in a warm cache
//! cargo run --release -- builds TYPE…        the same by each of our builds
//! cargo run --release -- schemes NAME…       a large weight of a scheme, one thread
//! cargo run --release -- remember FILE.gguf  a whole file to BF16 safetensors
//! cargo run --release -- load FILE… [--cold] [--rounds=N] [--only=NAME,…]  tensors into memory
//! cargo run --release -- dequantise FILE…    quantised weights into the pool, and into new memory
//! cargo run --release -- pool                buffer pools and allocators
//! cargo run --release -- process COMMAND…    a whole command against an empty process
//! ```
//!
//! Python peers are run by the interpreter named in `PEERS_PYTHON`, or in the environment that `report` prepares;
//! `native.sh` builds the peer's kernels for this processor, `ggml.sh` those of ggml. What is not there is left out,
//! aloud.

mod alternate;
mod child;
mod experiments;
mod fixtures;
mod inspect;
mod kernels;
mod load;
mod make;
mod pool;
mod process;
mod remember;
mod render;
mod report;
mod results;
mod schemes;
mod variants;

use std::process::ExitCode;

const USAGE: &str = "usage: peers report [SECTION…] [OPTION…]  |  peers experiments [NAME…] [--render]  |  peers render  |  \
                     peers open FILE…  |  peers kernels [TYPE…]  |  peers builds TYPE…  |  \
                     peers schemes NAME…  |  peers remember FILE.gguf [OPTION…]  |  \
                     peers load FILE… [--cold]  |  peers dequantise FILE…  |  peers pool  |  peers process COMMAND…";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["report", args @ ..] => report::run(args),
        ["experiments", args @ ..] => experiments::command(args),
        ["render"] => render::run(),
        ["open", files @ ..] if !files.is_empty() => inspect::open(files),
        ["kernels", types @ ..] => kernels::compare(types),
        ["builds", types @ ..] => report::show(types, |_, name| {
            kernels::builds::case(name).into_iter().collect()
        }),
        ["schemes", names @ ..] => report::show(names, |options, name| {
            schemes::case(name, options.small).into_iter().collect()
        }),
        ["remember", args @ ..] => remember::compare(args),
        ["load", args @ ..] if !args.is_empty() => load::compare(args),
        ["dequantise", files @ ..] if !files.is_empty() => load::dequantise(files),
        ["pool", args @ ..] => pool::compare(args),
        ["process", command @ ..] if !command.is_empty() => process::against_nothing(command),
        // one variant alone, which the comparisons above run
        ["one", variant, file] => variants::one(variant, file),
        ["kernel", variant, name] => kernels::one(variant, name, None),
        ["kernel", variant, name, dtype] => kernels::one(variant, name, Some(dtype)),
        ["scheme", name, side] => schemes::one(name, side),
        ["load-one", variant, file, cache] => load::one(variant, file, cache),
        ["fixtures-one", variant, list, cache] => fixtures::one(variant, list, cache),
        ["pool-one", variant, case @ ..] => pool::one(variant, case),
        ["experiment", name, variant, args @ ..] => experiments::one(name, variant, args),
        ["remember-peer", file, out, threads] => remember::peer(file, out, threads),
        ["nothing"] => ExitCode::SUCCESS,
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
