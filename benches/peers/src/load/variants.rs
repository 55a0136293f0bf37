//! The variants in Rust: each loads a file so many times and says what each time took.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::time::Instant;

use anamnesis::load::{Loader, Mapped, Pread, Uring};
use anamnesis::{ByteRange, Checkpoint, load};
use zeropool::BufferPool;

use super::allocated::Mi;
use super::{cache::Cache, dequantise::DEQUANTISE, raw};

/// Loads a path and touches what it loaded: the sum of a byte per page, tensor by tensor.
pub type Load = fn(&mut Held, &str) -> u64;

pub struct Variant {
    pub name: &'static str,
    /// Extensions; none for all.
    pub reads: &'static [&'static str],
    pub load: Load,
}

impl Variant {
    /// Whether its sum is that of all tensors' pages.
    fn compares(&self) -> bool {
        !["whole file", "limit", "one by one"]
            .iter()
            .any(|part| self.name.contains(part))
    }
}

/// What a process keeps from one load to the next.
#[derive(Default)]
pub struct Held {
    pub pool: BufferPool,
    zeropool: Option<zeropool02::BufferPool>,
    buffer: Vec<u8>,
    copy: Vec<u8>,
}

pub static VARIANTS: &[Variant] = &[
    Variant {
        name: "ours, owned",
        reads: &[],
        load: |held, path| ours(held, path, true, None::<Pread>),
    },
    Variant {
        name: "ours, lent",
        reads: &[],
        load: |held, path| ours(held, path, false, Some(Mapped::new())),
    },
    Variant {
        name: "ours, pread",
        reads: &[],
        load: |held, path| ours(held, path, true, Some(Pread::new())),
    },
    Variant {
        name: "ours, io_uring",
        reads: &[],
        load: |held, path| ours(held, path, true, Some(Uring::new())),
    },
    Variant {
        name: "ours, io_uring, direct",
        reads: &[],
        load: |held, path| ours(held, path, true, Some(Uring::new().direct(true))),
    },
    Variant {
        name: "whole file: raw io_uring loop, direct",
        reads: &[],
        load: raw::load,
    },
    Variant {
        name: "a Vec per tensor, glibc",
        reads: &["safetensors", "gguf"],
        load: |_, path| each(path, |len| vec![0u8; len]),
    },
    Variant {
        name: "a Vec per tensor, mimalloc",
        reads: &["safetensors", "gguf"],
        load: |_, path| each(path, Mi::new),
    },
    Variant {
        name: "zeropool 0.2 per tensor",
        reads: &["safetensors", "gguf"],
        load: |held, path| {
            let pool = held
                .zeropool
                .get_or_insert_with(zeropool02::BufferPool::new)
                .clone();
            each(path, |len| pool.get(len))
        },
    },
    Variant {
        name: "our pool per tensor, one thread",
        reads: &["safetensors", "gguf"],
        load: |held, path| each(path, |len| held.pool.get(len)),
    },
    Variant {
        name: "whole file: vec![0] + read_exact",
        reads: &[],
        load: |_, path| whole(path, |len| vec![0u8; len]),
    },
    Variant {
        name: "whole file: our pool, pread",
        reads: &[],
        load: |held, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let len = std::fs::metadata(path).unwrap().len();
            let reading = anamnesis::load::Reading {
                checkpoint: &checkpoint,
                pool: held.pool.clone(),
                ahead: u64::MAX,
                gap: 0,
            };
            let mut sum = 0;
            Pread::new()
                .run(&reading, &[ByteRange::new(0, len)], &mut |feed| {
                    sum = touched(&feed.take(0)?);
                    Ok(())
                })
                .unwrap();
            sum
        },
    },
    Variant {
        name: "whole file: one buffer that is there",
        reads: &[],
        load: |held, path| {
            let mut file = File::open(path).unwrap();
            let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
            held.buffer.resize(len, 1);
            file.read_exact(&mut held.buffer).unwrap();
            touched(&held.buffer)
        },
    },
    #[cfg(feature = "candle")]
    Variant {
        name: "candle-core 0.9: safetensors::load",
        reads: &["safetensors"],
        load: super::candle::plain,
    },
    #[cfg(feature = "candle")]
    Variant {
        name: "candle-core 0.9: pickle::read_all",
        reads: &["pth"],
        load: super::candle::plain,
    },
    #[cfg(feature = "candle")]
    Variant {
        name: "candle-core 0.9: Tensor::read_npz",
        reads: &["npz"],
        load: super::candle::plain,
    },
    #[cfg(feature = "candle")]
    Variant {
        name: "candle-core 0.9: gguf_file, each tensor",
        reads: &["gguf"],
        load: super::candle::gguf,
    },
    Variant {
        name: "npyz 0.8",
        reads: &["npz"],
        load: npyz,
    },
    Variant {
        name: "limit: memcpy of as many bytes",
        reads: &[],
        load: |held, path| copied(held, file_len(path)),
    },
];

pub fn touched(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .step_by(4096)
        .fold(0, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

fn ours(held: &mut Held, path: &str, own: bool, loader: Option<impl Loader + 'static>) -> u64 {
    let checkpoint = Checkpoint::open(path).unwrap();
    let mut how = load(&checkpoint).pool(&held.pool).own(own);
    if let Some(loader) = loader {
        how = how.loader(loader);
    }
    let loaded = how.run().unwrap();
    loaded
        .tensors()
        .iter()
        .fold(0, |sum, tensor| sum.wrapping_add(touched(tensor.bytes())))
}

/// A buffer for every tensor, all held.
fn each<B: AsMut<[u8]>>(path: &str, get: impl Fn(usize) -> B) -> u64 {
    let checkpoint = Checkpoint::open(path).unwrap();
    let file = File::open(path).unwrap();
    let mut all: Vec<B> = Vec::new();
    for tensor in checkpoint.catalog().tensors() {
        let mut buffer = get(usize::try_from(tensor.bytes.len).unwrap());
        let len = usize::try_from(tensor.bytes.len).unwrap();
        file.read_exact_at(&mut buffer.as_mut()[..len], tensor.bytes.start)
            .unwrap();
        all.push(buffer);
    }
    let lens = checkpoint
        .catalog()
        .tensors()
        .iter()
        .map(|t| usize::try_from(t.bytes.len).unwrap());
    all.iter_mut().zip(lens).fold(0, |sum, (buffer, len)| {
        sum.wrapping_add(touched(&buffer.as_mut()[..len]))
    })
}

/// Arrays of F32, as the files here have them; npyz gives numbers, not bytes.
fn npyz(_: &mut Held, path: &str) -> u64 {
    let mut archive = npyz::npz::NpzArchive::open(path).unwrap();
    let names: Vec<String> = archive.array_names().map(str::to_owned).collect();
    let arrays: Vec<Vec<f32>> = names
        .iter()
        .map(|n| archive.by_name(n).unwrap().unwrap().into_vec().unwrap())
        .collect();
    arrays
        .iter()
        .fold(0, |sum, array| sum.wrapping_add(touched_f32(array)))
}

/// The same bytes of F32 as `touched` takes.
pub fn touched_f32(values: &[f32]) -> u64 {
    values.iter().step_by(1024).fold(0, |sum, value| {
        sum.wrapping_add(u64::from(value.to_le_bytes()[0]))
    })
}

fn file_len(path: &str) -> usize {
    usize::try_from(std::fs::metadata(path).unwrap().len()).unwrap()
}

/// So many bytes from memory to memory, both there from the first time on.
pub fn copied(held: &mut Held, len: usize) -> u64 {
    held.buffer.resize(len, 1);
    held.copy.resize(len, 1);
    held.copy
        .copy_from_slice(std::hint::black_box(&held.buffer));
    touched(&held.copy)
}

fn whole<B: AsMut<[u8]>>(path: &str, get: impl Fn(usize) -> B) -> u64 {
    let mut file = File::open(path).unwrap();
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut buffer = get(len);
    file.read_exact(&mut buffer.as_mut()[..len]).unwrap();
    touched(&buffer.as_mut()[..len])
}

/// Loads as often as `cache` says; prints nanoseconds, faults, processor time and sum of each.
pub fn one(variant: &str, file: &str, cache: &str) -> ExitCode {
    let Some(variant) = VARIANTS
        .iter()
        .chain(DEQUANTISE)
        .find(|v| v.name == variant)
    else {
        eprintln!("no variant {variant:?}");
        return ExitCode::from(2);
    };
    let mut held = Held::default();
    let Some(cache) = Cache::named(cache) else {
        eprintln!("the page cache is warm or cold, not {cache:?}");
        return ExitCode::from(2);
    };
    for _ in 0..cache.loads() {
        // warm it is already: the harness made it so before this process, and nothing here drops it
        if cache == Cache::Cold {
            cache.prepare(file);
        }
        let (faults, cpu) = spent();
        let began = Instant::now();
        let sum = (variant.load)(&mut held, file);
        let took = began.elapsed().as_nanos();
        let (faults_after, cpu_after) = spent();
        // whole files have other pages than their tensors; and what is made again has no bytes of the file's
        let sum = if variant.compares() {
            sum.to_string()
        } else {
            String::new()
        };
        println!("{took} {} {} {sum}", faults_after - faults, cpu_after - cpu);
    }
    ExitCode::SUCCESS
}

/// Minor faults and processor nanoseconds so far.
pub fn spent() -> (i64, i64) {
    // SAFETY: all zeros is a `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it points to memory of this function's.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let ns = |t: libc::timeval| t.tv_sec * 1_000_000_000 + t.tv_usec * 1000;
    (usage.ru_minflt, ns(usage.ru_utime) + ns(usage.ru_stime))
}
