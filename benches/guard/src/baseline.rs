//! The baseline: the accepted counts, `baseline.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::to_string;

use crate::case::Metric;
use crate::environment::Environment;

/// How far a count may differ from the baseline: by a percentage plus a constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tolerance {
    pub(crate) percent: f64,
    pub(crate) plus: u64,
}

/// A count of the baseline, with its own tolerance if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Count {
    Plain(u64),
    Tolerant { is: u64, percent: f64, plus: u64 },
}

/// Counts by case and metric name.
pub(crate) type Cases = BTreeMap<String, BTreeMap<String, Count>>;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Baseline {
    pub(crate) environment: Environment,
    pub(crate) tolerance: BTreeMap<String, Tolerance>,
    pub(crate) cases: Cases,
}

/// How a count compares with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Same,
    Worse,
    Better,
    New,
}

impl Count {
    pub(crate) fn is(self) -> u64 {
        match self {
            Self::Plain(is) | Self::Tolerant { is, .. } => is,
        }
    }
}

impl Baseline {
    pub(crate) fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.json")
    }

    pub(crate) fn read() -> Result<Self, String> {
        let text =
            std::fs::read(Self::path()).map_err(|e| format!("{}: {e}", Self::path().display()))?;
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", Self::path().display()))
    }

    pub(crate) fn count(&self, case: &str, metric: Metric) -> Option<Count> {
        self.cases.get(case)?.get(metric.name()).copied()
    }

    /// Compares a new count with the baseline; lower is better for every metric.
    pub(crate) fn verdict(&self, case: &str, metric: Metric, now: u64) -> Verdict {
        let Some(count) = self.count(case, metric) else {
            return Verdict::New;
        };
        let tolerance = match count {
            Count::Plain(_) => self
                .tolerance
                .get(metric.name())
                .copied()
                .unwrap_or_default(),
            Count::Tolerant { percent, plus, .. } => Tolerance { percent, plus },
        };
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let share = (count.is() as f64 * tolerance.percent / 100.0) as u64;
        let slack = share + tolerance.plus;
        match now {
            now if now > count.is().saturating_add(slack) => Verdict::Worse,
            now if now < count.is().saturating_sub(slack) => Verdict::Better,
            _ => Verdict::Same,
        }
    }

    /// Replaces a count and keeps its tolerance.
    pub(crate) fn set(&mut self, case: &str, metric: Metric, now: u64) {
        let count = match self.count(case, metric) {
            Some(Count::Tolerant { percent, plus, .. }) => Count::Tolerant {
                is: now,
                percent,
                plus,
            },
            _ => Count::Plain(now),
        };
        self.cases
            .entry(case.to_owned())
            .or_default()
            .insert(metric.name().to_owned(), count);
    }

    /// Writes the file with one line per case, so that a changed count is one line of a diff.
    pub(crate) fn write(&self) -> Result<(), String> {
        let text = self.text().map_err(|e| e.to_string())?;
        std::fs::write(Self::path(), text).map_err(|e| format!("{}: {e}", Self::path().display()))
    }

    fn text(&self) -> serde_json::Result<String> {
        let environment = serde_json::to_string_pretty(&self.environment)?.replace('\n', "\n  ");
        let (tolerance, cases) = (lines(&self.tolerance)?, lines(&self.cases)?);
        Ok(format!(
            "{{\n  \"environment\": {environment},\n  \"tolerance\": {tolerance},\n  \"cases\": {cases}\n}}\n"
        ))
    }
}

fn lines(map: &BTreeMap<String, impl Serialize>) -> serde_json::Result<String> {
    let line = |(name, value)| Ok(format!("    {}: {}", to_string(name)?, to_string(value)?));
    let lines: serde_json::Result<Vec<_>> = map.iter().map(line).collect();
    Ok(format!("{{\n{}\n  }}", lines?.join(",\n")))
}
