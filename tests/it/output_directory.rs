//! Directories whose files are made one by one, by processes that each open the source: the bytes of one run, whatever was
//! there before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{f32_bytes, random_scales};
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};
use crate::support::{corpus, fixture, fixtures};
use anamnesis::plan::{JobWork, PLAN_ID_KEY, PlanId};
use anamnesis::sink::{OutputDirectory, OutputFile};
use anamnesis::slice::TensorSlice;
use anamnesis::{Checkpoint, Dtype, Error, ErrorKind, Names, Remember, Result, remember};

/// Bytes of tensors in a shard of the tests: two of the weights of [`fp8_source`].
const SHARD: u64 = 2 * 128 * 256 * 2;

/// A directory of FP8 weights and companion files, in two shards. Headers name the seed.
fn fp8_source(scratch: &ScratchDir, name: &str, seed: u64) -> PathBuf {
    let directory = scratch.path(name);
    fs::create_dir(&directory).unwrap();
    let mut map = serde_json::Map::new();
    for shard in 0..2u64 {
        let mut tensors = Vec::new();
        let file = format!("model-{:05}-of-00002.safetensors", shard + 1);
        for layer in 0..4u64 {
            let seed = 100 * seed + 8 * shard + layer;
            let name = format!("model.layers.{}.mlp.weight", 4 * shard + layer);
            // codes without NaN
            let codes = random_bytes(seed, 128 * 256);
            let codes = codes.into_iter().map(|code| code & 0xbf).collect();
            tensors.push(StoredTensor::new(&name, "F8_E4M3", &[128, 256], codes));
            let scales = f32_bytes(&random_scales(seed, 2));
            let scale = format!("{name}_scale_inv");
            tensors.push(StoredTensor::new(&scale, "F32", &[1, 2], scales));
            let norm = format!("model.layers.{}.norm.weight", 4 * shard + layer);
            let ones = random_bytes(seed + 100, 64 * 2);
            tensors.push(StoredTensor::new(&norm, "BF16", &[64], ones));
            map.extend([name, scale, norm].map(|name| (name, file.clone().into())));
        }
        let origin = seed.to_string();
        let metadata = [("format", "pt"), ("origin", &*origin)];
        fs::write(directory.join(file), safetensors(&tensors, &metadata)).unwrap();
    }
    let config = r#"{"model_type": "x", "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}"#;
    let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
    for (name, text) in [
        ("config.json", config),
        ("model.safetensors.index.json", &index),
        ("tokenizer.json", "{}"),
    ] {
        fs::write(directory.join(name), text).unwrap();
    }
    directory
}

/// Names and bytes of the files in a directory.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    let entries = entries.map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        })
        .collect()
}

/// The options of a conversion.
type Options = fn(Remember<'_>) -> Remember<'_>;

fn described(
    source: &Path,
    target: &Path,
    shard: u64,
    options: Options,
) -> Result<OutputDirectory> {
    let checkpoint = Checkpoint::open(source).unwrap();
    let remember = options(remember(&checkpoint));
    remember.output_directory(&remember.plan().unwrap(), target, shard)
}

/// Makes a file as another process does: from its description as text, and from a checkpoint of its own.
fn make(source: &Path, target: &Path, file: &OutputFile, options: Options) -> Result<bool> {
    let file: OutputFile = serde_json::from_str(&serde_json::to_string(file).unwrap()).unwrap();
    let checkpoint = Checkpoint::open(source).unwrap();
    options(remember(&checkpoint)).make_file(target, &file)
}

/// Converts with a worker for each file; returns the names of the files that were made.
fn convert(source: &Path, target: &Path, shard: u64, options: Options) -> Result<Vec<String>> {
    let mut directory = described(source, target, shard, options)?;
    let mut made = Vec::new();
    // from the last to the first: the machines decide the order
    for number in directory.prepare()?.into_iter().rev() {
        let file = &directory.files()[number];
        assert!(make(source, target, file, options)?);
        made.push(file.name.clone());
    }
    directory.complete()?;
    Ok(made)
}

fn defaults(remember: Remember<'_>) -> Remember<'_> {
    remember
}

fn f16(remember: Remember<'_>) -> Remember<'_> {
    remember.dtype(Dtype::F16)
}

fn replacing(remember: Remember<'_>) -> Remember<'_> {
    remember.overwrite(true)
}

fn missing_part(error: &Error) -> &str {
    match error.kind() {
        ErrorKind::MissingPart(what) => what,
        _ => panic!("{error}"),
    }
}

#[track_caller]
fn assert_exists(error: &Error) {
    let ErrorKind::Io(e) = error.kind() else {
        panic!("{error}");
    };
    assert_eq!(e.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
}

#[test]
fn files_made_one_by_one_are_those_of_one_run() {
    let scratch = ScratchDir::new("one-by-one");
    let fp8 = fp8_source(&scratch, "in", 1);
    let gguf = fixture("model/scribe-Q8_0.gguf");
    let hf: Options = |remember| remember.names(Names::HuggingFace);
    let renamed: Options = |remember| remember.rename(|name| format!("x.{name}")).cast(true);
    let sliced: Options = |remember| {
        remember
            .filter(|name| name.ends_with("mlp.weight"))
            .slice(|_| TensorSlice::Range {
                axis: 1,
                range: 3..200,
            })
    };
    let cases: [(&Path, u64, Options, usize); 7] = [
        (&fp8, SHARD, defaults, 5),
        (&fp8, SHARD, f16, 5),
        (&fp8, 1, renamed, 16),
        (&fp8, SHARD, sliced, 4),
        (&fp8, u64::MAX, defaults, 1),
        (&gguf, 1 << 16, hf, 4),
        (&gguf, 1 << 16, defaults, 4),
    ];
    for (case, (source, shard, options, at_least)) in cases.into_iter().enumerate() {
        let (one, many) = (
            scratch.path(&format!("one{case}")),
            scratch.path(&format!("many{case}")),
        );
        let checkpoint = Checkpoint::open(source).unwrap();
        options(remember(&checkpoint)).to_dir(&one, shard).unwrap();
        let directory = described(source, &many, shard, options).unwrap();
        assert!(!many.exists(), "nothing is made before");
        let made = convert(source, &many, shard, options).unwrap();
        assert!(made.len() >= at_least, "case {case}: {made:?}");
        let (one, many) = (contents(&one), contents(&many));
        assert_eq!(
            one.keys().collect::<Vec<_>>(),
            many.keys().collect::<Vec<_>>()
        );
        assert!(one == many, "case {case}");
        // the description matches the files
        let mut names = BTreeSet::new();
        for file in directory.files() {
            let found = Checkpoint::from_bytes(one[&file.name].clone()).unwrap();
            let outputs: BTreeSet<_> = file.outputs.iter().map(|name| &**name).collect();
            let stored = found.catalog().tensors().iter().map(|info| &*info.name);
            assert_eq!(outputs, stored.collect());
            assert_eq!(file.nbytes, found.catalog().nbytes());
            let id = found.catalog().metadata().text(PLAN_ID_KEY).unwrap();
            assert_eq!(id.parse::<PlanId>().unwrap(), file.plan_id);
            names.extend(file.outputs.iter().cloned());
        }
        let plan = options(remember(&checkpoint)).plan().unwrap();
        let planned = plan.jobs.iter().map(|job| job.output.name.clone());
        assert_eq!(names, planned.collect());
    }
}

#[test]
fn complete_files_are_left_and_damaged_ones_are_made_again() {
    let scratch = ScratchDir::new("again");
    let (source, target) = (fp8_source(&scratch, "in", 1), scratch.path("out"));
    let made = convert(&source, &target, SHARD, defaults).unwrap();
    let expected = contents(&target);
    let times = || {
        made.iter()
            .map(|name| fs::metadata(target.join(name)).unwrap().modified().unwrap())
            .collect::<Vec<_>>()
    };
    let before = times();
    assert!(
        convert(&source, &target, SHARD, defaults)
            .unwrap()
            .is_empty()
    );
    let directory = described(&source, &target, SHARD, defaults).unwrap();
    for file in directory.files() {
        assert!(!make(&source, &target, file, defaults).unwrap());
    }
    assert_eq!(times(), before);
    // files of the wrong size, in either direction, and an absent one
    let path = |file: usize| target.join(&directory.files()[file].name);
    let mut longer = fs::read(path(0)).unwrap();
    longer.push(0);
    fs::write(path(0), longer).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(path(2))
        .unwrap()
        .set_len(100_000)
        .unwrap();
    fs::remove_file(path(1)).unwrap();
    let again = convert(&source, &target, SHARD, defaults).unwrap();
    let names = [2, 1, 0].map(|file: usize| directory.files()[file].name.clone());
    assert_eq!(again, names);
    assert!(contents(&target) == expected);
}

#[test]
fn files_of_another_plan_are_made_again() {
    let scratch = ScratchDir::new("stale");
    let (source, target) = (fp8_source(&scratch, "in", 1), scratch.path("out"));
    // an unfinished run: two files in F16
    let mut unfinished = described(&source, &target, SHARD, f16).unwrap();
    let to_make = unfinished.prepare().unwrap();
    for file in &unfinished.files()[..2] {
        assert!(make(&source, &target, file, f16).unwrap());
    }
    let made = convert(&source, &target, SHARD, defaults).unwrap();
    assert_eq!(made.len(), to_make.len());
    let expected = contents(&target);
    let error = unfinished.complete().unwrap_err();
    assert!(missing_part(&error).contains("of another plan"), "{error}");
    // with its index it is a checkpoint, which is replaced on request only
    assert_exists(&convert(&source, &target, SHARD, f16).unwrap_err());
    assert!(contents(&target) == expected);
    // also where the index is the same: another source of the same names and shapes
    let other = fp8_source(&scratch, "other", 50);
    assert_exists(&convert(&other, &target, SHARD, defaults).unwrap_err());
    assert!(contents(&target) == expected);
    let made = convert(&other, &target, SHARD, replacing).unwrap();
    assert_eq!(made.len(), to_make.len());
    let alone = scratch.path("alone");
    remember(&Checkpoint::open(&other).unwrap())
        .to_dir(&alone, SHARD)
        .unwrap();
    assert!(contents(&target) == contents(&alone));
}

#[test]
fn an_overwrite_leaves_nothing_of_another_checkpoint() {
    let scratch = ScratchDir::new("replaced");
    let (source, target) = (fp8_source(&scratch, "in", 1), scratch.path("out"));
    let checkpoint = Checkpoint::open(&source).unwrap();
    // other numbers of shards, another configuration, and a file that is no checkpoint's
    remember(&checkpoint)
        .dtype(Dtype::F32)
        .to_dir(&target, 3 * SHARD)
        .unwrap();
    fs::write(target.join("config.json"), "{}").unwrap();
    fs::write(target.join("notes.md"), "kept").unwrap();
    let before = contents(&target);
    assert_exists(&convert(&source, &target, SHARD, defaults).unwrap_err());
    assert!(contents(&target) == before);
    let mut directory = described(&source, &target, SHARD, replacing).unwrap();
    directory.prepare().unwrap();
    assert_eq!(
        contents(&target).keys().collect::<Vec<_>>(),
        ["notes.md", "tokenizer.json"]
    );
    convert(&source, &target, SHARD, replacing).unwrap();
    let alone = scratch.path("alone");
    remember(&checkpoint).to_dir(&alone, SHARD).unwrap();
    let mut expected = contents(&alone);
    expected.insert("notes.md".to_owned(), b"kept".to_vec());
    assert!(contents(&target) == expected);
    // a file of the same name that no plan has made
    let name = &directory.files()[0].name;
    fs::write(target.join(name), "something else").unwrap();
    assert_exists(&convert(&source, &target, SHARD, defaults).unwrap_err());
    assert_exists(&make(&source, &target, &directory.files()[0], defaults).unwrap_err());
    convert(&source, &target, SHARD, replacing).unwrap();
    assert!(contents(&target) == expected);
}

#[test]
fn a_directory_without_a_file_is_refused_by_its_name() {
    let scratch = ScratchDir::new("missing");
    let (source, target) = (fp8_source(&scratch, "in", 1), scratch.path("out"));
    let mut directory = described(&source, &target, SHARD, defaults).unwrap();
    for number in directory.prepare().unwrap() {
        if number != 1 {
            make(&source, &target, &directory.files()[number], defaults).unwrap();
        }
    }
    let name = directory.files()[1].name.clone();
    let error = directory.complete().unwrap_err();
    assert!(
        missing_part(&error).contains(&format!("`{name}` is missing")),
        "{error}"
    );
    // neither an index nor companion files
    let count = directory.files().len() - 1;
    let names = contents(&target);
    assert_eq!(
        names
            .keys()
            .filter(|name| name.starts_with("model-"))
            .count(),
        count
    );
    assert_eq!(names.len(), count, "{:?}", names.keys());
    fs::write(
        target.join(&name),
        &names[&directory.files()[0].name][..1000],
    )
    .unwrap();
    let error = directory.complete().unwrap_err();
    assert!(missing_part(&error).contains(&name), "{error}");
}

#[test]
fn a_worker_with_another_source_or_other_options_is_refused() {
    let scratch = ScratchDir::new("others");
    let (source, target) = (fp8_source(&scratch, "in", 1), scratch.path("out"));
    let mut directory = described(&source, &target, SHARD, defaults).unwrap();
    directory.prepare().unwrap();
    let file = &directory.files()[0];
    let invalid = |made: Result<bool>| {
        let error = made.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::InvalidArgument(_)),
            "{error}"
        );
    };
    invalid(make(&source, &target, file, f16));
    invalid(make(&source, &target, file, |r| {
        r.slice(|_| TensorSlice::Range {
            axis: 0,
            range: 0..2,
        })
    }));
    let other = fp8_source(&scratch, "other", 1);
    // the same source at another path is the same
    assert!(make(&other, &target, file, defaults).unwrap());
    fs::remove_file(target.join(&file.name)).unwrap();
    let another = fp8_source(&scratch, "another", 2);
    invalid(make(&another, &target, file, defaults));
    for name in ["../x.safetensors", "a/b", "..", "", "/x"] {
        let file = OutputFile {
            name: name.to_owned(),
            ..file.clone()
        };
        invalid(make(&source, &target, &file, defaults));
    }
    // the source itself is no output
    invalid(make(&source, &source, file, defaults));
    assert!(contents(&target).is_empty());
}

#[test]
fn an_id_is_that_of_what_decides_the_bytes() {
    let scratch = ScratchDir::new("ids");
    let source = fp8_source(&scratch, "in", 1);
    let id = |path: &Path, options: Options| {
        let checkpoint = Checkpoint::open(path).unwrap();
        options(remember(&checkpoint))
            .plan()
            .unwrap()
            .id(checkpoint.catalog())
    };
    let of: [Options; 8] = [
        defaults,
        f16,
        |remember| remember.rename(str::to_uppercase),
        |remember| remember.filter(|name| name.contains("layers.0")),
        |remember| remember.only(["model.layers.1.mlp.weight"]),
        |remember| {
            remember.slice(|_| TensorSlice::Range {
                axis: 0,
                range: 0..2,
            })
        },
        |remember| {
            remember.slice(|_| TensorSlice::Range {
                axis: 0,
                range: 1..3,
            })
        },
        |remember| remember.dtype(Dtype::F32).cast(true),
    ];
    let ids: BTreeSet<PlanId> = of.iter().map(|options| id(&source, *options)).collect();
    assert_eq!(ids.len(), of.len());
    // options that decide nothing
    for same in [
        |remember: Remember<'_>| remember.threads(3).overwrite(true),
        |r| r.dtype(Dtype::BF16),
    ] as [Options; 2]
    {
        assert_eq!(id(&source, same), id(&source, defaults));
    }
    assert_eq!(
        id(&fp8_source(&scratch, "copy", 1), defaults),
        id(&source, defaults)
    );
    let hqq = fixture("quant/hqq/4bit_ax1/model.safetensors");
    assert_ne!(id(&hqq, |r| r.native_rounding(true)), id(&hqq, defaults));
    // a source that was made by a plan does not pass its id on
    let (one, two) = (scratch.path("one"), scratch.path("two"));
    remember(&Checkpoint::open(&source).unwrap())
        .to_dir(&one, SHARD)
        .unwrap();
    let made = Checkpoint::open(&one).unwrap();
    remember(&made).to_dir(&two, SHARD).unwrap();
    let found = |path: &Path| {
        let checkpoint = Checkpoint::open(path).unwrap();
        let text = checkpoint.catalog().metadata().text(PLAN_ID_KEY).unwrap();
        text.parse::<PlanId>().unwrap()
    };
    assert_ne!(found(&one), found(&two));
    assert_eq!(found(&two), id(&one, defaults));
}

/// Addresses differ between processes, and so would ids.
#[test]
fn no_decoder_is_described_by_an_address() {
    let paths = corpus::quantised_files()
        .into_iter()
        .chain(fixtures().into_iter().map(|(path, _)| path));
    let mut decoders = BTreeMap::<String, usize>::new();
    for path in paths {
        let Ok(checkpoint) = Checkpoint::open(&path) else {
            continue;
        };
        for names in [Names::Stored, Names::HuggingFace] {
            let Ok(plan) = remember(&checkpoint).names(names).plan() else {
                continue;
            };
            for job in &plan.jobs {
                let JobWork::Tiles { decoder, .. } = &job.work else {
                    continue;
                };
                let text = format!("{decoder:?}");
                assert!(!text.contains("0x"), "{}: {text}", job.output);
                let kind = text.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                *decoders.entry(kind.to_owned()).or_default() += 1;
            }
        }
    }
    println!("{decoders:?}");
    assert!(decoders.len() > 8, "{decoders:?}");
}
