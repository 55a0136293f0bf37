//! Times us against the peers: one process per variant, the variants alternating.
//!
//! ```text
//! cargo run --release -- open FILE…          opening these files
//! cargo run --release -- kernels [TYPE…]     decoding, one thread, in a warm cache
//! cargo run --release -- remember FILE.gguf  a whole file to BF16 safetensors
//! cargo run --release -- load FILE… [--cold] [--rounds=N] [--only=NAME,…]  tensors into memory
//! cargo run --release -- dequantise FILE…    quantised weights into the pool, and into new memory
//! cargo run --release -- pool                buffer pools and allocators
//! cargo run --release -- process COMMAND…    a whole command against an empty process
//! ```
//!
//! Python peers are run by the interpreter named in `PEERS_PYTHON`; `native.sh` builds the peer's
//! kernels for this processor, `ggml.sh` those of ggml. What is not there is left out, aloud.

mod kernels;
mod load;
mod pool;
mod process;
mod remember;
mod table;
mod variants;

use std::process::ExitCode;

const USAGE: &str = "usage: peers open FILE…  |  peers kernels [TYPE…]  |  peers remember FILE.gguf [OPTION…]  |  \
                     peers load FILE… [--cold]  |  peers pool  |  peers process COMMAND…";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["open", files @ ..] if !files.is_empty() => table::open(files),
        ["kernels", types @ ..] => kernels::compare(types),
        ["remember", args @ ..] => remember::compare(args),
        ["load", args @ ..] if !args.is_empty() => load::compare(args),
        ["dequantise", files @ ..] if !files.is_empty() => load::dequantise(files),
        ["pool"] => pool::compare(),
        ["process", command @ ..] if !command.is_empty() => process::against_nothing(command),
        // one variant alone, which the comparisons above run
        ["one", variant, file] => variants::one(variant, file),
        ["kernel", variant, name] => kernels::one(variant, name, None),
        ["kernel", variant, name, dtype] => kernels::one(variant, name, Some(dtype)),
        ["load-one", variant, file, times] => load::one(variant, file, times),
        ["pool-one", variant, case @ ..] => pool::one(variant, case),
        ["remember-peer", file, out, threads] => remember::peer(file, out, threads),
        ["nothing"] => ExitCode::SUCCESS,
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
