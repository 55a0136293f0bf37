//! `peers report`: prepares the peers and files, runs the sections and writes their results as JSON.

pub mod options;
pub mod python;
mod resume;
mod sections;

pub use sections::Job;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::case::{Case, CheckedCase, rounds};
use crate::render;
use crate::results::{self, Missing, Outcome, SectionResults, markdown, provenance::Provenance};
use options::Options;
use sections::SECTIONS;

/// `peers report [SECTION…]`.
pub fn run(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if let Some(unknown) = options
        .words
        .iter()
        .find(|word| !SECTIONS.iter().any(|s| s.name == *word))
    {
        let known: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
        eprintln!(
            "unknown section {unknown:?}; the sections are {}",
            known.join(", ")
        );
        return ExitCode::from(2);
    }
    let chosen =
        |name: &str| options.words.is_empty() || options.words.iter().any(|word| word == name);
    if options.tables {
        let sections = SECTIONS.iter().filter(|section| chosen(section.name));
        return print_tables(sections.map(|section| section.name));
    }
    let mut notes = prepare(&options);
    if (chosen("python") || chosen("remote")) && !options.as_built {
        let failed = python::install_ours(&options).err();
        notes.extend(failed.map(|error| format!("cannot install our Python package: {error}")));
    }
    notes.iter().for_each(|note| eprintln!("{note}"));
    // a section gets the same time whether it runs alone or with the others
    let all: f64 = SECTIONS.iter().map(|section| section.minutes).sum();
    for section in SECTIONS.iter().filter(|section| chosen(section.name)) {
        let minutes = section.minutes * options.minutes / all;
        measure(
            &options,
            section.name,
            (section.jobs)(&options),
            minutes,
            &notes,
        );
    }
    if options.publish {
        return render::run();
    }
    ExitCode::SUCCESS
}

/// Prints the full tables of committed results.
fn print_tables(sections: impl Iterator<Item = &'static str>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for name in sections {
        match results::read(name) {
            Ok(section) => println!("## {name}\n\n{}", markdown::section(&section, &[])),
            Err(error) => {
                eprintln!("{error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Installs and builds the peers; returns a note for each that could not be.
fn prepare(options: &Options) -> Vec<String> {
    if options.as_built {
        return Vec::new();
    }
    let mut notes = python::prepare(options);
    notes.extend(build());
    notes
}

/// A job of a section.
enum JobState {
    Done(Outcome),
    Checked(Box<CheckedCase>),
}

/// Runs the jobs that are not finished and writes the section's results. All cases are checked first: that round measures how
/// long each variant takes, from which the rounds are allotted.
fn measure(options: &Options, name: &str, jobs: Vec<Job>, minutes: f64, notes: &[String]) {
    let interpreter = python::interpreter(options).map(std::path::PathBuf::from);
    let provenance = Provenance::now(
        options.rounds,
        interpreter.as_deref().map_err(String::as_str),
    );
    let deadline = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let bar = progress_bar(2 * jobs.len() as u64);
    let mut pending = Vec::new();
    for job in jobs {
        bar.set_message(format!("{name}: {}", job.name));
        let finished = resume::finished(options, &provenance, name, &job.name);
        let state = finished.map(JobState::Done).unwrap_or_else(|| {
            check(options, job.make, &job.name, &|variant| {
                bar.set_message(format!("{name}: {}, {variant}, uncounted", job.name));
            })
        });
        pending.push((job.name, state));
        bar.inc(1);
    }
    let mut outcome = Outcome {
        notes: notes.to_vec(),
        ..Outcome::default()
    };
    while !pending.is_empty() {
        let costs: Vec<Duration> = pending
            .iter()
            .flat_map(|(_, state)| state.costs())
            .collect();
        let rounds = rounds::allot(
            &costs,
            options.rounds,
            deadline.saturating_duration_since(Instant::now()),
        );
        let (job, state) = pending.remove(0);
        let variants = state.costs().len();
        outcome.extend(match state {
            JobState::Done(outcome) => outcome,
            JobState::Checked(checked) => {
                let outcome = checked.measure(&rounds[..variants], &|variant| {
                    bar.set_message(format!("{name}: {job}, {variant}"));
                });
                resume::keep(options, &provenance, name, &job, &outcome);
                outcome
            }
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let seconds = outcome.seconds;
    results::write(&SectionResults {
        section: name.to_owned(),
        run: provenance,
        outcome,
    });
    resume::forget(options, name);
    eprintln!("{name}: {seconds:.0} s, benches/results/{name}.json");
}

impl JobState {
    /// Duration of one round of each variant that is still to be measured.
    fn costs(&self) -> Vec<Duration> {
        match self {
            Self::Done(_) => Vec::new(),
            Self::Checked(checked) => checked.costs().collect(),
        }
    }
}

/// Creates and checks one case; if it cannot be created, the outcome lists it as missing.
fn check(
    options: &Options,
    make: sections::MakeCase,
    name: &str,
    report_variant: &dyn Fn(&str),
) -> JobState {
    match make(options) {
        Ok(case) => JobState::Checked(Box::new(only(case, options).check_results(report_variant))),
        Err(reason) => {
            let missing = Missing {
                case: name.to_owned(),
                variant: "all".to_owned(),
                reason,
            };
            JobState::Done(Outcome {
                missing: vec![missing],
                ..Outcome::default()
            })
        }
    }
}

/// Keeps the variants that `--only` names.
fn only(mut case: Case, options: &Options) -> Case {
    let wanted = |name: &str| {
        options.only.is_empty() || options.only.iter().any(|part| name.contains(part.as_str()))
    };
    case.variants.retain(|variant| wanted(&variant.name));
    case
}

/// Measures the named files, types or schemes one at a time and prints their tables.
pub fn compare_each(args: &[&str], cases: impl Fn(&Options, &str) -> Vec<Case>) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) if !options.words.is_empty() => options,
        Ok(_) => {
            eprintln!("nothing to measure is named\n{}", options::USAGE);
            return ExitCode::from(2);
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    for name in &options.words {
        let cases = cases(&options, name);
        if cases.is_empty() {
            eprintln!("unknown name {name:?}");
            return ExitCode::from(2);
        }
        for case in cases {
            let outcome = only(case, &options).run(options.rounds);
            println!("{}", markdown::outcome(&outcome));
        }
    }
    ExitCode::SUCCESS
}

/// Builds our command, the peers with `-C target-cpu=native`, and ggml's decoders; returns a note for each failure.
fn build() -> Vec<String> {
    let (root, peers) = (
        results::repository(),
        results::repository().join("benches/peers"),
    );
    let mut notes = Vec::new();
    let ours = "build --release --locked -p anamnesis-tensors-cli --features remote".split(' ');
    let jobs = [
        (
            "our command",
            Command::new("cargo").args(ours).current_dir(root).output(),
        ),
        (
            "the peers for this processor",
            Command::new("bash").arg(peers.join("native.sh")).output(),
        ),
        (
            "ggml's decoders",
            Command::new("bash").arg(peers.join("ggml.sh")).output(),
        ),
    ];
    for (what, out) in jobs {
        let failed = match out {
            Ok(out) if out.status.success() => continue,
            Ok(out) => String::from_utf8_lossy(&out.stderr)
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned(),
            Err(e) => e.to_string(),
        };
        notes.push(format!("cannot build {what}: {failed}"));
    }
    notes
}

fn progress_bar(jobs: u64) -> ProgressBar {
    let bar = ProgressBar::new(jobs);
    let style = ProgressStyle::with_template(
        "{bar:24} {pos}/{len}, {elapsed} elapsed, {eta} left · {wide_msg}",
    );
    bar.set_style(style.expect("the template is valid"));
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}
