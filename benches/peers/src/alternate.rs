//! Cases and their contenders: one process per contender and round, alternating, results compared before time is.

pub mod share;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::child::{self, Usage};
use crate::results::{Limit, Missing, Outcome, Row, median};

/// One figure of a process, in nanoseconds.
pub struct Reading {
    /// What follows the case's name, if a process has several.
    pub of: String,
    pub ns: f64,
    pub more: Vec<(&'static str, f64)>,
}

impl Reading {
    pub fn new(ns: f64, more: Vec<(&'static str, f64)>) -> Self {
        Self {
            of: String::new(),
            ns,
            more,
        }
    }

    /// The median of times over files, and how they spread; `None` of none.
    pub fn over(mut times: Vec<f64>) -> Option<Self> {
        times.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| {
            times
                .get((times.len().saturating_sub(1) as f64 * part).round() as usize)
                .copied()
        };
        let spread = [
            ("least ns", at(0.0)?),
            ("p25 ns", at(0.25)?),
            ("p75 ns", at(0.75)?),
            ("most ns", at(1.0)?),
        ];
        let spread = spread.into_iter().filter(|_| times.len() > 1);
        Some(Self::new(
            at(0.5)?,
            spread.chain([("files", times.len() as f64)]).collect(),
        ))
    }
}

/// How a process's figures are found in what it said and took.
pub type Read = fn(&Usage) -> Option<Vec<Reading>>;

#[derive(Clone)]
pub struct Contender {
    pub variant: String,
    pub command: Vec<String>,
    pub read: Read,
    /// Whether its anonymous memory is looked at while it runs.
    pub watched: bool,
}

#[derive(Default)]
pub struct Case {
    pub name: String,
    pub contenders: Vec<Contender>,
    /// Those who cannot take part, and why.
    pub missing: Vec<(String, String)>,
    /// The contender that shows what the machine can do.
    pub limit: Option<&'static str>,
    /// A key of `Reading::more` that must be the same for all who have it.
    pub same: Option<&'static str>,
    /// Before each process: dropping caches, removing the last output.
    pub before: Option<Box<dyn Fn()>>,
    /// Before the first: compares results, and says how they differ.
    pub check: Option<Box<dyn Fn() -> Vec<String>>>,
}

/// A case after the round that does not count, in which results were compared.
pub struct Proved {
    case: Case,
    able: Vec<Able>,
    found: Outcome,
}

/// A contender that can take part.
struct Able {
    contender: Contender,
    /// What a round takes with it: its process, and what comes before.
    cost: Duration,
    readings: Vec<Reading>,
    used: Vec<Usage>,
}

impl Contender {
    pub fn new(variant: &str, command: &[&str], read: Read) -> Self {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        Self {
            variant: variant.to_owned(),
            command,
            read,
            watched: false,
        }
    }

    fn run(&self) -> Result<(Usage, Vec<Reading>), String> {
        let usage = child::run(
            Command::new(&self.command[0]).args(&self.command[1..]),
            self.watched,
        )?;
        let readings = (self.read)(&usage);
        readings
            .map(|readings| (usage.clone(), readings))
            .ok_or_else(|| {
                let said = String::from_utf8_lossy(&usage.said[..usage.said.len().min(200)])
                    .replace('\n', " ");
                format!("unexpected output: {said}")
            })
    }
}

impl Case {
    /// All rounds of all contenders, whatever they take.
    pub fn run(self, rounds: usize) -> Outcome {
        let proved = self.prove(&|_| {});
        let all = vec![rounds; proved.costs().count()];
        proved.measure(&all, &|_| {})
    }

    /// One round that does not count: compares results, and finds who can take part and how long that takes.
    pub fn prove(mut self, tick: &dyn Fn(&str)) -> Proved {
        let began = Instant::now();
        let mut found = Outcome::default();
        let missing = |variant: &str, reason: String| Missing {
            case: self.name.clone(),
            variant: variant.to_owned(),
            reason,
        };
        found.missing.extend(
            self.missing
                .iter()
                .map(|(variant, reason)| missing(variant, reason.clone())),
        );
        found
            .notes
            .extend(self.check.iter().flat_map(|check| check()));
        let (mut expected, mut able) = (None, Vec::new());
        for contender in std::mem::take(&mut self.contenders) {
            tick(&contender.variant);
            let started = Instant::now();
            self.before.iter().for_each(|before| before());
            let proved = contender
                .run()
                .and_then(|(_, readings)| self.agrees(&readings, &mut expected));
            let cost = started.elapsed();
            match proved {
                Ok(()) => able.push(Able {
                    contender,
                    cost,
                    readings: Vec::new(),
                    used: Vec::new(),
                }),
                Err(why) => found.missing.push(missing(&contender.variant, why)),
            }
        }
        found.seconds = began.elapsed().as_secs_f64();
        Proved {
            case: self,
            able,
            found,
        }
    }

    /// Whether what must be the same is; the first to have it decides.
    fn agrees(&self, readings: &[Reading], expected: &mut Option<f64>) -> Result<(), String> {
        let Some(key) = self.same else { return Ok(()) };
        for &(name, value) in readings.iter().flat_map(|reading| &reading.more) {
            if name == key && *expected.get_or_insert(value) != value {
                return Err(format!(
                    "another result: {key} {value} where the others have {}",
                    expected.unwrap_or(0.0)
                ));
            }
        }
        Ok(())
    }
}

impl Proved {
    /// What a round takes with each contender that can take part.
    pub fn costs(&self) -> impl Iterator<Item = Duration> {
        self.able.iter().map(|able| able.cost)
    }

    /// So many rounds of each.
    pub fn measure(mut self, rounds: &[usize], tick: &dyn Fn(&str)) -> Outcome {
        let (began, mut found) = (Instant::now(), self.found);
        for round in 0..rounds.iter().copied().max().unwrap_or(0) {
            for i in 0..self.able.len() {
                let at = (i + round) % self.able.len(); // nobody is always first
                if round >= rounds[at] {
                    continue;
                }
                let able = &mut self.able[at];
                tick(&able.contender.variant);
                self.case.before.iter().for_each(|before| before());
                match able.contender.run() {
                    Ok((usage, readings)) => {
                        able.readings.extend(readings);
                        able.used.push(Usage {
                            said: Vec::new(),
                            ..usage
                        });
                    }
                    Err(why) => found.notes.push(format!(
                        "{} failed in a round: {why}",
                        able.contender.variant
                    )),
                }
            }
        }
        for able in self.able {
            if able.readings.is_empty() {
                let (case, variant) = (self.case.name.clone(), able.contender.variant.clone());
                found.missing.push(Missing {
                    case,
                    variant,
                    reason: "it failed in every round".to_owned(),
                });
            }
            found.rows.extend(rows(&self.case.name, able));
        }
        limit(&mut found.rows, self.case.limit);
        found.seconds += began.elapsed().as_secs_f64();
        found
    }
}

fn rows(case: &str, shown: Able) -> Vec<Row> {
    let mut parts: Vec<&str> = shown
        .readings
        .iter()
        .map(|reading| reading.of.as_str())
        .collect();
    parts.sort_unstable();
    parts.dedup();
    let used = |of: fn(&Usage) -> u64| {
        median(&mut shown.used.iter().map(|u| of(u) as f64).collect::<Vec<_>>()) as u64
    };
    parts
        .into_iter()
        .map(|part| {
            let mine = || shown.readings.iter().filter(|reading| reading.of == part);
            let mut more: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            mine()
                .flat_map(|reading| &reading.more)
                .for_each(|(key, value)| more.entry((*key).to_owned()).or_default().push(*value));
            let case = if part.is_empty() {
                case.to_owned()
            } else {
                format!("{case} {part}")
            };
            Row {
                peak_kib: used(|u| u.peak_rss),
                minor_faults: used(|u| u.minor_faults),
                major_faults: used(|u| u.major_faults),
                more: more
                    .into_iter()
                    .map(|(key, mut values)| (key, median(&mut values)))
                    .collect(),
                ..Row::new(
                    case,
                    shown.contender.variant.clone(),
                    mine().map(|reading| reading.ns).collect(),
                )
            }
        })
        .collect()
}

/// Puts the limit's median beside every row of its case.
fn limit(rows: &mut [Row], what: Option<&'static str>) {
    let Some(what) = what else { return };
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

/// This program, as the word of a command.
pub fn myself() -> String {
    std::env::current_exe()
        .expect("this program has a path")
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(usage: &Usage) -> Option<Vec<Reading>> {
        let value = String::from_utf8_lossy(&usage.said).trim().parse().ok()?;
        Some(vec![Reading::new(value, vec![("sum", value)])])
    }

    #[test]
    fn who_fails_or_disagrees_is_missing_with_a_reason() {
        let contender =
            |name: &str, script: &str| Contender::new(name, &["sh", "-c", script], said);
        let all = vec![
            contender("a", "echo 1"),
            contender("b", "echo 2"),
            contender("c", "echo no >&2; exit 1"),
        ];
        let case = Case {
            name: "n".to_owned(),
            contenders: all,
            same: Some("sum"),
            limit: Some("a"),
            ..Case::default()
        };
        let found = case.run(2);
        assert_eq!(found.rows.len(), 1);
        assert_eq!(
            (
                found.rows[0].n,
                found.rows[0].limit.as_ref().unwrap().median
            ),
            (2, 1.0)
        );
        let reasons: Vec<&str> = found.missing.iter().map(|m| m.reason.as_str()).collect();
        assert_eq!(
            reasons,
            ["another result: sum 2 where the others have 1", "no"]
        );
    }
}
