//! A plan gives the same bytes for any number of threads, source, loader, sink and tile height. The oracle is one thread with
//! a source in memory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::support;
use crate::support::loaders::all_loaders;
use crate::support::open_modes::OpenMode;
use crate::support::random::random_bytes;
use crate::support::recording_source::RecordingSource;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, gguf, safetensors};
use anamnesis::plan::{JobWork, Plan, TensorSpec};
use anamnesis::sink::{NullSink, Sharding};
use anamnesis::{BlockFormat, ByteRange, Checkpoint, Dtype, Encoding, Remembered, remember};

/// A GGUF and a safetensors file with weights of several tiles, and with unquantised and empty tensors between them.
fn input_files() -> [(&'static str, Vec<u8>); 2] {
    let blocks = |name: &str, format: &str, shape: &[u64], seed| {
        let format = BlockFormat::from_name(format).unwrap();
        let bytes = usize::try_from(format.nbytes(shape.iter().product()).unwrap()).unwrap();
        StoredTensor::new(
            name,
            &format.ggml_type.to_string(),
            shape,
            random_bytes(seed, bytes),
        )
    };
    let plain = |name: &str, dtype: &str, shape: &[u64], seed, item| {
        let elements = usize::try_from(shape.iter().product::<u64>()).unwrap();
        StoredTensor::new(name, dtype, shape, random_bytes(seed, elements * item))
    };
    let gguf_tensors = [
        plain("norm.weight", "0", &[777], 1, 4),
        blocks("blk.0.ffn.weight", "Q4_K", &[300, 2048], 2),
        plain("blk.0.ffn.scale", "0", &[1], 3, 4),
        plain("empty", "1", &[0], 4, 2),
        blocks("blk.1.exps.weight", "NVFP4", &[3, 200, 1024], 5),
        plain("blk.1.exps.scale", "0", &[3], 6, 4),
        blocks("blk.2.ffn.weight", "Q8_0", &[100, 32], 7),
        plain("rope", "1", &[9, 11], 8, 2),
    ];
    let fp8_tensors = [
        plain("a.weight", "F8_E4M3", &[700, 1000], 9, 1),
        plain("a.weight_scale_inv", "F32", &[6, 8], 10, 4),
        plain("bytes", "U8", &[13], 11, 1),
        plain("b.weight", "F8_E5M2", &[2, 300, 1200], 12, 1),
        plain("b.weight_scale", "BF16", &[2, 300, 1], 13, 2),
        plain("wide", "F64", &[90_000], 14, 8),
        StoredTensor::new("c.weight", "F8_E4M3", &[3, 0], Vec::new()),
        plain("d.weight", "F8_E4M3", &[3, 5, 7], 15, 1),
        plain("d.weight_scale", "F32", &[], 16, 4),
        plain("e.weight", "F8_E5M2", &[3, 5, 7], 17, 1),
        StoredTensor::new("one", "F32", &[], vec![1, 2, 3, 4]),
    ];
    let keys = [
        ("general.architecture", "llama"),
        ("general.name", "a \"name\""),
    ];
    let metadata = [("format", "tf"), ("origin", "a test"), ("ünïcode", "ja")];
    [
        ("in.gguf", gguf(false, &keys, &gguf_tensors)),
        ("in.safetensors", safetensors(&fp8_tensors, &metadata)),
    ]
}

fn assert_same(found: &[Remembered], expected: &[Remembered], what: &str) {
    let specs = |all: &[Remembered]| all.iter().map(|one| one.spec.clone()).collect::<Vec<_>>();
    assert_eq!(specs(found), specs(expected), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found.bytes == expected.bytes,
            "{what}: {} differs",
            expected.spec
        );
    }
}

/// The tensors of a written checkpoint, in the order of `expected`.
fn read_back(path: &Path, expected: &[Remembered]) -> Vec<Remembered> {
    let checkpoint = Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(checkpoint.tensors().len(), expected.len());
    let found = expected.iter().map(|one| {
        let tensor = checkpoint
            .tensor(&one.spec.name)
            .unwrap_or_else(|| panic!("{} is missing", one.spec));
        let info = tensor.info();
        let Encoding::Plain(dtype) = info.encoding else {
            panic!("{} is {}", info.name, info.encoding)
        };
        let spec = TensorSpec::new(info.name.clone(), info.shape.clone(), dtype);
        Remembered {
            spec,
            bytes: tensor.bytes().unwrap().into_owned(),
        }
    });
    found.collect()
}

#[test]
fn threads_sources_and_sinks_do_not_change_the_bytes() {
    let scratch = ScratchDir::new("execute");
    let pool = zeropool::BufferPool::new();
    for (name, file) in input_files() {
        let path = scratch.path(name);
        std::fs::write(&path, &file).unwrap();
        let memory = Checkpoint::from_bytes(file).unwrap();
        for dtype in [Dtype::BF16, Dtype::F32] {
            let expected = remember(&memory).dtype(dtype).threads(1).all().unwrap();
            let plan = remember(&memory).dtype(dtype).plan().unwrap();
            assert!(
                plan.jobs.iter().any(|job| job.tiles().count() > 2),
                "{name} has no weight of several tiles"
            );
            let specs: Vec<_> = plan.jobs.iter().map(|job| job.output.clone()).collect();
            assert_eq!(
                specs,
                expected
                    .iter()
                    .map(|one| one.spec.clone())
                    .collect::<Vec<_>>()
            );
            for mode in [
                OpenMode::Mapped,
                OpenMode::Read,
                OpenMode::Bytes,
                OpenMode::Reader,
            ] {
                let checkpoint = mode.open(&path, None).unwrap();
                let all_threads = [2, 1, 3, 8];
                for threads in if dtype == Dtype::BF16 {
                    &all_threads[..]
                } else {
                    &all_threads[..1]
                }
                .iter()
                .copied()
                {
                    let what = format!("{name} {dtype} {mode:?}, {threads} threads");
                    let remember = remember(&checkpoint)
                        .dtype(dtype)
                        .threads(threads)
                        .overwrite(true);
                    assert_same(&remember.all().unwrap(), &expected, &what);
                    let one_by_one = plan.jobs.iter().flat_map(|job| {
                        let jobs = vec![job.clone()];
                        let one = Plan {
                            jobs,
                            ..Plan::default()
                        };
                        remember.planned_in(&one, &pool).unwrap()
                    });
                    for pooled in [remember.all_in(&pool).unwrap(), one_by_one.collect()] {
                        let pooled = pooled.into_iter().map(|one| Remembered {
                            spec: one.spec,
                            bytes: one.bytes.to_vec(),
                        });
                        assert_same(&pooled.collect::<Vec<_>>(), &expected, &what);
                    }
                    let to = scratch.path("out.safetensors");
                    remember.to_file(&to).unwrap();
                    assert_same(&read_back(&to, &expected), &expected, &what);
                }
                let remember = remember(&checkpoint).dtype(dtype).threads(2);
                for (shard_bytes, min_files) in [(0, 3), (1 << 20, 2), (u64::MAX, 1)] {
                    let to = scratch.path("shards");
                    remember.to_dir(&to, shard_bytes).unwrap();
                    let files = std::fs::read_dir(&to).unwrap().count();
                    assert!(
                        files >= min_files && (files == 1) == (min_files == 1),
                        "{files} files for shards of {shard_bytes} bytes"
                    );
                    assert_same(
                        &read_back(&to, &expected),
                        &expected,
                        &format!("{name} {dtype} {mode:?}, shards of {shard_bytes}"),
                    );
                    std::fs::remove_dir_all(&to).unwrap();
                }
                for one in &expected {
                    let mut out = vec![0xaa; one.bytes.len()];
                    remember.tensor_into(&one.spec.name, &mut out).unwrap();
                    assert!(
                        out == one.bytes && remember.tensor(&one.spec.name).unwrap() == *one,
                        "{}",
                        one.spec
                    );
                }
            }
        }
    }
}

/// The fixtures with one block type each.
fn block_type_fixtures() -> impl Iterator<Item = PathBuf> {
    BlockFormat::all()
        .iter()
        .map(|format| format!("gguf/types/{}.gguf", format.name.to_lowercase()))
        .map(|name| support::fixture(&name))
        .filter(|path| path.is_file())
}

/// The decoder of every scheme with the chunks of every loader.
#[test]
fn loaders_do_not_change_the_bytes() {
    let scratch = ScratchDir::new("execute-loaders");
    let generated = input_files().map(|(name, bytes)| {
        std::fs::write(scratch.path(name), bytes).unwrap();
        scratch.path(name)
    });
    let mut compared = 0;
    for path in generated
        .into_iter()
        .chain(block_type_fixtures())
        .chain(support::corpus::quantised_files())
    {
        let checkpoint = Checkpoint::open(&path).unwrap();
        let refused_names = |plan: &Plan| {
            plan.refused
                .iter()
                .map(|refused| refused.name.clone())
                .collect::<Vec<_>>()
        };
        let refused = refused_names(&remember(&checkpoint).plan().unwrap());
        let remember = remember(&checkpoint)
            .threads(2)
            .filter(|name| !refused.iter().any(|r| **r == *name));
        let expected = remember.all().unwrap();
        for (name, loader) in all_loaders() {
            let what = format!("{} {name}", path.display());
            assert_same(
                &remember.clone().loader(loader).all().unwrap(),
                &expected,
                &what,
            );
            compared += expected.len();
        }
    }
    assert!(compared > 500, "{compared}");
}

/// The decoder of every scheme with tiles of one row, two, three and more.
#[test]
fn tile_height_does_not_change_the_bytes() {
    let mut weights = std::collections::BTreeMap::<&str, usize>::new();
    let generated = input_files().map(|(_, bytes)| Checkpoint::from_bytes(bytes).unwrap());
    let files = block_type_fixtures()
        .chain(support::corpus::quantised_files())
        .map(|path| Checkpoint::open(path).unwrap());
    for checkpoint in generated.into_iter().chain(files) {
        for dtype in [Dtype::F32, Dtype::F16] {
            let remember = remember(&checkpoint).dtype(dtype).cast(true).threads(1);
            let mut decode = |height: Option<u64>| {
                let mut plan = remember.plan().unwrap();
                plan.refused.clear();
                for job in &mut plan.jobs {
                    let JobWork::Tiles { decoder, rows } = &mut job.work else {
                        continue;
                    };
                    let step = decoder.grid().step.max(1);
                    // at most 500 tiles, so that weights with many rows do not take long
                    let min_height = decoder.grid().rows / 500;
                    *rows = height.map_or(*rows, |height| {
                        height.max(min_height).next_multiple_of(step)
                    });
                    *weights.entry(job.scheme).or_default() += 1;
                }
                let nbytes = plan
                    .jobs
                    .iter()
                    .map(|job| usize::try_from(job.output.nbytes().unwrap()).unwrap());
                let mut out: Vec<Vec<u8>> = nbytes.map(|n| vec![0xaa; n]).collect();
                let mut sink = anamnesis::sink::MemorySink::new(
                    out.iter_mut().map(|out| &mut **out).collect(),
                );
                remember.run(&plan, &mut sink).unwrap();
                out
            };
            let expected = decode(None);
            for height in [1, 2, 3, 5, 16, 1 << 40] {
                assert!(
                    decode(Some(height)) == expected,
                    "{:?} in tiles of {height} rows",
                    checkpoint.path()
                );
            }
        }
    }
    println!("{weights:?}");
    assert!(weights["ggml"] > 100 && weights["fp8"] > 10, "{weights:?}");
}

#[test]
fn metadata_is_copied_to_the_output() {
    let scratch = ScratchDir::new("metadata");
    let out = scratch.path("out.safetensors");
    let expected_metadata: [&[(&str, &str)]; 2] = [
        &[
            ("format", "pt"),
            ("gguf.general.architecture", "\"llama\""),
            ("gguf.general.name", "\"a \\\"name\\\"\""),
        ],
        &[("format", "tf"), ("origin", "a test"), ("ünïcode", "ja")],
    ];
    for ((_, file), expected) in input_files().into_iter().zip(expected_metadata) {
        let checkpoint = Checkpoint::from_bytes(file).unwrap();
        remember(&checkpoint).overwrite(true).to_file(&out).unwrap();
        let found = Checkpoint::open(&out).unwrap();
        let metadata = found.catalog().metadata();
        for (key, value) in expected {
            assert_eq!(metadata.text(key), Some(*value), "{key}");
        }
        assert_eq!(metadata.len(), expected.len());
    }
    // arrays are complete, and JSON numbers stay numbers
    let tokens = Checkpoint::open(support::fixture("gguf/mixed_tokenizer.gguf")).unwrap();
    remember(&tokens).overwrite(true).to_file(&out).unwrap();
    let found = Checkpoint::open(&out).unwrap();
    for (key, _) in tokens.catalog().metadata().iter() {
        let text = found
            .catalog()
            .metadata()
            .text(&format!("gguf.{key}"))
            .unwrap_or_else(|| panic!("{key} is missing"));
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        let stored = tokens.metadata(key).unwrap().unwrap();
        assert_eq!(value, serde_json::to_value(&stored).unwrap(), "{key}");
    }
    let list = found
        .catalog()
        .metadata()
        .text("gguf.tokenizer.ggml.tokens")
        .unwrap();
    assert!(
        serde_json::from_str::<Vec<String>>(list).unwrap().len() > 10,
        "{list}"
    );
}

#[test]
fn execution_reads_the_byte_ranges_of_the_plan() {
    for (name, bytes) in input_files() {
        let reads = Arc::new(Mutex::new(Vec::new()));
        let checkpoint = Checkpoint::from_source(RecordingSource {
            bytes,
            reads: reads.clone(),
        })
        .unwrap();
        let remember = remember(&checkpoint).threads(1);
        let plan = remember.plan().unwrap();
        let planned: Vec<_> = plan
            .reads(checkpoint.catalog())
            .map(|ByteRange { start, len, .. }| (start, len))
            .collect();
        reads.lock().unwrap().clear();
        remember.run(&plan, &mut NullSink).unwrap();
        // a tensor may be read by several adjacent requests
        assert_eq!(merged(&reads.lock().unwrap()), merged(&planned), "{name}");
        assert!(planned.len() > 10, "{name}: {planned:?}");
    }
}

/// Non-empty reads, with adjacent ones merged.
fn merged(reads: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for &(start, len) in reads.iter().filter(|(_, len)| *len > 0) {
        match merged.last_mut() {
            Some((from, sum)) if *from + *sum == start => *sum += len,
            _ => merged.push((start, len)),
        }
    }
    merged
}

#[test]
fn the_safetensors_sink_lists_the_files_that_it_wrote() {
    let scratch = ScratchDir::new("files");
    let [_, (_, file)] = input_files();
    let checkpoint = Checkpoint::from_bytes(file).unwrap();
    let remember = remember(&checkpoint).threads(1);
    let mut sink = remember
        .safetensors(scratch.path("out"), Sharding::Shards(1 << 20))
        .unwrap();
    let plan = remember.plan().unwrap();
    remember.run(&plan, &mut sink).unwrap();
    let files: Vec<_> = sink.files().map(Path::to_owned).collect();
    assert!(files.len() > 1 && files.iter().all(|file| file.is_file()));
    drop(sink);
    assert!(
        files.iter().all(|file| file.is_file()),
        "committed files are kept when the sink is dropped"
    );
}
