//! Tables of what the runs gave.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::results::{self, Evaluation};
use crate::run::Run;
use crate::scene::{RECORDED, SCENES, Scene, VARIANTS};

/// The runs of one scene, loader and variant.
pub struct Cell<'r> {
    pub loader: &'r str,
    pub variant: &'static str,
    pub runs: Vec<&'r Run>,
}

impl Cell<'_> {
    pub fn median(&self, of: fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(|run| of(run)))
    }

    pub fn least(&self, of: fn(&Run) -> f64) -> f64 {
        least(self.runs.iter().map(|run| of(run)))
    }
}

/// Of values of which there are some.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = values.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

pub fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

/// Cells of a scene, in the order of loaders and variants.
pub fn cells<'r>(all: &'r [Evaluation], scene: &str) -> Vec<Cell<'r>> {
    let mut by: BTreeMap<(usize, usize), Cell<'r>> = BTreeMap::new();
    let loaders: Vec<_> = SCENES
        .iter()
        .find(|known| known.name == scene)
        .map_or(&[][..], |scene| scene.loaders)
        .into();
    for run in all
        .iter()
        .flat_map(|of| &of.loads)
        .filter(|run| run.scene == scene)
    {
        let Some(loader) = loaders.iter().position(|loader| *loader == run.loader) else {
            continue;
        };
        let Some(variant) = VARIANTS
            .iter()
            .position(|variant| variant.name == run.variant)
        else {
            continue;
        };
        let cell = Cell {
            loader: &run.loader,
            variant: VARIANTS[variant].name,
            runs: Vec::new(),
        };
        by.entry((loader, variant)).or_insert(cell).runs.push(run);
    }
    by.into_values().collect()
}

/// Where and when the runs were that a table is of, one line for each evaluation.
fn origins(all: &[Evaluation], is_of: impl Fn(&Run) -> bool) -> String {
    let of = all
        .iter()
        .filter(|evaluation| evaluation.loads.iter().any(&is_of));
    let mut lines: Vec<String> = of
        .map(|evaluation| results::line(evaluation.run.as_ref()))
        .collect();
    lines.dedup();
    lines.join("\n") + "\n\n"
}

/// A scene by all loaders and variants.
pub fn scene(all: &[Evaluation], scene: &Scene) -> Option<String> {
    let mut cells = cells(all, scene.name);
    cells.retain(|cell| cell.variant != RECORDED);
    if cells.is_empty() {
        return None;
    }
    let mut text = origins(all, |run| {
        run.scene == scene.name && run.variant != RECORDED
    });
    text += "| loader | variant | load, s | least | ÷ Native | of the possible gain | start to end, s | from the device, GB \
             | peak memory, GB | n |\n|---|---|---|---|---|---|---|---|---|---|\n";
    for cell in &cells {
        let load = cell.median(|run| run.load);
        let ratio =
            against(&cells, cell, "Native").map_or("–".into(), |ratio| format!("{ratio:.2}"));
        let gain = gain(&cells, cell).filter(|_| scene.memory.is_none());
        let gain = gain.map_or("–".into(), |gain| format!("{gain:.0} %"));
        let _ = writeln!(
            text,
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
    Some(text)
}

/// A cell's load against that of another variant by the same loader.
fn against(cells: &[Cell<'_>], cell: &Cell<'_>, variant: &str) -> Option<f64> {
    let other = cells
        .iter()
        .find(|other| other.loader == cell.loader && other.variant == variant)?;
    Some(cell.median(|run| run.load) / other.median(|run| run.load))
}

/// Of what lies between Native and PreCache, the percentage that is gained.
fn gain(cells: &[Cell<'_>], cell: &Cell<'_>) -> Option<f64> {
    let (native, floor) = (
        against(cells, cell, "Native")?.recip(),
        against(cells, cell, "PreCache")?.recip(),
    );
    // both in loads of this cell
    (native > floor).then(|| 100.0 * (native - 1.0) / (native - floor))
}

/// What a variant of MAIO is held to.
enum Bar {
    /// Its load is at most so much of another's.
    Load(&'static str, f64),
    /// At least this percentage of the possible gain.
    Gain(f64),
}

static BARS: &[(&str, Bar)] = &[
    ("sufficient", Bar::Load("Native", 0.6)),
    ("sufficient", Bar::Gain(80.0)),
    ("sufficient", Bar::Load("EagerLoad", 1.0)),
    ("limited, 1 GB/s", Bar::Load("Native", 0.75)),
    ("limited, 1 GB/s", Bar::Load("EagerLoad", 0.75)),
    ("limited, 1 GB/s", Bar::Load("MAIO without eviction", 0.9)),
    ("limited, 128 KiB", Bar::Load("Native", 0.75)),
    ("limited, 128 KiB", Bar::Load("EagerLoad", 0.75)),
    ("limited, 128 KiB", Bar::Load("MAIO without eviction", 0.9)),
];

/// MAIO against its bars, by the loaders that read files.
pub fn bars(all: &[Evaluation]) -> Option<String> {
    let mut text = origins(all, |run| BARS.iter().any(|(scene, _)| *scene == run.scene));
    text += "| scene | bar | mmap | pread | |\n|---|---|---|---|---|\n";
    let mut some = false;
    for (name, bar) in BARS {
        let cells = cells(all, name);
        let of = |loader: &str| {
            let maio = cells
                .iter()
                .find(|cell| cell.loader == loader && cell.variant == "MAIO")?;
            match bar {
                Bar::Load(variant, most) => {
                    against(&cells, maio, variant).map(|r| (format!("{r:.2}"), r <= *most))
                }
                Bar::Gain(least) => {
                    gain(&cells, maio).map(|gain| (format!("{gain:.0} %"), gain >= *least))
                }
            }
        };
        let (Some((mmap, first)), Some((pread, second))) = (of("mmap"), of("pread")) else {
            continue;
        };
        let bar = match bar {
            Bar::Load(variant, most) => format!("MAIO ÷ {variant} ≤ {most:.2}"),
            Bar::Gain(least) => format!("MAIO, of the possible gain ≥ {least:.0} %"),
        };
        let met = ["not met", "met"][usize::from(first && second)];
        let _ = writeln!(text, "| {name} | {bar} | {mmap} | {pread} | {met} |");
        some = true;
    }
    some.then_some(text)
}

/// What recording costs, and what it has.
pub fn recorded(all: &[Evaluation]) -> Option<String> {
    let mut lines = String::new();
    for scene in SCENES {
        let cells = cells(all, scene.name);
        for recorded in cells.iter().filter(|cell| cell.variant == RECORDED) {
            let native = cells
                .iter()
                .find(|cell| cell.loader == recorded.loader && cell.variant == "Native");
            let Some(native) = native else { continue };
            let of = |cell: &Cell<'_>| (cell.median(|run| run.start), cell.least(|run| run.start));
            let ((alone, least_alone), (beside, least)) = (of(native), of(recorded));
            let _ = writeln!(
                lines,
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
    let head = "| scene | loader | start to end alone, s | recorded, s | ratio | of the least | covered, least | n |\n\
                |---|---|---|---|---|---|---|---|\n";
    (!lines.is_empty()).then(|| origins(all, |run| run.variant == RECORDED) + head + &lines)
}
