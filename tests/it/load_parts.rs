//! What of a checkpoint is loaded, and how it is handed out: parts, order, one by one, into the caller's memory.

use std::sync::{Arc, Mutex};

use crate::support::loaders::all_loaders;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, gguf, safetensors};
use crate::support::{fixture, skip};
use anamnesis::load::{MmapLoader, PreadLoader, TensorSlice};
use anamnesis::{Checkpoint, ErrorKind, Limits, Source, load};
use zeropool::BufferPool;

/// Weights of several dimensions and widths, an empty one, a scalar, and nibbles.
fn file() -> Vec<u8> {
    let tensor = |name: &str, dtype: &str, shape: &[u64], bytes: usize| {
        StoredTensor::new(name, dtype, shape, random_bytes(name.len() as u64, bytes))
    };
    safetensors(
        &[
            tensor("a", "F32", &[64, 96], 64 * 96 * 4),
            tensor("bb", "U8", &[7, 5, 3], 105),
            tensor("ccc", "BF16", &[33], 66),
            tensor("dddd", "F16", &[4, 0, 3], 0),
            tensor("eeeee", "F32", &[], 4),
            tensor("ffffff", "BF16", &[700, 300], 420_000),
        ],
        &[],
    )
}

/// The part of a C-order tensor, element by element.
fn naive(
    bytes: &[u8],
    shape: &[u64],
    item: usize,
    axis: usize,
    part: std::ops::Range<u64>,
) -> Vec<u8> {
    let inner: u64 = shape[axis + 1..].iter().product();
    let item_of = |i: usize| part.contains(&(i as u64 / inner % shape[axis]));
    bytes
        .chunks(item)
        .enumerate()
        .filter(|(i, _)| item_of(*i))
        .flat_map(|(_, item)| item.to_vec())
        .collect()
}

#[test]
fn shares_of_every_worker_are_the_tensor() {
    let scratch = ScratchDir::new("load-shares");
    let path = scratch.path("in.safetensors");
    std::fs::write(&path, file()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    for (name, loader) in all_loaders() {
        for axis in [0, 1] {
            let mut seen = 0;
            for rank in 0..4 {
                let slice = TensorSlice::Shard { axis, rank, of: 4 };
                let load = load(&checkpoint)
                    .loader(loader.clone())
                    .slice(move |_| slice.clone());
                let loaded = load
                    .filter(|name| name == "a" || name == "ffffff" || name == "bb")
                    .run()
                    .unwrap();
                for tensor in loaded.tensors() {
                    let whole = checkpoint.tensor(tensor.name()).unwrap();
                    let (shape, nbytes) = (&whole.info().shape, whole.info().nbytes());
                    let item = usize::try_from(nbytes / shape.iter().product::<u64>()).unwrap();
                    let size = shape[axis];
                    let part = size * rank / 4..size * (rank + 1) / 4;
                    assert_eq!(tensor.shape()[axis], part.end - part.start);
                    let expected = naive(&whole.bytes().unwrap(), shape, item, axis, part);
                    assert!(
                        tensor.bytes() == expected,
                        "{name}: {} axis {axis} rank {rank}",
                        tensor.name()
                    );
                    seen += tensor.bytes().len();
                }
            }
            assert_eq!(seen, 64 * 96 * 4 + 105 + 420_000);
        }
    }
}

#[test]
fn of_a_part_only_its_bytes_are_read() {
    let bytes = file();
    let reads = Arc::new(Mutex::new(Vec::new()));
    let source = Counting {
        bytes: bytes.clone(),
        reads: reads.clone(),
    };
    let checkpoint = Checkpoint::from_source(source).unwrap();
    reads.lock().unwrap().clear();
    let load = load(&checkpoint)
        .loader(PreadLoader::new().threads(1))
        .slice(|_| TensorSlice::Rows(100..200));
    let tensor = load.tensor("ffffff").unwrap();
    assert_eq!(tensor.shape(), [100, 300]);
    assert_eq!(
        tensor.bytes(),
        &checkpoint.tensor("ffffff").unwrap().bytes().unwrap()[60_000..120_000]
    );
    let read: u64 = reads.lock().unwrap()[..1].iter().sum();
    assert!((60_000..61_000).contains(&read), "{read}");
}

/// Counts what is read.
struct Counting {
    bytes: Vec<u8>,
    reads: Arc<Mutex<Vec<u64>>>,
}

impl Source for Counting {
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let start = usize::try_from(start).unwrap().min(self.bytes.len());
        let n = buf.len().min(self.bytes.len() - start);
        buf[..n].copy_from_slice(&self.bytes[start..start + n]);
        self.reads.lock().unwrap().push(n as u64);
        Ok(n)
    }
}

#[test]
fn a_stream_hands_out_everything_with_little_ahead() {
    let scratch = ScratchDir::new("load-stream");
    let tensors: Vec<_> = (0..60)
        .map(|i| {
            StoredTensor::new(
                &format!("t{i:02}"),
                "U8",
                &[1 << 20],
                random_bytes(i, 1 << 20),
            )
        })
        .collect();
    let path = scratch.path("in.safetensors");
    std::fs::write(&path, safetensors(&tensors, &[])).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("page"))
    {
        // room for a few extents, and not for all: what is dropped is used again
        let pool = BufferPool::builder().budget(48 << 20).build().unwrap();
        let load = load(&checkpoint)
            .loader(loader)
            .pool(&pool)
            .read_ahead(4 << 20);
        let mut names = Vec::new();
        load.stream(|stream| {
            for tensor in stream {
                let tensor = tensor?;
                assert_eq!(
                    tensor.bytes(),
                    random_bytes(names.len() as u64, 1 << 20),
                    "{name}"
                );
                names.push(tensor.name().to_owned());
            }
            Ok(())
        })
        .unwrap();
        assert!(names.len() == 60 && names.is_sorted(), "{name}");
        // a consumer may stop early
        load.stream(|stream| stream.next().unwrap().map(drop))
            .unwrap();
        assert_eq!(pool.stats().in_use, 0, "{name}");
    }
}

#[test]
fn order_limits_and_the_callers_memory() {
    let checkpoint = Checkpoint::from_bytes(file()).unwrap();
    let backwards = load(&checkpoint).order(|a, b| b.name.cmp(&a.name));
    let loaded = backwards.run().unwrap();
    let names: Vec<_> = loaded
        .tensors()
        .iter()
        .map(|tensor| tensor.name())
        .collect();
    assert_eq!(names, ["ffffff", "eeeee", "dddd", "ccc", "bb", "a"]);
    let error = backwards
        .clone()
        .limits(Limits {
            tensor_bytes: 1000,
            ..Limits::default()
        })
        .run()
        .unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Limit {
                limit: "tensor_bytes",
                needed: 420_000,
                ..
            }
        ),
        "{error}"
    );
    let mut out = vec![0; 105];
    load(&checkpoint).tensor_into("bb", &mut out).unwrap();
    assert_eq!(out, *checkpoint.tensor("bb").unwrap().bytes().unwrap());
    assert!(
        load(&checkpoint)
            .tensor_into("bb", &mut out[1..])
            .unwrap_err()
            .to_string()
            .contains("105")
    );
    assert!(
        load(&checkpoint)
            .tensor("no.such.tensor")
            .unwrap_err()
            .to_string()
            .contains("no.such.tensor")
    );
    // what is aligned in the file is aligned in memory
    let mut aligned = 0;
    for pad in 0..8 {
        let floats = StoredTensor::new("a", "F32", &[100], random_bytes(1, 400));
        let checkpoint =
            Checkpoint::from_bytes(safetensors(&[floats], &[("pad", &"x".repeat(pad))])).unwrap();
        let own = load(&checkpoint).tensor("a").unwrap();
        assert!(
            own.view::<f32>().is_some(),
            "copied into a buffer of its own"
        );
        let floats = load(&checkpoint)
            .loader(PreadLoader::new())
            .tensor("a")
            .unwrap();
        assert_eq!(
            floats.view::<f32>().is_some(),
            floats.info().bytes.start.is_multiple_of(4)
        );
        let Some(view) = floats.view::<f32>() else {
            continue;
        };
        assert!(view.len() == 100 && floats.view::<u32>().is_none());
        assert_eq!(view[1].to_le_bytes(), floats.as_ref()[4..8]);
        aligned += 1;
    }
    assert_eq!(aligned, 2);
}

/// Archives are checked whole; blocks are cut between blocks.
#[test]
fn parts_of_what_must_be_unpacked_and_of_blocks() {
    let archive = Checkpoint::open(fixture("npz/all_le_compressed.npz")).unwrap();
    for tensor in archive
        .tensors()
        .filter(|t| t.info().shape.first().is_some_and(|n| *n >= 2))
    {
        let rows = tensor.info().shape[0];
        let part = load(&archive)
            .slice(move |_| TensorSlice::Rows(1..rows))
            .tensor(&tensor.info().name)
            .unwrap();
        let whole = tensor.bytes().unwrap();
        assert_eq!(
            part.bytes(),
            &whole[whole.len() / usize::try_from(rows).unwrap()..]
        );
    }
    let q8: Vec<u8> = random_bytes(1, 34 * 2 * 6);
    let blocks = Checkpoint::from_bytes(gguf(
        false,
        &[],
        &[StoredTensor::new("w", "8", &[6, 64], q8.clone())],
    ))
    .unwrap();
    let half = |axis| {
        load(&blocks)
            .slice(move |_| TensorSlice::Shard {
                axis,
                rank: 1,
                of: 2,
            })
            .tensor("w")
    };
    assert_eq!(half(0).unwrap().bytes(), &q8[34 * 6..]);
    let expected: Vec<u8> = q8
        .chunks(34)
        .skip(1)
        .step_by(2)
        .flatten()
        .copied()
        .collect();
    assert_eq!(half(1).unwrap().bytes(), expected);
    let third = load(&blocks)
        .slice(|_| TensorSlice::Shard {
            axis: 1,
            rank: 0,
            of: 3,
        })
        .tensor("w");
    assert!(third.unwrap_err().to_string().contains("splits a unit"));
    if cfg!(not(target_os = "linux")) {
        skip("loaders with direct I/O");
    }
}

/// Bytes that the caller will own are checked, whichever way they come.
#[test]
fn a_damaged_archive_is_noticed_unless_it_is_only_borrowed() {
    let scratch = ScratchDir::new("load-damaged");
    let path = scratch.path("in.pth");
    let mut bytes = std::fs::read(fixture("pth/checkpoint.pth")).unwrap();
    let whole = Checkpoint::from_bytes(bytes.clone()).unwrap();
    let info = whole
        .catalog()
        .tensors()
        .iter()
        .max_by_key(|info| info.nbytes())
        .unwrap();
    let at = usize::try_from(info.bytes.start).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    for (name, loader) in all_loaders() {
        let load = load(&checkpoint).loader(loader);
        let error = load.tensor(&info.name).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{name}: {error}");
        let mut out = vec![0; usize::try_from(info.nbytes()).unwrap()];
        let error = load.tensor_into(&info.name, &mut out).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{name}: {error}");
    }
    let borrowed = load(&checkpoint)
        .borrow_mapped()
        .loader(MmapLoader::new())
        .tensor(&info.name);
    // a file of a few pages is borrowed from memory, mapped or not
    let is_mapped = cfg!(feature = "mmap") || checkpoint.sources()[0].in_memory().is_some();
    assert_eq!(borrowed.is_ok(), is_mapped);
}
