//! Section `fixtures`: loads every fixture of the project, files of a few kilobytes each, whose time is the fixed cost of a
//! load. Each case compares one peer with us over the files that both read to the same bytes.

#[cfg(feature = "candle")]
mod candle;
mod one;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::case::{Case, Measurement, Variant, this_program};
use crate::child_process::{self, ProcessUsage};
use crate::load::PageCache;
use crate::report::{Job, options::Options, python};
use crate::results::repository;

pub use one::one;

const SCRIPT: &str = concat!(
    include_str!("loaders.py"),
    include_str!("fixtures/fixtures.py")
);
const OURS: &str = "ours";
const CANDLE: &str = "candle-core 0.9";

/// Peers, and the extension of the files they load.
static PEERS: &[(&str, &str)] = &[
    ("safetensors.torch.load_file", "safetensors"),
    ("safetensors.safe_open", "safetensors"),
    (CANDLE, "safetensors"),
    ("torch.load", "pth"),
    ("torch.load(mmap=True)", "pth"),
    (CANDLE, "pth"),
    ("numpy.load", "npz"),
    (CANDLE, "npz"),
    ("numpy.load", "npy"),
    (CANDLE, "npy"),
    ("gguf.GGUFReader", "gguf"),
    (CANDLE, "gguf"),
];

/// By a file's number in the list: nanoseconds of a load, and the sum of all bytes of its tensors.
type Loads = BTreeMap<usize, (f64, u64)>;

pub fn jobs(_: &Options) -> Vec<Job> {
    let each = |&(peer, extension): &'static (&str, &str)| {
        [PageCache::Warm, PageCache::Cold].map(|cache| {
            let cold = if cache == PageCache::Cold {
                ", cold"
            } else {
                ""
            };
            let name = format!("*.{extension}, {peer}{cold}");
            Job::new(&name.clone(), move |options| {
                case(options, &name, peer, extension, cache)
            })
        })
    };
    PEERS.iter().flat_map(each).collect()
}

fn case(
    options: &Options,
    name: &str,
    peer: &str,
    extension: &str,
    cache: PageCache,
) -> Result<Case, String> {
    let peer_command = command(options, peer)?;
    let mut all = Vec::new();
    find_files(&repository().join("fixtures"), extension, &mut all);
    all.sort();
    // only files that both read to the same bytes are timed
    let list = options
        .files()
        .join("fixtures")
        .join(name.replace(|c: char| !c.is_alphanumeric(), "_"));
    write_list(&list, &all)?;
    let our_command = command(options, OURS)?;
    let (ours, theirs) = (loads(&our_command, &list)?, loads(&peer_command, &list)?);
    let is_same = |i: &usize| {
        ours.get(i)
            .zip(theirs.get(i))
            .is_some_and(|(a, b)| a.1 == b.1)
    };
    let both: Vec<PathBuf> = (0..all.len())
        .filter(is_same)
        .map(|i| all[i].clone())
        .collect();
    if both.is_empty() {
        return Err(format!(
            "none of {} files is read to the same bytes by both",
            all.len()
        ));
    }
    write_list(&list, &both)?;
    let variant = |name: &str, words: &[String]| {
        let words: Vec<&str> = words
            .iter()
            .map(String::as_str)
            .chain([path(&list), cache.name()])
            .collect();
        Variant::new(name, &words, parse)
    };
    let variants = vec![variant(OURS, &our_command), variant(peer, &peer_command)];
    Ok(Case {
        name: name.to_owned(),
        variants,
        same: Some("sum"),
        ..Case::default()
    })
}

/// The command of a variant, to which the list and the state of the page cache are appended.
fn command(options: &Options, variant: &str) -> Result<Vec<String>, String> {
    if variant == CANDLE && !cfg!(feature = "candle") {
        return Err("built without the feature `candle`".to_owned());
    }
    let words = if variant == OURS || variant == CANDLE {
        vec![
            this_program(),
            "fixtures-one".to_owned(),
            variant.to_owned(),
        ]
    } else {
        vec![
            python::interpreter(options)?,
            "-c".to_owned(),
            SCRIPT.to_owned(),
            variant.to_owned(),
        ]
    };
    Ok(words)
}

/// Loads every file of the list once per process, warm.
fn loads(words: &[String], list: &Path) -> Result<Loads, String> {
    let cache = PageCache::Warm.name();
    let usage = child_process::run(
        Command::new(&words[0])
            .args(&words[1..])
            .args([path(list), cache]),
        false,
    )?;
    Ok(parse_lines(&usage))
}

/// A line for each file that could be loaded: number, nanoseconds, sum. Other lines are warnings of the peers.
fn parse_lines(usage: &ProcessUsage) -> Loads {
    let text = String::from_utf8_lossy(&usage.stdout);
    let line = |line: &str| {
        let mut words = line.split('\t');
        let (number, ns, sum) = (
            words.next()?.parse().ok()?,
            words.next()?.parse().ok()?,
            words.next()?.parse().ok()?,
        );
        Some((number, (ns, sum)))
    };
    text.lines().filter_map(line).collect()
}

/// The distribution over the files.
fn parse(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let loads = parse_lines(usage);
    let mut measurement = Measurement::over_files(loads.values().map(|load| load.0).collect())?;
    // an f64 holds 53 bits exactly
    let sum = loads
        .values()
        .fold(0u64, |all, load| all.wrapping_add(load.1))
        & ((1 << 53) - 1);
    measurement.more.push(("sum", sum as f64));
    Some(vec![measurement])
}

fn find_files(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
    {
        let path = entry.path();
        if path.is_dir() {
            find_files(&path, extension, files);
        } else if path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
}

fn write_list(list: &Path, files: &[PathBuf]) -> Result<(), String> {
    let lines: Vec<&str> = files.iter().map(|file| path(file)).collect();
    let folder = list.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| fs::write(list, lines.join("\n")))
        .map_err(|e| format!("{}: {e}", list.display()))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a printable path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_over_the_loaded_files() {
        let stdout = b"0\t30\t7\n2\t10\t5\na warning\n3\t20\t1\n".to_vec();
        let measurement = &parse(&ProcessUsage {
            stdout,
            ..ProcessUsage::default()
        })
        .unwrap()[0];
        assert_eq!(measurement.ns, 20.0);
        assert!(measurement.more.contains(&("slowest ns", 30.0)));
        assert!(measurement.more.contains(&("sum", 13.0)));
        assert!(measurement.more.contains(&("files", 3.0)));
        assert!(parse(&ProcessUsage::default()).is_none());
    }
}
