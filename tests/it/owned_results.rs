//! Loads and conversions of an `Arc<Checkpoint>`: their results outlive everything else, keep the file mapped while they use
//! it, and equal the results of a borrowed checkpoint.

use std::sync::Arc;
use std::thread;

use crate::support::fixture;
use crate::support::loaders::all_loaders;
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::{large_tensors, tensor_bytes, write_and_open};
use anamnesis::load::{Chunk, Consumer, Feed, LoadContext, LoadedTensor, Loader, MmapLoader};
use anamnesis::{ByteRange, Checkpoint, Remember, Result, load, remember};
use zeropool::BufferPool;

#[test]
fn tensors_outlive_the_checkpoint_and_the_pool() {
    let scratch = ScratchDir::new("owned-results");
    let checkpoint = Arc::new(write_and_open(&scratch, &large_tensors()));
    let expected = tensor_bytes(&checkpoint);
    for (name, loader) in all_loaders() {
        for borrow in [false, true] {
            let checkpoint = Arc::new(Checkpoint::open(checkpoint.path().unwrap()).unwrap());
            let pool = BufferPool::new();
            let load = load(&checkpoint).loader(loader.clone()).pool(&pool);
            let load = if borrow { load.borrow_mapped() } else { load };
            let loaded = load.run().unwrap();
            let mut streamed = Vec::new();
            load.stream(|tensors| {
                streamed = tensors.collect::<Result<Vec<LoadedTensor<'static>>>>()?;
                Ok(())
            })
            .unwrap();
            drop((load, checkpoint, pool));
            let check = move || {
                loaded
                    .into_iter()
                    .zip(streamed)
                    .map(|(a, b)| {
                        assert!(
                            a.name() == b.name() && a.shape() == b.shape() && a.info() == b.info()
                        );
                        assert!(a.bytes() == b.bytes(), "{}", a.name());
                        a.bytes().to_vec()
                    })
                    .collect::<Vec<_>>()
            };
            assert!(
                thread::spawn(check).join().unwrap() == expected,
                "{name} {borrow}"
            );
        }
    }
}

/// The system's list of mappings tells how long a file is mapped.
#[cfg(all(target_os = "linux", feature = "mmap"))]
#[test]
fn a_mapped_tensor_keeps_its_file_mapped_and_no_longer() {
    let scratch = ScratchDir::new("owned-map");
    let checkpoint = Arc::new(write_and_open(&scratch, &large_tensors()));
    let path = checkpoint.path().unwrap().to_owned();
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(path.to_str().unwrap())
    };
    let load = load(&checkpoint).loader(MmapLoader::new()).borrow_mapped();
    let tensor = load.tensor("t0").unwrap();
    drop((load, checkpoint));
    assert!(is_mapped());
    let chunk = tensor.into_chunk();
    let Chunk::Mapped(bytes) = &chunk else {
        panic!("{chunk:?}")
    };
    assert!(bytes.source().mapped().unwrap()[bytes.range()] == bytes[..]);
    drop(chunk);
    assert!(!is_mapped());
}

/// A loader with bytes of its own, which no source contains.
#[derive(Debug)]
struct StaticBytes(&'static [u8]);

impl<'c> Feed<'c> for StaticBytes {
    fn get(&self, _: usize) -> Result<Chunk<'c>> {
        Ok(Chunk::Borrowed(self.0))
    }
}

impl Loader for StaticBytes {
    fn name(&self) -> &'static str {
        "static"
    }

    fn run<'c>(
        &self,
        _: &LoadContext<'c>,
        _: &[ByteRange],
        consumer: Consumer<'_, 'c>,
    ) -> Result<()> {
        consumer(&Self(self.0))
    }
}

#[test]
fn bytes_of_no_source_are_kept_too() {
    let checkpoint = Arc::new(Checkpoint::open(fixture("npy/v1.npy")).unwrap());
    let nbytes = usize::try_from(checkpoint.catalog().nbytes()).unwrap();
    static BYTES: [u8; 4096] = [7; 4096];
    let bytes = &BYTES[..nbytes];
    let load = load(&checkpoint).loader(StaticBytes(bytes)).borrow_mapped();
    let tensor = load.run().unwrap().into_iter().next().unwrap();
    assert_eq!(tensor.bytes(), bytes);
}

#[test]
fn a_conversion_of_a_shared_checkpoint_runs_on_any_thread() {
    let checkpoint = Arc::new(Checkpoint::open(fixture("gguf/types/q4_k.gguf")).unwrap());
    let expected = remember(&*checkpoint).all().unwrap();
    let conversion: Remember<'static> = remember(checkpoint);
    let found = thread::spawn(move || conversion.all()).join().unwrap();
    assert_eq!(found.unwrap(), expected);
}

#[test]
fn a_loaded_tensor_is_found_by_its_name() {
    let checkpoint = Checkpoint::open(fixture("safetensors/sharded")).unwrap();
    let loaded = load(&checkpoint)
        .order(|a, b| b.name.cmp(&a.name))
        .run()
        .unwrap();
    for tensor in checkpoint.catalog().tensors() {
        assert_eq!(loaded.get(&tensor.name).unwrap().info(), tensor);
    }
    for missing in ["", "lm_head", "lm_head.weight2", "\u{10ffff}"] {
        assert!(loaded.get(missing).is_none());
    }
}
