//! The Rust variants of `inspect`: each opens a file once and returns the number of its tensors.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufReader, Read};
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use anamnesis::{Checkpoint, OpenOptions};

/// Opens a file and returns the number of its tensors.
type Open = fn(&str) -> usize;

/// Name, file name extensions, function.
pub static VARIANTS: &[(&str, &[&str], Open)] = &[
    (
        "ours: path",
        &["safetensors", "gguf", "npz", "pth"],
        |path| Checkpoint::open(path).unwrap().catalog().tensors().len(),
    ),
    (
        "ours: path, not mapped",
        &["safetensors", "gguf", "npz", "pth"],
        |path| {
            OpenOptions::new()
                .mmap(false)
                .open(path)
                .unwrap()
                .catalog()
                .tensors()
                .len()
        },
    ),
    (
        "ours: reader",
        &["safetensors", "gguf", "npz", "pth"],
        |path| {
            Checkpoint::from_reader(File::open(path).unwrap())
                .unwrap()
                .catalog()
                .tensors()
                .len()
        },
    ),
    (
        r#"unrelated crate "anamnesis" 0.7.10: path"#,
        &["safetensors"],
        |path| {
            let parsed = peer::parse(path).unwrap();
            let _ = black_box(parsed.inspect());
            parsed.header.tensors.len()
        },
    ),
    (
        r#"unrelated crate "anamnesis" 0.7.10: path"#,
        &["gguf"],
        |path| {
            let parsed = peer::parse_gguf(path).unwrap();
            let _ = black_box(parsed.inspect());
            parsed.len()
        },
    ),
    (
        r#"unrelated crate "anamnesis" 0.7.10: reader"#,
        &["gguf"],
        |path| {
            let info = peer::inspect_gguf_from_reader(File::open(path).unwrap()).unwrap();
            info.tensor_count
        },
    ),
    (
        r#"unrelated crate "anamnesis" 0.7.10: path"#,
        &["npz"],
        |path| peer::inspect_npz(path).unwrap().tensors.len(),
    ),
    (
        r#"unrelated crate "anamnesis" 0.7.10: reader"#,
        &["npz"],
        |path| {
            peer::inspect_npz_from_reader(File::open(path).unwrap())
                .unwrap()
                .tensors
                .len()
        },
    ),
    (
        r#"unrelated crate "anamnesis" 0.7.10: path"#,
        &["pth"],
        |path| {
            let parsed = peer::parse_pth(path).unwrap();
            parsed.inspect().tensor_count
        },
    ),
    (
        r#"unrelated crate "anamnesis" 0.7.10: reader"#,
        &["pth"],
        |path| {
            peer::inspect_pth_from_reader(BufReader::new(File::open(path).unwrap()))
                .unwrap()
                .tensor_count
        },
    ),
    ("safetensors 0.8: read_metadata", &["safetensors"], |path| {
        // the API takes the whole file; only the header is read from the mapping
        // SAFETY: the benchmark generated the file and does not truncate it while it is mapped
        let map = unsafe { memmap2::Mmap::map(&File::open(path).unwrap()).unwrap() };
        let (_, metadata) =
            safetensors::SafeTensors::read_metadata(&map).unwrap_or_else(|e| panic!("{e}"));
        metadata.tensors().len()
    }),
    ("npyz 0.8", &["npz"], |path| {
        let mut archive = npyz::npz::NpzArchive::open(path).unwrap();
        let names: Vec<String> = archive.array_names().map(str::to_owned).collect();
        names
            .iter()
            .filter(|name| archive.by_name(name).unwrap().unwrap().shape().len() < 32)
            .count()
    }),
    #[cfg(feature = "candle")]
    (
        "candle-core 0.9: MmapedSafetensors",
        &["safetensors"],
        |path| {
            // SAFETY: the benchmark generated the file and does not truncate it while it is mapped
            let mapped = unsafe { candle_core::safetensors::MmapedSafetensors::new(path).unwrap() };
            mapped.tensors().len()
        },
    ),
    #[cfg(feature = "candle")]
    ("candle-core 0.9: Content::read", &["gguf"], |path| {
        let mut file = BufReader::new(File::open(path).unwrap());
        candle_core::quantized::gguf_file::Content::read(&mut file)
            .unwrap()
            .tensor_infos
            .len()
    }),
    (
        "limit: reading the header's bytes",
        &["safetensors", "gguf", "npz", "pth"],
        header,
    ),
];

/// The limit: one read of as many bytes as belong to no tensor, into a buffer that is reused. Returns 0 tensors.
fn header(path: &str) -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    static BUFFER: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let bytes = *BYTES.get_or_init(|| {
        let checkpoint = Checkpoint::open(path).unwrap();
        let tensors = checkpoint
            .catalog()
            .tensors()
            .iter()
            .map(|tensor| tensor.bytes.len)
            .sum();
        let rest = std::fs::metadata(path)
            .unwrap()
            .len()
            .saturating_sub(tensors);
        usize::try_from(rest).expect("the header fits into memory")
    });
    let mut buffer = BUFFER
        .lock()
        .expect("no thread panics while it holds the lock");
    buffer.resize(bytes, 1);
    File::open(path)
        .unwrap()
        .read_exact(black_box(&mut buffer))
        .unwrap();
    0
}

/// Runs one variant for about half a second and prints median and minimum in nanoseconds, and the number of tensors.
pub fn one(variant: &str, file: &str) -> ExitCode {
    let extension = file.rsplit('.').next().unwrap_or_default();
    let Some((.., open)) = VARIANTS
        .iter()
        .find(|(name, reads, _)| *name == variant && reads.contains(&extension))
    else {
        eprintln!("no variant {variant:?} for .{extension}");
        return ExitCode::from(2);
    };
    let tensors = open(file); // fills the page cache
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < 7
        || (started.elapsed() < Duration::from_millis(400) && times.len() < 20_000)
    {
        let began = Instant::now();
        assert_eq!(black_box(open(file)), tensors);
        times.push(began.elapsed().as_nanos());
    }
    times.sort_unstable();
    // the limit opens no tensors and prints no number
    let tensors = if tensors > 0 {
        tensors.to_string()
    } else {
        String::new()
    };
    println!("{} {} {tensors}", times[times.len() / 2], times[0]);
    ExitCode::SUCCESS
}
