//! Every fixture of the project into memory: files of a few kilobytes, where it counts what a load costs before its first
//! byte. One peer at a time, over the files that it reads as we do.

#[cfg(feature = "candle")]
mod candle;
mod one;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::alternate::{Case, Contender, Reading, myself};
use crate::child::{self, Usage};
use crate::load::Cache;
use crate::report::{Job, options::Options, python};
use crate::results::repository;

pub use one::one;

const SCRIPT: &str = concat!(include_str!("loaders.py"), include_str!("fixtures.py"));
const OURS: &str = "ours";
const CANDLE: &str = "candle-core 0.9";

/// Peers, and the extension of the files that they are given.
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

/// Of a file, by its number in the list: nanoseconds, and the sum of its tensors' bytes.
type Loads = BTreeMap<usize, (f64, u64)>;

pub fn jobs(_: &Options) -> Vec<Job> {
    let each = |&(peer, extension): &'static (&str, &str)| {
        [Cache::Warm, Cache::Cold].map(|cache| {
            let cold = if cache == Cache::Cold { ", cold" } else { "" };
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
    cache: Cache,
) -> Result<Case, String> {
    let theirs = program(options, peer)?;
    let mut all = Vec::new();
    found(&repository().join("fixtures"), extension, &mut all);
    all.sort();
    // what both read, and read as the same bytes
    let list = options
        .files()
        .join("fixtures")
        .join(name.replace(|c: char| !c.is_alphanumeric(), "_"));
    write(&list, &all)?;
    let ours = program(options, OURS)?;
    let (mine, others) = (loads(&ours, &list)?, loads(&theirs, &list)?);
    let is_same = |i: &usize| {
        mine.get(i)
            .zip(others.get(i))
            .is_some_and(|(a, b)| a.1 == b.1)
    };
    let both: Vec<PathBuf> = (0..all.len())
        .filter(is_same)
        .map(|i| all[i].clone())
        .collect();
    if both.is_empty() {
        return Err(format!("of {} files none is read by both", all.len()));
    }
    write(&list, &both)?;
    let contender = |variant: &str, words: &[String]| {
        let words: Vec<&str> = words
            .iter()
            .map(String::as_str)
            .chain([path(&list), cache.name()])
            .collect();
        Contender::new(variant, &words, read)
    };
    let contenders = vec![contender(OURS, &ours), contender(peer, &theirs)];
    Ok(Case {
        name: name.to_owned(),
        contenders,
        same: Some("sum"),
        ..Case::default()
    })
}

/// The command of a variant, in front of list and cache.
fn program(options: &Options, variant: &str) -> Result<Vec<String>, String> {
    if variant == CANDLE && !cfg!(feature = "candle") {
        return Err("this program was built without its feature `candle`".to_owned());
    }
    let words = if variant == OURS || variant == CANDLE {
        vec![myself(), "fixtures-one".to_owned(), variant.to_owned()]
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

fn loads(words: &[String], list: &Path) -> Result<Loads, String> {
    let cache = Cache::Warm.name();
    let usage = child::run(
        Command::new(&words[0])
            .args(&words[1..])
            .args([path(list), cache]),
        false,
    )?;
    Ok(lines(&usage))
}

/// A line for each file that could be loaded.
fn lines(usage: &Usage) -> Loads {
    let text = String::from_utf8_lossy(&usage.said);
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
fn read(usage: &Usage) -> Option<Vec<Reading>> {
    let loads = lines(usage);
    let mut reading = Reading::over(loads.values().map(|load| load.0).collect())?;
    // 53 bits are exact
    let sum = loads
        .values()
        .fold(0u64, |all, load| all.wrapping_add(load.1))
        & ((1 << 53) - 1);
    reading.more.push(("sum", sum as f64));
    Some(vec![reading])
}

fn found(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
    {
        let path = entry.path();
        if path.is_dir() {
            found(&path, extension, files);
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
}

fn write(list: &Path, files: &[PathBuf]) -> Result<(), String> {
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
    fn files_that_were_loaded_are_distributed() {
        let said = b"0\t30\t7\n2\t10\t5\na warning\n3\t20\t1\n".to_vec();
        let reading = &read(&Usage {
            said,
            ..Usage::default()
        })
        .unwrap()[0];
        assert_eq!(reading.ns, 20.0);
        assert!(reading.more.contains(&("most ns", 30.0)) && reading.more.contains(&("sum", 13.0)));
        assert!(reading.more.contains(&("files", 3.0)));
        assert!(read(&Usage::default()).is_none());
    }
}
