//! The form of results: a file has a row for each variant of each case.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::provenance;

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

impl SectionResults {
    /// The text of the file: a line for each row, so that a new measurement differs in as few lines as it has rows.
    pub fn json(&self) -> String {
        fn one(value: &impl Serialize) -> String {
            serde_json::to_string(value).expect("results serialise to JSON")
        }
        fn list(values: &[impl Serialize]) -> String {
            let lines: Vec<String> = values
                .iter()
                .map(|value| format!("\n{}", one(value)))
                .collect();
            let end = if lines.is_empty() { "" } else { "\n" };
            format!("[{}{end}]", lines.join(","))
        }
        let outcome = &self.outcome;
        let fields = [
            ("section", one(&self.section)),
            ("run", one(&self.run)),
            ("rows", list(&outcome.rows)),
            ("missing", list(&outcome.missing)),
            ("notes", list(&outcome.notes)),
            ("seconds", one(&outcome.seconds)),
        ];
        let fields = fields.map(|(name, value)| format!("\"{name}\": {value}"));
        format!("{{\n{}\n}}\n", fields.join(",\n"))
    }
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
    #[test]
    fn a_file_of_results_is_read_again() {
        let row = ResultRow::new("c".to_owned(), "ours".to_owned(), vec![3.0]);
        let outcome = Outcome {
            rows: vec![row.clone(), row],
            ..Outcome::default()
        };
        let section = SectionResults {
            section: "s".to_owned(),
            run: provenance::Provenance::default(),
            outcome,
        };
        let text = section.json();
        assert_eq!(
            text.lines()
                .filter(|line| line.contains("\"case\""))
                .count(),
            2
        );
        let read: SectionResults = serde_json::from_str(&text).unwrap();
        assert_eq!(read.json(), text);
    }
}
