//! The whole report: prepares what is measured, runs the sections, writes JSON, tables and plots.

pub mod options;
mod partial;
pub mod python;
mod sections;

pub use sections::Job;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::alternate::{Case, Proved, share};
use crate::results::{self, Missing, Outcome, Section, machine::Run, markdown};
use crate::{experiments, render};
use options::Options;
use sections::SECTIONS;

/// `peers report [SECTION…]`.
pub fn run(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    if let Some(unknown) = options
        .words
        .iter()
        .find(|word| !SECTIONS.iter().any(|s| s.name == *word))
    {
        let known: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
        eprintln!("no section {unknown:?}; there are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let notes = prepare(&options);
    notes.iter().for_each(|note| eprintln!("{note}"));
    let chosen =
        |name: &str| options.words.is_empty() || options.words.iter().any(|word| word == name);
    // a section alone has the time that it would have among all
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
        let ran = experiments::run(&options, None);
        return if ran == ExitCode::SUCCESS {
            render::run()
        } else {
            ran
        };
    }
    ExitCode::SUCCESS
}

/// Installs and builds what takes part; says what that was not possible for.
pub fn prepare(options: &Options) -> Vec<String> {
    if options.as_built {
        return Vec::new();
    }
    let mut notes = python::prepare(options);
    notes.extend(build());
    notes
}

/// A job of a section that is under way.
enum State {
    Done(Outcome),
    Proved(Box<Proved>),
}

/// Runs the jobs that are not finished, and writes the section. All are proved first: that says how long each variant
/// takes, and so what is left for whom.
pub fn measure(options: &Options, name: &str, jobs: Vec<Job>, minutes: f64, notes: &[String]) {
    let interpreter = python::interpreter(options).map(std::path::PathBuf::from);
    let run = Run::now(
        options.rounds,
        interpreter.as_deref().map_err(String::as_str),
    );
    let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let bar = bar(2 * jobs.len() as u64);
    let mut under_way = Vec::new();
    for job in jobs {
        bar.set_message(format!("{name}: {}", job.name));
        let finished = partial::finished(options, &run, name, &job.name);
        let state = finished.map(State::Done).unwrap_or_else(|| {
            prove(options, job.case, &job.name, &|variant| {
                bar.set_message(format!("{name}: {}, {variant}, once", job.name));
            })
        });
        under_way.push((job.name, state));
        bar.inc(1);
    }
    let mut found = Outcome {
        notes: notes.to_vec(),
        ..Outcome::default()
    };
    while !under_way.is_empty() {
        let costs: Vec<Duration> = under_way
            .iter()
            .flat_map(|(_, state)| state.costs())
            .collect();
        let rounds = share::rounds(
            &costs,
            options.rounds,
            until.saturating_duration_since(Instant::now()),
        );
        let (job, state) = under_way.remove(0);
        let of = state.costs().len();
        found.extend(match state {
            State::Done(outcome) => outcome,
            State::Proved(proved) => {
                let outcome = proved.measure(&rounds[..of], &|variant| {
                    bar.set_message(format!("{name}: {job}, {variant}"));
                });
                partial::keep(options, &run, name, &job, &outcome);
                outcome
            }
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let took = found.seconds;
    results::write(&Section {
        section: name.to_owned(),
        run,
        found,
    });
    partial::forget(options, name);
    eprintln!("{name}: {took:.0} s, benches/results/{name}.md");
}

impl State {
    /// What a round takes with each contender that is still to be measured.
    fn costs(&self) -> Vec<Duration> {
        match self {
            Self::Done(_) => Vec::new(),
            Self::Proved(proved) => proved.costs().collect(),
        }
    }
}

/// One case, if it can be made.
fn prove(options: &Options, case: sections::Make, name: &str, tick: &dyn Fn(&str)) -> State {
    match case(options) {
        Ok(case) => State::Proved(Box::new(only(case, options).prove(tick))),
        Err(reason) => {
            let missing = Missing {
                case: name.to_owned(),
                variant: "all".to_owned(),
                reason,
            };
            State::Done(Outcome {
                missing: vec![missing],
                ..Outcome::default()
            })
        }
    }
}

/// The contenders that `--only` names.
fn only(mut case: Case, options: &Options) -> Case {
    let wanted = |name: &str| {
        options.only.is_empty() || options.only.iter().any(|part| name.contains(part.as_str()))
    };
    case.contenders
        .retain(|contender| wanted(&contender.variant));
    case
}

/// Measures files, or what else is named, one by one and prints their tables: what the comparisons by name do.
pub fn show(args: &[&str], cases: impl Fn(&Options, &str) -> Vec<Case>) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) if !options.words.is_empty() => options,
        Ok(_) => {
            eprintln!("which?\n{}", options::USAGE);
            return ExitCode::from(2);
        }
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    for file in &options.words {
        let cases = cases(&options, file);
        if cases.is_empty() {
            eprintln!("there is no {file:?}");
            return ExitCode::from(2);
        }
        for case in cases {
            let found = only(case, &options).run(options.rounds);
            println!("{}", markdown::outcome(&found));
        }
    }
    ExitCode::SUCCESS
}

/// Builds our command, the peer for this processor and ggml's decoders; says what could not be built.
fn build() -> Vec<String> {
    let (root, peers) = (
        results::repository(),
        results::repository().join("benches/peers"),
    );
    let mut notes = Vec::new();
    let ours = ["build", "--release", "--locked", "-p", "anamnesis-cli"];
    let jobs = [
        (
            "our command",
            Command::new("cargo").args(ours).current_dir(root).output(),
        ),
        (
            "the peer for this processor",
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
        notes.push(format!("{what} could not be built: {failed}"));
    }
    notes
}

fn bar(jobs: u64) -> ProgressBar {
    let bar = ProgressBar::new(jobs);
    let style = ProgressStyle::with_template(
        "{bar:24} {pos}/{len}, {elapsed} gone, {eta} left · {wide_msg}",
    );
    bar.set_style(style.expect("a template of ours"));
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}
