//! Results as data: rows of figures, what is missing and why, and where and when the section ran.

pub mod markdown;
pub mod provenance;
mod rows;
mod speeds;

use std::fs;
use std::path::{Path, PathBuf};

pub use rows::{Limit, Missing, Outcome, ResultRow, SectionResults, median};

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
    let json = section.json();
    let path = folder().join(format!("{}.json", section.section));
    let partial = path.with_extension("partial");
    fs::write(&partial, json.replace(&root, ""))
        .and_then(|()| fs::rename(&partial, &path))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
