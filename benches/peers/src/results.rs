//! Results as data: rows of figures, what is missing and why, and where and when the section ran.

pub mod markdown;
pub mod provenance;
mod speeds;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One variant of one case: a figure per process, in nanoseconds, and what the processes used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ResultRow {
    pub case: String,
    pub variant: String,
    pub median: f64,
    pub minimum: f64,
    pub maximum: f64,
    pub n: usize,
    /// In the order in which they were measured.
    pub samples: Vec<f64>,
    /// Medians over whole processes, start and end included.
    pub peak_kib: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// The machine's own limit for the same amount of work: a copy, a raw read.
    pub limit: Option<Limit>,
    /// Medians of further figures. A key that ends in ` ns` is a time, one in ` KiB` is memory.
    pub more: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limit {
    pub what: String,
    pub median: f64,
}

/// A variant that could not be measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Missing {
    pub case: String,
    pub variant: String,
    pub reason: String,
}

/// The results of one or more cases.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub rows: Vec<ResultRow>,
    pub missing: Vec<Missing>,
    /// Differences between the variants' outputs, found before anything was timed; failed rounds.
    pub notes: Vec<String>,
    /// Duration of all rounds.
    pub seconds: f64,
}

impl Outcome {
    pub fn extend(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.missing.extend(other.missing);
        self.notes.extend(other.notes);
        self.seconds += other.seconds;
    }

    /// The names of the cases, in order, each once.
    pub fn cases(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.rows.iter().map(|row| row.case.as_str()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The rows of a case.
    pub fn of<'s>(&'s self, case: &str) -> Vec<&'s ResultRow> {
        self.rows.iter().filter(|row| row.case == case).collect()
    }
}

/// The content of one file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SectionResults {
    pub section: String,
    pub run: provenance::Provenance,
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl ResultRow {
    pub fn new(case: String, variant: String, samples: Vec<f64>) -> Self {
        let mut sorted = samples.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let (minimum, maximum) = (sorted[0], sorted[sorted.len() - 1]);
        Self {
            case,
            variant,
            median: median(&mut sorted),
            minimum,
            maximum,
            n: samples.len(),
            samples,
            ..Self::default()
        }
    }

    pub fn is_ours(&self) -> bool {
        self.variant.starts_with("ours")
    }
}

/// The middle value; of an even count the upper of the two in the middle.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The root of the repository that this program was built in.
pub fn repository() -> PathBuf {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR"));
    peers
        .ancestors()
        .nth(2)
        .expect("the manifest is in benches/peers")
        .to_owned()
}

/// The directory of the results.
fn folder() -> PathBuf {
    repository().join("benches/results")
}

/// Reads the committed results of a section.
pub fn read(section: &str) -> Result<SectionResults, String> {
    let path = folder().join(format!("{section}.json"));
    let text = fs::read_to_string(&path).map_err(|e| format!("{section}.json: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{section}.json: {e}"))
}

/// Writes a section's results as JSON. Tables are rendered from it on demand.
pub fn write(section: &SectionResults) {
    fs::create_dir_all(folder()).expect("benches/results can be created");
    // reasons and notes must not hold the path of the repository on this machine
    let root = format!("{}/", repository().display());
    let json = serde_json::to_string_pretty(section).expect("results serialise to JSON") + "\n";
    let path = folder().join(format!("{}.json", section.section));
    let partial = path.with_extension("partial");
    fs::write(&partial, json.replace(&root, ""))
        .and_then(|()| fs::rename(&partial, &path))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_median_minimum_and_maximum() {
        let row = ResultRow::new("c".to_owned(), "ours".to_owned(), vec![3.0, 1.0, 9.0, 4.0]);
        assert_eq!(
            (row.minimum, row.median, row.maximum, row.n),
            (1.0, 4.0, 9.0, 4)
        );
        assert_eq!(
            row.samples,
            [3.0, 1.0, 9.0, 4.0],
            "samples keep their order"
        );
    }
}
