//! The regression guard: counts of instructions, page faults, reads and memory, compared with `baseline.json`.
//!
//! Times vary with the load of a shared machine; counts do not, so a change of 1 or 2 % is visible. `benches/README.md` lists
//! the metrics and tolerances and says when the baseline may be moved.
//!
//! `guard check [--update] [NAME…]` runs every case in a process of its own: under callgrind (`callgrind.rs`),
//! single-stepped by ptrace (`single_step.rs`), or counting itself (`self_counts.rs`). `guard case COUNTER NAME` is such a
//! process. `guard list` prints the cases. `guard amplify` counts what hostile files cost per byte (`amplify.rs`).

use std::process::ExitCode;

#[cfg(target_os = "linux")]
mod amplify;
#[cfg(target_os = "linux")]
mod baseline;
#[cfg(target_os = "linux")]
mod callgrind;
#[cfg(target_os = "linux")]
mod case;
#[cfg(target_os = "linux")]
mod case_files;
#[cfg(target_os = "linux")]
mod cases;
#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
mod counting_allocator;
#[cfg(target_os = "linux")]
mod environment;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod self_counts;
#[cfg(target_os = "linux")]
mod single_step;

#[cfg(target_os = "linux")]
#[global_allocator]
static HEAP: counting_allocator::CountingAllocator = counting_allocator::CountingAllocator;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["check", ref rest @ ..] => check::run(rest),
        ["case", counter, name] => case::run(counter, name).map(|()| true),
        ["amplify", ref rest @ ..] => amplify::run(rest),
        ["amplified", counter, kind, path] => {
            amplify::open(counter, kind, path);
            Ok(true)
        }
        ["list"] => {
            cases::all()
                .iter()
                .for_each(|case| println!("{}", case.name));
            Ok(true)
        }
        _ => Err(
            "usage: guard check [--update] [NAME…] | guard list | guard amplify [NAME…]".to_owned(),
        ),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("guard: {why}");
            ExitCode::from(2)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    println!("SKIPPED: the guard runs on Linux only");
    ExitCode::SUCCESS
}
