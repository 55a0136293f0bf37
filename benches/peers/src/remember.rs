//! Section `convert`: dequantises a whole GGUF file to BF16 safetensors, by us, by the unrelated crate `anamnesis` 0.7.10,
//! and, as the limit, `dd` of as many zeros.

mod compare_files;
mod options;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::case::{Case, Measurement, Variant, this_program};
use crate::child_process::{self, ProcessUsage};
use crate::results::markdown;
pub use options::Options;

const ROUNDS: usize = 7;
const UNRELATED: &str = r#"unrelated crate "anamnesis" 0.7.10"#;
/// Our outputs are synced before they get their names, so that the limit is synced as well. The peer does not sync.
const DD: &str = "limit: dd of the same size, conv=fsync";

/// `peers remember FILE.gguf`.
pub fn compare(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let outcome = case(&options).run(ROUNDS);
    remove_outputs(&options);
    println!("{}", markdown::outcome(&outcome));
    if outcome.rows.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// The conversion by the unrelated crate, in a process of its own.
pub fn peer(file: &str, out: &str, threads: &str) -> ExitCode {
    let threads = threads.parse().expect("a number of threads");
    let options = peer::RememberOptions::new().with_threads(threads);
    let parsed = peer::parse_gguf(file).unwrap_or_else(|e| panic!("{e}"));
    parsed
        .remember_with_options(out, peer::TargetDtype::BF16, options)
        .unwrap_or_else(|e| panic!("{e}"));
    ExitCode::SUCCESS
}

/// Each variant writes to a file that does not exist yet.
pub fn case(options: &Options) -> Case {
    let (this_program, file, threads) = (
        this_program(),
        options.file.as_str(),
        options.threads.to_string(),
    );
    let (ours, peers, zeros) = (
        output(options, "ours"),
        output(options, "peer"),
        output(options, "dd"),
    );
    let our_command = [
        options.ours.as_str(),
        "remember",
        file,
        "-o",
        &ours.1,
        "--dtype",
        "bf16",
        "--threads",
        &threads,
        "--overwrite",
    ];
    let peer_command = [
        this_program.as_str(),
        "remember-peer",
        file,
        &peers.1,
        &threads,
    ];
    let mut case = Case {
        name: name(options),
        limit: Some(DD),
        ..Case::default()
    };
    // fills the page cache, from which every variant reads
    let read =
        fs::File::open(file).and_then(|mut from| std::io::copy(&mut from, &mut std::io::sink()));
    read.unwrap_or_else(|e| panic!("{file}: {e}"));
    let mut runnable = Vec::new();
    for (variant, command, output) in [
        ("ours", &our_command[..], &ours.0),
        (UNRELATED, &peer_command[..], &peers.0),
    ] {
        match child_process::run(Command::new(command[0]).args(&command[1..]), false) {
            Ok(_) => runnable.push((Variant::new(variant, command, parse), output.clone())),
            Err(reason) => case.missing.push((variant.to_owned(), reason)),
        }
    }
    let notes = match &runnable[..] {
        [(_, a), (_, b)] => compare_files::differences(a, b),
        _ => Vec::new(),
    };
    if let Some((_, output)) = runnable.first() {
        let len = fs::metadata(output)
            .expect("the variant has written its output")
            .len();
        let (count, to) = (format!("count={len}"), format!("of={}", zeros.1));
        let dd = [
            "dd",
            "if=/dev/zero",
            &to,
            "bs=1M",
            &count,
            "iflag=count_bytes",
            "conv=fsync",
            "status=none",
        ];
        runnable.push((Variant::new(DD, &dd, parse), zeros.0.clone()));
    }
    case.variants = runnable
        .into_iter()
        .map(|(variant, _)| Variant {
            sample_memory: true,
            ..variant
        })
        .collect();
    case.check = Some(Box::new(move || notes.clone()));
    let outputs = [ours.0, peers.0, zeros.0];
    let remove = move || outputs.iter().for_each(|out| drop(fs::remove_file(out)));
    remove();
    case.before = Some(Box::new(remove));
    case
}

/// Deletes the outputs of the last processes.
fn remove_outputs(options: &Options) {
    ["ours", "peer", "dd"]
        .iter()
        .for_each(|variant| drop(fs::remove_file(output(options, variant).0)));
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

/// Where a variant writes: as a path, and as the word of a command.
fn output(options: &Options, variant: &str) -> (PathBuf, String) {
    let path = Path::new(&options.dir).join(format!("remember-{variant}.safetensors"));
    let word = path.to_str().expect("a path in UTF-8").to_owned();
    (path, word)
}

fn parse(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let more = vec![
        ("CPU time ns", usage.cpu.as_nanos() as f64),
        ("anonymous KiB", usage.anonymous_kib as f64),
        ("file-backed KiB", usage.file_backed_kib as f64),
    ];
    Some(vec![Measurement::new(usage.wall.as_nanos() as f64, more)])
}
