//! The stored results of evaluations.

#[path = "../../peers/src/results/provenance.rs"]
mod provenance;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::Failure;
pub use provenance::Provenance;

/// The loads of one call of `evaluate`.
#[derive(Deserialize, Serialize)]
pub struct Evaluation {
    /// Date, commit and machine; the first evaluations did not store it.
    pub run: Option<Provenance>,
    pub loads: Vec<LoadRun>,
}

/// One run as stored in the results.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LoadRun {
    pub scenario: String,
    pub loader: String,
    pub variant: String,
    pub round: usize,
    /// Seconds from the first worker being ready to load until the last has loaded.
    pub load: f64,
    /// Seconds from the start of the command until the last worker has loaded.
    pub start: f64,
    /// Seconds from the start of the command until the first worker is ready.
    pub ready: f64,
    pub device_bytes: u64,
    pub peak_memory: Option<u64>,
    pub major_faults: u64,
    /// Share of the predicted template's bytes that the recording contains, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<f64>,
}

/// The results of `overhead`.
#[derive(Deserialize, Serialize)]
pub struct Overheads {
    pub run: Provenance,
    /// Size of the file.
    pub gib: u64,
    pub rows: Vec<ReadOverhead>,
}

/// One way of reading in one state of the page cache.
#[derive(Default, Deserialize, Serialize)]
pub struct ReadOverhead {
    pub reads: String,
    pub filesystem: String,
    pub cache: String,
    /// Seconds without the runtime, in order of measurement.
    pub baseline: Vec<f64>,
    /// Seconds while the runtime runs an empty policy.
    pub with_policy: Vec<f64>,
    /// CPU time of the runtime as a share of the time of reading.
    pub cpu_share: Vec<f64>,
    /// Events that the runtime received, in all rounds.
    pub events: u64,
    /// Events that were lost, in all rounds.
    pub lost: u64,
    /// Peak resident memory of the runtime in bytes.
    pub resident: u64,
}

/// Reads a file of results; `None` if it does not exist.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}

pub fn write<T: Serialize>(path: &Path, results: &T) -> Result<(), Failure> {
    let partial = path.with_extension("json.part");
    fs::write(&partial, serde_json::to_vec(results)?)?;
    Ok(fs::rename(partial, path)?)
}

/// Date, commit and machine in one line of text.
pub fn line(origin: Option<&Provenance>) -> String {
    origin.map_or(
        "Date, commit and machine were not recorded.".to_owned(),
        |run| format!("{}.", run.line()),
    )
}

/// The root of the repository that this program was built in.
fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("the manifest is in benches/pagecache")
        .to_owned()
}
