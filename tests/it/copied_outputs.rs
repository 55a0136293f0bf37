//! Outputs that are stored in a file as they are: copied from there, they have the bytes that a loader reads for them, and a copy ends
//! as every other run does.

use std::fs;
use std::path::Path;

use crate::convert::{common, safetensors};
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::sparse_file::SparseFile;
use crate::support::writers::{StoredTensor, gguf};
use anamnesis::load::PreadLoader;
use anamnesis::sink::{Container, GGUF, NPZ, SAFETENSORS, Sharding};
use anamnesis::template::parallel::{Rule, Rules};
use anamnesis::{CancelToken, Checkpoint, Dtype, ErrorKind, OpenOptions, convert, remember};

/// Tensors of many lengths, adjacent in the file: of few bytes, of several pieces, and one of 4-bit elements.
fn many() -> Vec<u8> {
    let mut tensors: Vec<(String, &str, Vec<u64>, Vec<u8>)> = Vec::new();
    for number in 0..40 {
        let rows = 1 + number * number * 7 % 500;
        let bytes = random_bytes(number, usize::try_from(rows * 128).unwrap());
        tensors.push((format!("m.{number}.weight"), "BF16", vec![rows, 64], bytes));
    }
    let packed = random_bytes(99, 64 * 33);
    tensors.push(("packed.weight".into(), "F4", vec![66, 64], packed));
    let large = random_bytes(100, 5_000_000);
    tensors.push(("large_positions".into(), "U8", vec![2500, 2000], large));
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (&**name, *dtype, &shape[..], bytes.clone()))
        .collect();
    safetensors(&[("format", "pt")], &tensors)
}

/// Blocks of a GGUF between floats.
fn blocks() -> Vec<u8> {
    let tensor = |name: &str, shape: &[u64], dtype: &str, bytes| {
        StoredTensor::new(name, dtype, shape, random_bytes(7, bytes))
    };
    gguf(
        false,
        &[],
        &[
            tensor("a.weight", &[64, 256], "2", 64 * 256 / 32 * 18),
            tensor("b.weight", &[33], "0", 33 * 4),
            tensor("c.weight", &[64, 1024], "8", 64 * 1024 / 32 * 34),
        ],
    )
}

/// The bytes of the files that two ways have written, by name.
fn assert_equal_files(a: &Path, b: &Path, what: &str) {
    let files = |path: &Path| {
        if path.is_file() {
            return vec![fs::read(path).unwrap()];
        }
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries.map(|entry| entry.path()).collect();
        names.sort();
        names.iter().map(|path| fs::read(path).unwrap()).collect()
    };
    let (a, b) = (files(a), files(b));
    assert!(!a.is_empty() && a == b, "{what}");
}

#[test]
fn copies_have_the_bytes_that_a_loader_reads() {
    let scratch = ScratchDir::new("copied-outputs");
    let sources = [("common", common()), ("many", many()), ("blocks", blocks())];
    let (mut written, mut refused) = (0, 0);
    for (name, file) in sources {
        let path = scratch.path(name);
        fs::write(&path, file).unwrap();
        for mmap in [true, false] {
            let source = OpenOptions::new().mmap(mmap).open(&path).unwrap();
            let targets: [(&Container, Sharding); 4] = [
                (&SAFETENSORS, Sharding::SingleFile),
                (&SAFETENSORS, Sharding::Shards(1 << 20)),
                (&GGUF, Sharding::SingleFile),
                (&NPZ, Sharding::SingleFile),
            ];
            for (number, (container, sharding)) in targets.into_iter().enumerate() {
                for threads in [1, 3] {
                    let what = format!("{name}-{mmap}-{number}-{threads}");
                    let out = |way: &str| scratch.path(&format!("{way}-{what}"));
                    let all = convert(&source)
                        .container(container)
                        .void(true)
                        .threads(threads);
                    let write = |all: anamnesis::Convert<'_>, out: &Path| {
                        let plan = all.plan()?;
                        all.run(&plan, &mut all.sink(out, sharding.clone())?)
                    };
                    let copied = write(all.clone(), &out("copied"));
                    let loaded = write(all.loader(PreadLoader::new()), &out("loaded"));
                    assert_eq!(copied.is_ok(), loaded.is_ok(), "{what}: {copied:?}");
                    if copied.is_err() {
                        refused += 1;
                        continue;
                    }
                    assert_equal_files(&out("copied"), &out("loaded"), &what);
                    written += 1;
                }
            }
        }
    }
    // 4-bit floats are in safetensors alone, blocks in a GGUF
    assert!(written >= 20 && refused >= 8, "{written}, {refused}");
}

#[test]
fn shares_and_plain_tensors_of_a_conversion_are_copied_too() {
    let scratch = ScratchDir::new("copied-shares");
    let path = scratch.path("many.safetensors");
    fs::write(&path, many()).unwrap();
    let source = Checkpoint::open(&path).unwrap();
    for rule in [Rule::Column, Rule::Row] {
        let mut rules = Rules::default();
        rules.put_first("*weight", rule);
        for rank in 0..2 {
            let share = convert(&source).tensor_parallel(rank, 2, &rules);
            // codes without a scale are not divided
            let share = share.filter(|name| {
                name != "packed.weight" && (!name.starts_with("m.") || name.ends_with("7.weight"))
            });
            let (copied, loaded) = (scratch.path("copied"), scratch.path("loaded"));
            share.clone().overwrite(true).to_file(&copied).unwrap();
            let loader = PreadLoader::new();
            share
                .loader(loader)
                .overwrite(true)
                .to_file(&loaded)
                .unwrap();
            assert_equal_files(&copied, &loaded, "share");
        }
    }
    // BF16 is copied, U8 too, and what is cast is computed: both kinds in one run
    let all = remember(&source).dtype(Dtype::F32).cast(true);
    let (copied, loaded) = (scratch.path("remembered"), scratch.path("by-loader"));
    let all = all.filter(|name| name != "packed.weight");
    all.to_file(&copied).unwrap();
    all.loader(PreadLoader::new()).to_file(&loaded).unwrap();
    assert_equal_files(&copied, &loaded, "cast");
}

#[test]
fn a_source_that_becomes_shorter_is_an_error_that_names_it() {
    let scratch = ScratchDir::new("copied-truncated");
    let path = scratch.path("source.safetensors");
    for (mmap, kept) in [(true, 3_000_000), (false, 3_000_000), (true, 10)] {
        fs::write(&path, many()).unwrap();
        let source = OpenOptions::new().mmap(mmap).open(&path).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(kept).unwrap();
        let out = scratch.path("out.safetensors");
        let error = convert(&source).to_file(&out).unwrap_err();
        assert_eq!(error.path(), Some(&*path), "{error}");
        let is_end = matches!(error.kind(), ErrorKind::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof);
        assert!(is_end, "{error}");
        let names: Vec<_> = fs::read_dir(scratch.path(".")).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}

#[test]
fn a_copy_reports_its_progress_and_is_cancelled_inside_of_a_tensor() {
    const TENSOR: u64 = 192 << 20;
    let scratch = ScratchDir::new("copied-cancel");
    let header =
        format!(r#"{{"t":{{"dtype":"U8","shape":[{TENSOR}],"data_offsets":[0,{TENSOR}]}}}}"#);
    // a source whose data begin at a page are copied within the system
    for spaces in [0, 4096 - 8 - header.len() % 4096] {
        let header = format!("{header}{}", " ".repeat(spaces));
        let mut file = SparseFile::default();
        file.append([&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat());
        file.append_zeros(TENSOR);
        let path = scratch.path("source.safetensors");
        file.write(&path).unwrap();
        let source = Checkpoint::open(&path).unwrap();
        let token = CancelToken::new();
        let mut last = 0;
        let out = scratch.path("out.safetensors");
        let report = |progress: anamnesis::Progress| {
            assert!(progress.done >= last && progress.total == TENSOR);
            last = progress.done;
            if last > 16 << 20 {
                token.cancel();
            }
        };
        let error = convert(&source)
            .progress(report)
            .cancel(&token)
            .to_file(&out);
        assert!(matches!(error.unwrap_err().kind(), ErrorKind::Cancelled));
        assert!(!out.exists());
        assert!((16 << 20..32 << 20).contains(&last), "{last}");
    }
}
