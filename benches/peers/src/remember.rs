//! A whole GGUF file turned into BF16 safetensors: ours, the peer's, and writing as many zeros.

mod child;
mod options;
mod same;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use child::Usage;
use options::Options;

const ROUNDS: usize = 7;

/// What makes one output file, and what it took in each round.
struct Variant {
    label: &'static str,
    command: Vec<String>,
    out: PathBuf,
    runs: Vec<Usage>,
}

pub fn compare(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    // so that every variant reads the page cache
    let read = fs::File::open(&options.file).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
    let read = read.unwrap_or_else(|e| panic!("{}: {e}", options.file));
    let mut variants = variants(&options);
    // one round that does not count: who can, and do they agree?
    variants.retain_mut(|variant| variant.run().is_some() || skipped(variant));
    let outputs: Vec<&Path> = variants.iter().map(|v| v.out.as_path()).collect();
    let Some(&first) = outputs.first() else { return ExitCode::FAILURE };
    let bytes = fs::metadata(first).expect("it has just been written").len();
    println!("{read} bytes read from the page cache, {bytes} written, {} threads.\n", options.threads);
    if let [ours, peer, ..] = outputs[..] {
        same::report(ours, peer);
    }
    outputs.iter().for_each(|out| fs::remove_file(out).expect("its own file"));
    variants.push(zeros(&options, bytes));
    for round in 0..ROUNDS {
        for i in 0..variants.len() {
            let variant = (i + round) % variants.len(); // nobody is always first
            let variant = &mut variants[variant];
            let usage = variant.run().expect("it could in the first round");
            variant.runs.push(usage);
            fs::remove_file(&variant.out).expect("its own file");
        }
    }
    report(&variants);
    ExitCode::SUCCESS
}

/// The peer's whole conversion, in a process of its own.
pub fn peer(file: &str, out: &str, threads: &str) -> ExitCode {
    let threads = threads.parse().expect("a number");
    let options = peer::RememberOptions::new().with_threads(threads);
    let parsed = peer::parse_gguf(file).unwrap_or_else(|e| panic!("{e}"));
    parsed.remember_with_options(out, peer::TargetDtype::BF16, options).unwrap_or_else(|e| panic!("{e}"));
    ExitCode::SUCCESS
}

fn variants(options: &Options) -> Vec<Variant> {
    let me = std::env::current_exe().expect("this program has a path");
    let me = me.to_str().expect("a printable path");
    let (file, threads) = (options.file.as_str(), options.threads.to_string());
    let ours = |out: &str| {
        words(&[&options.ours, "remember", file, "-o", out, "--dtype", "bf16", "--threads", &threads, "--overwrite"])
    };
    let peer = |out: &str| words(&[me, "remember-peer", file, out, &threads]);
    vec![Variant::new("ours", options, ours), Variant::new("anamnesis 0.7.10", options, peer)]
}

fn zeros(options: &Options, bytes: u64) -> Variant {
    let dd = |out: &str| {
        words(&[
            "dd",
            "if=/dev/zero",
            &format!("of={out}"),
            "bs=1M",
            &format!("count={bytes}"),
            "iflag=count_bytes",
            "status=none",
        ])
    };
    Variant::new("dd", options, dd)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn skipped(variant: &Variant) -> bool {
    eprintln!("{} is left out: it failed", variant.label);
    let _ = fs::remove_file(&variant.out);
    false
}

impl Variant {
    fn new(label: &'static str, options: &Options, command: impl FnOnce(&str) -> Vec<String>) -> Self {
        let name = format!("remember-{}.safetensors", label.replace(' ', "-"));
        let out = Path::new(&options.dir).join(name);
        let command = command(out.to_str().expect("a printable path"));
        Self { label, command, out, runs: Vec::new() }
    }

    /// One process, to a file that is not there yet.
    fn run(&mut self) -> Option<Usage> {
        let _ = fs::remove_file(&self.out);
        child::run(Command::new(&self.command[0]).args(&self.command[1..]))
    }

    fn median<T: Ord + Copy>(&self, of: impl Fn(&Usage) -> T) -> T {
        let mut all: Vec<T> = self.runs.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    }
}

fn report(variants: &[Variant]) {
    println!(
        "| process | wall | least | against dd | against the peer | CPU | peak RSS | anonymous | of files | minor faults |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let wall = |label| variants.iter().find(|v| v.label == label).map(|v| v.median(|u| u.wall).as_secs_f64());
    let (dd, peer) = (wall("dd"), wall("anamnesis 0.7.10"));
    for variant in variants.iter() {
        let mine = variant.median(|u| u.wall).as_secs_f64();
        let least = variant.runs.iter().map(|u| u.wall).min().unwrap_or_default().as_secs_f64();
        let against = |other: Option<f64>| other.map_or("–".to_owned(), |other| format!("{:.2}×", mine / other));
        let mib = |kib: u64| format!("{} MiB", kib / 1024);
        println!(
            "| {} | {mine:.3} s | {least:.3} s | {} | {} | {:.3} s | {} | {} | {} | {} |",
            variant.label,
            against(dd),
            against(peer),
            variant.median(|u| u.cpu).as_secs_f64(),
            mib(variant.median(|u| u.peak_rss)),
            mib(variant.median(|u| u.anonymous)),
            mib(variant.median(|u| u.of_files)),
            variant.median(|u| u.faults),
        );
    }
    println!(
        "\nMedians of {ROUNDS} rounds, alternating, each to a fresh file. Mapped page cache counts as RSS \"of files\"."
    );
}
