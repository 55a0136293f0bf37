//! Sections `load` and `cold`: loads a file's tensors into memory and touches every page, by us, by hand-written code and by
//! other libraries. A process loads several times: pools and allocators differ from its second load on.

#[cfg(feature = "candle")]
pub mod candle;
mod dequantise;
mod new_process;
mod page_cache;
mod raw_io_uring;
mod variants;

use std::process::{Command, ExitCode};

use crate::case::{Case, Measurement, Variant, this_program};
use crate::child_process::ProcessUsage;
use crate::inspect::missing_candle;
use crate::report::{compare_each, options::Options, python};
use dequantise::DEQUANTISE;
use variants::{LoadVariant, VARIANTS};

/// Loads in Python: arguments are the variant, the file and `warm` or `cold`.
pub const SCRIPT: &str = concat!(include_str!("loaders.py"), include_str!("load/load.py"));
pub const MEMCPY: &str = "limit: memcpy of the same size";
const RAW_IO_URING: &str = "whole file: raw io_uring loop, direct";

/// Prefixes of the variants that load the file of 4 GB: direct reads, and what they are compared with.
const LARGE_FILE_VARIANTS: [&str; 9] = [
    "ours, owned",
    "ours, borrowed",
    "ours, io_uring, direct",
    RAW_IO_URING,
    "whole file: vec![0] + read_exact",
    "whole file: one reused buffer, read_exact",
    "whole file: dd",
    "whole file: fio",
    "safetensors.torch.load_file",
];

/// Python variants and the extensions they read; `load.py` has the code.
type PythonVariants = [(&'static str, &'static [&'static str])];

static PYTHON_VARIANTS: &PythonVariants = &[
    ("safetensors.torch.load_file", &["safetensors"]),
    ("safetensors.safe_open", &["safetensors"]),
    ("torch.load", &["pth", "pt"]),
    ("torch.load(mmap=True)", &["pth", "pt"]),
    ("numpy.load", &["npz"]),
    ("gguf.GGUFReader", &["gguf"]),
];
static PYTHON_DEQUANTISE: &PythonVariants =
    &[("gguf.dequantize, to F32, one at a time", &["gguf"])];

/// `peers load FILE…`.
pub fn compare(args: &[&str]) -> ExitCode {
    compare_each(args, |options: &Options, file| {
        let cache = if options.cold {
            PageCache::Cold
        } else {
            PageCache::Warm
        };
        vec![case(file, cache, python::interpreter(options))]
    })
}

/// `peers dequantise FILE…`: dequantises all weights into memory of the pool, and into new memory.
pub fn dequantise(args: &[&str]) -> ExitCode {
    compare_each(args, |options: &Options, file| {
        vec![dequantise_case(file, python::interpreter(options))]
    })
}

pub fn dequantise_case(file: &str, python: Result<String, String>) -> Case {
    Case {
        limit: Some(dequantise::LIMIT),
        ..measured(file, DEQUANTISE, PYTHON_DEQUANTISE, PageCache::Warm, python)
    }
}

/// Loads one file; `Cold` evicts it from the page cache before each load.
pub fn case(file: &str, cache: PageCache, python: Result<String, String>) -> Case {
    let mut case = measured(file, VARIANTS, PYTHON_VARIANTS, cache, python);
    if cache != PageCache::Warm {
        // a copy reads no file and is no limit of a cold load
        case.variants.retain(|variant| variant.name != MEMCPY);
        add_device_readers(file, &mut case);
    }
    case
}

/// The file of 4 GB, cold.
pub fn large(file: &str, python: Result<String, String>) -> Case {
    let mut case = case(file, PageCache::Cold, python);
    let chosen = |name: &str| {
        LARGE_FILE_VARIANTS
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    case.variants.retain(|variant| chosen(&variant.name));
    case.missing.retain(|(variant, _)| chosen(variant));
    case
}

fn measured(
    file: &str,
    rust: &[LoadVariant],
    python: &PythonVariants,
    cache: PageCache,
    interpreter: Result<String, String>,
) -> Case {
    let extension = file.rsplit('.').next().unwrap_or_default();
    let name = file.rsplit('/').next().unwrap_or(file);
    let me = this_program();
    let ours = rust
        .iter()
        .filter(|v| v.reads.contains(&extension) || v.reads.is_empty());
    let ours = ours.map(|v| {
        Variant::new(
            v.name,
            &[&me, "load-one", v.name, file, cache.name()],
            parse,
        )
    });
    let mut variants: Vec<Variant> = ours.collect();
    let mut missing = missing_candle(extension);
    for (name, _) in python
        .iter()
        .filter(|(_, reads)| reads.contains(&extension))
    {
        match &interpreter {
            Ok(python) => variants.push(Variant::new(
                name,
                &[python, "-c", SCRIPT, name, file, cache.name()],
                parse,
            )),
            Err(reason) => missing.push(((*name).to_owned(), reason.clone())),
        }
    }
    let path = file.to_owned();
    let before: Box<dyn Fn()> = Box::new(move || cache.prepare(&path));
    let (name, limit) = match cache {
        PageCache::Cold => (format!("{name}, cold"), RAW_IO_URING),
        PageCache::New => (format!("{name}, new process"), RAW_IO_URING),
        PageCache::Warm => (name.to_owned(), MEMCPY),
    };
    Case {
        name,
        variants,
        missing,
        limit: Some(limit),
        same: Some("sum"),
        before: Some(before),
        check: None,
    }
}

/// Adds programs that only read the file: the rate of the device.
fn add_device_readers(file: &str, case: &mut Case) {
    let parse_wall: crate::case::ParseOutput = |usage| {
        let cpu = usage.cpu.as_nanos() as f64;
        Some(vec![Measurement::new(
            usage.wall.as_nanos() as f64,
            vec![("CPU time ns", cpu)],
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
    case.variants
        .push(Variant::new("whole file: dd, direct", &dd, parse_wall));
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
        case.variants.push(Variant::new(
            "whole file: fio, io_uring, direct",
            &fio,
            parse_fio,
        ));
    } else {
        case.missing.push((
            "whole file: fio".to_owned(),
            "fio is not installed".to_owned(),
        ));
    }
}

/// The time of reading that `fio` reports: starting its process takes half a second more. It skips the rest of the file
/// behind the last whole 2 MiB.
fn parse_fio(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let text = String::from_utf8_lossy(&usage.stdout);
    // warnings precede the JSON
    let report: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let read = &report["jobs"][0]["read"];
    let ms = read["runtime"]
        .as_f64()
        .filter(|_| read["io_bytes"].as_u64() > Some(0))?;
    Some(vec![Measurement::new(
        ms * 1e6,
        vec![("CPU time ns", usage.cpu.as_nanos() as f64)],
    )])
}

/// A line for each load of the process; see [`measured_loads`]. The figure is the median of the loads
/// after the first, or the only load.
fn parse(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let mut loads = measured_loads(usage)?;
    let first = loads.first()?.took;
    let mut again = if loads.len() > 1 {
        loads.split_off(1)
    } else {
        loads
    };
    again.sort_unstable_by(|a, b| a.took.total_cmp(&b.took));
    let median = &again[again.len() / 2];
    let mut more = vec![("first load ns", first)];
    more.extend(median.more());
    Some(vec![Measurement::new(median.took, more)])
}

/// The line that a process prints of one load.
pub struct MeasuredLoad {
    /// Nanoseconds.
    pub took: f64,
    faults: f64,
    /// Nanoseconds of the processor.
    cpu: f64,
    /// When the last byte was touched, in nanoseconds of [`monotonic`](crate::child_process::monotonic).
    ended: f64,
    /// The sum of a byte per page; copies and reads without it are limits.
    sum: Option<f64>,
}

impl MeasuredLoad {
    /// Further figures by name.
    pub fn more(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let sum = self.sum.map(|sum| ("sum", sum));
        let more = [("CPU time ns", self.cpu), ("faults", self.faults)];
        more.into_iter().chain(sum)
    }
}

/// The loads of a process, a line for each: nanoseconds, faults, CPU time, the time of its end, perhaps a sum. `None` if the
/// output has another form.
pub fn measured_loads(usage: &ProcessUsage) -> Option<Vec<MeasuredLoad>> {
    let text = String::from_utf8_lossy(&usage.stdout);
    let line = |line: &str| {
        let words = line.split_whitespace().map(|word| word.parse().ok());
        let &[took, faults, cpu, ended, ref sum @ ..] = &*words.collect::<Option<Vec<f64>>>()?
        else {
            return None;
        };
        let sum = sum.first().copied();
        Some(MeasuredLoad {
            took,
            faults,
            cpu,
            ended,
            sum,
        })
    };
    text.lines().map(line).collect()
}

pub use new_process::{compare as compare_new_processes, jobs as new_process_jobs};
pub use page_cache::PageCache;
pub use variants::one;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_the_median_without_the_first_load() {
        let usage = ProcessUsage {
            stdout: b"900 7 800 1 5\n300 1 90 1 5\n100 2 80 1 5\n".to_vec(),
            ..ProcessUsage::default()
        };
        let measurement = &parse(&usage).unwrap()[0];
        assert_eq!(measurement.ns, 300.0);
        assert_eq!(
            measurement.more,
            [
                ("first load ns", 900.0),
                ("CPU time ns", 90.0),
                ("faults", 1.0),
                ("sum", 5.0)
            ]
        );
        assert!(
            parse(&ProcessUsage {
                stdout: b"panicked".to_vec(),
                ..ProcessUsage::default()
            })
            .is_none()
        );
    }

    #[test]
    fn the_time_is_the_one_that_fio_reports() {
        let parsed = |bytes: u64| {
            let text = format!(
                "fio: a warning\n{{\"jobs\":[{{\"read\":{{\"io_bytes\":{bytes},\"runtime\":12}}}}]}}\n"
            );
            parse_fio(&ProcessUsage {
                stdout: text.into_bytes(),
                ..ProcessUsage::default()
            })
        };
        assert_eq!(parsed(4 << 20).unwrap()[0].ns, 12e6);
        assert!(parsed(0).is_none(), "no bytes were read");
    }
}
