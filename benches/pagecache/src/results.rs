//! What evaluations measured, as it is kept.

#[path = "../../peers/src/results/machine.rs"]
mod machine;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Failure;
use crate::run::Run;
pub use machine::Run as Origin;

/// The loads of one call of `evaluate`.
#[derive(Deserialize, Serialize)]
pub struct Evaluation {
    /// When, of which commit, on which machine; the first evaluations did not note it.
    pub run: Option<Origin>,
    pub loads: Vec<Run>,
}

/// What `overhead` measured.
#[derive(Deserialize, Serialize)]
pub struct Overheads {
    pub run: Origin,
    /// Size of the file.
    pub gib: u64,
    pub rows: Vec<Reads>,
}

/// One way to read, with the page cache in one state.
#[derive(Default, Deserialize, Serialize)]
pub struct Reads {
    pub reads: String,
    /// The file system.
    pub on: String,
    pub cache: String,
    /// Seconds, in the order in which they were measured.
    pub alone: Vec<f64>,
    pub beside: Vec<f64>,
    /// Processor time of the runtime, as a share of the time that was read.
    pub processor: Vec<f64>,
    /// Events that the runtime was told, in all rounds.
    pub told: u64,
    /// Events that were lost, in all rounds.
    pub lost: u64,
    /// The most memory that the runtime had, in bytes.
    pub resident: u64,
}

/// Nothing if there is no such file.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}

pub fn write<T: Serialize>(path: &Path, results: &T) -> Result<(), Failure> {
    let beside = path.with_extension("json.part");
    fs::write(&beside, serde_json::to_vec(results)?)?;
    Ok(fs::rename(beside, path)?)
}

/// One line for people.
pub fn line(origin: Option<&Origin>) -> String {
    origin.map_or(
        "When, of which commit and on which machine: not noted.".to_owned(),
        |run| format!("{}.", run.line()),
    )
}

/// The root of the repository that this program was built in.
fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("it is benches/pagecache")
        .to_owned()
}
