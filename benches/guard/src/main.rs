//! The regression guard: instructions, faults and bytes, which do not depend on the machine's mood, compared with
//! `benches/guard/baseline.json`. See `benches/README.md`.
//!
//! `guard check [--update] [NAME…]` runs every case, each in a process of its own: under callgrind, step by step under
//! ptrace, or as it is. `guard case` is such a process.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
mod baseline;
#[cfg(target_os = "linux")]
mod callgrind;
#[cfg(target_os = "linux")]
mod case;
#[cfg(target_os = "linux")]
mod cases;
#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod heap;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod setting;
#[cfg(target_os = "linux")]
mod steps;
#[cfg(target_os = "linux")]
mod system;

#[cfg(target_os = "linux")]
#[global_allocator]
static HEAP: heap::Counted = heap::Counted;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["check", ref rest @ ..] => check::run(rest),
        ["case", way, name] => case::run(way, name).map(|()| true),
        ["list"] => {
            cases::all()
                .iter()
                .for_each(|case| println!("{}", case.name));
            Ok(true)
        }
        _ => Err("usage: guard check [--update] [NAME…] | guard list".to_owned()),
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
    println!("SKIPPED: the guard counts on Linux only");
    ExitCode::SUCCESS
}
