//! Section `start`: one load in a new process, from the start of the process to the last tensor: as a service starts. The file
//! is not in the page cache, and the memory is new to the process.

use std::process::ExitCode;

use super::{PYTHON_VARIANTS, PageCache, VARIANTS, add_device_readers, measured};
use super::{SCRIPT, measured_loads};
use crate::case::{Case, Measurement, Variant};
use crate::child_process::ProcessUsage;
use crate::generate;
use crate::report::{Job, compare_each, options::Options, python};

const FILES: [&str; 6] = [
    "model.safetensors",
    "large.safetensors",
    "huge.safetensors",
    "model.pth",
    "large.pth",
    "large.gguf",
];

/// Prefixes of the variants in Rust.
const CHOSEN: [&str; 4] = [
    "ours, owned",
    "ours, borrowed",
    "ours, mapped",
    "candle-core",
];
const FIO: &str = "whole file: fio, io_uring, direct";
const DD: &str = "whole file: dd, direct";

/// Variants that are measured with the smallest files alone: they take 15 s and more for 4 GB.
const SLOW: [&str; 1] = ["candle-core"];
/// The variants that are measured with 12 GB.
const WITH_HUGE: [&str; 5] = [
    "ours, owned",
    "ours, borrowed",
    "safetensors.torch.load_file",
    "fastsafetensors",
    FIO,
];

/// Variants in Python that the section `load` does not have, and the extensions they read. `loaders.py` has the code.
static MORE_PYTHON: &[(&str, &[&str])] = &[
    ("ours from Python, owned", &["safetensors", "pth", "gguf"]),
    (
        "ours from Python, borrowed",
        &["safetensors", "pth", "gguf"],
    ),
    ("fastsafetensors", &["safetensors"]),
    ("run:ai model streamer", &["safetensors"]),
];

/// `peers start FILE…`.
pub fn compare(args: &[&str]) -> ExitCode {
    compare_each(args, |options: &Options, file| {
        vec![case(file, python::interpreter(options))]
    })
}

pub fn jobs(_: &Options) -> Vec<Job> {
    let job = |name: &'static str| {
        Job::new(name, move |options| {
            let path = generate::file(options, name)?;
            Ok(case(&path, python::interpreter(options)))
        })
    };
    FILES.map(job).into()
}

fn case(file: &str, python: Result<String, String>) -> Case {
    let extension = file.rsplit('.').next().unwrap_or_default();
    let mut case = measured(
        file,
        VARIANTS,
        PYTHON_VARIANTS,
        PageCache::New,
        python.clone(),
    );
    let begins = |name: &str, with: &[&str]| with.iter().any(|prefix| name.starts_with(prefix));
    let in_python = |name: &str| PYTHON_VARIANTS.iter().any(|(known, _)| *known == name);
    case.variants
        .retain(|variant| begins(&variant.name, &CHOSEN) || in_python(&variant.name));
    for (name, reads) in MORE_PYTHON {
        if let (true, Ok(python)) = (reads.contains(&extension), &python) {
            let command = [python, "-c", SCRIPT, name, file, PageCache::New.name()];
            case.variants.push(Variant::new(name, &command, parse));
        }
    }
    for variant in &mut case.variants {
        variant.parse = parse;
    }
    add_device_readers(file, &mut case);
    let has_fio = case.variants.iter().any(|variant| variant.name == FIO);
    let limit = if has_fio { FIO } else { DD };
    case.limit = Some(limit);
    let is_small = file.contains("model.");
    case.variants.retain(|Variant { name, .. }| {
        let wanted = !file.contains("huge.") || begins(name, &WITH_HUGE) || name == limit;
        wanted && (is_small || !begins(name, &SLOW)) && (name == limit || name != DD)
    });
    case
}

/// From the start of the process to the last tensor; and the load alone, without the start of an interpreter and its imports.
fn parse(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let loads = measured_loads(usage)?;
    let [load] = &loads[..] else { return None };
    let mut more = vec![
        ("load ns", load.took),
        ("CPU time ns", usage.cpu.as_nanos() as f64),
    ];
    more.extend(load.sum.map(|sum| ("sum", sum)));
    Some(vec![Measurement::new(
        load.ended - usage.started as f64,
        more,
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_begins_with_the_process() {
        let usage = |text: &str| ProcessUsage {
            started: 1_000,
            stdout: text.as_bytes().to_vec(),
            ..ProcessUsage::default()
        };
        let parsed = parse(&usage("900 7 800 3000 5\n")).unwrap();
        assert_eq!(
            (parsed[0].ns, parsed[0].more[0]),
            (2000.0, ("load ns", 900.0))
        );
        assert!(parse(&usage("900 7 800 3000 5\n1 1 1 1 1\n")).is_none());
    }
}
