//! A file's tensors into memory, every page touched: ours, what one would write by hand, and others' libraries. One
//! process per variant, alternating; the second load of a process is where pools and allocators differ.

mod allocated;
mod cache;
#[cfg(feature = "candle")]
pub mod candle;
mod dequantise;
mod raw;
mod variants;

use std::process::{Command, ExitCode};

use crate::alternate::{Case, Contender, Reading, myself};
use crate::child::Usage;
use crate::inspect::candle_left_out;
use crate::report::{options::Options, python, show};
use dequantise::DEQUANTISE;
use variants::{VARIANTS, Variant};

const PYTHON: &str = concat!(include_str!("loaders.py"), include_str!("load.py"));
const COPY: &str = "limit: memcpy of as many bytes";
const DEVICE: &str = "whole file: raw io_uring loop, direct";

/// What the variants are called, or begin with, that a file of gigabytes is loaded by: what direct reads are compared with.
const OF_LARGE: [&str; 9] = [
    "ours, owned",
    "ours, lent",
    "ours, io_uring, direct",
    DEVICE,
    "whole file: vec![0] + read_exact",
    "whole file: one buffer that is there",
    "whole file: dd",
    "whole file: fio",
    "safetensors.torch.load_file",
];

/// Python variants and the extensions they read; `load.py` has the code.
type Python = [(&'static str, &'static [&'static str])];

static PYTHON_VARIANTS: &Python = &[
    ("safetensors.torch.load_file", &["safetensors"]),
    ("safetensors.safe_open", &["safetensors"]),
    ("torch.load", &["pth", "pt"]),
    ("torch.load(mmap=True)", &["pth", "pt"]),
    ("numpy.load", &["npz"]),
    ("gguf.GGUFReader", &["gguf"]),
];
static PYTHON_DEQUANTISE: &Python = &[("gguf.dequantize, to F32, one by one", &["gguf"])];

pub fn compare(args: &[&str]) -> ExitCode {
    show(args, |options: &Options, file| {
        let cache = if options.cold {
            Cache::Cold
        } else {
            Cache::Warm
        };
        vec![case(file, cache, python::interpreter(options))]
    })
}

/// Quantised weights brought back into memory: the pool's, and new.
pub fn dequantise(args: &[&str]) -> ExitCode {
    show(args, |options: &Options, file| {
        vec![dequantise_case(file, python::interpreter(options))]
    })
}

pub fn dequantise_case(file: &str, python: Result<String, String>) -> Case {
    Case {
        limit: Some(dequantise::LIMIT),
        ..measured(file, DEQUANTISE, PYTHON_DEQUANTISE, Cache::Warm, python)
    }
}

/// One file's tensors into memory; cold, the page cache is without the file before each load.
pub fn case(file: &str, cache: Cache, python: Result<String, String>) -> Case {
    let mut case = measured(file, VARIANTS, PYTHON_VARIANTS, cache, python);
    if cache == Cache::Cold {
        case.contenders
            .retain(|contender| contender.variant != COPY); // no file is read by it
        devices(file, &mut case);
    }
    case
}

/// A file of gigabytes, cold.
pub fn large(file: &str, python: Result<String, String>) -> Case {
    let mut case = case(file, Cache::Cold, python);
    let stays = |name: &str| OF_LARGE.iter().any(|of| name.starts_with(of));
    case.contenders
        .retain(|contender| stays(&contender.variant));
    case.missing.retain(|(variant, _)| stays(variant));
    case
}

fn measured(
    file: &str,
    rust: &[Variant],
    python: &Python,
    cache: Cache,
    interpreter: Result<String, String>,
) -> Case {
    let extension = file.rsplit('.').next().unwrap_or_default();
    let name = file.rsplit('/').next().unwrap_or(file);
    let me = myself();
    let ours = rust
        .iter()
        .filter(|v| v.reads.contains(&extension) || v.reads.is_empty());
    let ours =
        ours.map(|v| Contender::new(v.name, &[&me, "load-one", v.name, file, cache.name()], read));
    let mut contenders: Vec<Contender> = ours.collect();
    let mut missing = candle_left_out(extension);
    for (name, _) in python
        .iter()
        .filter(|(_, reads)| reads.contains(&extension))
    {
        match &interpreter {
            Ok(python) => contenders.push(Contender::new(
                name,
                &[python, "-c", PYTHON, name, file, cache.name()],
                read,
            )),
            Err(why) => missing.push(((*name).to_owned(), why.clone())),
        }
    }
    let path = file.to_owned();
    let before: Box<dyn Fn()> = Box::new(move || cache.prepare(&path));
    let (name, limit) = match cache {
        Cache::Cold => (format!("{name}, cold"), DEVICE),
        Cache::Warm => (name.to_owned(), COPY),
    };
    Case {
        name,
        contenders,
        missing,
        limit: Some(limit),
        same: Some("sum"),
        before: Some(before),
        check: None,
    }
}

/// What the device gives to programs that do nothing else.
fn devices(file: &str, case: &mut Case) {
    let whole: crate::alternate::Read = |usage| {
        let cpu = usage.cpu.as_nanos() as f64;
        Some(vec![Reading::new(
            usage.wall.as_nanos() as f64,
            vec![("processor ns", cpu)],
        )])
    };
    let (from, name) = (format!("if={file}"), format!("--filename={file}"));
    let dd = [
        "dd",
        &from,
        "of=/dev/null",
        "bs=2M",
        "iflag=direct",
        "status=none",
    ];
    case.contenders
        .push(Contender::new("whole file: dd, direct", &dd, whole));
    let fio = [
        "fio",
        "--name=read",
        &name,
        "--rw=read",
        "--bs=2m",
        "--iodepth=16",
        "--ioengine=io_uring",
    ];
    let fio: Vec<&str> = fio
        .into_iter()
        .chain(["--direct=1", "--output-format=json"])
        .collect();
    if Command::new("fio").arg("--version").output().is_ok() {
        case.contenders.push(Contender::new(
            "whole file: fio, io_uring, direct",
            &fio,
            fio_read,
        ));
    } else {
        case.missing.push((
            "whole file: fio".to_owned(),
            "fio is not installed".to_owned(),
        ));
    }
}

/// What `fio` says its reading took: its process takes half a second more. It leaves out what is behind the last 2 MiB.
fn fio_read(usage: &Usage) -> Option<Vec<Reading>> {
    let text = String::from_utf8_lossy(&usage.said);
    // warnings come first
    let said: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let read = &said["jobs"][0]["read"];
    let ms = read["runtime"]
        .as_f64()
        .filter(|_| read["io_bytes"].as_u64() > Some(0))?;
    Some(vec![Reading::new(
        ms * 1e6,
        vec![("processor ns", usage.cpu.as_nanos() as f64)],
    )])
}

/// A line for each load of the process: the median of those after the first, or its only one.
pub fn read(usage: &Usage) -> Option<Vec<Reading>> {
    let text = String::from_utf8_lossy(&usage.said);
    let mut loads = Vec::new();
    for line in text.lines() {
        let words: Option<Vec<f64>> = line
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect();
        let &[took, faults, cpu, ref sum @ ..] = &*words? else {
            return None;
        };
        loads.push((took, faults, cpu, sum.first().copied()));
    }
    let first = loads.first()?.0;
    let mut again = if loads.len() > 1 {
        loads.split_off(1)
    } else {
        loads
    };
    again.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (took, faults, cpu, sum) = again[again.len() / 2];
    let sum = sum.map(|sum| ("sum", sum));
    let more = [
        ("first ns", first),
        ("processor ns", cpu),
        ("faults", faults),
    ];
    Some(vec![Reading::new(
        took,
        more.into_iter().chain(sum).collect(),
    )])
}

pub use cache::Cache;
pub use variants::{one, spent, touched};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_after_the_first_count() {
        let usage = Usage {
            said: b"900 7 800 5\n300 1 90 5\n100 2 80 5\n".to_vec(),
            ..Usage::default()
        };
        let reading = &read(&usage).unwrap()[0];
        assert_eq!(reading.ns, 300.0);
        assert_eq!(
            reading.more,
            [
                ("first ns", 900.0),
                ("processor ns", 90.0),
                ("faults", 1.0),
                ("sum", 5.0)
            ]
        );
        assert!(
            read(&Usage {
                said: b"panicked".to_vec(),
                ..Usage::default()
            })
            .is_none()
        );
    }

    #[test]
    fn fio_says_how_long_it_read() {
        let said = |bytes: u64| {
            let text = format!(
                "fio: a warning\n{{\"jobs\":[{{\"read\":{{\"io_bytes\":{bytes},\"runtime\":12}}}}]}}\n"
            );
            fio_read(&Usage {
                said: text.into_bytes(),
                ..Usage::default()
            })
        };
        assert_eq!(said(4 << 20).unwrap()[0].ns, 12e6);
        assert!(said(0).is_none(), "it read nothing");
    }
}
