//! Experiments that were made once elsewhere, done again on this code: each tries two or more ways of one thing.

mod fp8;
mod gguf_output;
mod gguf_reader;
mod npz;
mod parse;
mod pth;

use std::process::ExitCode;
use std::time::Instant;

use crate::alternate::{Case, Contender, Read, myself};
use crate::load;
use crate::report::{self, Job, options::Options};
use crate::results::{self, markdown};

pub struct Experiment {
    pub name: &'static str,
    /// What it may take.
    minutes: f64,
    jobs: fn(&Options) -> Vec<Job>,
    /// What one process of a variant does.
    one: fn(&str, &[&str]) -> Option<()>,
}

static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "npz-zeroing",
        minutes: 1.5,
        jobs: npz::jobs,
        one: npz::one,
    },
    Experiment {
        name: "fp8-chunks",
        minutes: 1.0,
        jobs: fp8::jobs,
        one: fp8::one,
    },
    Experiment {
        name: "gguf-output",
        minutes: 3.0,
        jobs: gguf_output::jobs,
        one: gguf_output::one,
    },
    Experiment {
        name: "parse-read-or-map",
        minutes: 1.5,
        jobs: parse::jobs,
        one: parse::one,
    },
    Experiment {
        name: "gguf-by-reader",
        minutes: 6.0,
        jobs: gguf_reader::jobs,
        one: gguf_reader::one,
    },
    Experiment {
        name: "pth-by-reader",
        minutes: 8.0,
        jobs: pth::jobs,
        one: pth::one,
    },
];

/// `peers experiments [NAME…] [--render] [OPTION…]`.
pub fn command(args: &[&str]) -> ExitCode {
    let rendered = args.contains(&"--render");
    let rest: Vec<&str> = args
        .iter()
        .copied()
        .filter(|arg| *arg != "--render")
        .collect();
    let options = match Options::parse(&rest) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    if let Some(unknown) = options
        .words
        .iter()
        .find(|word| !EXPERIMENTS.iter().any(|e| e.name == *word))
    {
        let known: Vec<&str> = EXPERIMENTS
            .iter()
            .map(|experiment| experiment.name)
            .collect();
        eprintln!("no experiment {unknown:?}; there are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let names = (!options.words.is_empty()).then_some(&options.words[..]);
    if rendered {
        render(names)
    } else {
        run(&options, names)
    }
}

fn chosen(names: Option<&[String]>) -> impl Iterator<Item = &'static Experiment> {
    EXPERIMENTS
        .iter()
        .filter(move |e| names.is_none_or(|names| names.iter().any(|name| name == e.name)))
}

/// All of them, or those that are named.
pub fn run(options: &Options, names: Option<&[String]>) -> ExitCode {
    let notes = if options.as_built {
        Vec::new()
    } else {
        report::python::prepare(options)
    };
    for experiment in chosen(names) {
        let name = section(experiment.name);
        report::measure(
            options,
            &name,
            (experiment.jobs)(options),
            experiment.minutes,
            &notes,
        );
    }
    ExitCode::SUCCESS
}

/// Prints the tables of results that are there.
fn render(names: Option<&[String]>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for experiment in chosen(names) {
        match results::read(&section(experiment.name)) {
            Ok(found) => println!(
                "## {}\n\n{}",
                experiment.name,
                markdown::section(&found, None)
            ),
            Err(why) => {
                eprintln!("{why}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// What one process of a variant does.
pub fn one(name: &str, variant: &str, args: &[&str]) -> ExitCode {
    let experiment = EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name);
    match experiment.and_then(|experiment| (experiment.one)(variant, args)) {
        Some(()) => ExitCode::SUCCESS,
        None => ExitCode::from(2),
    }
}

fn section(name: &str) -> String {
    format!("experiment-{name}")
}

/// A case whose variants are all processes of this program, with the same arguments.
fn case(experiment: &str, name: &str, variants: &[&str], args: &[&str], read: Read) -> Case {
    let me = myself();
    let contender = |variant: &&str| {
        let words = [me.as_str(), "experiment", experiment, variant];
        let command: Vec<&str> = words.into_iter().chain(args.iter().copied()).collect();
        Contender::new(variant, &command, read)
    };
    let contenders = variants.iter().map(contender).collect();
    Case {
        name: name.to_owned(),
        contenders,
        same: Some("sum"),
        ..Case::default()
    }
}

/// Repeats some work and prints what each time took, as the loads do; the figure is the median of all but the first.
fn repeat(times: usize, mut work: impl FnMut() -> u64) {
    for _ in 0..times {
        let (faults, cpu) = load::spent();
        let began = Instant::now();
        let sum = work();
        let took = began.elapsed().as_nanos();
        let (faults_after, cpu_after) = load::spent();
        println!("{took} {} {} {sum}", faults_after - faults, cpu_after - cpu);
    }
}

/// The median and the least of many short repeats, as opening prints them.
fn often(mut work: impl FnMut() -> usize) -> (u128, u128, usize) {
    let seen = work(); // warm
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || (started.elapsed().as_millis() < 300 && times.len() < 20_000) {
        let began = Instant::now();
        assert_eq!(std::hint::black_box(work()), seen);
        times.push(began.elapsed().as_nanos());
    }
    times.sort_unstable();
    (times[times.len() / 2], times[0], seen)
}
