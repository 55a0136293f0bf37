//! Alternates the variants' processes and prints medians.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use crate::variants::VARIANTS;

const ROUNDS: usize = 7;
const PYTHON: &str = include_str!("peers.py");

/// Python variants and the extensions they read; `peers.py` has the code.
static PYTHON_VARIANTS: &[(&str, &[&str])] = &[
    ("torch.load(mmap=True)", &["pth"]),
    ("torch.load", &["pth"]),
    ("numpy.load, listed", &["npz"]),
    ("safetensors.safe_open", &["safetensors"]),
    ("gguf.GGUFReader", &["gguf"]),
];

/// A process's median and minimum in nanoseconds, and the number of tensors it saw.
type Run = (u128, u128, usize);
/// The runs of each variant, in the tables' order.
type Runs = BTreeMap<(usize, &'static str), Vec<Run>>;

pub fn open(files: &[&str]) -> ExitCode {
    let python = std::env::var("PEERS_PYTHON").ok();
    if python.is_none() {
        eprintln!("PEERS_PYTHON is not set: torch, numpy, safetensors and gguf are left out");
    }
    for file in files {
        let extension = file.rsplit('.').next().unwrap_or_default();
        let mut runs = Runs::new();
        for _ in 0..ROUNDS {
            for (i, (name, reads, _)) in VARIANTS.iter().enumerate() {
                if reads.contains(&extension) {
                    let me = std::env::current_exe().expect("this program has a path");
                    let run = run(Command::new(me).args(["one", name, file]));
                    runs.entry((i, name)).or_default().extend(run);
                }
            }
            for (i, (name, reads)) in PYTHON_VARIANTS.iter().enumerate() {
                if let (Some(python), true) = (&python, reads.contains(&extension)) {
                    let run = run(Command::new(python).args(["-c", PYTHON, name, file]));
                    runs.entry((100 + i, name)).or_default().extend(run);
                }
            }
        }
        report(file, runs);
    }
    ExitCode::SUCCESS
}

/// One process.
fn run(command: &mut Command) -> Option<Run> {
    let out = command.output().expect("the variant starts");
    if !out.status.success() {
        eprintln!("{command:?} failed: {}", String::from_utf8_lossy(&out.stderr));
        return None;
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let mut words = text.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn report(file: &str, runs: Runs) {
    println!("\n### {file}\n");
    println!("| variant | median of {ROUNDS} | min | max | against ours | tensors |");
    println!("|---|---|---|---|---|---|");
    let mut ours = None;
    for ((_, name), mut runs) in runs {
        runs.sort_unstable();
        let Some(&(median, _, tensors)) = runs.get(runs.len() / 2) else { continue };
        let ours = *ours.get_or_insert(median);
        let us = |n: u128| format!("{:.1} µs", n as f64 / 1e3);
        println!(
            "| {name} | {} | {} | {} | {:.2}× | {tensors} |",
            us(median),
            us(runs[0].0),
            us(runs[runs.len() - 1].0),
            median as f64 / ours as f64
        );
    }
}
