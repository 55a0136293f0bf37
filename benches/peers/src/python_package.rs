//! Section `python`: our Python package (`crates/python`) and what Python programs use instead. A process loads a file several
//! times; the first load and the last are separate rows, because memory and maps are new in the first.

use crate::case::{Case, Measurement, ParseOutput, Variant, this_program};
use crate::child_process::ProcessUsage;
use crate::generate;
use crate::load::{self, PageCache};
use crate::report::{Job, options::Options, python};
use crate::results::repository;

/// Variants, the extensions that they read, and whether the tensors are weights dequantised to BF16. `loaders.py` has the code.
const LOADERS: &[(&str, &[&str], bool)] = &[
    (
        "ours, borrowed",
        &["safetensors", "pth", "npz", "gguf"],
        false,
    ),
    ("ours, owned", &["safetensors", "pth", "npz", "gguf"], false),
    ("safetensors.torch.load_file", &["safetensors"], false),
    (
        "safetensors.torch.load_file(backend=pread)",
        &["safetensors"],
        false,
    ),
    ("safetensors 0.9 rc, load_file", &["safetensors"], false),
    (
        "safetensors 0.9 rc, load_file(backend=pread)",
        &["safetensors"],
        false,
    ),
    ("safetensors.safe_open", &["safetensors"], false),
    ("fastsafetensors", &["safetensors"], false),
    ("run:ai model streamer", &["safetensors"], false),
    ("torch.load", &["pth"], false),
    ("torch.load(mmap=True)", &["pth"], false),
    ("numpy.load", &["npz"], false),
    ("gguf.GGUFReader", &["gguf"], false),
    ("ours, remember to BF16", &["gguf"], true),
    ("gguf.dequantize to BF16", &["gguf"], true),
];

/// A program that starts, imports and lists a small file.
const STARTS: &[(&str, &str)] = &[
    ("limit: an interpreter that does nothing", "import sys"),
    (
        "ours",
        "import sys, anamnesis; anamnesis.inspect(sys.argv[1])",
    ),
    (
        "safetensors.safe_open",
        "import sys, safetensors; list(safetensors.safe_open(sys.argv[1], 'np').keys())",
    ),
];

pub fn jobs(_: &Options) -> Vec<Job> {
    let loading = [
        ("model.safetensors", PageCache::Warm, false),
        ("model.safetensors", PageCache::Cold, false),
        ("large.safetensors", PageCache::Warm, false),
        ("large.safetensors", PageCache::Cold, false),
        ("model.pth", PageCache::Warm, false),
        ("model.pth", PageCache::Cold, false),
        ("model.npz", PageCache::Warm, false),
        ("model.npz", PageCache::Cold, false),
        ("model.gguf", PageCache::Warm, false),
        ("model.gguf", PageCache::Warm, true),
    ];
    let loading = loading.map(|(file, cache, dequantised)| {
        let name = format!("{file}, {}, {dequantised}", cache.name());
        Job::new(&name, move |options| {
            let path = generate::file(options, file)?;
            load_case(&path, cache, dequantised, &python::interpreter(options)?)
        })
    });
    let start = Job::new("start", |options| {
        Ok(start_case(&python::interpreter(options)?))
    });
    [start].into_iter().chain(loading).collect()
}

fn load_case(
    path: &str,
    cache: PageCache,
    dequantised: bool,
    python: &str,
) -> Result<Case, String> {
    let (_, file) = path.rsplit_once('/').unwrap_or(("", path));
    let (_, extension) = file.rsplit_once('.').ok_or("a file without an extension")?;
    let chosen = LOADERS
        .iter()
        .filter(|(_, reads, bf16)| reads.contains(&extension) && *bf16 == dequantised);
    let mut variants: Vec<Variant> = chosen
        .map(|(name, ..)| {
            let command = [python, "-c", load::SCRIPT, name, path, cache.name()];
            Variant::new(name, &command, parse_loads)
        })
        .collect();
    let mut limit = None;
    if !dequantised && cache == PageCache::Warm {
        let command = [
            &this_program(),
            "load-one",
            load::MEMCPY,
            path,
            cache.name(),
        ];
        variants.push(Variant::new(load::MEMCPY, &command, parse_loads));
        limit = Some(load::MEMCPY);
    }
    let path = path.to_owned();
    Ok(Case {
        name: match (dequantised, cache) {
            (true, _) => format!("{file} to BF16,"),
            (false, PageCache::Warm) => format!("{file},"),
            (false, _) => format!("{file}, cold,"),
        },
        variants,
        limit,
        same: Some("sum"),
        before: Some(Box::new(move || cache.prepare(&path))),
        ..Case::default()
    })
}

fn start_case(python: &str) -> Case {
    let file = repository().join("fixtures/safetensors/many.safetensors");
    let file = file.to_str().expect("a path in UTF-8").to_owned();
    let wall: ParseOutput = |usage| {
        let cpu = usage.cpu.as_nanos() as f64;
        let wall = usage.wall.as_nanos() as f64;
        Some(vec![Measurement::new(wall, vec![("CPU time ns", cpu)])])
    };
    let variant =
        |(name, code): &(&str, &str)| Variant::new(name, &[python, "-c", code, &file], wall);
    Case {
        name: "start, import and list a small file".to_owned(),
        variants: STARTS.iter().map(variant).collect(),
        limit: Some(STARTS[0].0),
        ..Case::default()
    }
}

/// Two figures: the first load of the process, and the last.
fn parse_loads(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let loads = load::measured_loads(usage)?;
    let row = |load: &load::MeasuredLoad, suffix: &str| Measurement {
        suffix: suffix.to_owned(),
        ..Measurement::new(load.took, load.more().collect())
    };
    let (first, last) = (loads.first()?, loads.last()?);
    Some(vec![row(first, "first load"), row(last, "repeated load")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_load_are_two_rows() {
        let usage = |text: &str| ProcessUsage {
            stdout: text.as_bytes().to_vec(),
            ..ProcessUsage::default()
        };
        let parsed = parse_loads(&usage("900 7 800 1 5\n300 1 90 1 5\n100 2 80 1 5\n")).unwrap();
        assert_eq!((parsed[0].ns, &*parsed[0].suffix), (900.0, "first load"));
        assert_eq!((parsed[1].ns, &*parsed[1].suffix), (100.0, "repeated load"));
        assert!(parse_loads(&usage("Traceback")).is_none());
        assert!(parse_loads(&usage("")).is_none());
    }
}
