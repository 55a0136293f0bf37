//! What a run found, as data: rows of figures, what is missing and why, and where and when it ran.

pub mod machine;
pub mod markdown;
mod matrix;
pub mod plot;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One variant of one case: a figure per process, in nanoseconds, and what the processes used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
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
    /// What the machine itself needs for as much.
    pub limit: Option<Limit>,
    /// Medians of what else was seen. A key that ends in `ns` is a time, one in `KiB` is memory.
    pub more: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limit {
    pub what: String,
    pub median: f64,
}

/// A row that is not there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Missing {
    pub case: String,
    pub variant: String,
    pub reason: String,
}

/// What came of one or more cases.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub rows: Vec<Row>,
    pub missing: Vec<Missing>,
    /// What was found when results were compared, before anything was timed.
    pub notes: Vec<String>,
    /// How long it took.
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
    pub fn of<'s>(&'s self, case: &str) -> Vec<&'s Row> {
        self.rows.iter().filter(|row| row.case == case).collect()
    }
}

/// One file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Section {
    pub section: String,
    pub run: machine::Run,
    #[serde(flatten)]
    pub found: Outcome,
}

impl Row {
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

/// The middle value, or the upper of the two that are there.
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
        .expect("it is benches/peers")
        .to_owned()
}

/// Where results are kept: `benches/results`.
pub fn folder() -> PathBuf {
    repository().join("benches/results")
}

/// A section's results, if they are there.
pub fn read(section: &str) -> Result<Section, String> {
    let path = folder().join(format!("{section}.json"));
    let text = fs::read_to_string(&path).map_err(|e| format!("{section}.json: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{section}.json: {e}"))
}

/// Writes JSON, Markdown and plots.
pub fn write(section: &Section) {
    fs::create_dir_all(folder()).expect("benches/results can be made");
    // where the repository is on this machine is no result
    let here = format!("{}/", repository().display());
    let put = |name: String, text: String| {
        let text = text.replace(&here, "");
        let path = folder().join(&name);
        let partial = path.with_extension("partial");
        fs::write(&partial, text)
            .and_then(|()| fs::rename(&partial, &path))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    };
    let name = &section.section;
    put(
        format!("{name}.json"),
        serde_json::to_string_pretty(section).expect("plain data") + "\n",
    );
    put(
        format!("{name}.md"),
        format!("# {name}\n\n{}", markdown::section(section, None)),
    );
    for (i, svg) in plot::plots(section).into_iter().enumerate() {
        put(plot::file(name, i), svg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_middle_and_the_ends() {
        let row = Row::new("c".to_owned(), "ours".to_owned(), vec![3.0, 1.0, 9.0, 4.0]);
        assert_eq!(
            (row.minimum, row.median, row.maximum, row.n),
            (1.0, 4.0, 9.0, 4)
        );
        assert_eq!(
            row.samples,
            [3.0, 1.0, 9.0, 4.0],
            "in the order in which they came"
        );
    }
}
