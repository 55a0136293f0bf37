//! Tables of the results.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::results::{self, Evaluation, LoadRun, Overheads};
use super::scenario::{RECORDED, SCENARIOS, Scenario, VARIANTS};

/// The table of a block of the document; `None` if its runs have not been measured. Fails if there is no such block.
pub fn block(
    marker: &str,
    all: &[Evaluation],
    overheads: Option<&Overheads>,
) -> Result<Option<String>, String> {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == marker);
    match (marker, scenario) {
        (_, Some(scenario)) => Ok(self::scenario(all, scenario)),
        ("targets", _) => Ok(targets(all)),
        ("recorded", _) => Ok(recorded(all)),
        ("overhead", _) => Ok(overheads.map(overhead)),
        _ => Err(format!("unknown block {marker:?}")),
    }
}

/// The runs of one scenario, loader and variant.
struct RunGroup<'r> {
    loader: &'r str,
    variant: &'static str,
    runs: Vec<&'r LoadRun>,
}

impl RunGroup<'_> {
    fn median(&self, of: fn(&LoadRun) -> f64) -> f64 {
        median(self.runs.iter().map(|run| of(run)))
    }

    fn least(&self, of: fn(&LoadRun) -> f64) -> f64 {
        least(self.runs.iter().map(|run| of(run)))
    }
}

/// The median of at least one value.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = values.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The least value; infinity of none.
pub fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

/// The groups of a scenario, ordered by loader and variant.
fn groups<'r>(all: &'r [Evaluation], scenario: &str) -> Vec<RunGroup<'r>> {
    let mut grouped: BTreeMap<(usize, usize), RunGroup<'r>> = BTreeMap::new();
    let loaders: Vec<_> = SCENARIOS
        .iter()
        .find(|known| known.name == scenario)
        .map_or(&[][..], |scenario| scenario.loaders)
        .into();
    for run in all
        .iter()
        .flat_map(|of| &of.loads)
        .filter(|run| run.scenario == scenario)
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
        let group = RunGroup {
            loader: &run.loader,
            variant: VARIANTS[variant].name,
            runs: Vec::new(),
        };
        grouped
            .entry((loader, variant))
            .or_insert(group)
            .runs
            .push(run);
    }
    grouped.into_values().collect()
}

/// Provenance of a table's runs, one line for each evaluation.
fn provenance(all: &[Evaluation], is_of: impl Fn(&LoadRun) -> bool) -> String {
    let of = all
        .iter()
        .filter(|evaluation| evaluation.loads.iter().any(&is_of));
    let mut lines: Vec<String> = of
        .map(|evaluation| results::line(evaluation.run.as_ref()))
        .collect();
    lines.dedup();
    lines.join("\n") + "\n\n"
}

/// The table of a scenario: all loaders and variants.
fn scenario(all: &[Evaluation], scenario: &Scenario) -> Option<String> {
    let mut groups = groups(all, scenario.name);
    groups.retain(|group| group.variant != RECORDED);
    if groups.is_empty() {
        return None;
    }
    let mut text = provenance(all, |run| {
        run.scenario == scenario.name && run.variant != RECORDED
    });
    text += "| loader | variant | load, s | fastest | ÷ Native | share of possible gain | start to end, s | read from device, GB \
             | peak memory, GB | n |\n|---|---|---|---|---|---|---|---|---|---|\n";
    for group in &groups {
        let load = group.median(|run| run.load);
        let ratio =
            ratio_to(&groups, group, "Native").map_or("–".into(), |ratio| format!("{ratio:.2}"));
        let gain = gain(&groups, group).filter(|_| scenario.memory.is_none());
        let gain = gain.map_or("–".into(), |gain| format!("{gain:.0} %"));
        let _ = writeln!(
            text,
            "| {} | {} | {load:.2} | {:.2} | {ratio} | {gain} | {:.2} | {:.2} | {:.2} | {} |",
            group.loader,
            group.variant,
            group.least(|run| run.load),
            group.median(|run| run.start),
            group.median(|run| run.device_bytes as f64) / 1e9,
            group.median(|run| run.peak_memory.unwrap_or(0) as f64) / 1e9,
            group.runs.len()
        );
    }
    Some(text)
}

/// A group's load time divided by the load time of another variant of the same loader.
fn ratio_to(groups: &[RunGroup<'_>], group: &RunGroup<'_>, variant: &str) -> Option<f64> {
    let other = groups
        .iter()
        .find(|other| other.loader == group.loader && other.variant == variant)?;
    Some(group.median(|run| run.load) / other.median(|run| run.load))
}

/// The gain over Native as a percentage of PreCache's gain over Native.
fn gain(groups: &[RunGroup<'_>], group: &RunGroup<'_>) -> Option<f64> {
    let (native, floor) = (
        ratio_to(groups, group, "Native")?.recip(),
        ratio_to(groups, group, "PreCache")?.recip(),
    );
    // both in units of this group's load time
    (native > floor).then(|| 100.0 * (native - 1.0) / (native - floor))
}

/// A required result of the policy MAIO.
enum Target {
    /// Its load time divided by another variant's is at most this.
    Load(&'static str, f64),
    /// At least this percentage of the possible gain.
    Gain(f64),
}

static TARGETS: &[(&str, Target)] = &[
    ("sufficient", Target::Load("Native", 0.6)),
    ("sufficient", Target::Gain(80.0)),
    ("sufficient", Target::Load("EagerLoad", 1.0)),
    ("limited, 1 GB/s", Target::Load("Native", 0.75)),
    ("limited, 1 GB/s", Target::Load("EagerLoad", 0.75)),
    (
        "limited, 1 GB/s",
        Target::Load("MAIO without eviction", 0.9),
    ),
    ("limited, 128 KiB", Target::Load("Native", 0.75)),
    ("limited, 128 KiB", Target::Load("EagerLoad", 0.75)),
    (
        "limited, 128 KiB",
        Target::Load("MAIO without eviction", 0.9),
    ),
];

/// MAIO against its targets, by loader.
fn targets(all: &[Evaluation]) -> Option<String> {
    let mut text = provenance(all, |run| {
        TARGETS
            .iter()
            .any(|(scenario, _)| *scenario == run.scenario)
    });
    text += "| scenario | target | mmap | pread | |\n|---|---|---|---|---|\n";
    let mut has_rows = false;
    for (name, target) in TARGETS {
        let groups = groups(all, name);
        let figure_and_is_met = |loader: &str| {
            let maio = groups
                .iter()
                .find(|group| group.loader == loader && group.variant == "MAIO")?;
            match target {
                Target::Load(variant, most) => {
                    ratio_to(&groups, maio, variant).map(|r| (format!("{r:.2}"), r <= *most))
                }
                Target::Gain(least) => {
                    gain(&groups, maio).map(|gain| (format!("{gain:.0} %"), gain >= *least))
                }
            }
        };
        let (Some((mmap, first)), Some((pread, second))) =
            (figure_and_is_met("mmap"), figure_and_is_met("pread"))
        else {
            continue;
        };
        let target = match target {
            Target::Load(variant, most) => format!("MAIO ÷ {variant} ≤ {most:.2}"),
            Target::Gain(least) => format!("MAIO, share of possible gain ≥ {least:.0} %"),
        };
        let met = ["not met", "met"][usize::from(first && second)];
        let _ = writeln!(text, "| {name} | {target} | {mmap} | {pread} | {met} |");
        has_rows = true;
    }
    has_rows.then_some(text)
}

/// The cost and the coverage of recording.
fn recorded(all: &[Evaluation]) -> Option<String> {
    let mut lines = String::new();
    for scenario in SCENARIOS {
        let groups = groups(all, scenario.name);
        for recorded in groups.iter().filter(|group| group.variant == RECORDED) {
            let native = groups
                .iter()
                .find(|group| group.loader == recorded.loader && group.variant == "Native");
            let Some(native) = native else { continue };
            let median_and_least = |group: &RunGroup<'_>| {
                (group.median(|run| run.start), group.least(|run| run.start))
            };
            let (native_start, native_least) = median_and_least(native);
            let (start, least) = median_and_least(recorded);
            let _ = writeln!(
                lines,
                "| {} | {} | {native_start:.2} | {start:.2} | {:.3} | {:.3} | {:.2} % | {} |",
                scenario.name,
                recorded.loader,
                start / native_start,
                least / native_least,
                100.0 * recorded.least(|run| run.covered.unwrap_or(0.0)),
                recorded.runs.len()
            );
        }
    }
    let head = "| scenario | loader | start to end of Native, s | recorded, s | ratio | ratio of fastest | lowest coverage | n |\n\
                |---|---|---|---|---|---|---|---|\n";
    (!lines.is_empty()).then(|| provenance(all, |run| run.variant == RECORDED) + head + &lines)
}

/// Provenance, and a line for each way of reading in each state of the page cache.
pub fn overhead(all: &Overheads) -> String {
    let rounds = all.rows.first().map_or(0, |row| row.baseline.len());
    let mut text = format!(
        "{}\n\n{} GiB, {rounds} alternating runs each.\n\n\
         | reads | file system | cache | baseline, s | with empty policy, s | ratio | paired ratio | ratio of fastest | \
         CPU time of the runtime | events | lost | resident, MB |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        results::line(Some(&all.run)),
        all.gib
    );
    for row in &all.rows {
        let (baseline, with_policy) = (
            || row.baseline.iter().copied(),
            || row.with_policy.iter().copied(),
        );
        // each run with the next one: drift of the device affects both
        let pairs = with_policy().zip(baseline());
        let pair_ratio = median(pairs.map(|(with_policy, baseline)| with_policy / baseline));
        let fastest_ratio = least(with_policy()) / least(baseline());
        let (baseline, with_policy) = (median(baseline()), median(with_policy()));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {baseline:.3} | {with_policy:.3} | {:.3} | {pair_ratio:.3} | {fastest_ratio:.3} | {:.2} % | {} | {} | {:.1} |",
            row.reads,
            row.filesystem,
            row.cache,
            with_policy / baseline,
            100.0 * median(row.cpu_share.iter().copied()),
            row.events,
            row.lost,
            row.resident as f64 / 1e6
        );
    }
    text
}
