//! Slices of tensors, compared with a selection of single elements.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::support::loaders::all_loaders;
use crate::support::open_modes::OpenMode;
use crate::support::random::{Random, random_bytes};
use crate::support::recording_source::RecordingSource;
use crate::support::scratch_dir::ScratchDir;
use crate::support::slices::{random_slice, selected_elements, sliced_shape};
use crate::support::tensor_files::{varied_tensors, write_and_open};
use crate::support::writers::{StoredTensor, gguf, safetensors};
use crate::support::{fixture, fixtures, is_memory_limit};
use anamnesis::load::PreadLoader;
use anamnesis::slice::TensorSlice;
use anamnesis::{Checkpoint, Limits, load};

#[test]
fn shards_of_all_workers_partition_the_tensor() {
    let scratch = ScratchDir::new("load-slices");
    let checkpoint = write_and_open(&scratch, &varied_tensors());
    for (name, loader) in all_loaders() {
        for axis in [0, 1] {
            let mut nbytes_of_all = 0;
            for rank in 0..4 {
                let slice = TensorSlice::Shard { axis, rank, of: 4 };
                let chosen = slice.clone();
                let load = load(&checkpoint)
                    .loader(loader.clone())
                    .slice(move |_| chosen.clone());
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
                    let expected = selected_elements(&whole.bytes().unwrap(), shape, item, &slice);
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

/// Rows and slices of a tensor that is read by itself equal a load, however the file is opened.
#[test]
fn slices_of_a_tensor_are_those_of_a_load() {
    let mut random = Random(7);
    let (mut read, mut refused) = (0, 0);
    for (path, format) in fixtures() {
        for mode in [OpenMode::Mapped, OpenMode::Read] {
            let Ok(checkpoint) = mode.open(&path, Some(format)) else {
                continue;
            };
            for tensor in checkpoint.tensors().take(20) {
                let info = tensor.info();
                let slice = random_slice(&mut random, &info.shape);
                let chosen = slice.clone();
                let loaded = load(&checkpoint)
                    .slice(move |_| chosen.clone())
                    .tensor(&info.name);
                match (tensor.slice_bytes(&slice), loaded) {
                    (Ok(bytes), Ok(loaded)) => {
                        assert!(
                            *bytes == *loaded.bytes(),
                            "{} {} {slice:?}",
                            path.display(),
                            info.name
                        );
                        read += 1;
                    }
                    (Err(own), Err(of_load)) => {
                        assert!(
                            own.to_string().ends_with(&of_load.to_string()),
                            "{own}, {of_load}"
                        );
                        refused += 1;
                    }
                    (own, of_load) => {
                        panic!("{} {}: {own:?}, {of_load:?}", path.display(), info.name)
                    }
                }
                if let Some(rows @ 1..) = info.shape.first().copied()
                    && let (Ok(all), Ok(row)) = (tensor.bytes(), tensor.rows(rows - 1..rows))
                {
                    assert!(all.ends_with(&row), "{} {}", path.display(), info.name);
                }
            }
        }
    }
    assert!(
        read > 1000 && refused > 10,
        "{read} read, {refused} refused"
    );
}

#[test]
fn a_row_of_a_tensor_is_one_read_of_its_bytes() {
    let reads = Arc::new(Mutex::new(Vec::new()));
    let source = RecordingSource {
        bytes: varied_tensors(),
        reads: reads.clone(),
    };
    let checkpoint = Checkpoint::from_source(source).unwrap();
    let tensor = checkpoint.tensor("ffffff").unwrap();
    reads.lock().unwrap().clear();
    // 300 elements of two bytes
    let row = tensor.rows(100..101).unwrap();
    let read: Vec<_> = reads.lock().unwrap().drain(..).collect();
    assert_eq!(read, [(tensor.info().bytes.start + 60_000, 600)]);
    assert_eq!(*row, tensor.bytes().unwrap()[60_000..60_600]);
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
    assert!(
        third
            .unwrap_err()
            .to_string()
            .contains("axis 1 splits a block of 32 elements (Q8_0)")
    );
}

/// Boxes, ranges of any axis, joined ranges and shards, several of each tensor in one load, by every loader.
#[test]
fn every_loader_loads_several_slices_of_each_tensor() {
    let scratch = ScratchDir::new("load-boxes");
    let checkpoint = write_and_open(&scratch, &varied_tensors());
    let mut random = Random(11);
    let chosen: HashMap<String, Vec<TensorSlice>> = checkpoint
        .tensors()
        .map(|tensor| {
            let shape = &tensor.info().shape;
            let slices = (0..8).map(|_| random_slice(&mut random, shape)).collect();
            (tensor.info().name.to_string(), slices)
        })
        .collect();
    let expected: Vec<(String, TensorSlice)> = checkpoint
        .tensors()
        .flat_map(|tensor| {
            let name = tensor.info().name.to_string();
            chosen[&name]
                .iter()
                .map(move |slice| (name.clone(), slice.clone()))
                .collect::<Vec<_>>()
        })
        .collect();
    for (loader_name, loader) in all_loaders() {
        for borrow in [false, true] {
            let load = load(&checkpoint)
                .loader(loader.clone())
                .slices(|info| chosen[&*info.name].clone());
            let load = if borrow { load.borrow_mapped() } else { load };
            let loaded = load.run().unwrap();
            let mut streamed = Vec::new();
            load.stream(|tensors| {
                tensors.try_for_each(|tensor| tensor.map(|tensor| streamed.push(tensor)))
            })
            .unwrap();
            assert_eq!(
                (loaded.tensors().len(), streamed.len()),
                (expected.len(), expected.len())
            );
            for ((found, streamed), (name, slice)) in
                loaded.tensors().iter().zip(&streamed).zip(&expected)
            {
                let whole = checkpoint.tensor(name).unwrap();
                let (bytes, info) = (whole.bytes().unwrap(), whole.info());
                let item = usize::try_from(info.encoding.item_bytes().unwrap()).unwrap();
                let what = format!("{loader_name}: {name} {slice:?}");
                assert_eq!((found.name(), found.slice()), (&**name, slice), "{what}");
                assert_eq!(found.shape(), sliced_shape(&info.shape, slice), "{what}");
                assert!(
                    found.bytes() == selected_elements(&bytes, &info.shape, item, slice),
                    "{what}"
                );
                assert!(
                    found.bytes() == streamed.bytes() && streamed.slice() == slice,
                    "{what}"
                );
            }
        }
    }
}

/// Tensors of every format and storage: deflated, strided, column-major, big endian, chunked, with checksums.
#[test]
fn slices_of_every_fixture_have_its_elements() {
    let (mut random, mut compared) = (Random(12), 0);
    for (path, format) in fixtures() {
        for mode in [OpenMode::Mapped, OpenMode::Bytes] {
            let Ok(checkpoint) = mode.open(&path, Some(format)) else {
                continue;
            };
            for tensor in checkpoint.tensors() {
                let info = tensor.info();
                let (Ok(bytes), Some(item)) = (tensor.bytes(), info.encoding.item_bytes()) else {
                    continue;
                };
                let slice = random_slice(&mut random, &info.shape);
                let chosen = slice.clone();
                let only = |name: &str| name == &*info.name;
                let loaded = load(&checkpoint)
                    .filter(only)
                    .slice(move |_| chosen.clone())
                    .run();
                let loaded =
                    loaded.unwrap_or_else(|e| panic!("{} {}: {e}", path.display(), info.name));
                let [found] = loaded.tensors() else {
                    panic!("one tensor")
                };
                let expected =
                    selected_elements(&bytes, &info.shape, usize::try_from(item).unwrap(), &slice);
                assert!(
                    found.bytes() == expected,
                    "{} {} {slice:?}",
                    path.display(),
                    info.name
                );
                compared += usize::from(!expected.is_empty() && expected.len() < bytes.len());
            }
        }
    }
    assert!(compared > 200, "only {compared} slices");
}

#[test]
fn a_tensor_without_slices_is_not_loaded_and_one_with_several_is_not_one_tensor() {
    let checkpoint = Checkpoint::from_bytes(varied_tensors()).unwrap();
    let load = load(&checkpoint).slices(|info| match &*info.name {
        "a" => vec![TensorSlice::Rows(0..1), TensorSlice::Rows(2..3)],
        "bb" => vec![TensorSlice::Whole],
        _ => Vec::new(),
    });
    let loaded = load.run().unwrap();
    let names: Vec<&str> = loaded
        .tensors()
        .iter()
        .map(|tensor| tensor.name())
        .collect();
    assert_eq!(names, ["a", "a", "bb"]);
    assert_eq!(loaded.get("a").unwrap().slice(), &TensorSlice::Rows(0..1));
    assert_eq!(load.tensor("bb").unwrap().bytes().len(), 105);
    let several = load.tensor("a").unwrap_err();
    assert!(several.to_string().contains("several slices"), "{several}");
    assert!(load.tensor_into("a", &mut [0; 384]).is_err());
    assert!(load.tensor("ccc").is_err());
}

/// The bytes between the runs of a box are not read, on any axis that is cut.
#[test]
fn a_box_with_several_cut_axes_reads_only_its_pages() {
    let (reads, shape) = (Arc::new(Mutex::new(Vec::new())), [10, 8, 20_000]);
    let bytes = random_bytes(3, 10 * 8 * 20_000);
    let source = RecordingSource {
        bytes: safetensors(&[StoredTensor::new("t", "U8", &shape, bytes.clone())], &[]),
        reads: reads.clone(),
    };
    let checkpoint = Checkpoint::from_source(source).unwrap();
    reads.lock().unwrap().clear();
    let slice = TensorSlice::Axes(vec![2..5, 3..7, 9_000..10_000]);
    let chosen = slice.clone();
    let loader = PreadLoader::new().threads(1);
    let tensor = load(&checkpoint)
        .loader(loader)
        .slice(move |_| chosen.clone())
        .tensor("t")
        .unwrap();
    assert!(tensor.bytes() == selected_elements(&bytes, &shape, 1, &slice));
    let read: u64 = reads.lock().unwrap().iter().map(|(_, nbytes)| nbytes).sum();
    assert!(
        (12_000..13_000).contains(&read),
        "{read} bytes for 12 runs of 1000"
    );
}

/// The shape of a tensor decides how many reads its slice takes.
#[test]
fn the_reads_of_a_slice_are_charged() {
    let zeros = StoredTensor::new("t", "U8", &[100, 5_000], vec![0; 500_000]);
    let checkpoint = Checkpoint::from_bytes(safetensors(&[zeros], &[])).unwrap();
    let column = || TensorSlice::Range {
        axis: 1,
        range: 7..9,
    };
    let with = |memory| {
        let limits = Limits {
            memory,
            ..Limits::default()
        };
        load(&checkpoint)
            .limits(limits)
            .slice(move |_| column())
            .tensor("t")
    };
    assert_eq!(with(1 << 20).unwrap().bytes().len(), 200);
    let error = with(1_000).unwrap_err();
    assert!(is_memory_limit(&error), "{error}");
}
