//! Opening and listing files: ours, the peers', and reading as many bytes as the header has.

use std::process::ExitCode;

use crate::alternate::{Case, Contender, Reading, myself};
use crate::child::Usage;
use crate::report::{options::Options, python, show};
use crate::variants::VARIANTS;

const PYTHON: &str = include_str!("peers.py");
const LIMIT: &str = "limit: reading the header's bytes";

/// Python variants and the extensions they read; `peers.py` has the code.
static PYTHON_VARIANTS: &[(&str, &[&str])] = &[
    ("torch.load", &["pth"]),
    ("torch.load(mmap=True)", &["pth"]),
    ("numpy.load, listed", &["npz"]),
    ("safetensors.safe_open", &["safetensors"]),
    ("safetensors.torch.load_file", &["safetensors"]),
    ("gguf.GGUFReader", &["gguf"]),
];

pub fn open(args: &[&str]) -> ExitCode {
    show(args, |options: &Options, file| {
        vec![case(file, python::interpreter(options))]
    })
}

/// One file, by everyone who reads it.
pub fn case(file: &str, python: Result<String, String>) -> Case {
    let (extension, name) = (
        file.rsplit('.').next().unwrap_or_default(),
        file.rsplit('/').next().unwrap_or(file),
    );
    let me = myself();
    let mine = VARIANTS
        .iter()
        .filter(|(_, reads, _)| reads.contains(&extension));
    let mut contenders: Vec<Contender> = mine
        .map(|(name, ..)| Contender::new(name, &[&me, "one", name, file], read))
        .collect();
    let mut missing = candle_left_out(extension);
    for (name, _) in PYTHON_VARIANTS
        .iter()
        .filter(|(_, reads)| reads.contains(&extension))
    {
        match &python {
            Ok(python) => contenders.push(Contender::new(
                name,
                &[python, "-c", PYTHON, name, file],
                read,
            )),
            Err(why) => missing.push(((*name).to_owned(), why.clone())),
        }
    }
    Case {
        name: name.to_owned(),
        contenders,
        missing,
        limit: Some(LIMIT),
        same: Some("tensors"),
        ..Case::default()
    }
}

/// The peer that this program may have been built without, for files that it reads, and why.
pub fn candle_left_out(extension: &str) -> Vec<(String, String)> {
    let reads =
        !cfg!(feature = "candle") && ["safetensors", "gguf", "pth", "npz"].contains(&extension);
    let why = "this program was built without its feature `candle`";
    reads
        .then(|| ("candle-core".to_owned(), why.to_owned()))
        .into_iter()
        .collect()
}

/// Median, minimum, and the number of tensors; the limit sees none.
pub fn read(usage: &Usage) -> Option<Vec<Reading>> {
    let text = String::from_utf8_lossy(&usage.said);
    let words: Vec<f64> = text
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let (median, least) = (*words.first()?, *words.get(1)?);
    let tensors = words.get(2).map(|tensors| ("tensors", *tensors));
    Some(vec![Reading::new(
        median,
        [("least ns", least)].into_iter().chain(tensors).collect(),
    )])
}
