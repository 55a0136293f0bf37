//! Compares anamnesis with its peers: one process per variant, the variants alternating.
//!
//! ```text
//! peers report [SECTION…] [OPTION…]  measure all sections, or these, into benches/results/*.json
//! peers render                       write tables of the committed results into README.md and docs/
//! peers inspect FILE…                open files and list their tensors
//! peers load FILE… [--cold]          load all tensors into memory
//! peers start FILE…                  load once, cold, from the start of a new process
//! peers dequantise FILE…             dequantise all weights into memory
//! peers remember FILE.gguf           convert a whole file to BF16 safetensors
//! peers kernels [TYPE…]              dequantisation kernels, one thread, warm cache
//! peers builds TYPE…                 the same for each of our instruction sets
//! peers pool                         buffer pools and allocators
//! ```
//!
//! Python peers run in the interpreter that `PEERS_PYTHON` names, or in the environment that `report` prepares. `native.sh`
//! builds this program for the processor of the machine, `ggml.sh` builds ggml's decoders. A peer that is not available is
//! listed with the reason.

mod case;
mod child_process;
mod generate;
mod inspect;
mod kernels;
mod load;
mod mimalloc_buffer;
mod pool;
mod python_package;
mod remember;
mod remote;
mod render;
mod report;
mod results;

use std::process::ExitCode;

const USAGE: &str = "\
usage: peers COMMAND
  report [SECTION…] [OPTION…]   measure all sections, or these, into benches/results/*.json
  render                        write tables of the committed results into README.md and docs/
  inspect FILE… [OPTION…]       open files and list their tensors
  load FILE… [OPTION…]          load all tensors into memory
  start FILE… [OPTION…]         load once, cold, from the start of a new process
  dequantise FILE… [OPTION…]    dequantise all weights into memory
  remember FILE.gguf [--threads N] [--dir DIR] [--ours PROGRAM]
                                convert a whole file to BF16 safetensors
  kernels [TYPE…] [OPTION…]     dequantisation kernels, one thread, warm cache
  builds TYPE… [OPTION…]        the same for each of our instruction sets
  pool [OPTION…]                buffer pools and allocators";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["help" | "--help" | "-h"] | ["report", "--help" | "-h"] => {
            println!("{USAGE}\n{}", report::options::USAGE);
            ExitCode::SUCCESS
        }
        ["report", args @ ..] => report::run(args),
        ["render"] => render::run(),
        ["inspect", files @ ..] if !files.is_empty() => inspect::compare(files),
        ["load", args @ ..] if !args.is_empty() => load::compare(args),
        ["start", files @ ..] if !files.is_empty() => load::compare_new_processes(files),
        ["dequantise", files @ ..] if !files.is_empty() => load::dequantise(files),
        ["remember", args @ ..] => remember::compare(args),
        ["kernels", types @ ..] => kernels::compare(types),
        ["builds", types @ ..] => report::compare_each(types, |_, name| {
            kernels::builds::case(name).into_iter().collect()
        }),
        ["pool", args @ ..] => pool::compare(args),
        // one process of one variant, started by the commands above
        ["inspect-one", variant, file] => inspect::one(variant, file),
        ["load-one", variant, file, cache] => load::one(variant, file, cache),
        ["remember-peer", file, out, threads] => remember::peer(file, out, threads),
        ["kernel-one", variant, name] => kernels::one(variant, name, None),
        ["kernel-one", variant, name, dtype] => kernels::one(variant, name, Some(dtype)),
        ["pool-one", variant, case @ ..] => pool::one(variant, case),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
