//! The variants in Rust: each loads a file so many times and says what each time took.

use super::raw;
use std::alloc::{GlobalAlloc, Layout};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::time::Instant;

use anamnesis::load::{Loader, Mapped, Pread, Uring};
use anamnesis::{ByteRange, Checkpoint, load, remember};
use zeropool::BufferPool;

/// Loads a path and touches what it loaded: the sum of a byte per page, tensor by tensor.
type Load = fn(&mut Held, &str) -> u64;

pub struct Variant {
    pub name: &'static str,
    /// Extensions; none for all.
    pub reads: &'static [&'static str],
    load: Load,
}

/// What a process keeps from one load to the next.
#[derive(Default)]
pub struct Held {
    pub pool: BufferPool,
    zeropool: Option<zeropool02::BufferPool>,
    buffer: Vec<u8>,
}

/// Quantised weights brought back, into memory of each kind.
pub static DEQUANTISE: &[Variant] = &[
    Variant {
        name: "ours, into the pool",
        reads: &[],
        load: |held, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let all = remember(&checkpoint).all_in(&held.pool).unwrap();
            all.iter().fold(0, |sum, weight| sum.wrapping_add(touched(&weight.bytes)))
        },
    },
    Variant {
        name: "ours, into new vectors",
        reads: &[],
        load: |_, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let all = remember(&checkpoint).all().unwrap();
            all.iter().fold(0, |sum, weight| sum.wrapping_add(touched(&weight.bytes)))
        },
    },
];

pub static VARIANTS: &[Variant] = &[
    Variant { name: "ours, owned", reads: &[], load: |held, path| ours(held, path, true, None::<Pread>) },
    Variant { name: "ours, lent", reads: &[], load: |held, path| ours(held, path, false, Some(Mapped::new())) },
    Variant { name: "ours, pread", reads: &[], load: |held, path| ours(held, path, true, Some(Pread::new())) },
    Variant { name: "ours, io_uring", reads: &[], load: |held, path| ours(held, path, true, Some(Uring::new())) },
    Variant {
        name: "ours, io_uring, direct",
        reads: &[],
        load: |held, path| ours(held, path, true, Some(Uring::new().direct(true))),
    },
    Variant { name: "whole file: raw io_uring loop, direct", reads: &[], load: raw::load },
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
            let pool = held.zeropool.get_or_insert_with(zeropool02::BufferPool::new).clone();
            each(path, |len| pool.get(len))
        },
    },
    Variant {
        name: "our pool per tensor, one thread",
        reads: &["safetensors", "gguf"],
        load: |held, path| each(path, |len| held.pool.get(len)),
    },
    Variant { name: "whole file: vec![0] + read_exact", reads: &[], load: |_, path| whole(path, |len| vec![0u8; len]) },
    Variant {
        name: "whole file: our pool, pread",
        reads: &[],
        load: |held, path| {
            let checkpoint = Checkpoint::open(path).unwrap();
            let len = std::fs::metadata(path).unwrap().len();
            let reading =
                anamnesis::load::Reading { checkpoint: &checkpoint, pool: held.pool.clone(), ahead: u64::MAX, gap: 0 };
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
        name: "candle-core",
        reads: &["safetensors"],
        load: |_, path| {
            let tensors = candle_core::safetensors::load(path, &candle_core::Device::Cpu).unwrap();
            // they own copies; their bytes are not lent without one more, so nothing is touched and no sum is made
            std::hint::black_box(tensors.len());
            0
        },
    },
];

pub fn touched(bytes: &[u8]) -> u64 {
    bytes.iter().step_by(4096).fold(0, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

fn ours(held: &mut Held, path: &str, own: bool, loader: Option<impl Loader + 'static>) -> u64 {
    let checkpoint = Checkpoint::open(path).unwrap();
    let mut how = load(&checkpoint).pool(&held.pool).own(own);
    if let Some(loader) = loader {
        how = how.loader(loader);
    }
    let loaded = how.run().unwrap();
    loaded.tensors().iter().fold(0, |sum, tensor| sum.wrapping_add(touched(tensor.bytes())))
}

/// A buffer for every tensor, all held.
fn each<B: AsMut<[u8]>>(path: &str, get: impl Fn(usize) -> B) -> u64 {
    let checkpoint = Checkpoint::open(path).unwrap();
    let file = File::open(path).unwrap();
    let mut all: Vec<B> = Vec::new();
    for tensor in checkpoint.catalog().tensors() {
        let mut buffer = get(usize::try_from(tensor.bytes.len).unwrap());
        let len = usize::try_from(tensor.bytes.len).unwrap();
        file.read_exact_at(&mut buffer.as_mut()[..len], tensor.bytes.start).unwrap();
        all.push(buffer);
    }
    let lens = checkpoint.catalog().tensors().iter().map(|t| usize::try_from(t.bytes.len).unwrap());
    all.iter_mut().zip(lens).fold(0, |sum, (buffer, len)| sum.wrapping_add(touched(&buffer.as_mut()[..len])))
}

fn whole<B: AsMut<[u8]>>(path: &str, get: impl Fn(usize) -> B) -> u64 {
    let mut file = File::open(path).unwrap();
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut buffer = get(len);
    file.read_exact(&mut buffer.as_mut()[..len]).unwrap();
    touched(&buffer.as_mut()[..len])
}

/// A buffer of another allocator than this program's.
struct Mi(*mut u8, Layout);

impl Mi {
    fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), 8).expect("small enough");
        // SAFETY: the layout is not of zero bytes.
        Self(unsafe { mimalloc::MiMalloc.alloc_zeroed(layout) }, layout)
    }
}

impl AsMut<[u8]> for Mi {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes were allocated, zeroed, and are this value's alone.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1.size()) }
    }
}

impl Drop for Mi {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and dropped once.
        unsafe { mimalloc::MiMalloc.dealloc(self.0, self.1) };
    }
}

/// Loads so many times; prints nanoseconds, faults, processor time and sum of each.
pub fn one(variant: &str, file: &str, times: &str) -> ExitCode {
    let Some(variant) = VARIANTS.iter().chain(DEQUANTISE).find(|v| v.name == variant) else {
        eprintln!("no variant {variant:?}");
        return ExitCode::from(2);
    };
    let mut held = Held::default();
    for _ in 0..times.parse().unwrap_or(1) {
        let (faults, cpu) = spent();
        let began = Instant::now();
        let sum = (variant.load)(&mut held, file);
        let took = began.elapsed().as_nanos();
        let (faults_after, cpu_after) = spent();
        println!("{took} {} {} {sum}", faults_after - faults, cpu_after - cpu);
    }
    ExitCode::SUCCESS
}

/// Minor faults and processor nanoseconds so far.
fn spent() -> (i64, i64) {
    // SAFETY: all zeros is a `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it points to memory of this function's.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let ns = |t: libc::timeval| t.tv_sec * 1_000_000_000 + t.tv_usec * 1000;
    (usage.ru_minflt, ns(usage.ru_utime) + ns(usage.ru_stime))
}
