//! Checks the blocks that `pagecache report` generates: each cell of a table is computed again from the loads in the JSON.

use serde_json::Value;

use crate::text::{Block, cells, numbers, rounds_to};
use crate::{missing_provenance, results};

pub(crate) fn check(block: &Block) -> Vec<String> {
    let name = if block.name == "overhead" {
        "pagecache/overhead.json"
    } else {
        "pagecache/results.json"
    };
    let results = results(name).unwrap_or_default();
    match (block.is_empty(), measured(&results, &block.name)) {
        (false, _) => compare(&results, block),
        (true, true) => vec!["the block is empty although there are results".to_owned()],
        (true, false) => Vec::new(),
    }
}

/// Whether there are results for the block of this name.
fn measured(results: &Value, name: &str) -> bool {
    let mut loads = results
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|evaluation| evaluation["loads"].as_array().into_iter().flatten());
    match name {
        "overhead" => !results.is_null(),
        "targets" => loads.next().is_some(),
        "recorded" => loads.any(|run| run["variant"] == "Recorded"),
        scenario => loads.any(|run| run["scenario"] == scenario && run["variant"] != "Recorded"),
    }
}

/// The cells of a block that do not follow from its results.
fn compare(results: &Value, block: &Block) -> Vec<String> {
    let (mut wrong, mut header) = (Vec::new(), Vec::new());
    let provenance = provenance(results);
    wrong.extend(provenance.iter().flat_map(|run| missing_provenance(run)));
    // dates, commits and machines occur literally in the results, as do the size and rounds of `overhead`
    let rounds = results["rows"][0]["baseline"]
        .as_array()
        .map(|times| times.len() as u64);
    let settings = [results["gib"].as_u64(), rounds];
    let texts = provenance
        .iter()
        .map(ToString::to_string)
        .collect::<String>();
    for line in block
        .text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        if !line.starts_with('|') {
            let known = |text: &str| {
                texts.contains(text) || text.parse().is_ok_and(|n| settings.contains(&Some(n)))
            };
            let unknown = numbers(line).into_iter().filter(|(text, ..)| !known(text));
            wrong.extend(unknown.map(|(text, ..)| format!("{text} of {line:?}")));
            continue;
        }
        let cells = cells(line);
        if header.is_empty() {
            header = cells;
        } else if !line.starts_with("|---") {
            for (title, cell) in header.iter().zip(&cells) {
                let value = match header[0] {
                    "reads" => overhead(results, &cells, title),
                    "scenario" if header[1] == "target" => target(results, &cells, title),
                    "scenario" => recorded(results, &cells, title),
                    _ => load(results, &block.name, &cells, title),
                };
                let matches = match value {
                    Expected::Text(text) => text == *cell,
                    Expected::Number(value) => {
                        let number = cell.trim_end_matches([' ', '%']);
                        number
                            .parse()
                            .is_ok_and(|printed| rounds_to(number, printed, value))
                    }
                    Expected::Nothing => *cell == "–",
                };
                if !matches {
                    wrong.push(format!("{cell} ({title}) of {line:?}"));
                }
            }
        }
    }
    wrong
}

/// The expected content of a cell.
enum Expected {
    Text(String),
    Number(f64),
    Nothing,
}

impl From<Option<f64>> for Expected {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::Nothing, Self::Number)
    }
}

/// The provenance of each evaluation that has one.
fn provenance(results: &Value) -> Vec<&Value> {
    let evaluations = results.as_array().into_iter().flatten();
    evaluations
        .chain(results.as_object().map(|_| results))
        .map(|evaluation| &evaluation["run"])
        .filter(|run| !run.is_null())
        .collect()
}

/// A figure of all runs of one scenario, loader and variant, sorted.
fn runs(results: &Value, [scenario, loader, variant]: [&str; 3], figure: &str) -> Vec<f64> {
    let loads = results
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|evaluation| evaluation["loads"].as_array().into_iter().flatten());
    let selected = loads.filter(|run| {
        run["scenario"] == scenario && run["loader"] == loader && run["variant"] == variant
    });
    sorted(
        selected
            .map(|run| run[figure].as_f64().unwrap_or(0.0))
            .collect(),
    )
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

/// The share of the possible gain: the time saved against `Native`, relative to what `PreCache` saves, in percent.
fn gain(results: &Value, [scenario, loader, variant]: [&str; 3]) -> Option<f64> {
    let load = |variant: &str| median(&runs(results, [scenario, loader, variant], "load"));
    let (native, bound) = (load("Native")?, load("PreCache")?);
    Some(100.0 * (native - load(variant)?) / (native - bound))
}

fn load(results: &Value, scenario: &str, cells: &[&str], title: &str) -> Expected {
    let of = [scenario, cells[0], cells[1]];
    let figure = |name: &str, unit: f64| median(&runs(results, of, name)).map(|value| value / unit);
    match title {
        "loader" | "variant" => Expected::Text(cells[usize::from(title == "variant")].to_owned()),
        "load, s" => figure("load", 1.0).into(),
        "fastest" => runs(results, of, "load").first().copied().into(),
        "÷ Native" => {
            let native = median(&runs(results, [scenario, cells[0], "Native"], "load"));
            figure("load", 1.0)
                .zip(native)
                .map(|(load, native)| load / native)
                .into()
        }
        // with limited memory PreCache is no bound
        "share of possible gain" => gain(results, of)
            .filter(|_| !scenario.contains("limited"))
            .into(),
        "start to end, s" => figure("start", 1.0).into(),
        "read from device, GB" => figure("device_bytes", 1e9).into(),
        "peak memory, GB" => figure("peak_memory", 1e9).into(),
        "n" => Expected::Text(runs(results, of, "load").len().to_string()),
        _ => Expected::Text("unknown column".to_owned()),
    }
}

fn recorded(results: &Value, cells: &[&str], title: &str) -> Expected {
    let of = |variant: &str, figure: &str| runs(results, [cells[0], cells[1], variant], figure);
    let (unrecorded, recorded) = (of("Native", "start"), of("Recorded", "start"));
    let lowest = |values: &[f64]| values.first().copied();
    match title {
        "scenario" | "loader" => Expected::Text(cells[usize::from(title == "loader")].to_owned()),
        "start to end of Native, s" => median(&unrecorded).into(),
        "recorded, s" => median(&recorded).into(),
        "ratio" => median(&recorded)
            .zip(median(&unrecorded))
            .map(|(a, b)| a / b)
            .into(),
        "ratio of fastest" => lowest(&recorded)
            .zip(lowest(&unrecorded))
            .map(|(a, b)| a / b)
            .into(),
        "lowest coverage" => lowest(&of("Recorded", "covered"))
            .map(|share| share * 100.0)
            .into(),
        "n" => Expected::Text(recorded.len().to_string()),
        _ => Expected::Text("unknown column".to_owned()),
    }
}

/// The target itself is not measured; the columns of the loaders and the verdict are.
fn target(results: &Value, cells: &[&str], title: &str) -> Expected {
    let bound = numbers(cells[1])
        .last()
        .map_or(f64::NAN, |(_, value, _)| *value);
    let other = cells[1]
        .strip_prefix("MAIO ÷ ")
        .and_then(|rest| Some(rest.split_once(" ≤")?.0));
    let of = |loader: &str| match other {
        Some(other) => {
            let load = |variant: &str| median(&runs(results, [cells[0], loader, variant], "load"));
            load("MAIO")
                .zip(load(other))
                .map(|(maio, other)| maio / other)
        }
        None => gain(results, [cells[0], loader, "MAIO"]),
    };
    match title {
        "scenario" | "target" => Expected::Text(cells[usize::from(title == "target")].to_owned()),
        "" => {
            let met = ["mmap", "pread"].iter().all(|loader| {
                of(loader).is_some_and(|value| {
                    if other.is_some() {
                        value <= bound
                    } else {
                        value >= bound
                    }
                })
            });
            Expected::Text(if met { "met" } else { "not met" }.to_owned())
        }
        loader => of(loader).into(),
    }
}

fn overhead(results: &Value, cells: &[&str], title: &str) -> Expected {
    let rows = results["rows"].as_array().into_iter().flatten();
    let Some(row) = rows.clone().find(|row| {
        ["reads", "filesystem", "cache"]
            .iter()
            .zip(cells)
            .all(|(name, cell)| row[*name] == *cell)
    }) else {
        return Expected::Text("no such row".to_owned());
    };
    let runs = |name: &str| {
        row[name]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_f64)
    };
    let (baseline, with_policy) = (
        sorted(runs("baseline").collect()),
        sorted(runs("with_policy").collect()),
    );
    match title {
        "reads" | "cache" => Expected::Text(row[title].as_str().unwrap_or_default().to_owned()),
        "file system" => Expected::Text(row["filesystem"].as_str().unwrap_or_default().to_owned()),
        "baseline, s" => median(&baseline).into(),
        "with empty policy, s" => median(&with_policy).into(),
        "ratio" => median(&with_policy)
            .zip(median(&baseline))
            .map(|(a, b)| a / b)
            .into(),
        "paired ratio" => median(&sorted(
            runs("with_policy")
                .zip(runs("baseline"))
                .map(|(a, b)| a / b)
                .collect(),
        ))
        .into(),
        "ratio of fastest" => with_policy
            .first()
            .zip(baseline.first())
            .map(|(a, b)| a / b)
            .into(),
        "CPU time of the runtime" => median(&sorted(runs("cpu_share").collect()))
            .map(|share| 100.0 * share)
            .into(),
        "events" => row["events"].as_f64().into(),
        "lost" => row["lost"].as_f64().into(),
        "resident, MB" => row["resident"].as_f64().map(|bytes| bytes / 1e6).into(),
        _ => Expected::Text("unknown column".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn block(name: &str, text: &str) -> Block {
        Block {
            kind: "pagecache",
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_figure_that_differs_from_the_runs_is_reported() {
        let run = |variant: &str, load: f64, covered: Option<f64>| {
            json!({"scenario": "s", "loader": "mmap", "variant": variant, "load": load, "start": 2.0 * load,
                "device_bytes": 3e9, "peak_memory": 1e9, "covered": covered})
        };
        let native = [2.0, 1.0, 3.0].map(|load| run("Native", load, None));
        let others = [
            run("PreCache", 0.5, None),
            run("MAIO", 1.0, None),
            run("Recorded", 2.5, Some(0.995)),
        ];
        let loads: Vec<Value> = native.into_iter().chain(others).collect();
        let provenance = json!({"date": "2026-11-21T01:02:03Z", "commit": "abc", "dirty": false, "cpu": "X 9",
            "kernel": "L", "rustc": "r"});
        let all = json!([{"run": null, "loads": loads}, {"run": provenance, "loads": []}]);
        let head = "| loader | variant | load, s | fastest | ÷ Native | share of possible gain | n |\n|---|---|---|---|---|---|---|\n";
        let wrong = |cells: &str| {
            compare(
                &all,
                &block("s", &format!("2026-11-21T01:02:03Z, X 9\n{head}{cells}\n")),
            )
        };
        assert_eq!(
            wrong("| mmap | Native | 2.00 | 1.00 | 1.00 | 0 % | 3 |"),
            Vec::<String>::new()
        );
        assert_eq!(
            wrong("| mmap | MAIO | 1.00 | 1.00 | 0.50 | 67 % | 1 |"),
            Vec::<String>::new()
        );
        assert_eq!(
            wrong("| mmap | MAIO | 1.00 | 1.00 | 0.50 | 68 % | 1 |").len(),
            1
        );
        assert_eq!(
            wrong("| mmap | MAIO | 1.01 | 0.99 | 0.51 | 67 % | 2 |").len(),
            4
        );
        assert_eq!(
            wrong("| pread | MAIO | 1.00 | 1.00 | 0.50 | 67 % | 1 |").len(),
            5,
            "no such runs"
        );
        assert_eq!(
            compare(&all, &block("s", "of 2026-11-22\n")).len(),
            1,
            "another date"
        );
        let targets = "| scenario | target | mmap | |\n|---|---|---|---|\n| s | MAIO ÷ Native ≤ 0.60 | 0.50 | met |\n";
        assert!(
            compare(&all, &block("targets", targets))
                .iter()
                .all(|wrong| wrong.starts_with("met ")),
            "no run by pread"
        );
        let table = "| scenario | loader | recorded, s | ratio | lowest coverage |\n|---|---|---|---|---|\n";
        let line = "| s | mmap | 5.00 | 1.250 | 99.50 % |\n";
        assert!(measured(&all, "s") && measured(&all, "recorded") && !measured(&all, "t"));
        assert_eq!(
            compare(&all, &block("recorded", &format!("{table}{line}"))),
            Vec::<String>::new()
        );
    }

    #[test]
    fn overheads_are_checked_against_their_row() {
        let all = json!({"run": {"date": "d", "commit": "c", "dirty": false, "cpu": "X", "kernel": "L", "rustc": "r"},
            "gib": 4, "rows": [{"reads": "read", "filesystem": "xfs", "cache": "warm", "baseline": [2.0, 1.0, 3.0], "with_policy": [2.2, 1.0, 9.0],
            "cpu_share": [0.02, 0.01, 0.03], "events": 7, "lost": 0, "resident": 6_100_000}]});
        let head = "4 GiB, 3 rounds\n| reads | file system | cache | baseline, s | ratio | paired ratio | ratio of fastest | CPU time of the runtime | events | lost | resident, MB |\n|---|\n";
        let wrong = |line: &str| compare(&all, &block("overhead", &format!("{head}{line}")));
        assert_eq!(
            wrong("| read | xfs | warm | 2.000 | 1.100 | 1.100 | 1.000 | 2.00 % | 7 | 0 | 6.1 |"),
            Vec::<String>::new()
        );
        assert_eq!(
            wrong("| read | xfs | warm | 2.001 | 1.110 | 1.000 | 1.000 | 2.01 % | 8 | 1 | 6.2 |")
                .len(),
            7
        );
        assert_eq!(
            wrong("| read | xfs | cold | 2.000 | 1.100 | 1.100 | 1.000 | 2.00 % | 7 | 0 | 6.1 |")
                .len(),
            11
        );
    }
}
