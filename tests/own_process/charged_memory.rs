//! Memory and computation that a file causes are charged to its budget: a counting allocator compares. It counts all threads of
//! the process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anamnesis::{Checkpoint, Names, Objects, OpenOptions, Result, Usage, remember, source};

use crate::counting_allocator::counted;
use crate::in_own_process;
use crate::support::amplifiers::{self, Amplifier};
use crate::support::corpus::{corpus_entries, quantised_files};
use crate::support::fixtures;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::testing::ThreadTime;
use crate::support::writers::{StoredTensor, safetensors};
use crate::support::{model_amplifiers, object_amplifiers};

/// Memory that need not be charged, because no file decides its size.
const SLACK: u64 = 1 << 20;

/// The most that is charged by default for anything, and for each byte of headers that describe tensors: an entry has 25
/// bytes at least, and allows 792.
const MOST_WITHOUT_TENSORS: u64 = 160 << 20;
const MOST_FOR_TENSORS: u64 = 792_u64.div_ceil(25);

/// The most memory with the default limits.
const MOST_MEMORY: u64 = 256 << 20;

/// Sizes of inputs: a cost that grows with the square of the length is the thousandfold in the last one, and 32 times its part of a
/// byte, which is above [`TIME_PER_BYTE`] where the first one takes a tenth of it.
const SIZES: [usize; 2] = [64 << 10, 2 << 20];

/// Steps per byte that was read or charged.
const STEPS_PER_BYTE: u64 = 4;

/// Processor time per byte that was read or charged, and for what no byte decides. Tests are built with little
/// optimisation; what is measured is below a tenth of it.
const TIME_PER_BYTE: Duration = Duration::from_nanos(500);
const TIME_AT_LEAST: Duration = Duration::from_millis(100);

/// The most processor time, of inputs that are at most a few megabytes long. The bound of a release build is 2 s; with
/// little optimisation the slowest input of 6 MiB took 2.7 s on an idle machine and 5.6 s beside two builds on two cores. An
/// input whose time grows faster than its length takes a multiple of that.
const MOST_TIME: Duration = Duration::from_secs(12);

/// The cost of opening and listing one input.
#[derive(Debug)]
struct Cost {
    nbytes: u64,
    peak: u64,
    charged: u64,
    steps: u64,
    time: Duration,
    outcome: Result<usize>,
}

/// The cost of a call on an input of `nbytes` bytes; the call returns how much it made.
fn cost_of(nbytes: u64, call: &dyn Fn(&OpenOptions) -> Result<usize>) -> Cost {
    let usage = Usage::new();
    // a file that is refused without the option is read further with it
    let options = OpenOptions::new().usage(&usage).opaque(true);
    let mut outcome = Ok(0);
    let began = ThreadTime::start();
    let counts = counted(&mut || outcome = call(&options));
    Cost {
        nbytes,
        peak: counts.peak,
        charged: usage.memory(),
        steps: usage.steps(),
        time: began.elapsed(),
        outcome,
    }
}

/// Opens an input and lists it.
fn cost(nbytes: u64, open: &dyn Fn(&OpenOptions) -> Result<Checkpoint>) -> Cost {
    cost_of(nbytes, &|options| {
        open(options).and_then(|checkpoint| Ok(checkpoint.inspect()?.tensors.len()))
    })
}

/// Builds the object of a file by both calls: alone, and of an open checkpoint. The number of nodes is what it made.
fn object_costs(path: &Path, nbytes: u64) -> [Cost; 2] {
    let nodes = |objects: Option<Objects>| objects.map_or(0, |made| made.tree().nodes.len());
    let options = |options: &OpenOptions| options.clone().single(true).mmap(false);
    let alone = cost_of(nbytes, &|with| options(with).objects(path).map(nodes));
    let named = cost_of(nbytes, &|with| {
        options(with).open(path)?.objects().map(nodes)
    });
    [alone, named]
}

impl Cost {
    /// The fault of the result, if it has one.
    fn wrong(&self) -> Option<String> {
        let bytes = self.nbytes + self.charged;
        let time = TIME_AT_LEAST + TIME_PER_BYTE * u32::try_from(bytes).unwrap_or(u32::MAX);
        let what = if self.peak > self.charged + SLACK {
            "more memory than charged"
        } else if self.charged > MOST_WITHOUT_TENSORS + MOST_FOR_TENSORS * self.nbytes
            || self.peak > MOST_MEMORY
        {
            "more memory than allowed"
        } else if self.steps > STEPS_PER_BYTE * bytes {
            "more steps than bytes"
        } else if self.time > time || self.time > MOST_TIME {
            "more time than bytes"
        } else {
            return None;
        };
        Some(format!("{what}: {self:?}"))
    }
}

/// The worst cost of each format so far, per byte of input.
#[derive(Default)]
struct Worst(BTreeMap<String, (f64, String, f64, String)>);

impl Worst {
    #[allow(clippy::cast_precision_loss)] // for display
    fn add(&mut self, format: &str, what: &str, cost: &Cost) {
        let per_byte = |n: f64| n / cost.nbytes as f64;
        let memory = per_byte(cost.peak as f64);
        let time = per_byte(cost.time.as_nanos() as f64);
        let row = self.0.entry(format.to_owned()).or_default();
        if memory > row.0 {
            (row.0, row.1) = (memory, what.to_owned());
        }
        if time > row.2 {
            (row.2, row.3) = (time, what.to_owned());
        }
    }

    fn show(&self) {
        for (format, (memory, by, time, slowest)) in &self.0 {
            println!(
                "{format}: {memory:.1} bytes per byte ({by}), {time:.0} ns per byte ({slowest})"
            );
        }
    }
}

fn assert_none(wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} inputs:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A file, read by position and from memory, and its object.
fn every_way(path: &Path) -> Vec<Cost> {
    let bytes = std::fs::read(path).unwrap();
    let nbytes = bytes.len() as u64;
    let read = cost(nbytes, &|options| {
        options.clone().single(true).mmap(false).open(path)
    });
    let bytes = Mutex::new(Some(bytes));
    let memory = cost(nbytes, &|options| {
        let bytes = bytes.lock().unwrap().take().expect("called once");
        options.from_source(source::MemorySource::new(bytes))
    });
    let mut all = vec![read, memory];
    all.extend(object_costs(path, nbytes));
    all
}

#[test]
fn fixtures_cost_what_is_charged() {
    in_own_process!();
    let mut wrong = Vec::new();
    let paths = fixtures().into_iter().map(|(path, _)| path);
    for path in paths.chain(quantised_files()) {
        let found = every_way(&path).into_iter().filter_map(|cost| cost.wrong());
        wrong.extend(found.map(|what| format!("{}: {what}", path.display())));
    }
    assert_none(&wrong);
}

#[test]
fn malformed_files_cost_what_is_charged() {
    in_own_process!();
    let Some(entries) = corpus_entries("malformed", &["safetensors", "gguf", "npy", "npz", "pth"])
    else {
        return;
    };
    let mut wrong = Vec::new();
    for entry in entries {
        let found = every_way(&entry.path)
            .into_iter()
            .filter_map(|cost| cost.wrong());
        wrong.extend(found.map(|what| format!("{}: {what}", entry.name)));
    }
    assert_none(&wrong);
}

/// Writes the files of an amplifier and opens the first; of a PyTorch file, the object is built too.
fn amplified(amplifier: &Amplifier, scratch: &ScratchDir) -> Vec<Cost> {
    for (name, bytes) in &amplifier.files {
        std::fs::write(scratch.path(name), bytes).unwrap();
    }
    let path = scratch.path(amplifier.files[0].0);
    let nbytes = amplifier.nbytes();
    let mut all = vec![cost(nbytes, &|options| {
        options.clone().mmap(false).open(&path)
    })];
    if amplifier.format == "pth" {
        all.extend(object_costs(&path, nbytes));
    }
    for (name, _) in &amplifier.files {
        std::fs::remove_file(scratch.path(name)).unwrap();
    }
    all
}

/// The amplifiers of every format, and of objects.
fn all_amplifiers(nbytes: usize) -> impl Iterator<Item = Amplifier> {
    let objects = object_amplifiers::all(nbytes);
    amplifiers::all(nbytes).into_iter().chain(objects)
}

/// Every call on the amplifiers, in two sizes; returns how many files were opened, and how many objects built.
fn cost_what_is_charged(all: fn(usize) -> Vec<Amplifier>) -> [usize; 2] {
    let scratch = ScratchDir::new("amplifiers");
    let (mut wrong, mut worst) = (Vec::new(), Worst::default());
    let mut made = [0; 3];
    for nbytes in SIZES {
        for amplifier in all(nbytes) {
            let costs = amplified(&amplifier, &scratch);
            for (call, cost) in costs.iter().enumerate() {
                let made_of_it = ["", ", object", ", object of the checkpoint"][call];
                let name = format!("{} of {}{made_of_it}", amplifier.what, amplifier.format);
                if std::env::var_os("ANAMNESIS_SHOW").is_some() {
                    println!("{name}: {cost:?}");
                }
                made[call] += usize::from(cost.outcome.is_ok());
                if nbytes > 64 << 10 {
                    worst.add(amplifier.format, amplifier.what, cost);
                }
                wrong.extend(cost.wrong().map(|what| format!("{name}, {nbytes}: {what}")));
            }
        }
    }
    worst.show();
    assert_none(&wrong);
    [made[0], made[1]]
}

// the next three take longest of all: each is a test of its own, so that they run beside each other

#[test]
fn amplifiers_cost_what_is_charged() {
    in_own_process!();
    let [opened, _] = cost_what_is_charged(|nbytes| {
        let all = amplifiers::all(nbytes).into_iter();
        all.filter(|amplifier| amplifier.format != "pth").collect()
    });
    assert!(opened > 30, "only {opened} amplifiers were opened");
}

#[test]
fn amplifiers_of_pytorch_files_cost_what_is_charged() {
    in_own_process!();
    let [opened, built] = cost_what_is_charged(|nbytes| {
        let all = amplifiers::all(nbytes).into_iter();
        all.filter(|amplifier| amplifier.format == "pth").collect()
    });
    assert!(opened > 5, "only {opened} amplifiers were opened");
    assert!(built > 60, "only {built} objects were built");
}

#[test]
fn amplifiers_of_objects_cost_what_is_charged() {
    in_own_process!();
    let [_, built] = cost_what_is_charged(object_amplifiers::all);
    assert!(built > 60, "only {built} objects were built");
}

/// Amplifiers with a few changed bytes, or cut: they fail where they are half read.
#[test]
fn damaged_amplifiers_cost_what_is_charged() {
    in_own_process!();
    let scratch = ScratchDir::new("damaged-amplifiers");
    let mut wrong = Vec::new();
    for (number, mut amplifier) in all_amplifiers(200 << 10).enumerate() {
        let seeds = random_bytes(number as u64, 4 * 8);
        let original = std::mem::take(&mut amplifier.files[0].1);
        for (round, seed) in seeds.as_chunks::<8>().0.iter().enumerate() {
            let mut damaged = original.clone();
            let at = usize::try_from(u64::from_le_bytes(*seed) % damaged.len() as u64).unwrap();
            if round % 2 == 0 {
                damaged[at] ^= seed[7] | 1;
            } else {
                damaged.truncate(at);
            }
            amplifier.files[0].1 = damaged;
            let name = format!("{} of {} at {at}", amplifier.what, amplifier.format);
            let costs = amplified(&amplifier, &scratch);
            let found = costs.iter().filter_map(Cost::wrong);
            wrong.extend(found.map(|what| format!("{name}: {what}")));
        }
    }
    assert_none(&wrong);
}

/// The weights of every scheme, each many times: the plan is charged too.
#[test]
fn plans_cost_what_is_charged() {
    in_own_process!();
    const COPIES: usize = 60;
    const MOST_BYTES: u64 = 2 << 20;
    let scratch = ScratchDir::new("many-weights");
    let (mut wrong, mut planned) = (Vec::new(), 0);
    for path in quantised_files() {
        if path.metadata().unwrap().len() > MOST_BYTES {
            continue;
        }
        let Ok(checkpoint) = Checkpoint::open(&path) else {
            continue;
        };
        let catalog = checkpoint.catalog();
        let (mut tensors, mut metadata) = (Vec::new(), Vec::new());
        for copy in 0..COPIES {
            for tensor in checkpoint.tensors() {
                let info = tensor.info();
                tensors.push(StoredTensor::new(
                    &format!("c{copy}.{}", info.name),
                    info.encoding.name(),
                    &info.shape,
                    tensor.bytes().unwrap().into_owned(),
                ));
            }
            let texts = catalog.metadata().iter();
            metadata.extend(texts.filter_map(|(key, _)| {
                Some((format!("c{copy}.{key}"), catalog.metadata().text(key)?))
            }));
        }
        let metadata: Vec<_> = metadata.iter().map(|(key, text)| (&**key, *text)).collect();
        let bytes = safetensors(&tensors, &metadata);
        let file = scratch.path("model.safetensors");
        std::fs::write(&file, &bytes).unwrap();
        let config = path.with_file_name("config.json");
        let copied = scratch.path("config.json");
        let _ = std::fs::remove_file(&copied);
        if config.is_file() {
            std::fs::copy(config, copied).unwrap();
        }
        let cost = cost(bytes.len() as u64, &|options| {
            options.clone().mmap(false).open(&file)
        });
        planned += 1;
        wrong.extend(
            cost.wrong()
                .map(|what| format!("{}: {what}", path.display())),
        );
    }
    assert!(planned > 20, "only {planned} files were planned");
    assert_none(&wrong);
}

/// The plan, the configuration and the tokenizer of a Hugging Face checkpoint that a GGUF gives.
#[test]
fn models_of_ggufs_cost_what_is_charged() {
    in_own_process!();
    let (mut wrong, mut written) = (Vec::new(), 0);
    for nbytes in SIZES {
        for (what, bytes) in model_amplifiers::all(nbytes) {
            let found = model_cost(&bytes);
            if std::env::var_os("ANAMNESIS_SHOW").is_some() {
                println!("{what}: {found:?}");
            }
            written += usize::from(found.outcome.as_ref().is_ok_and(|files| *files > 2));
            wrong.extend(
                found
                    .wrong()
                    .map(|cost| format!("{what}, {nbytes}: {cost}")),
            );
        }
    }
    assert!(written > 25, "only {written} models have a tokenizer");
    assert_none(&wrong);
}

/// The cost of opening a GGUF, planning its weights and making the files beside them. The outcome counts the files.
fn model_cost(bytes: &[u8]) -> Cost {
    let usage = Usage::new();
    let source = source::MemorySource::new(bytes.to_vec());
    let options = OpenOptions::new().usage(&usage);
    let (mut source, mut outcome) = (Some(source), Ok(0));
    let began = ThreadTime::start();
    let counts = counted(&mut || {
        let source = source.take().expect("called once");
        outcome = options.from_source(source).and_then(|checkpoint| {
            let remember = remember(&checkpoint).names(Names::HuggingFace);
            remember.plan()?;
            Ok(remember.companions()?.files.len())
        });
    });
    Cost {
        nbytes: bytes.len() as u64,
        peak: counts.peak,
        charged: usage.memory(),
        steps: usage.steps(),
        time: began.elapsed(),
        outcome,
    }
}
