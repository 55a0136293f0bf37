//! PyTorch files by path, by reader and by torch: a large one, and 6 960 small ones of four families.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Instant;

use anamnesis::{Checkpoint, OpenOptions};

use super::case;
use crate::alternate::{Case, Contender, Reading};
use crate::child::Usage;
use crate::make;
use crate::report::{Job, options::Options, python};

const NAME: &str = "pth-by-reader";
const SCRIPT: &str = include_str!("pth.py");
/// How often each file is opened; the median counts.
const EACH: usize = 5;
const VARIANTS: &[&str] = &[
    "ours: path",
    "ours: path, not mapped",
    "ours: reader",
    "ours: reader, BufReader",
    "anamnesis 0.7.10: path (map)",
    "anamnesis 0.7.10: reader",
];
const PYTHON: [&str; 2] = ["torch.load", "torch.load(mmap=True)"];

pub fn jobs(_: &Options) -> Vec<Job> {
    let large = Job::new("model.pth", |options| {
        everyone(options, "model.pth", &make::file(options, "model.pth")?)
    });
    let small = Job::new("small files", |options| {
        everyone(options, "small files,", &corpus(options)?)
    });
    vec![large, small]
}

fn everyone(options: &Options, name: &str, path: &str) -> Result<Case, String> {
    let mut case = case(NAME, name, VARIANTS, &[path], read);
    case.same = Some("sum");
    for variant in PYTHON {
        match python::interpreter(options) {
            Ok(python) => case.contenders.push(Contender::new(
                variant,
                &[&python, "-c", SCRIPT, variant, path],
                read,
            )),
            Err(why) => case.missing.push((variant.to_owned(), why)),
        }
    }
    Ok(case)
}

/// The folder of small files, made if it is not there.
fn corpus(options: &Options) -> Result<String, String> {
    let folder = options.files().join("pth");
    let path = folder.to_str().expect("a printable path").to_owned();
    if !folder.join("made").exists() {
        python::script(
            options,
            "make_small_pth.py",
            &[&path, if options.small { "100" } else { "1" }],
        )?;
    }
    Ok(path)
}

/// The files of a folder, or one alone; each with its family, which its name begins with.
fn files(path: &Path) -> Option<Vec<(String, String)>> {
    let family = |name: &str| {
        name.rsplit_once('_')
            .map_or("", |(family, _)| family)
            .to_owned()
    };
    if path.is_file() {
        return Some(vec![(String::new(), path.to_str()?.to_owned())]);
    }
    let entries = std::fs::read_dir(path).ok()?.filter_map(Result::ok);
    let paths = entries.filter_map(|entry| entry.path().to_str().map(str::to_owned));
    let mut all: Vec<(String, String)> = paths
        .filter(|path| path.ends_with(".pth"))
        .map(|path| (family(path.rsplit('/').next().unwrap_or_default()), path))
        .collect();
    all.sort();
    Some(all)
}

/// A line for each file: its family, its median in nanoseconds, and its tensors.
pub fn one(variant: &str, args: &[&str]) -> Option<()> {
    let count = |checkpoint: anamnesis::Result<Checkpoint>| {
        checkpoint.expect("it opens").catalog().tensors().len()
    };
    let opened = |path: &str| File::open(path).expect("the file");
    let open: Box<dyn Fn(&str) -> usize> = match variant {
        "ours: path" => Box::new(|path| count(Checkpoint::open(path))),
        "ours: path, not mapped" => {
            Box::new(|path| count(OpenOptions::new().map(false).open(path)))
        }
        "ours: reader" => Box::new(|path| count(Checkpoint::from_reader(opened(path)))),
        "ours: reader, BufReader" => {
            Box::new(|path| count(Checkpoint::from_reader(BufReader::new(opened(path)))))
        }
        "anamnesis 0.7.10: path (map)" => Box::new(|path| {
            peer::parse_pth(path)
                .expect("it opens")
                .inspect()
                .tensor_count
        }),
        "anamnesis 0.7.10: reader" => Box::new(|path| {
            peer::inspect_pth_from_reader(opened(path))
                .expect("it opens")
                .tensor_count
        }),
        _ => return None,
    };
    for (family, path) in files(Path::new(args.first()?))? {
        let tensors = open(&path); // warm
        let mut times = [(); EACH].map(|()| {
            let began = Instant::now();
            assert_eq!(open(&path), tensors);
            began.elapsed().as_nanos()
        });
        times.sort_unstable();
        println!("{family}\t{}\t{tensors}", times[EACH / 2]);
    }
    Some(())
}

/// The distribution over the files' medians: of all, and of each family.
fn read(usage: &Usage) -> Option<Vec<Reading>> {
    let text = String::from_utf8_lossy(&usage.said);
    let mut families: BTreeMap<&str, (Vec<f64>, f64)> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split('\t');
        let (family, ns, tensors) = (
            words.next()?,
            words.next()?.parse().ok()?,
            words.next()?.parse::<f64>().ok()?,
        );
        for name in if family.is_empty() {
            vec![""]
        } else {
            vec!["all", family]
        } {
            let of = families.entry(name).or_default();
            of.0.push(ns);
            of.1 += tensors;
        }
    }
    let readings = families
        .into_iter()
        .filter_map(|(family, (times, tensors))| {
            let mut reading = Reading {
                of: family.to_owned(),
                ..Reading::over(times)?
            };
            reading.more.extend(
                [("sum", tensors)]
                    .into_iter()
                    .filter(|_| family.is_empty() || family == "all"),
            );
            Some(reading)
        });
    Some(readings.collect::<Vec<_>>()).filter(|readings| !readings.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_distributed_over_all_and_their_family() {
        let said = "a\t10\t3\na\t30\t3\nb\t20\t5\nb\t40\t5\nb\t50\t5\n"
            .as_bytes()
            .to_vec();
        let readings = read(&Usage {
            said,
            ..Usage::default()
        })
        .unwrap();
        let seen: Vec<(&str, f64)> = readings.iter().map(|r| (r.of.as_str(), r.ns)).collect();
        assert_eq!(seen, [("a", 30.0), ("all", 30.0), ("b", 40.0)]);
        assert!(
            readings[1].more.contains(&("most ns", 50.0))
                && readings[1].more.contains(&("sum", 21.0))
        );
        assert!(read(&Usage::default()).is_none());
    }
}
