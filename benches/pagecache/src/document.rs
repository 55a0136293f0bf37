//! Puts results into docs/page-cache.md: the blocks from `<!-- pagecache: … -->` to `<!-- /pagecache -->`.

#[path = "../../peers/src/render/blocks.rs"]
mod blocks;

use std::fs;

use crate::results::{self, Evaluation, Overheads};
use crate::scene::{RECORDED, SCENES};
use crate::{Failure, Report, overhead, plot, report};

const NONE: &str =
    "Not measured yet; `pagecache evaluate` and `pagecache overhead` fill this in.\n";

pub fn report(args: &Report) -> Result<(), Failure> {
    let all: Vec<Evaluation> = results::read(&args.results)?.unwrap_or_default();
    let overheads: Option<Overheads> = results::read(&args.overhead)?;
    plots(args, &all)?;
    let old = fs::read_to_string(&args.document)?;
    let mut unknown = None;
    let new = blocks::filled(&old, "pagecache", &mut |marker| {
        let scene = SCENES.iter().find(|scene| scene.name == marker);
        let table = match (marker, scene) {
            (_, Some(scene)) => report::scene(&all, scene),
            ("bars", _) => report::bars(&all),
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
        format!("\n{}\n", table.as_deref().unwrap_or(NONE))
    })?;
    if let Some(unknown) = unknown {
        return Err(format!("{}: nothing is called {unknown:?}", args.document.display()).into());
    }
    Ok(fs::write(&args.document, new)?)
}

fn plots(args: &Report, all: &[Evaluation]) -> Result<(), Failure> {
    fs::create_dir_all(&args.plots)?;
    for scene in SCENES {
        let mut cells = report::cells(all, scene.name);
        cells.retain(|cell| cell.variant != RECORDED);
        if cells.is_empty() {
            continue;
        }
        let name = scene.name.replace([' ', ',', '/'], "-").replace("--", "-");
        plot::bars(
            &args.plots.join(format!("load-{name}.svg")),
            scene.name,
            &cells,
        )?;
        plot::rates(
            &args.plots.join(format!("rate-{name}.svg")),
            scene.name,
            &cells,
        )?;
    }
    Ok(())
}
