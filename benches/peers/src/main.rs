//! Times opening a file, ours against the peers': one process per variant, the variants alternating.
//!
//! ```text
//! cargo run --release -- open FILE…          the table for these files
//! cargo run --release -- one VARIANT FILE    one variant alone: prints the median in nanoseconds
//! cargo run --release -- process COMMAND…    a whole command against an empty process
//! ```
//!
//! Python peers are run by the interpreter named in `PEERS_PYTHON` and left out, aloud, without it.

mod process;
mod table;
mod variants;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["one", variant, file] => variants::one(variant, file),
        ["nothing"] => ExitCode::SUCCESS,
        ["process", command @ ..] if !command.is_empty() => process::against_nothing(command),
        ["open", files @ ..] if !files.is_empty() => table::open(files),
        _ => {
            eprintln!("usage: peers open FILE…  |  peers one VARIANT FILE  |  peers process COMMAND…");
            ExitCode::from(2)
        }
    }
}
