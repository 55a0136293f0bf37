//! The Rust variants of `load`, and the process that runs one of them.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::time::Instant;

use anamnesis::load::{Loader, MmapLoader, PreadLoader, UringLoader};
use anamnesis::{ByteRange, Checkpoint, load};
use zeropool::BufferPool;

use super::{PageCache, dequantise::DEQUANTISE, raw_io_uring};
use crate::child_process::monotonic;
use crate::mimalloc_buffer::MimallocBuffer;

/// Loads a file and reads the first byte of every page of every tensor; returns the sum of those bytes.
pub type Load = fn(&mut ProcessState, &str) -> u64;

pub struct LoadVariant {
    pub name: &'static str,
    /// File name extensions; empty for all.
    pub reads: &'static [&'static str],
    pub load: Load,
}

impl LoadVariant {
    /// Whether its sum can be compared: whole files have other page boundaries than their tensors, and dequantised weights
    /// other bytes than the file.
    fn is_comparable(&self) -> bool {
        !["whole file", "limit", "one at a time"]
            .iter()
            .any(|part| self.name.contains(part))
    }
}

/// Lets `each` fill a mimalloc buffer like a vector.
struct Zeroed(MimallocBuffer);

impl AsMut<[u8]> for Zeroed {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_zeroed_mut()
    }
}

/// The state that a process keeps from one load to the next: pools and reused buffers.
#[derive(Default)]
pub struct ProcessState {
    pub pool: BufferPool,
    zeropool: Option<zeropool02::BufferPool>,
    buffer: Vec<u8>,
    copy: Vec<u8>,
}

pub static VARIANTS: &[LoadVariant] = &[
    LoadVariant {
        name: "ours, owned",
        reads: &[],
        load: |state, path| ours(state, path, true, None::<PreadLoader>),
    },
    LoadVariant {
        name: "ours, borrowed",
        reads: &[],
        load: |state, path| ours(state, path, false, None::<PreadLoader>),
    },
    LoadVariant {
        name: "ours, mapped",
        reads: &[],
        load: |state, path| ours(state, path, false, Some(MmapLoader::new())),
    },
    LoadVariant {
        name: "ours, pread",
        reads: &[],
        load: |state, path| ours(state, path, true, Some(PreadLoader::new())),
    },
    LoadVariant {
        name: "ours, io_uring",
        reads: &[],
        load: |state, path| ours(state, path, true, Some(UringLoader::new())),
    },
    LoadVariant {
        name: "ours, io_uring, direct",
        reads: &[],
        load: |state, path| ours(state, path, true, Some(UringLoader::new().direct(true))),
    },
    LoadVariant {
        name: "whole file: raw io_uring loop, direct",
        reads: &[],
        load: raw_io_uring::load,
    },
    LoadVariant {
        name: "a Vec per tensor, glibc",
        reads: &["safetensors", "gguf"],
        load: |_, path| each(path, |len| vec![0u8; len]),
    },
    LoadVariant {
        name: "a Vec per tensor, mimalloc",
        reads: &["safetensors", "gguf"],
        load: |_, path| each(path, |len| Zeroed(MimallocBuffer::zeroed(len))),
    },
    LoadVariant {
        name: "zeropool 0.2 per tensor",
        reads: &["safetensors", "gguf"],
        load: |state, path| {
            let pool = state
                .zeropool
                .get_or_insert_with(zeropool02::BufferPool::new)
                .clone();
            each(path, |len| pool.get(len))
        },
    },
    LoadVariant {
        name: "our pool per tensor, one thread",
        reads: &["safetensors", "gguf"],
        load: |state, path| each(path, |len| state.pool.get(len)),
    },
    LoadVariant {
        name: "whole file: vec![0] + read_exact",
        reads: &[],
        load: |_, path| whole(path, |len| vec![0u8; len]),
    },
    LoadVariant {
        name: "whole file: our pool, pread",
        reads: &[],
        load: |state, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let len = std::fs::metadata(path).unwrap().len();
            let reading = anamnesis::load::LoadContext {
                checkpoint: &checkpoint,
                pool: state.pool.clone(),
                read_ahead: u64::MAX,
                max_gap: 0,
                into_memory: false,
            };
            let mut sum = 0;
            PreadLoader::new()
                .run(&reading, &[ByteRange::new(0, len)], &mut |feed| {
                    sum = touched(&feed.get(0)?);
                    Ok(())
                })
                .unwrap();
            sum
        },
    },
    LoadVariant {
        name: "whole file: one reused buffer, read_exact",
        reads: &[],
        load: |state, path| {
            let mut file = File::open(path).unwrap();
            let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
            state.buffer.resize(len, 1);
            file.read_exact(&mut state.buffer).unwrap();
            touched(&state.buffer)
        },
    },
    #[cfg(feature = "candle")]
    LoadVariant {
        name: "candle-core 0.9: safetensors::load",
        reads: &["safetensors"],
        load: super::candle::plain,
    },
    #[cfg(feature = "candle")]
    LoadVariant {
        name: "candle-core 0.9: pickle::read_all",
        reads: &["pth"],
        load: super::candle::plain,
    },
    #[cfg(feature = "candle")]
    LoadVariant {
        name: "candle-core 0.9: Tensor::read_npz",
        reads: &["npz"],
        load: super::candle::plain,
    },
    #[cfg(feature = "candle")]
    LoadVariant {
        name: "candle-core 0.9: gguf_file, each tensor",
        reads: &["gguf"],
        load: super::candle::gguf,
    },
    LoadVariant {
        name: "npyz 0.8",
        reads: &["npz"],
        load: npyz,
    },
    LoadVariant {
        name: "limit: memcpy of the same size",
        reads: &[],
        load: |state, path| copied(state, file_len(path)),
    },
];

/// The sum of the first byte of every page of 4 KiB.
pub fn touched(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .step_by(4096)
        .fold(0, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

fn ours(
    state: &mut ProcessState,
    path: &str,
    own: bool,
    loader: Option<impl Loader + 'static>,
) -> u64 {
    let checkpoint = Checkpoint::open(path).unwrap();
    let mut how = load(&checkpoint).pool(&state.pool);
    if !own {
        how = how.borrow_mapped();
    }
    if let Some(loader) = loader {
        how = how.loader(loader);
    }
    let loaded = how.run().unwrap();
    loaded
        .tensors()
        .iter()
        .fold(0, |sum, tensor| sum.wrapping_add(touched(tensor.bytes())))
}

/// A buffer for every tensor, all state.
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

/// npyz returns numbers, not bytes; the generated files hold F32 only.
fn npyz(_: &mut ProcessState, path: &str) -> u64 {
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

/// The result of `touched` for the bytes of these values.
pub fn touched_f32(values: &[f32]) -> u64 {
    values.iter().step_by(1024).fold(0, |sum, value| {
        sum.wrapping_add(u64::from(value.to_le_bytes()[0]))
    })
}

fn file_len(path: &str) -> usize {
    usize::try_from(std::fs::metadata(path).unwrap().len()).unwrap()
}

/// Copies `len` bytes between two buffers that are reused.
pub fn copied(state: &mut ProcessState, len: usize) -> u64 {
    state.buffer.resize(len, 1);
    state.copy.resize(len, 1);
    state
        .copy
        .copy_from_slice(std::hint::black_box(&state.buffer));
    touched(&state.copy)
}

/// Reads the whole file into one buffer.
fn whole<B: AsMut<[u8]>>(path: &str, get: impl Fn(usize) -> B) -> u64 {
    let mut file = File::open(path).unwrap();
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut buffer = get(len);
    file.read_exact(&mut buffer.as_mut()[..len]).unwrap();
    touched(&buffer.as_mut()[..len])
}

/// The work of one process: loads `cache.loads()` times and prints nanoseconds, minor faults, CPU time, the time of the end
/// and the sum of each.
pub fn one(variant: &str, file: &str, cache: &str) -> ExitCode {
    let Some(variant) = VARIANTS
        .iter()
        .chain(DEQUANTISE)
        .find(|v| v.name == variant)
    else {
        eprintln!("no variant {variant:?}");
        return ExitCode::from(2);
    };
    let mut state = ProcessState::default();
    let Some(cache) = PageCache::from_name(cache) else {
        eprintln!("the page cache is `warm` or `cold`, not {cache:?}");
        return ExitCode::from(2);
    };
    for _ in 0..cache.loads() {
        // the parent process has warmed the cache already, and no variant evicts the file
        if cache == PageCache::Cold {
            cache.prepare(file);
        }
        let (faults, cpu) = resource_usage();
        let began = Instant::now();
        let sum = (variant.load)(&mut state, file);
        let (took, ended) = (began.elapsed().as_nanos(), monotonic());
        let (faults_after, cpu_after) = resource_usage();
        let sum = if variant.is_comparable() {
            sum.to_string()
        } else {
            String::new()
        };
        let (faults, cpu) = (faults_after - faults, cpu_after - cpu);
        println!("{took} {faults} {cpu} {ended} {sum}");
    }
    ExitCode::SUCCESS
}

/// Minor faults and nanoseconds of CPU time of this process so far.
fn resource_usage() -> (i64, i64) {
    // SAFETY: all zeros is a valid `rusage`
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local that outlives the call
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let ns = |t: libc::timeval| t.tv_sec * 1_000_000_000 + t.tv_usec * 1000;
    (usage.ru_minflt, ns(usage.ru_utime) + ns(usage.ru_stime))
}
