//! A whole GGUF file turned into BF16 safetensors: ours, the peer's, and writing as many zeros.

mod options;
mod same;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::alternate::{Case, Contender, Reading, myself};
use crate::child::{self, Usage};
use crate::results::{Outcome, markdown};
pub use options::Options;

const ROUNDS: usize = 7;
const DD: &str = "dd of as many bytes";

pub fn compare(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    let found: Outcome = case(&options).run(ROUNDS);
    clean(&options);
    println!("{}", markdown::outcome(&found));
    if found.rows.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// The peer's whole conversion, in a process of its own.
pub fn peer(file: &str, out: &str, threads: &str) -> ExitCode {
    let threads = threads.parse().expect("a number");
    let options = peer::RememberOptions::new().with_threads(threads);
    let parsed = peer::parse_gguf(file).unwrap_or_else(|e| panic!("{e}"));
    parsed
        .remember_with_options(out, peer::TargetDtype::BF16, options)
        .unwrap_or_else(|e| panic!("{e}"));
    ExitCode::SUCCESS
}

/// Ours, the peer's and `dd`, each to a file that is not there yet.
pub fn case(options: &Options) -> Case {
    let (me, file, threads) = (myself(), options.file.as_str(), options.threads.to_string());
    let (ours, theirs, zeros) = (
        out(options, "ours"),
        out(options, "peer"),
        out(options, "dd"),
    );
    let mine = [
        options.ours.as_str(),
        "remember",
        file,
        "-o",
        &ours.1,
        "--dtype",
        "bf16",
        "--threads",
        &threads,
    ];
    let mine: Vec<&str> = mine.into_iter().chain(["--overwrite"]).collect();
    let peers = [me.as_str(), "remember-peer", file, &theirs.1, &threads];
    let mut case = Case {
        name: name(options),
        limit: Some(DD),
        ..Case::default()
    };
    // the two outputs, compared before anything is timed, and how many bytes `dd` writes
    let mut able = Vec::new();
    let read =
        fs::File::open(file).and_then(|mut from| std::io::copy(&mut from, &mut std::io::sink()));
    read.unwrap_or_else(|e| panic!("{file}: {e}")); // so that every variant reads the page cache
    for (variant, command, made) in [
        ("ours", &mine[..], &ours.0),
        ("anamnesis 0.7.10", &peers[..], &theirs.0),
    ] {
        match child::run(Command::new(command[0]).args(&command[1..]), false) {
            Ok(_) => able.push((Contender::new(variant, command, took), made.clone())),
            Err(why) => case.missing.push((variant.to_owned(), why)),
        }
    }
    let notes = match &able[..] {
        [(_, a), (_, b)] => same::report(a, b),
        _ => Vec::new(),
    };
    if let Some((_, made)) = able.first() {
        let count = format!(
            "count={}",
            fs::metadata(made).expect("it has just been written").len()
        );
        let dd = format!("of={}", zeros.1);
        let dd = [
            "dd",
            "if=/dev/zero",
            &dd,
            "bs=1M",
            &count,
            "iflag=count_bytes",
            "status=none",
        ];
        able.push((Contender::new(DD, &dd, took), zeros.0.clone()));
    }
    case.contenders = able
        .into_iter()
        .map(|(contender, _)| Contender {
            watched: true,
            ..contender
        })
        .collect();
    case.check = Some(Box::new(move || notes.clone()));
    let outputs = [ours.0, theirs.0, zeros.0];
    let remove = move || outputs.iter().for_each(|out| drop(fs::remove_file(out)));
    remove();
    case.before = Some(Box::new(remove));
    case
}

/// Deletes what the last process wrote.
pub fn clean(options: &Options) {
    ["ours", "peer", "dd"]
        .iter()
        .for_each(|variant| drop(fs::remove_file(out(options, variant).0)));
}

fn name(options: &Options) -> String {
    let file = options.file.rsplit('/').next().unwrap_or(&options.file);
    let threads = if options.threads == 1 {
        "1 thread".to_owned()
    } else {
        format!("{} threads", options.threads)
    };
    format!("{file}, {threads}")
}

fn out(options: &Options, variant: &str) -> (PathBuf, String) {
    let path = Path::new(&options.dir).join(format!("remember-{variant}.safetensors"));
    let word = path.to_str().expect("a printable path").to_owned();
    (path, word)
}

fn took(usage: &Usage) -> Option<Vec<Reading>> {
    let memory = [
        ("anonymous KiB", usage.anonymous as f64),
        ("of files KiB", usage.of_files as f64),
    ];
    let more = [("processor ns", usage.cpu.as_nanos() as f64)]
        .into_iter()
        .chain(memory);
    Some(vec![Reading::new(
        usage.wall.as_nanos() as f64,
        more.collect(),
    )])
}
