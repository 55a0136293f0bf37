//! `guard check`: every case in its processes, compared with the baseline.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::baseline::{Baseline, Verdict};
use crate::case::{Case, Counts, Way};
use crate::files::Files;
use crate::report::{self, Row};
use crate::setting::Setting;
use crate::{callgrind, cases, steps, system};

/// Runs it; whether all is well.
pub(crate) fn run(arguments: &[&str]) -> Result<bool, String> {
    if cfg!(debug_assertions) {
        return Err("a debug build counts what nobody runs: use `cargo run --release`".to_owned());
    }
    let update = arguments.contains(&"--update");
    let wanted: Vec<&str> = arguments
        .iter()
        .copied()
        .filter(|word| *word != "--update")
        .collect();
    if let Some(option) = wanted.iter().find(|word| word.starts_with('-')) {
        return Err(format!("there is no option {option}"));
    }
    let mut cases = cases::all();
    cases.retain(|case| wanted.is_empty() || wanted.iter().any(|name| case.name.contains(name)));
    let mut baseline = Baseline::read()?;
    let files = Files::make()?;
    let setting = Setting::here(files.path())?;
    let mut skipped = skipped(&setting, files.path());
    let mut tasks = Vec::new();
    for way in Way::ALL
        .into_iter()
        .filter(|way| !skipped.iter().any(|(skipped, _)| skipped == way))
    {
        tasks.extend(
            cases
                .iter()
                .filter(|case| case.is_counted(way))
                .map(|case| (case, way)),
        );
    }
    let counted = all(&tasks, files.path())?;
    if update {
        return take(
            &mut baseline,
            &cases,
            counted,
            setting,
            wanted.is_empty(),
            &skipped,
        );
    }
    for way in [Way::Callgrind, Way::Steps] {
        let differs = setting.differs(&baseline.setting, way);
        if !differs.is_empty() && !skipped.iter().any(|(skipped, _)| *skipped == way) {
            skipped.push((
                way,
                format!(
                    "counted, but not held against the baseline: {}",
                    differs.join("; ")
                ),
            ));
        }
    }
    let rows: Vec<Row> = counted
        .into_iter()
        .flat_map(|(case, counts)| {
            counts
                .into_iter()
                .map(move |(metric, now)| (case, metric, now))
        })
        .map(|(case, metric, now)| {
            let held = !skipped.iter().any(|(way, _)| *way == metric.way());
            Row {
                case,
                metric,
                now,
                before: baseline.count(case, metric),
                verdict: baseline.verdict(case, metric, now),
                held,
            }
        })
        .collect();
    let gone = if wanted.is_empty() {
        gone(&baseline, &cases)
    } else {
        Vec::new()
    };
    Ok(report::print(&rows, &gone, &skipped))
}

/// What cannot be counted here, and why.
fn skipped(setting: &Setting, files: &Path) -> Vec<(Way, String)> {
    let mut skipped = Vec::new();
    if setting.valgrind.is_empty() {
        skipped.push((Way::Callgrind, "valgrind is not installed".to_owned()));
    } else if setting.emulated != "avx2" {
        skipped.push((
            Way::Callgrind,
            format!("valgrind has {} here, and no AVX2", setting.emulated),
        ));
    }
    if setting.native != "avx512bf16" {
        skipped.push((
            Way::Steps,
            format!(
                "this machine has {}, and no AVX-512 with BF16",
                setting.native
            ),
        ));
    } else if let Err(why) = steps::allowed(files) {
        skipped.push((Way::Steps, why));
    }
    skipped
}

/// Runs all, as many at once as there are cores: counts do not mind.
fn all<'c>(tasks: &[(&'c Case, Way)], files: &Path) -> Result<Vec<(&'c str, Counts)>, String> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some(&(case, way)) = tasks.get(next.fetch_add(1, Relaxed)) {
            let number = next.load(Relaxed);
            let counts = match way {
                Way::Callgrind => callgrind::count(case, files, number),
                Way::Steps => steps::count(case, files),
                Way::System => system::count(case, files),
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
        let place = tasks.iter().position(|(known, _)| known.name == *case);
        (counts.first().map(|(metric, _)| metric.way()), place)
    });
    Ok(counted)
}

/// Cases and metrics of the baseline that are not counted any more.
fn gone(baseline: &Baseline, cases: &[Case]) -> Vec<String> {
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

/// Makes these counts the baseline. What could not be counted here stays as it is.
fn take(
    baseline: &mut Baseline,
    cases: &[Case],
    counted: Vec<(&str, Counts)>,
    setting: Setting,
    whole: bool,
    skipped: &[(Way, String)],
) -> Result<bool, String> {
    if !whole && setting != baseline.setting {
        return Err("another compiler, C library, valgrind or processor than the baseline's: update all cases".into());
    }
    if let (true, Some((way, why))) = (setting != baseline.setting, skipped.first()) {
        return Err(format!(
            "{} cannot be counted here ({why}), and would be of another setting",
            way.name()
        ));
    }
    let other = setting != baseline.setting;
    baseline.setting = setting;
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
            // what is still within its tolerance is not moved, or it would creep; but all counts are of one setting
            if !other && baseline.verdict(case, metric, now) == Verdict::Same {
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
    println!("{} is written", Baseline::path().display());
    Ok(true)
}
