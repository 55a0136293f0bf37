//! A file's tensors into memory, every page touched: ours, what one would write by hand, and others' libraries. One
//! process per variant, alternating; the second load of a process is where pools and allocators differ.

mod raw;
mod variants;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode};

use variants::{DEQUANTISE, VARIANTS, Variant};

const ROUNDS: usize = 7;
const PYTHON: &str = include_str!("load.py");

/// Python variants and the extensions they read; `load.py` has the code.
static PYTHON_VARIANTS: &[(&str, &[&str])] = &[
    ("safetensors.torch.load_file", &["safetensors"]),
    ("torch.load", &["pth", "pt"]),
    ("torch.load(mmap=True)", &["pth", "pt"]),
    ("numpy.load", &["npz"]),
    ("gguf.GGUFReader", &["gguf"]),
];

/// One load: nanoseconds, minor faults, processor nanoseconds, and the sum of the touched bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    took: u128,
    faults: u64,
    cpu: u128,
    sum: u64,
}

pub fn compare(args: &[&str]) -> ExitCode {
    if std::env::var("PEERS_PYTHON").is_err() {
        eprintln!("PEERS_PYTHON is not set: torch, numpy, safetensors and gguf are left out");
    }
    let cold = args.contains(&"--cold");
    let option = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
    let rounds = option("--rounds").and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let only: Vec<&str> = option("--only").map(|names| names.split(',').collect()).unwrap_or_default();
    for file in args.iter().filter(|arg| !arg.starts_with("--")) {
        measure(file, VARIANTS, PYTHON_VARIANTS, &Terms { cold, rounds, only: &only });
    }
    ExitCode::SUCCESS
}

/// Quantised weights brought back into memory: the pool's, and new.
pub fn dequantise(files: &[&str]) -> ExitCode {
    files.iter().for_each(|file| measure(file, DEQUANTISE, &[], &Terms { cold: false, rounds: ROUNDS, only: &[] }));
    ExitCode::SUCCESS
}

/// Under which terms a file is measured.
struct Terms<'t> {
    /// The page cache is dropped before each process, which loads once.
    cold: bool,
    rounds: usize,
    /// Parts of the names of the variants that run; all if there are none.
    only: &'t [&'t str],
}

fn measure(file: &str, rust: &'static [Variant], python: &'static [(&str, &[&str])], terms: &Terms<'_>) {
    let Terms { cold, rounds, only } = *terms;
    let extension = file.rsplit('.').next().unwrap_or_default();
    let mut runs: BTreeMap<(usize, &'static str), Vec<Vec<Sample>>> = BTreeMap::new();
    let times = if cold { "1" } else { "3" };
    if !cold {
        // so that every variant reads the page cache
        std::io::copy(&mut File::open(file).expect("the file"), &mut std::io::sink()).expect("it can be read");
    }
    let ours = rust.iter().enumerate().filter(|(_, v)| v.reads.contains(&extension) || v.reads.is_empty());
    let theirs = python.iter().enumerate().filter(|(_, v)| v.1.contains(&extension));
    let mut all: Vec<((usize, &'static str), Vec<String>)> = Vec::new();
    let me = std::env::current_exe().expect("this program has a path").display().to_string();
    for (i, variant) in ours {
        let command = [&me, "load-one", variant.name, file, times].map(str::to_owned).to_vec();
        all.push(((i, variant.name), command));
    }
    for (i, (name, _)) in theirs {
        let Ok(python) = std::env::var("PEERS_PYTHON") else { continue };
        let command = [&python, "-c", PYTHON, name, file, times].map(str::to_owned).to_vec();
        all.push(((100 + i, name), command));
    }
    all.retain(|((_, name), _)| only.is_empty() || only.iter().any(|part| name.contains(part)));
    for round in 0..rounds {
        for i in 0..all.len() {
            let (key, command) = &all[(i + round) % all.len()]; // nobody is always first
            if cold {
                drop_cache(file);
            }
            match run(command) {
                Ok(samples) => runs.entry(*key).or_default().push(samples),
                Err(why) if round == 0 => eprintln!("{} is left out: {why}", key.1),
                Err(_) => {}
            }
        }
    }
    report(file, cold, runs);
}

/// Pages that nobody maps and that are written: all of a benchmark's file.
fn drop_cache(file: &str) {
    let file = File::open(file).expect("the file");
    file.sync_all().expect("it can be written");
    // SAFETY: no memory is involved.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn run(command: &[String]) -> Result<Vec<Sample>, String> {
    let out = Command::new(&command[0]).args(&command[1..]).output().map_err(|e| e.to_string())?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).lines().last().unwrap_or_default().to_owned());
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let samples = text.lines().map(|line| {
        let mut words = line.split_whitespace();
        let mut next = || words.next().and_then(|word| word.parse::<u128>().ok());
        let (took, faults, cpu, sum) = (next()?, next()?, next()?, next()?);
        Some(Sample { took, faults: faults as u64, cpu, sum: sum as u64 })
    });
    samples.collect::<Option<Vec<_>>>().ok_or_else(|| format!("unexpected output: {text}"))
}

/// The median of a process's loads after the first, or of its only one.
fn steady(samples: &[Sample]) -> Sample {
    let mut rest = if samples.len() > 1 { samples[1..].to_vec() } else { samples.to_vec() };
    rest.sort_unstable();
    rest[rest.len() / 2]
}

fn report(file: &str, cold: bool, runs: BTreeMap<(usize, &'static str), Vec<Vec<Sample>>>) {
    println!("\n### {file}, {}\n", if cold { "page cache dropped" } else { "warm" });
    println!("| variant | first load | again | min | against ours | CPU again | faults again |");
    println!("|---|---|---|---|---|---|---|");
    let sum = |runs: &Vec<Vec<Sample>>| runs[0][0].sum;
    // whole-file variants touch other pages than those of tensors do
    let expected = runs.iter().filter(|(key, _)| !key.1.contains("whole file")).map(|(_, r)| sum(r)).next();
    let mut ours = None;
    for ((_, name), runs) in &runs {
        let mut again: Vec<Sample> = runs.iter().map(|samples| steady(samples)).collect();
        let mut first: Vec<u128> = runs.iter().map(|samples| samples[0].took).collect();
        again.sort_unstable();
        first.sort_unstable();
        let median = again[again.len() / 2];
        let mut cpu: Vec<u128> = again.iter().map(|sample| sample.cpu).collect();
        cpu.sort_unstable();
        let ours = *ours.get_or_insert(median.took);
        let differs = !name.contains("whole file") && Some(sum(runs)) != expected;
        let ms = |n: u128| format!("{:.2} ms", n as f64 / 1e6);
        println!(
            "| {name}{} | {} | {} | {} | {:.2}× | {} | {} |",
            if differs { " (OTHER BYTES)" } else { "" },
            ms(first[first.len() / 2]),
            ms(median.took),
            ms(again[0].took),
            median.took as f64 / ours as f64,
            ms(cpu[cpu.len() / 2]),
            median.faults,
        );
    }
}

pub use variants::one;
