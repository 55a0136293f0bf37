//! A benchmark case and its variants: one process per variant and round, in alternating order. The variants' results are
//! compared before anything is timed.

pub mod rounds;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::child_process::{self, ProcessUsage};
use crate::results::{Limit, Missing, Outcome, ResultRow, median};

/// One figure that a process reported, in nanoseconds.
pub struct Measurement {
    /// Suffix of the case's name, where one process reports several figures (such as one per output dtype); else empty.
    pub suffix: String,
    pub ns: f64,
    /// Further figures by name; see `ResultRow::more`.
    pub more: Vec<(&'static str, f64)>,
}

impl Measurement {
    pub fn new(ns: f64, more: Vec<(&'static str, f64)>) -> Self {
        Self {
            suffix: String::new(),
            ns,
            more,
        }
    }
}

/// Extracts the figures of a process from its output and resource usage; `None` if the output has another form.
pub type ParseOutput = fn(&ProcessUsage) -> Option<Vec<Measurement>>;

/// One way to do the work of a case: a command, and how its output is parsed.
#[derive(Clone)]
pub struct Variant {
    pub name: String,
    pub command: Vec<String>,
    pub parse: ParseOutput,
    /// Whether to sample the process's anonymous and file-backed memory while it runs.
    pub sample_memory: bool,
}

/// The variants of one piece of work, compared with each other.
#[derive(Default)]
pub struct Case {
    pub name: String,
    pub variants: Vec<Variant>,
    /// Variants that cannot run here, with the reason.
    pub missing: Vec<(String, String)>,
    /// The variant that measures the machine's limit for this work (a copy, a raw read).
    pub limit: Option<&'static str>,
    /// A key of `Measurement::more` that must have the same value in all variants that report it.
    pub same: Option<&'static str>,
    /// Runs before each process: evicts the file from the page cache, removes the last output.
    pub before: Option<Box<dyn Fn()>>,
    /// Runs once before the first process: compares the variants' outputs and describes differences.
    pub check: Option<Box<dyn Fn() -> Vec<String>>>,
}

/// A case after its uncounted first round, which compared results and found the variants that can run.
pub struct CheckedCase {
    case: Case,
    runnable: Vec<RunnableVariant>,
    outcome: Outcome,
}

struct RunnableVariant {
    variant: Variant,
    /// Duration of one round with this variant: the process and what runs before it.
    cost: Duration,
    measurements: Vec<Measurement>,
    usages: Vec<ProcessUsage>,
}

impl Variant {
    pub fn new(name: &str, command: &[&str], parse: ParseOutput) -> Self {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        Self {
            name: name.to_owned(),
            command,
            parse,
            sample_memory: false,
        }
    }

    fn run(&self) -> Result<(ProcessUsage, Vec<Measurement>), String> {
        let usage = child_process::run(
            Command::new(&self.command[0]).args(&self.command[1..]),
            self.sample_memory,
        )?;
        match (self.parse)(&usage) {
            Some(measurements) => Ok((usage, measurements)),
            None => {
                let start = &usage.stdout[..usage.stdout.len().min(200)];
                let start = String::from_utf8_lossy(start).replace('\n', " ");
                Err(format!("unexpected output: {start}"))
            }
        }
    }
}

impl Case {
    /// Runs `rounds` rounds of every variant, whatever time they take.
    pub fn run(self, rounds: usize) -> Outcome {
        let checked = self.check_results(&|_| {});
        let rounds = vec![rounds; checked.costs().count()];
        checked.measure(&rounds, &|_| {})
    }

    /// Runs each variant once, uncounted: compares results, finds the variants that can run, and measures how long a
    /// round with each takes. `report_variant` is called with the name of each variant before it runs.
    pub fn check_results(mut self, report_variant: &dyn Fn(&str)) -> CheckedCase {
        let started = Instant::now();
        let mut outcome = Outcome::default();
        let missing = |variant: &str, reason: String| Missing {
            case: self.name.clone(),
            variant: variant.to_owned(),
            reason,
        };
        outcome.missing.extend(
            self.missing
                .iter()
                .map(|(variant, reason)| missing(variant, reason.clone())),
        );
        outcome
            .notes
            .extend(self.check.iter().flat_map(|check| check()));
        let (mut expected, mut runnable) = (None, Vec::new());
        for variant in std::mem::take(&mut self.variants) {
            report_variant(&variant.name);
            let started = Instant::now();
            self.before.iter().for_each(|before| before());
            let checked = variant
                .run()
                .and_then(|(_, measurements)| self.require_same(&measurements, &mut expected));
            let cost = started.elapsed();
            match checked {
                Ok(()) => runnable.push(RunnableVariant {
                    variant,
                    cost,
                    measurements: Vec::new(),
                    usages: Vec::new(),
                }),
                Err(reason) => outcome.missing.push(missing(&variant.name, reason)),
            }
        }
        outcome.seconds = started.elapsed().as_secs_f64();
        CheckedCase {
            case: self,
            runnable,
            outcome,
        }
    }

    /// Refuses a variant whose value of the `same` key differs from the value of the first variant that reported one.
    fn require_same(
        &self,
        measurements: &[Measurement],
        expected: &mut Option<f64>,
    ) -> Result<(), String> {
        let Some(key) = self.same else { return Ok(()) };
        for &(name, value) in measurements.iter().flat_map(|m| &m.more) {
            if name == key && *expected.get_or_insert(value) != value {
                return Err(format!(
                    "different result: {key} is {value}, expected {}",
                    expected.unwrap_or(0.0)
                ));
            }
        }
        Ok(())
    }
}

impl CheckedCase {
    /// Duration of one round of each variant that can run.
    pub fn costs(&self) -> impl Iterator<Item = Duration> {
        self.runnable.iter().map(|runnable| runnable.cost)
    }

    /// Runs `rounds[i]` rounds of variant `i`. The first variant of a round rotates, so that none always runs first.
    pub fn measure(mut self, rounds: &[usize], report_variant: &dyn Fn(&str)) -> Outcome {
        let (started, mut outcome) = (Instant::now(), self.outcome);
        for round in 0..rounds.iter().copied().max().unwrap_or(0) {
            for i in 0..self.runnable.len() {
                let index = (i + round) % self.runnable.len();
                if round >= rounds[index] {
                    continue;
                }
                let runnable = &mut self.runnable[index];
                report_variant(&runnable.variant.name);
                self.case.before.iter().for_each(|before| before());
                match runnable.variant.run() {
                    Ok((usage, measurements)) => {
                        runnable.measurements.extend(measurements);
                        runnable.usages.push(ProcessUsage {
                            stdout: Vec::new(),
                            ..usage
                        });
                    }
                    Err(reason) => outcome.notes.push(format!(
                        "{} failed in round {round}: {reason}",
                        runnable.variant.name
                    )),
                }
            }
        }
        for runnable in self.runnable {
            if runnable.measurements.is_empty() {
                outcome.missing.push(Missing {
                    case: self.case.name.clone(),
                    variant: runnable.variant.name.clone(),
                    reason: "failed in every round".to_owned(),
                });
            }
            outcome.rows.extend(rows(&self.case.name, runnable));
        }
        set_limit(&mut outcome.rows, self.case.limit);
        outcome.seconds += started.elapsed().as_secs_f64();
        outcome
    }
}

/// One row for each suffix that the variant's processes reported.
fn rows(case: &str, runnable: RunnableVariant) -> Vec<ResultRow> {
    let mut suffixes: Vec<&str> = runnable
        .measurements
        .iter()
        .map(|m| m.suffix.as_str())
        .collect();
    suffixes.sort_unstable();
    suffixes.dedup();
    let median_usage = |field: fn(&ProcessUsage) -> u64| {
        let mut values: Vec<f64> = runnable.usages.iter().map(|u| field(u) as f64).collect();
        median(&mut values) as u64
    };
    suffixes
        .into_iter()
        .map(|suffix| {
            let with_suffix = || runnable.measurements.iter().filter(|m| m.suffix == suffix);
            let mut more: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            with_suffix()
                .flat_map(|m| &m.more)
                .for_each(|(key, value)| more.entry((*key).to_owned()).or_default().push(*value));
            let case = if suffix.is_empty() {
                case.to_owned()
            } else {
                format!("{case} {suffix}")
            };
            ResultRow {
                peak_kib: median_usage(|u| u.peak_rss_kib),
                minor_faults: median_usage(|u| u.minor_faults),
                major_faults: median_usage(|u| u.major_faults),
                more: more
                    .into_iter()
                    .map(|(key, mut values)| (key, median(&mut values)))
                    .collect(),
                ..ResultRow::new(
                    case,
                    runnable.variant.name.clone(),
                    with_suffix().map(|m| m.ns).collect(),
                )
            }
        })
        .collect()
}

/// Copies the limit's median into every row of its case.
fn set_limit(rows: &mut [ResultRow], limit: Option<&'static str>) {
    let Some(what) = limit else { return };
    let medians: BTreeMap<String, f64> = rows
        .iter()
        .filter(|row| row.variant == what)
        .map(|row| (row.case.clone(), row.median))
        .collect();
    for row in rows {
        row.limit = medians.get(&row.case).map(|&median| Limit {
            what: what.to_owned(),
            median,
        });
    }
}

/// The path of this program, as the first word of a variant's command.
pub fn this_program() -> String {
    std::env::current_exe()
        .expect("the running program has a path")
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_number(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
        let value = String::from_utf8_lossy(&usage.stdout).trim().parse().ok()?;
        Some(vec![Measurement::new(value, vec![("sum", value)])])
    }

    #[test]
    fn failing_and_disagreeing_variants_are_missing_with_a_reason() {
        let variant =
            |name: &str, script: &str| Variant::new(name, &["sh", "-c", script], parse_number);
        let variants = vec![
            variant("a", "echo 1"),
            variant("b", "echo 2"),
            variant("c", "echo no >&2; exit 1"),
        ];
        let case = Case {
            name: "n".to_owned(),
            variants,
            same: Some("sum"),
            limit: Some("a"),
            ..Case::default()
        };
        let outcome = case.run(2);
        assert_eq!(outcome.rows.len(), 1);
        assert_eq!(
            (
                outcome.rows[0].n,
                outcome.rows[0].limit.as_ref().unwrap().median
            ),
            (2, 1.0)
        );
        let reasons: Vec<&str> = outcome.missing.iter().map(|m| m.reason.as_str()).collect();
        assert_eq!(reasons, ["different result: sum is 2, expected 1", "no"]);
    }
}
