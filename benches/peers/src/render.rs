//! `peers render`: writes tables of the committed results into README.md and docs/*.md, between the markers of their blocks.

mod blocks;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::results::{self, markdown};

const NOT_MEASURED: &str = "\nNot measured yet; `cargo bench-peers --publish` fills this in.\n\n";

/// Renders all documents; prints which blocks have no results.
pub fn run() -> ExitCode {
    for path in documents() {
        let old = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let new = blocks::fill(&old, "results", &mut |marker| {
            let shown = path.file_name().unwrap_or_default().to_string_lossy();
            block(marker)
                .inspect_err(|reason| eprintln!("{shown}: {marker}: {reason}"))
                .unwrap_or_else(|_| NOT_MEASURED.to_owned())
        });
        match new {
            Ok(new) if new != old => {
                fs::write(&path, new).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
            }
            Ok(_) => {}
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// README.md and docs/*.md.
fn documents() -> Vec<PathBuf> {
    let root = results::repository();
    let docs = fs::read_dir(root.join("docs")).expect("the folder docs exists");
    let docs = docs.filter_map(Result::ok).map(|entry| entry.path());
    let mut all: Vec<PathBuf> = docs
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    all.push(root.join("README.md"));
    all.sort();
    all
}

/// The text of a block, whose marker is `SECTION FORM`.
fn block(marker: &str) -> Result<String, String> {
    let (name, form) = marker.split_once(' ').unwrap_or((marker, ""));
    Ok(markdown::block(&results::read(name)?, form))
}
