//! Section `inspect`: opens a file and lists its tensors, by us and by the peers. The limit is reading the header's bytes.

mod variants;

use std::process::ExitCode;

use crate::case::{Case, Measurement, Variant, this_program};
use crate::child_process::ProcessUsage;
use crate::report::{compare_each, options::Options, python};
use variants::VARIANTS;
pub use variants::one;

const SCRIPT: &str = include_str!("inspect/inspect.py");
const LIMIT: &str = "limit: reading the header's bytes";

/// Python variants and the extensions they read; `inspect.py` has the code.
static PYTHON_VARIANTS: &[(&str, &[&str])] = &[
    ("torch.load", &["pth"]),
    ("torch.load(mmap=True)", &["pth"]),
    ("numpy.load, headers only", &["npz"]),
    ("safetensors.safe_open", &["safetensors"]),
    ("safetensors.torch.load_file", &["safetensors"]),
    ("gguf.GGUFReader", &["gguf"]),
];

/// `peers inspect FILE…`.
pub fn compare(args: &[&str]) -> ExitCode {
    compare_each(args, |options: &Options, file| {
        vec![case(file, python::interpreter(options))]
    })
}

/// One file, by every variant that reads its format.
pub fn case(file: &str, python: Result<String, String>) -> Case {
    let (extension, name) = (
        file.rsplit('.').next().unwrap_or_default(),
        file.rsplit('/').next().unwrap_or(file),
    );
    let me = this_program();
    let rust = VARIANTS
        .iter()
        .filter(|(_, reads, _)| reads.contains(&extension));
    let mut variants: Vec<Variant> = rust
        .map(|(name, ..)| Variant::new(name, &[&me, "inspect-one", name, file], parse))
        .collect();
    let mut missing = missing_candle(extension);
    for (name, _) in PYTHON_VARIANTS
        .iter()
        .filter(|(_, reads)| reads.contains(&extension))
    {
        match &python {
            Ok(python) => variants.push(Variant::new(
                name,
                &[python, "-c", SCRIPT, name, file],
                parse,
            )),
            Err(reason) => missing.push(((*name).to_owned(), reason.clone())),
        }
    }
    Case {
        name: name.to_owned(),
        variants,
        missing,
        limit: Some(LIMIT),
        same: Some("tensors"),
        ..Case::default()
    }
}

/// candle-core with the reason why it is missing, if this program was built without it and it reads such files.
pub fn missing_candle(extension: &str) -> Vec<(String, String)> {
    let reads =
        !cfg!(feature = "candle") && ["safetensors", "gguf", "pth", "npz"].contains(&extension);
    let reason = "built without the feature `candle`";
    reads
        .then(|| ("candle-core".to_owned(), reason.to_owned()))
        .into_iter()
        .collect()
}

/// Median, minimum, and the number of tensors, which the limit does not print.
fn parse(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let text = String::from_utf8_lossy(&usage.stdout);
    let words: Vec<f64> = text
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let (median, fastest) = (*words.first()?, *words.get(1)?);
    let tensors = words.get(2).map(|tensors| ("tensors", *tensors));
    Some(vec![Measurement::new(
        median,
        [("fastest ns", fastest)]
            .into_iter()
            .chain(tensors)
            .collect(),
    )])
}
