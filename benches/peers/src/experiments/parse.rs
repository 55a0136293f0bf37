//! A large file parsed from memory that it was read into, from a map, and by positioned reads.

use std::fs::File;

use anamnesis::{Checkpoint, OpenOptions};

use super::{case, often};
use crate::inspect;
use crate::make;
use crate::report::{Job, options::Options};

const NAME: &str = "parse-read-or-map";
const VARIANTS: &[&str] = &[
    "ours: path, positioned reads",
    "ours: path, not mapped",
    "fs::read, from_bytes",
    "mmap, from_bytes",
    "anamnesis 0.7.10: path",
    "limit: fs::read alone",
];

pub fn jobs(_: &Options) -> Vec<Job> {
    let job = |name: &'static str| {
        Job::new(name, move |options: &Options| {
            let file = make::file(options, name)?;
            let mut case = case(NAME, name, VARIANTS, &[&file], inspect::read);
            case.same = Some("tensors");
            case.limit = VARIANTS.last().copied();
            Ok(case)
        })
    };
    ["model.safetensors", "model.gguf"].map(job).into()
}

pub fn one(variant: &str, args: &[&str]) -> Option<()> {
    let &[path] = args else { return None };
    let count = |checkpoint: anamnesis::Result<Checkpoint>| {
        checkpoint.expect("it opens").catalog().tensors().len()
    };
    let (median, least, tensors) = match variant {
        "ours: path, positioned reads" => often(|| count(Checkpoint::open(path))),
        "ours: path, not mapped" => often(|| count(OpenOptions::new().map(false).open(path))),
        "fs::read, from_bytes" => often(|| {
            count(Checkpoint::from_bytes(
                std::fs::read(path).expect("the file"),
            ))
        }),
        "mmap, from_bytes" => often(|| {
            // SAFETY: a file of the benchmark's own, which nobody truncates meanwhile.
            let map =
                unsafe { memmap2::Mmap::map(&File::open(path).expect("the file")).expect("a map") };
            count(Checkpoint::from_bytes(map))
        }),
        "anamnesis 0.7.10: path" if path.ends_with(".gguf") => {
            often(|| peer::parse_gguf(path).expect("it opens").len())
        }
        "anamnesis 0.7.10: path" => {
            often(|| peer::parse(path).expect("it opens").header.tensors.len())
        }
        "limit: fs::read alone" => {
            let (median, least, _) = often(|| std::fs::read(path).expect("the file").len());
            println!("{median} {least}"); // it sees no tensors
            return Some(());
        }
        _ => return None,
    };
    println!("{median} {least} {tensors}");
    Some(())
}
