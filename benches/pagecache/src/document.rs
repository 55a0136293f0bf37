//! Renders results into docs/page-cache.md, between `<!-- pagecache: NAME -->` and `<!-- /pagecache -->`, and draws the plots that
//! the page links to.

#[path = "../../peers/src/render/blocks.rs"]
mod blocks;

use std::fs;
use std::path::Path;

use crate::results::{self, Evaluation, Overheads};
use crate::scenario::{RECORDED, SCENARIOS};
use crate::{Failure, Report, overhead, plot, report};

const NOT_MEASURED: &str =
    "Not measured yet; `pagecache evaluate` and `pagecache overhead` fill this in.\n";

pub fn report(args: &Report) -> Result<(), Failure> {
    let all: Vec<Evaluation> = results::read(&args.results)?.unwrap_or_default();
    let overheads: Option<Overheads> = results::read(&args.overhead)?;
    let old = fs::read_to_string(&args.document)?;
    plots(args, &all, &old)?;
    let mut unknown = None;
    let new = blocks::fill(&old, "pagecache", &mut |marker| {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == marker);
        let table = match (marker, scenario) {
            (_, Some(scenario)) => report::scenario(&all, scenario),
            ("targets", _) => report::targets(&all),
            ("recorded", _) => report::recorded(&all),
            ("overhead", _) => overheads.as_ref().map(overhead::table),
            _ => {
                unknown = Some(marker.to_owned());
                None
            }
        };
        if table.is_none() {
            eprintln!("{marker}: no results");
        }
        format!("\n{}\n", table.as_deref().unwrap_or(NOT_MEASURED))
    })?;
    if let Some(unknown) = unknown {
        return Err(format!("{}: unknown block {unknown:?}", args.document.display()).into());
    }
    Ok(fs::write(&args.document, new)?)
}

/// Draws the plots of every scenario that `document` links to.
fn plots(args: &Report, all: &[Evaluation], document: &str) -> Result<(), Failure> {
    fs::create_dir_all(&args.plots)?;
    for scenario in SCENARIOS {
        let mut groups = report::groups(all, scenario.name);
        groups.retain(|cell| cell.variant != RECORDED);
        if groups.is_empty() {
            continue;
        }
        let name = scenario
            .name
            .replace([' ', ',', '/'], "-")
            .replace("--", "-");
        for (kind, draw) in [("load", plot::bars as Plot), ("rate", plot::rates)] {
            let file = format!("{kind}-{name}.svg");
            if document.contains(&file) {
                draw(&args.plots.join(file), scenario.name, &groups)?;
            }
        }
    }
    Ok(())
}

/// Draws one plot of a scenario's groups of runs into a file.
type Plot = fn(&Path, &str, &[report::RunGroup<'_>]) -> Result<(), Failure>;
