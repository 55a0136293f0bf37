//! `guard check`: runs every case and compares the counts with the baseline.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::baseline::{Baseline, Verdict};
use crate::case::{Case, Counter, Counts};
use crate::case_files::CaseFiles;
use crate::environment::Environment;
use crate::report::{self, ReportRow};
use crate::{callgrind, cases, self_counts, single_step};

/// Runs the check. Returns whether it passes.
pub(crate) fn run(arguments: &[&str]) -> Result<bool, String> {
    if cfg!(debug_assertions) {
        return Err("a debug build has other counts: use `cargo run --release`".to_owned());
    }
    let update = arguments.contains(&"--update");
    let wanted: Vec<&str> = arguments
        .iter()
        .copied()
        .filter(|word| *word != "--update")
        .collect();
    if let Some(option) = wanted.iter().find(|word| word.starts_with('-')) {
        return Err(format!("unknown option {option}"));
    }
    let mut cases = cases::all();
    cases.retain(|case| wanted.is_empty() || wanted.iter().any(|name| case.name.contains(name)));
    let mut baseline = Baseline::read()?;
    let files = CaseFiles::make()?;
    let environment = Environment::detect(files.path())?;
    let mut skipped = skipped_counters(&environment, files.path());
    let mut tasks = Vec::new();
    for counter in Counter::ALL
        .into_iter()
        .filter(|counter| !skipped.iter().any(|(skipped, _)| skipped == counter))
    {
        tasks.extend(
            cases
                .iter()
                .filter(|case| case.is_counted(counter))
                .map(|case| (case, counter)),
        );
    }
    let counted = count_all(&tasks, files.path())?;
    if update {
        return update_baseline(
            &mut baseline,
            &cases,
            counted,
            environment,
            wanted.is_empty(),
            &skipped,
        );
    }
    for counter in [Counter::Callgrind, Counter::Steps] {
        let differs = environment.differs(&baseline.environment, counter);
        if !differs.is_empty() && !skipped.iter().any(|(skipped, _)| *skipped == counter) {
            skipped.push((
                counter,
                format!(
                    "counted, but not compared with the baseline: {}",
                    differs.join("; ")
                ),
            ));
        }
    }
    let rows: Vec<ReportRow> = counted
        .into_iter()
        .flat_map(|(case, counts)| {
            counts
                .into_iter()
                .map(move |(metric, now)| (case, metric, now))
        })
        .map(|(case, metric, now)| {
            let enforced = !skipped
                .iter()
                .any(|(counter, _)| *counter == metric.counter());
            ReportRow {
                case,
                metric,
                now,
                before: baseline.count(case, metric),
                verdict: baseline.verdict(case, metric, now),
                enforced,
            }
        })
        .collect();
    let removed = if wanted.is_empty() {
        removed_counts(&baseline, &cases)
    } else {
        Vec::new()
    };
    Ok(report::print(&rows, &removed, &skipped))
}

/// The counters that cannot be used here, and why.
fn skipped_counters(environment: &Environment, files: &Path) -> Vec<(Counter, String)> {
    let mut skipped = Vec::new();
    if environment.valgrind.is_empty() {
        skipped.push((Counter::Callgrind, "valgrind is not installed".to_owned()));
    } else if environment.emulated != "avx2" {
        skipped.push((
            Counter::Callgrind,
            format!(
                "valgrind supports {} here, but not AVX2",
                environment.emulated
            ),
        ));
    }
    if environment.native != "avx512bf16" {
        skipped.push((
            Counter::Steps,
            format!(
                "this machine supports {}, but not AVX-512 with BF16",
                environment.native
            ),
        ));
    } else if let Err(why) = single_step::allowed(files) {
        skipped.push((Counter::Steps, why));
    }
    skipped
}

/// Runs all tasks, one per core at a time: unlike times, counts do not depend on the load.
fn count_all<'c>(
    tasks: &[(&'c Case, Counter)],
    files: &Path,
) -> Result<Vec<(&'c str, Counts)>, String> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some(&(case, counter)) = tasks.get(next.fetch_add(1, Relaxed)) {
            let number = next.load(Relaxed);
            let counts = match counter {
                Counter::Callgrind => callgrind::count(case, files, number),
                Counter::Steps => single_step::count(case, files),
                Counter::System => self_counts::count(case, files),
            };
            done.lock().expect("no worker panics").push((case, counts));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut counted: Vec<(&str, Counts)> = Vec::new();
    for (case, counts) in done.into_inner().expect("no worker panics") {
        counted.push((
            &case.name,
            counts.map_err(|why| format!("{}: {why}", case.name))?,
        ));
    }
    counted.sort_by_key(|(case, counts)| {
        let position = tasks.iter().position(|(known, _)| known.name == *case);
        (counts.first().map(|(metric, _)| metric.counter()), position)
    });
    Ok(counted)
}

/// Counts of the baseline that no case has any more.
fn removed_counts(baseline: &Baseline, cases: &[Case]) -> Vec<String> {
    let counts = baseline
        .cases
        .iter()
        .flat_map(|(name, counts)| counts.keys().map(move |metric| (name, metric)));
    counts
        .filter(|(name, metric)| !is_known(cases, name, metric))
        .map(|(name, metric)| format!("{name}: {metric}"))
        .collect()
}

fn is_known(cases: &[Case], name: &str, metric: &str) -> bool {
    cases
        .iter()
        .any(|case| case.name == name && case.metrics.iter().any(|known| known.name() == metric))
}

/// Writes the counts to the baseline. Counts that cannot be made here are kept.
fn update_baseline(
    baseline: &mut Baseline,
    cases: &[Case],
    counted: Vec<(&str, Counts)>,
    environment: Environment,
    whole: bool,
    skipped: &[(Counter, String)],
) -> Result<bool, String> {
    if !whole && environment != baseline.environment {
        return Err("the compiler, C library, valgrind or processor differs from the baseline's: update all cases at once".into());
    }
    if let (true, Some((counter, why))) = (environment != baseline.environment, skipped.first()) {
        return Err(format!(
            "{} cannot be counted here ({why}), so the baseline would mix environments",
            counter.name()
        ));
    }
    let environment_changed = environment != baseline.environment;
    baseline.environment = environment;
    if whole {
        let keep = |name: &str, metric: &str| is_known(cases, name, metric);
        baseline
            .cases
            .iter_mut()
            .for_each(|(name, counts)| counts.retain(|metric, _| keep(name, metric)));
        baseline.cases.retain(|_, counts| !counts.is_empty());
    }
    for (case, counts) in counted {
        for (metric, now) in counts {
            // a count within its tolerance is kept, or the baseline would creep; in a new environment all counts are replaced
            if !environment_changed && baseline.verdict(case, metric, now) == Verdict::Same {
                continue;
            }
            let before = baseline
                .count(case, metric)
                .map_or("nothing".to_owned(), |count| count.is().to_string());
            println!("{case}: {}: {before} -> {now}", metric.name());
            baseline.set(case, metric, now);
        }
    }
    baseline.write()?;
    println!("wrote {}", Baseline::path().display());
    Ok(true)
}
