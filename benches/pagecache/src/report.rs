//! What comes of the runs: a file that keeps them, tables and plots.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Failure;
use crate::plot;
use crate::run::Run;
use crate::scene::{RECORDED, SCENES, VARIANTS};

pub fn read(path: &Path) -> Result<Vec<Run>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}

pub fn write(path: &Path, runs: &[Run]) -> Result<(), Failure> {
    let beside = path.with_extension("json.part");
    fs::write(&beside, serde_json::to_vec(runs)?)?;
    Ok(fs::rename(beside, path)?)
}

/// The runs of one scene, loader and variant.
pub struct Cell<'r> {
    pub loader: &'r str,
    pub variant: &'static str,
    pub runs: Vec<&'r Run>,
}

impl Cell<'_> {
    fn sorted(&self, of: fn(&Run) -> f64) -> Vec<f64> {
        let mut all: Vec<_> = self.runs.iter().map(|run| of(run)).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    pub fn median(&self, of: fn(&Run) -> f64) -> f64 {
        let all = self.sorted(of);
        all[all.len() / 2]
    }

    pub fn least(&self, of: fn(&Run) -> f64) -> f64 {
        self.sorted(of)[0]
    }
}

/// Cells of a scene, in the order of loaders and variants.
pub fn cells<'r>(runs: &'r [Run], scene: &str) -> Vec<Cell<'r>> {
    let mut by: BTreeMap<(usize, usize), Cell<'r>> = BTreeMap::new();
    let loaders: Vec<_> = SCENES.iter().find(|known| known.name == scene).map_or(&[][..], |scene| scene.loaders).into();
    for run in runs.iter().filter(|run| run.scene == scene) {
        let Some(loader) = loaders.iter().position(|loader| *loader == run.loader) else { continue };
        let Some(variant) = VARIANTS.iter().position(|variant| variant.name == run.variant) else { continue };
        let cell = Cell { loader: &run.loader, variant: VARIANTS[variant].name, runs: Vec::new() };
        by.entry((loader, variant)).or_insert(cell).runs.push(run);
    }
    by.into_values().collect()
}

pub fn report(results: &Path, plots: &Path) -> Result<(), Failure> {
    let runs = read(results)?;
    if runs.is_empty() {
        return Err(format!("{} has no runs; `evaluate` first", results.display()).into());
    }
    fs::create_dir_all(plots)?;
    for scene in SCENES {
        let mut cells = cells(&runs, scene.name);
        cells.retain(|cell| cell.variant != RECORDED);
        if cells.is_empty() {
            continue;
        }
        println!("\n### {}\n", heading(scene.name));
        println!(
            "| loader | variant | load, s | least | ÷ Native | of the possible gain | start to end, s | from the device, GB | peak memory, GB | n |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|");
        for cell in &cells {
            let of = |name: &str| {
                let other = cells.iter().find(|other| other.loader == cell.loader && other.variant == name);
                other.map(|other| other.median(|run| run.load))
            };
            let load = cell.median(|run| run.load);
            let ratio = of("Native").map_or("–".into(), |native| format!("{:.2}", load / native));
            let gain = match (of("Native"), of("PreCache")) {
                (Some(native), Some(floor)) if scene.memory.is_none() && native > floor => {
                    format!("{:.0} %", 100.0 * (native - load) / (native - floor))
                }
                _ => "–".into(),
            };
            println!(
                "| {} | {} | {load:.2} | {:.2} | {ratio} | {gain} | {:.2} | {:.2} | {:.2} | {} |",
                cell.loader,
                cell.variant,
                cell.least(|run| run.load),
                cell.median(|run| run.start),
                cell.median(|run| run.device_bytes as f64) / 1e9,
                cell.median(|run| run.peak_memory.unwrap_or(0) as f64) / 1e9,
                cell.runs.len()
            );
        }
        let name = scene.name.replace([' ', ',', '/'], "-").replace("--", "-");
        plot::bars(&plots.join(format!("load-{name}.svg")), scene.name, &cells)?;
        plot::rates(&plots.join(format!("rate-{name}.svg")), scene.name, &cells)?;
    }
    recordings(&runs);
    Ok(())
}

/// What recording costs, and what it has.
fn recordings(runs: &[Run]) {
    println!("\n### Recording\n");
    println!("| scene | loader | start to end alone, s | recorded, s | ratio | of the least | covered, least | n |");
    println!("|---|---|---|---|---|---|---|---|");
    for scene in SCENES {
        let cells = cells(runs, scene.name);
        for recorded in cells.iter().filter(|cell| cell.variant == RECORDED) {
            let native = cells.iter().find(|cell| cell.loader == recorded.loader && cell.variant == "Native");
            let Some(native) = native else { continue };
            let of = |cell: &Cell<'_>| (cell.median(|run| run.start), cell.least(|run| run.start));
            let ((alone, least_alone), (beside, least)) = (of(native), of(recorded));
            println!(
                "| {} | {} | {alone:.2} | {beside:.2} | {:.3} | {:.3} | {:.2} % | {} |",
                scene.name,
                recorded.loader,
                beside / alone,
                least / least_alone,
                100.0 * recorded.least(|run| run.covered.unwrap_or(0.0)),
                recorded.runs.len()
            );
        }
    }
}

fn heading(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
