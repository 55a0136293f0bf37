//! `guard amplify [NAME…]`: memory and instructions per byte of files that are made to cost much.
//!
//! The files come from `tests/hostile/files/{amplifiers,model_amplifiers}.rs`, with 1 MiB each. Each is opened and listed in a
//! process of its own, with the default limits; a GGUF model is also planned and its configuration and tokenizer made.
//! Refusals count as well as successes. The table has the worst of each format; `docs/untrusted.md` shows it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use anamnesis::{Checkpoint, Names, OpenOptions, Result as Opened, remember};

use crate::case::measured_call;
use crate::{callgrind, counting_allocator, process};

// shared with tests, whose modules are public in their crate
#[path = "../../../tests/hostile/files/amplifiers.rs"]
#[allow(unreachable_pub)]
mod amplifiers;
#[path = "../../../tests/hostile/files/model_amplifiers.rs"]
#[allow(unreachable_pub)]
mod model_amplifiers;

use amplifiers::Amplifier;

/// Bytes of each file.
const NBYTES: usize = 1 << 20;
const MODEL: &str = "GGUF, as a Hugging Face checkpoint";

/// The cost of opening one input, per byte of it.
struct Cost {
    memory: f64,
    instructions: f64,
}

/// The larger of two costs, and the input that has it.
#[derive(Clone, Copy, Default)]
struct Worst(f64, &'static str);

impl Worst {
    fn add(&mut self, cost: f64, what: &'static str) {
        if cost > self.0 {
            *self = Self(cost, what);
        }
    }
}

/// A temporary directory, deleted on drop.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn inputs() -> Vec<Amplifier> {
    let models = model_amplifiers::all(NBYTES).into_iter();
    let models = models.map(|(what, bytes)| Amplifier {
        format: MODEL,
        what,
        files: vec![("model.gguf", bytes)],
    });
    amplifiers::all(NBYTES).into_iter().chain(models).collect()
}

/// Measures the inputs whose format or description contains one of `wanted`, and prints the table.
pub(crate) fn run(wanted: &[&str]) -> Result<bool, String> {
    if cfg!(debug_assertions) {
        return Err("a debug build has other counts: use `cargo run --release`".to_owned());
    }
    if callgrind::version().is_none() {
        println!("SKIPPED: instructions are counted by valgrind, which is not installed");
        return Ok(true);
    }
    let name = format!("anamnesis-amplify-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    let in_directory = |e: std::io::Error| format!("{}: {e}", directory.0.display());
    fs::create_dir(&directory.0).map_err(in_directory)?;
    let own = std::env::current_exe().map_err(in_directory)?;
    fs::copy(own, directory.0.join(process::SELF)).map_err(in_directory)?;
    let mut inputs = inputs();
    inputs.retain(|input| {
        let contains = |word: &&str| input.format.contains(word) || input.what.contains(word);
        wanted.is_empty() || wanted.iter().any(contains)
    });
    let (next, costs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(input) = inputs.get(number) else {
                        break;
                    };
                    let cost = cost(input, &directory.0, number);
                    costs.lock().expect("no worker panics").push((number, cost));
                }
            });
        }
    });
    let mut worst: BTreeMap<&str, [Worst; 2]> = BTreeMap::new();
    for (number, cost) in costs.into_inner().expect("no worker panics") {
        let Amplifier { format, what, .. } = inputs[number];
        let cost = cost.map_err(|why| format!("{what} of {format}: {why}"))?;
        let [memory, instructions] = worst.entry(format).or_default();
        memory.add(cost.memory, what);
        instructions.add(cost.instructions, what);
    }
    println!(
        "| input | most memory per byte | of | most instructions per byte | of |\n|---|--:|---|--:|---|"
    );
    for (format, [memory, instructions]) in worst {
        println!(
            "| {format} | {:.0} | {} | {:.0} | {} |",
            memory.0, memory.1, instructions.0, instructions.1
        );
    }
    Ok(true)
}

#[allow(clippy::cast_precision_loss)] // for display
fn cost(input: &Amplifier, directory: &Path, number: usize) -> Result<Cost, String> {
    let own = directory.join(number.to_string());
    fs::create_dir(&own).map_err(|e| e.to_string())?;
    for (name, bytes) in &input.files {
        fs::write(own.join(name), bytes).map_err(|e| e.to_string())?;
    }
    let path = format!("{number}/{}", input.files[0].0);
    let kind = if input.format == MODEL {
        "model"
    } else {
        "list"
    };
    let arguments = |counter: &'static str| ["amplified", counter, kind, &path].map(str::to_owned);
    let mut command = process::bare(process::SELF);
    command.args(arguments("system")).current_dir(directory);
    let peak = process::output(command)?;
    let peak: u64 = peak.parse().map_err(|_| format!("a peak of {peak:?}"))?;
    let instructions = callgrind::count_process(directory, number, &arguments("callgrind"))?;
    // thousands of files of 1 MiB would fill a small disk
    fs::remove_dir_all(&own).map_err(|e| e.to_string())?;
    let nbytes = input.nbytes() as f64;
    Ok(Cost {
        memory: peak as f64 / nbytes,
        instructions: instructions as f64 / nbytes,
    })
}

/// Opens one input as a process of its own (`guard amplified COUNTER KIND PATH`).
pub(crate) fn open(counter: &str, kind: &str, path: &str) {
    // without a map: the pages of one count as no memory of the process
    let options = OpenOptions::new().opaque(true).mmap(false);
    let open = || -> Opened<usize> {
        let checkpoint: Checkpoint = options.open(path)?;
        if kind == "model" {
            let remember = remember(&checkpoint).names(Names::HuggingFace);
            remember.plan()?;
            return Ok(remember.companions()?.files.len());
        }
        Ok(checkpoint.inspect()?.tensors.len())
    };
    if counter == "callgrind" {
        measured_call(&mut || drop(open()));
    } else {
        println!("{}", counting_allocator::counted(&mut || drop(open())).peak);
    }
}
