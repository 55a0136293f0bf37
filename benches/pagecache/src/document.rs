//! Renders results into docs/page-cache.md, between `<!-- pagecache: NAME -->` and `<!-- /pagecache -->`.

#[path = "../../peers/src/render/blocks.rs"]
mod blocks;

use std::fs;

use crate::results::{self, Evaluation, Overheads};
use crate::{Failure, Report, report};

const NOT_MEASURED: &str =
    "Not measured yet; `pagecache evaluate` and `pagecache overhead` fill this in.\n";

pub fn report(args: &Report) -> Result<(), Failure> {
    let all: Vec<Evaluation> = results::read(&args.results)?.unwrap_or_default();
    let overheads: Option<Overheads> = results::read(&args.overhead)?;
    let old = fs::read_to_string(&args.document)?;
    let mut unknown = None;
    let new = blocks::fill(&old, "pagecache", &mut |marker| {
        let table = report::block(marker, &all, overheads.as_ref()).unwrap_or_else(|error| {
            unknown = Some(error);
            None
        });
        if table.is_none() {
            eprintln!("{marker}: no results");
        }
        format!("\n{}\n", table.as_deref().unwrap_or(NOT_MEASURED))
    })?;
    if let Some(error) = unknown {
        return Err(format!("{}: {error}", args.document.display()).into());
    }
    Ok(fs::write(&args.document, new)?)
}
