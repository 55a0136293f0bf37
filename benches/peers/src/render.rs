//! Puts committed results into the documents, between the markers of their blocks.

mod blocks;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::results::{self, markdown, plot};

const NONE: &str = "\nNot measured yet; `cargo bench-peers --publish` fills this in.\n\n";

/// All documents; says which blocks have no results.
pub fn run() -> ExitCode {
    for path in documents() {
        let old = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let new = blocks::filled(&old, "results", &mut |marker| {
            // a section, and perhaps the beginning of its cases, or `brief`
            let (name, prefix) = marker
                .split_once(' ')
                .map_or((marker, None), |(name, prefix)| (name, Some(prefix)));
            let up = if path.parent().is_some_and(|folder| folder.ends_with("docs")) {
                "../"
            } else {
                ""
            };
            let text = block(name, prefix, up);
            let shown = path.file_name().unwrap_or_default().to_string_lossy();
            text.inspect_err(|why| eprintln!("{shown}: {name}: {why}"))
                .unwrap_or_else(|_| NONE.to_owned())
        });
        match new {
            Ok(new) if new != old => {
                fs::write(&path, new).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
            }
            Ok(_) => {}
            Err(wrong) => {
                eprintln!("{}: {wrong}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// README.md and docs/*.md.
fn documents() -> Vec<PathBuf> {
    let root = results::repository();
    let docs = fs::read_dir(root.join("docs")).expect("docs is there");
    let docs = docs.filter_map(Result::ok).map(|entry| entry.path());
    let mut all: Vec<PathBuf> = docs
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    all.push(root.join("README.md"));
    all.sort();
    all
}

/// What a block says in a document from which so much leads up to the root.
fn block(name: &str, prefix: Option<&str>, up: &str) -> Result<String, String> {
    let section = results::read(name)?;
    if prefix == Some("brief") {
        return Ok(format!("\n{}\n", markdown::brief(&section)));
    }
    let mut text = format!("\n{}\n", markdown::section(&section, prefix));
    for i in 0..plot::titles(&section).len() {
        let file = plot::file(name, i);
        text = text.replace(
            &format!("]({file})"),
            &format!("]({up}benches/results/{file})"),
        );
    }
    // one below the heading that it stands under
    Ok(text.replace("\n### ", "\n#### "))
}
