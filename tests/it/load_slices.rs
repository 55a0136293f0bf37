//! Slices of tensors: rows, and the shard of one tensor-parallel worker along an axis, compared with a selection of single
//! elements.

use std::sync::{Arc, Mutex};

use crate::support::fixture;
use crate::support::loaders::all_loaders;
use crate::support::random::random_bytes;
use crate::support::recording_source::RecordingSource;
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::{varied_tensors, write_and_open};
use crate::support::writers::{StoredTensor, gguf};
use anamnesis::load::{PreadLoader, TensorSlice};
use anamnesis::{Checkpoint, load};

/// The oracle: the elements of a row-major tensor whose index along `axis` is in `range`, selected one by one.
fn slice_by_element(
    bytes: &[u8],
    shape: &[u64],
    item: usize,
    axis: usize,
    range: std::ops::Range<u64>,
) -> Vec<u8> {
    let inner: u64 = shape[axis + 1..].iter().product();
    let is_selected = |i: usize| range.contains(&(i as u64 / inner % shape[axis]));
    bytes
        .chunks(item)
        .enumerate()
        .filter(|(i, _)| is_selected(*i))
        .flat_map(|(_, item)| item.to_vec())
        .collect()
}

#[test]
fn shards_of_all_workers_partition_the_tensor() {
    let scratch = ScratchDir::new("load-slices");
    let checkpoint = write_and_open(&scratch, &varied_tensors());
    for (name, loader) in all_loaders() {
        for axis in [0, 1] {
            let mut nbytes_of_all = 0;
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
                    let range = size * rank / 4..size * (rank + 1) / 4;
                    assert_eq!(tensor.shape()[axis], range.end - range.start);
                    let expected =
                        slice_by_element(&whole.bytes().unwrap(), shape, item, axis, range);
                    assert!(
                        tensor.bytes() == expected,
                        "{name}: {} axis {axis} rank {rank}",
                        tensor.name()
                    );
                    nbytes_of_all += tensor.bytes().len();
                }
            }
            assert_eq!(nbytes_of_all, 64 * 96 * 4 + 105 + 420_000);
        }
    }
}

#[test]
fn a_slice_of_rows_reads_only_its_bytes() {
    let reads = Arc::new(Mutex::new(Vec::new()));
    let source = RecordingSource {
        bytes: varied_tensors(),
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
    // the load is one read; what follows is the comparison above
    let (_, nbytes) = reads.lock().unwrap()[0];
    assert!((60_000..61_000).contains(&nbytes), "{nbytes}");
}

/// A deflated tensor is inflated whole before it is sliced.
#[test]
fn deflated_tensors_are_sliced() {
    let archive = Checkpoint::open(fixture("npz/all_le_compressed.npz")).unwrap();
    for tensor in archive
        .tensors()
        .filter(|t| t.info().shape.first().is_some_and(|n| *n >= 2))
    {
        let rows = tensor.info().shape[0];
        let slice = load(&archive)
            .slice(move |_| TensorSlice::Rows(1..rows))
            .tensor(&tensor.info().name)
            .unwrap();
        let whole = tensor.bytes().unwrap();
        assert_eq!(
            slice.bytes(),
            &whole[whole.len() / usize::try_from(rows).unwrap()..]
        );
    }
}

/// A shard ends between two blocks or is refused.
#[test]
fn quantised_tensors_are_sliced_between_blocks() {
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
}
