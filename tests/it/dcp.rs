//! Directories of torch.distributed.checkpoint: tensors as torch reads them back, and what is refused.

use std::fs;

use serde_json::Value as Json;

use crate::support::scratch_dir::ScratchDir;
use crate::support::{fixture, sha256, texts};
use anamnesis::load::{PreadLoader, RecordingLoader};
use anamnesis::template::coverage;
use anamnesis::{ByteRange, Checkpoint, Layout, OpenOptions};
use sha2::{Digest, Sha256};

/// A copy of a fixture, to be damaged.
fn copy(name: &str, test: &str) -> ScratchDir {
    let scratch = ScratchDir::new(&format!("dcp-{test}"));
    for file in fs::read_dir(fixture("dcp").join(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), scratch.dir().join(file.file_name())).unwrap();
    }
    scratch
}

fn refused(scratch: &ScratchDir) -> String {
    Checkpoint::open(scratch.dir()).unwrap_err().to_string()
}

fn expected() -> serde_json::Map<String, Json> {
    let text = fs::read_to_string(fixture("dcp/expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn tensors_are_those_that_torch_reads_back() {
    for (folder, tensors) in expected() {
        let tensors = tensors.as_object().unwrap();
        for mmap in [true, false] {
            let options = OpenOptions::new().mmap(mmap);
            let checkpoint = options.open(fixture("dcp").join(&folder)).unwrap();
            let catalog = checkpoint.catalog();
            assert_eq!(catalog.format(), "dcp");
            assert_eq!(catalog.tensors().len(), tensors.len(), "{folder}");
            for tensor in checkpoint.tensors() {
                let info = tensor.info();
                let row = &tensors[&*info.name];
                let shape: Vec<u64> = serde_json::from_value(row["shape"].clone()).unwrap();
                assert_eq!(*info.shape, *shape, "{folder}: {}", info.name);
                let dtype = match row["dtype"].as_str().unwrap() {
                    "float8_e4m3fn" => "F8_E4M3".to_owned(),
                    "bfloat16" => "BF16".to_owned(),
                    "complex64" => "C64".to_owned(),
                    "uint8" => "U8".to_owned(),
                    "bool" => "BOOL".to_owned(),
                    other => other.replace("float", "F").replace("int", "I"),
                };
                assert_eq!(info.encoding.name(), dtype, "{folder}: {}", info.name);
                let hash = sha256(&tensor).unwrap();
                assert_eq!(hash, row["sha256"], "{folder}: {}", info.name);
                assert_eq!(tensor.bytes().unwrap().len() as u64, info.nbytes());
            }
        }
    }
}

#[test]
fn a_tensor_of_several_processes_is_listed_as_chunked() {
    let chunks = |folder: &str, name: &str| {
        let checkpoint = Checkpoint::open(fixture("dcp").join(folder)).unwrap();
        let summary = checkpoint.inspect().unwrap();
        assert!(summary.tensors.iter().any(|row| row.name == name));
        match &checkpoint.catalog().get(name).unwrap().layout {
            Layout::Chunked(chunks) => chunks.len(),
            _ => 1,
        }
    };
    assert_eq!(chunks("one", "model.columns"), 1);
    assert_eq!(chunks("four", "model.columns"), 4);
    assert_eq!(chunks("four", "model.uneven_rows"), 4);
    assert_eq!(chunks("four", "model.fewer_rows_than_processes"), 2);
    assert_eq!(chunks("four", "model.replicated"), 1);
    assert_eq!(chunks("grid", "grid"), 4);
}

#[test]
fn chunked_tensors_are_loaded() {
    let checkpoint = Checkpoint::open(fixture("dcp/four")).unwrap();
    let loaded = anamnesis::load(&checkpoint).run().unwrap();
    assert_eq!(loaded.tensors().len(), checkpoint.catalog().tensors().len());
    for tensor in loaded.tensors() {
        let bytes = checkpoint.tensor(tensor.name()).unwrap().bytes().unwrap();
        assert_eq!(*tensor.bytes(), *bytes, "{}", tensor.name());
    }
}

/// Plans, remembers, predicts and loads every directory: the bytes are those that torch reads back, and what is read is what
/// was predicted.
#[test]
fn directories_are_planned_remembered_predicted_and_loaded() {
    let scratch = ScratchDir::new("dcp-verbs");
    let out = scratch.path("out.safetensors");
    for (folder, tensors) in expected() {
        let tensors = tensors.as_object().unwrap();
        let checkpoint = Checkpoint::open(fixture("dcp").join(&folder)).unwrap();
        let catalog = checkpoint.catalog();
        let remember = anamnesis::remember(&checkpoint).overwrite(true);
        let plan = remember.plan().unwrap();
        assert_eq!((plan.jobs.len(), plan.refused.len()), (tensors.len(), 0));
        let mut planned: Vec<_> = plan.reads(catalog).collect();
        planned.sort_unstable_by_key(|range| (range.file, range.start));
        for range in &planned {
            let file = &catalog.files()[range.file as usize];
            assert!(range.end() <= file.nbytes, "{folder}: {range:?}");
        }
        let mut stored: Vec<ByteRange> = Vec::new();
        for info in catalog.tensors() {
            match &info.layout {
                Layout::Chunked(chunks) => stored.extend(chunks.iter().map(|c| c.part.bytes)),
                _ => stored.push(info.bytes),
            }
        }
        for bytes in stored {
            let holds = |range: &ByteRange| {
                range.file == bytes.file && range.start <= bytes.start && bytes.end() <= range.end()
            };
            assert!(
                bytes.len == 0 || planned.iter().any(holds),
                "{folder}: {bytes:?}"
            );
        }

        remember.to_file(&out).unwrap();
        let written = Checkpoint::open(&out).unwrap();
        assert_eq!(written.catalog().tensors().len(), tensors.len());
        for tensor in written.tensors() {
            let name = &tensor.info().name;
            let source = checkpoint.tensor(name).unwrap();
            if source.info().encoding != tensor.info().encoding {
                assert!(name.contains("float8"), "only FP8 is dequantised: {name}");
                continue;
            }
            let hash = &tensors[&**name]["sha256"];
            assert_eq!(sha256(&tensor).unwrap(), *hash, "{folder}: {name}");
        }

        let recording = RecordingLoader::new(PreadLoader::new());
        let load = anamnesis::load(&checkpoint).loader(recording.clone());
        let loaded = load.run().unwrap();
        for tensor in loaded.tensors() {
            let mut hasher = Sha256::new();
            hasher.update(tensor.bytes());
            let hash: String = hasher
                .finalize()
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            assert_eq!(
                hash,
                tensors[tensor.name()]["sha256"],
                "{folder}: {}",
                tensor.name()
            );
        }
        let recorded = recording.template().unwrap();
        let predicted = anamnesis::predict(&checkpoint).template().unwrap();
        assert_eq!(coverage(&recorded, &predicted).share(), 1.0, "{folder}");
        let parallel = anamnesis::predict(&checkpoint).tp(2).template().unwrap();
        assert_eq!(coverage(&predicted, &parallel).share(), 1.0, "{folder}");
    }
}

#[test]
fn unused_items_and_storages_and_gaps_in_items_are_reported() {
    let checkpoint = Checkpoint::open(fixture("dcp/unused")).unwrap();
    assert_eq!(
        checkpoint.catalog().warnings(),
        ["items that belong to no tensor and no value: 1 (the first is of `dropped`)"]
    );
    assert!(checkpoint.catalog().get("kept").is_some());

    let scratch = copy("grid", "gaps");
    let metadata = fs::read(scratch.path(".metadata")).unwrap();
    let at = |bytes: &[u8], part: &[u8]| {
        let at = bytes.windows(part.len()).position(|found| found == part);
        at.expect("the bytes occur")
    };
    // bytes between the last member of an archive and its directory
    let path = scratch.path("__3_0.distcp");
    let mut bytes = fs::read(&path).unwrap();
    let whole = bytes.len();
    let directory = at(&bytes, b"PK\x01\x02");
    bytes.splice(directory..directory, *b"hidden text");
    let add = |bytes: &mut [u8], at: usize, n: u64| {
        let field: &mut [u8; 8] = (&mut bytes[at..at + 8]).try_into().unwrap();
        *field = (u64::from_le_bytes(*field) + n).to_le_bytes();
    };
    let wide = at(&bytes, b"PK\x06\x06");
    add(&mut bytes, wide + 48, 11);
    let locator = at(&bytes, b"PK\x06\x07");
    add(&mut bytes, locator + 8, 11);
    let end = at(&bytes, b"PK\x05\x06");
    if bytes[end + 16..end + 20] != [0xff; 4] {
        let field: &mut [u8; 4] = (&mut bytes[end + 16..end + 20]).try_into().unwrap();
        *field = (u32::from_le_bytes(*field) + 11).to_le_bytes();
    }
    fs::write(&path, &bytes).unwrap();
    let mut metadata = metadata;
    let name = at(&metadata, b"__3_0.distcp");
    let length = |n: usize| [&b"M"[..], &u16::try_from(n).unwrap().to_le_bytes()].concat();
    let field = name + at(&metadata[name..], &length(whole));
    metadata.splice(field..field + 3, length(whole + 11));
    fs::write(scratch.path(".metadata"), &metadata).unwrap();
    let checkpoint = Checkpoint::open(scratch.dir()).unwrap();
    let warnings = checkpoint.catalog().warnings();
    assert_eq!(
        warnings,
        ["`grid`: 11 bytes of the archive belong to no member"]
    );
    let hash = sha256(&checkpoint.tensor("grid").unwrap()).unwrap();
    assert_eq!(hash, expected()["grid"]["grid"]["sha256"]);
}

#[test]
fn values_that_are_not_tensors_are_listed_or_counted() {
    let checkpoint = Checkpoint::open(fixture("dcp/four")).unwrap();
    let metadata = checkpoint.catalog().metadata();
    assert_eq!(metadata.integer("epoch"), Some(3));
    assert!(metadata.get("optimizer.param_groups.0.lr").is_some());
    assert!(
        metadata
            .text("recipe")
            .unwrap()
            .starts_with("an object of ")
    );
    let warnings = texts(checkpoint.catalog().warnings());
    assert_eq!(checkpoint.catalog().warnings().len(), 1, "{warnings}");
    assert!(
        warnings.contains("values that are not tensors and cannot be shown: 1 (`recipe`)"),
        "{warnings}"
    );
}

#[test]
fn objects_of_unknown_classes_are_kept_on_request() {
    let opaque = OpenOptions::new().opaque(true);
    let checkpoint = opaque.open(fixture("dcp/four")).unwrap();
    let metadata = checkpoint.catalog().metadata();
    let class = metadata.text("recipe").unwrap();
    assert!(class.ends_with("main__.Recipe"), "{class}");
    assert_eq!(metadata.integer("recipe.steps"), Some(5));
    let warnings = checkpoint.catalog().warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let expected = format!(
        "`recipe`: objects of unknown classes, set aside by class name and plain state: 1 (`{class}`: 1)"
    );
    assert_eq!(warnings[0], *expected);
}

#[test]
fn the_metadata_file_opens_the_directory_and_a_file_alone_does_not() {
    let whole = Checkpoint::open(fixture("dcp/four")).unwrap();
    let named = Checkpoint::open(fixture("dcp/four/.metadata")).unwrap();
    assert_eq!(whole.catalog(), named.catalog());
    let alone = Checkpoint::open(fixture("dcp/one/__0_0.distcp")).unwrap_err();
    assert!(alone.to_string().contains("open the directory"), "{alone}");
    let bytes = fs::read(fixture("dcp/one/__0_0.distcp")).unwrap();
    let text = Checkpoint::from_bytes(bytes).unwrap_err().to_string();
    assert!(text.contains("several zip archives in one file"), "{text}");
    assert!(text.contains("`.distcp`"), "{text}");
}

#[test]
fn missing_and_foreign_files_are_refused() {
    let scratch = copy("four", "missing");
    fs::remove_file(scratch.path("__2_0.distcp")).unwrap();
    assert!(refused(&scratch).contains("__2_0.distcp"));
    let scratch = copy("four", "no-metadata");
    fs::remove_file(scratch.path(".metadata")).unwrap();
    assert!(refused(&scratch).contains(".metadata"));
    // the chunks of another process
    let scratch = copy("grid", "exchanged");
    fs::copy(scratch.path("__0_0.distcp"), scratch.path("__3_0.distcp")).unwrap();
    let text = refused(&scratch);
    assert!(text.contains("is not the chunk of `grid`"), "{text}");
}

/// Replaces the only occurrence of some bytes of `.metadata`.
fn replace(scratch: &ScratchDir, from: &[u8], to: &[u8]) {
    let path = scratch.path(".metadata");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(from.len()).position(|part| part == from);
    let at = at.expect("the bytes occur");
    bytes.splice(at..at + from.len(), to.iter().copied());
    fs::write(&path, bytes).unwrap();
}

#[test]
fn metadata_that_names_other_files_or_classes_is_refused() {
    let scratch = copy("grid", "outside");
    replace(&scratch, b"__0_0.distcp", b"../0_.distcp");
    assert!(refused(&scratch).contains("not a plain file name"));
    let scratch = copy("grid", "class");
    replace(&scratch, b"StorageMeta", b"StorageEvil");
    let text = refused(&scratch);
    assert!(text.contains("StorageEvil"), "{text}");
    // outside of `.metadata`, its classes are refused as every other global is
    let bytes = fs::read(fixture("dcp/grid/.metadata")).unwrap();
    let text = Checkpoint::from_bytes(bytes).unwrap_err().to_string();
    assert!(
        text.contains("torch.distributed.checkpoint.metadata"),
        "{text}"
    );
}

#[test]
fn bytes_of_no_item_are_reported_and_overlapping_items_refused() {
    let scratch = copy("grid", "unused");
    let path = scratch.path("__1_0.distcp");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend(b"more");
    fs::write(&path, bytes).unwrap();
    let checkpoint = Checkpoint::open(scratch.dir()).unwrap();
    let warnings = texts(checkpoint.catalog().warnings());
    assert!(
        warnings.contains("4 bytes of `__1_0.distcp` belong to no item"),
        "{warnings}"
    );
    // two chunks of one item
    replace(&scratch, b"__1_0.distcp", b"__0_0.distcp");
    let text = refused(&scratch);
    assert!(text.contains("two items of the file overlap"), "{text}");
}

/// Every file of a directory, cut at every byte or changed: an error, or a checkpoint whose tensors can be read.
#[test]
fn damaged_directories_end_in_an_error() {
    let scratch = copy("grid", "damaged");
    for file in scratch.names() {
        let path = scratch.path(&file);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            fs::write(&path, &whole[..at]).unwrap();
            let text = refused(&scratch);
            assert!(!text.is_empty());
            if at % 5 > 0 {
                continue;
            }
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at % 8);
            fs::write(&path, changed).unwrap();
            if let Ok(checkpoint) = Checkpoint::open(scratch.dir()) {
                for tensor in checkpoint.tensors() {
                    let _ = tensor.bytes();
                }
            }
        }
        fs::write(&path, whole).unwrap();
    }
    let scratch = copy("four", "cut");
    for file in scratch.names() {
        let path = scratch.path(&file);
        let whole = fs::read(&path).unwrap();
        for len in (0..whole.len()).step_by(if file == ".metadata" { 1 } else { 211 }) {
            fs::write(&path, &whole[..len]).unwrap();
            refused(&scratch);
        }
        fs::write(&path, whole).unwrap();
    }
}
