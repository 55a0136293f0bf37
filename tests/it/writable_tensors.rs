//! Loaded tensors as memory for writing: of their own, without a copy, from the pool or from a private map, at the alignment that
//! was requested; and how much memory a tensor that is kept keeps.

use crate::support::fixture;
use crate::support::loaders::all_loaders;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::{
    large_tensors, odd_sized_tensors, tensor_bytes, write_and_open,
};
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::load::LoadedTensor;
use anamnesis::pool::BufferPart;
use anamnesis::{Checkpoint, ErrorKind, OpenOptions, load};
use zeropool::BufferPool;

/// The bytes of all tensors for writing. None was copied: each lies where it was loaded.
fn into_parts(tensors: impl IntoIterator<Item = LoadedTensor<'static>>) -> Vec<BufferPart> {
    let parts = tensors.into_iter().map(|tensor| {
        let (name, address) = (tensor.name().to_owned(), tensor.bytes().as_ptr());
        let part = tensor
            .into_part()
            .unwrap_or_else(|_| panic!("{name} is shared"));
        assert!(
            part.is_empty() || part.as_ptr() == address,
            "{name} was moved"
        );
        part
    });
    parts.collect()
}

/// Inverts each part while the others exist, and compares all of them with the expected bytes.
fn check_writes(parts: &mut [BufferPart], expected: &[Vec<u8>], what: &str) {
    for part in &mut *parts {
        part.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for (part, expected) in parts.iter().zip(expected) {
        assert!(
            part.iter().map(|byte| !byte).eq(expected.iter().copied()),
            "{what}"
        );
    }
}

#[test]
fn loaded_tensors_are_writable_and_share_no_byte() {
    let scratch = ScratchDir::new("writable");
    for (file, count) in [(odd_sized_tensors(700, 3000), 700), (large_tensors(), 1)] {
        let checkpoint = std::sync::Arc::new(write_and_open(&scratch, &file));
        let expected = tensor_bytes(&checkpoint);
        assert!(expected.len() >= count);
        for (name, loader) in all_loaders() {
            let pool = BufferPool::new();
            let load = load(&checkpoint).loader(loader).pool(&pool);
            let mut parts = into_parts(load.run().unwrap());
            check_writes(&mut parts, &expected, name);
            let mut streamed = Vec::new();
            load.stream(|tensors| {
                streamed = tensors.collect::<Result<_, _>>()?;
                Ok(())
            })
            .unwrap();
            check_writes(&mut into_parts(streamed), &expected, name);
            drop(parts);
            assert_eq!(pool.stats().in_use, 0, "{name}");
            // written bytes are in no file
            assert!(tensor_bytes(&checkpoint) == expected, "{name}");
        }
    }
}

#[test]
fn a_private_map_is_written_to_and_the_file_is_not() {
    let scratch = ScratchDir::new("writable-private");
    for file in [
        odd_sized_tensors(300, 3000),
        large_tensors(),
        odd_sized_tensors(5, 40),
    ] {
        let path = write_and_open(&scratch, &file).path().unwrap().to_owned();
        let checkpoint = OpenOptions::new().private(true).open(&path).unwrap();
        let checkpoint = std::sync::Arc::new(checkpoint);
        let expected = tensor_bytes(&checkpoint);
        for (name, loader) in all_loaders() {
            let pool = BufferPool::new();
            let load = load(&checkpoint).loader(loader).pool(&pool).borrow_mapped();
            let (first, second) = (load.run().unwrap(), load.run().unwrap());
            let is_mapped =
                name.starts_with("mapped") && cfg!(feature = "mmap") && file.len() > 16 << 10;
            assert!(
                pool.stats().in_use == 0 || !is_mapped,
                "{name}: a mapped tensor was copied"
            );
            check_writes(&mut into_parts(first), &expected, name);
            // another load of the same checkpoint has a map of its own
            check_writes(&mut into_parts(second), &expected, name);
            assert!(std::fs::read(&path).unwrap() == file, "{name}");
        }
        assert!(tensor_bytes(&checkpoint) == expected);
    }
}

/// A clone, and a tensor that is tied to another one, are not for one writer alone.
#[test]
fn shared_bytes_stay_read_only() {
    let scratch = ScratchDir::new("writable-shared");
    let own = write_and_open(&scratch, &odd_sized_tensors(3, 3000));
    let loaded = load(&own).run().unwrap();
    let clone = loaded.tensors()[1].clone();
    let parts: Vec<_> = loaded.into_iter().map(LoadedTensor::into_part).collect();
    assert_eq!(
        parts.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false, true]
    );
    let tensor = clone.into_part().unwrap_err();
    assert!(tensor.bytes() == &*own.tensor(tensor.name()).unwrap().bytes().unwrap());
    let tied = Checkpoint::open(fixture("pth/tied.pth")).unwrap();
    let loaded = load(&tied).run().unwrap();
    let addresses: Vec<_> = loaded
        .tensors()
        .iter()
        .map(|t| t.bytes().as_ptr())
        .collect();
    let mut shared = 0;
    for tensor in loaded {
        let (name, address) = (tensor.name().to_owned(), tensor.bytes().as_ptr());
        let owners = addresses.iter().filter(|other| **other == address).count();
        assert_eq!(tensor.into_part().is_err(), owners > 1, "{name}");
        shared += usize::from(owners > 1);
    }
    assert!(shared >= 2);
}

#[test]
fn tensors_have_the_alignment_that_was_requested() {
    let scratch = ScratchDir::new("writable-aligned");
    let path = write_and_open(&scratch, &odd_sized_tensors(200, 3000))
        .path()
        .unwrap()
        .to_owned();
    for private in [false, true] {
        let checkpoint = OpenOptions::new().private(private).open(&path).unwrap();
        let expected = tensor_bytes(&checkpoint);
        for (name, loader) in all_loaders() {
            for borrow in [false, true] {
                let load = load(&checkpoint).loader(loader.clone()).align(64);
                let load = if borrow { load.borrow_mapped() } else { load };
                let loaded = load.run().unwrap();
                for (tensor, expected) in loaded.tensors().iter().zip(&expected) {
                    let is_aligned = tensor.bytes().as_ptr().addr().is_multiple_of(64);
                    assert!(
                        is_aligned || expected.is_empty(),
                        "{name} {borrow}: {}",
                        tensor.name()
                    );
                    assert!(tensor.bytes() == expected, "{name} {borrow}");
                }
            }
        }
        for align in [0, 3, 128] {
            let error = load(&checkpoint).align(align).run().unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::InvalidArgument(_)),
                "{error}"
            );
        }
    }
}

/// The documented bound: 16 MiB, in a size class that is at most a quarter larger.
#[test]
fn a_tensor_that_is_kept_keeps_at_most_16_mib() {
    let scratch = ScratchDir::new("writable-kept");
    let tensors: Vec<_> = (0..600)
        .map(|i| {
            StoredTensor::new(
                &format!("t{i:03}"),
                "U8",
                &[100_000],
                random_bytes(i, 100_000),
            )
        })
        .collect();
    let checkpoint = write_and_open(&scratch, &safetensors(&tensors, &[]));
    for (name, loader) in all_loaders() {
        let pool = BufferPool::new();
        let loaded = load(&checkpoint).loader(loader).pool(&pool).run().unwrap();
        assert!(pool.stats().in_use >= 60_000_000, "{name}");
        let kept = loaded.tensors()[300].clone();
        drop(loaded);
        let in_use = pool.stats().in_use;
        assert!(in_use > 0 && in_use <= 20 << 20, "{name}: {in_use}");
        assert!(kept.bytes() == random_bytes(300, 100_000), "{name}");
    }
}
