//! Edits of files where they are: metadata and names change, tensors stay, and a refused edit changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::convert::{common, contents, safetensors, texts};
use crate::support::random::{Random, random_bytes};
use crate::support::scratch_dir::ScratchDir;
use crate::support::skip;
use crate::support::writers::{StoredTensor, gguf};
use anamnesis::sink::{GgufType, GgufValue};
use anamnesis::{Checkpoint, EditReport, EditWay, ErrorKind, Remedy, Result, Value, convert, edit};

/// The only way of an edit of one file.
fn way(report: &EditReport) -> EditWay {
    assert_eq!(report.files.len(), 1, "{report:?}");
    report.files[0].way
}

fn small_gguf(big_endian: bool) -> Vec<u8> {
    gguf(
        big_endian,
        &[("general.name", "tëst"), ("license", "mit"), ("empty", "")],
        &[
            StoredTensor::new("m.a.weight", "8", &[64, 32], random_bytes(1, 64 * 34)),
            StoredTensor::new("m.b.weight", "0", &[3], random_bytes(2, 12)),
            StoredTensor::new("other", "2", &[32, 32], random_bytes(3, 32 * 18)),
        ],
    )
}

/// A file whose data are so long that room is inserted in front of them.
fn large(metadata: &[(&str, &str)]) -> Vec<u8> {
    let words = random_bytes(8, 3 << 20);
    safetensors(
        metadata,
        &[
            ("m.w", "U8", &[3 << 20], words),
            ("other", "F32", &[2], random_bytes(9, 8)),
        ],
    )
}

/// All files of a directory and their bytes.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn assert_nothing_hidden(scratch: &ScratchDir) {
    let names = scratch.names();
    assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
}

/// Random edits against a model of them: a map of keys, and the names of tensors.
#[test]
fn keys_and_names_are_as_a_model_of_the_edits_says() {
    for (name, file) in [
        ("s.safetensors", common()),
        ("large.safetensors", large(&[("format", "pt")])),
        ("l.gguf", small_gguf(false)),
        ("b.gguf", small_gguf(true)),
    ] {
        let scratch = ScratchDir::new("edit-random");
        let path = scratch.path(name);
        fs::write(&path, file).unwrap();
        let original = Checkpoint::open(&path).unwrap();
        let mut keys = texts(&original);
        let mut tensors = contents(&original);
        drop(original);
        let mut random = Random(11);
        for step in 0..60 {
            let some = keys
                .keys()
                .nth(random.below(u32::try_from(keys.len()).unwrap()) as usize)
                .unwrap()
                .clone();
            let mut change = edit(&path);
            match random.below(5) {
                0 => {
                    let new = format!("key.{step}");
                    // from a byte to more than any room
                    let value = "ü".repeat(1 << random.below(14));
                    change = change.set(&new, value.clone());
                    keys.insert(new, value);
                }
                1 => {
                    change = change.set(&some, "short");
                    keys.insert(some, "short".into());
                }
                2 if keys.len() > 1 => {
                    change = change.unset(&some);
                    keys.remove(&some);
                }
                3 => {
                    let new = format!("new.{step}");
                    change = change.rename_key(&some, &new);
                    let value = keys.remove(&some).unwrap();
                    keys.insert(new, value);
                }
                _ => {
                    let (from, to) = match tensors.keys().any(|name| name.starts_with("m.")) {
                        true => ("m", "net.block"),
                        false => ("net.block", "m"),
                    };
                    change = change.rename(from, to);
                    let renamed = tensors.into_iter().map(|(name, values)| {
                        match name.strip_prefix(&format!("{from}.")) {
                            Some(rest) => (format!("{to}.{rest}"), values),
                            None => (name, values),
                        }
                    });
                    tensors = renamed.collect();
                }
            }
            let report = change.commit().unwrap();
            let found = Checkpoint::open(&path).unwrap();
            let context = format!("{name} {step}: {report:?}");
            assert_eq!(texts(&found), keys, "{context}");
            assert_eq!(contents(&found), tensors, "{context}");
            assert_nothing_hidden(&scratch);
        }
    }
}

#[test]
fn an_edit_and_its_inverse_leave_the_same_metadata_and_tensors() -> Result<()> {
    for (name, file) in [
        ("s.safetensors", common()),
        (
            "large.safetensors",
            large(&[("format", "pt"), ("license", "mit")]),
        ),
        ("l.gguf", small_gguf(false)),
        ("b.gguf", small_gguf(true)),
    ] {
        let scratch = ScratchDir::new("edit-inverse");
        let path = scratch.path(name);
        fs::write(&path, file)?;
        let (keys, tensors) = {
            let before = Checkpoint::open(&path)?;
            (texts(&before), contents(&before))
        };
        let long = "x".repeat(5000);
        let there = edit(&path)
            .rename_key("license", "licence")
            .set("long", &*long);
        there.rename("m", "a.b").rename("other", "one").commit()?;
        assert_ne!(texts(&Checkpoint::open(&path)?), keys);
        let back = edit(&path).unset("long").rename_key("licence", "license");
        let back = back.rename("a.b", "m").rename("one", "other").commit()?;
        assert_eq!(way(&back), EditWay::Room, "{name}");
        let after = Checkpoint::open(&path)?;
        assert_eq!((texts(&after), contents(&after)), (keys, tensors), "{name}");
        drop(after);
        // the same again changes no byte
        let before = tree(scratch.dir());
        let again = edit(&path).set("license", "mit").commit()?;
        assert_eq!(way(&again), EditWay::Unchanged, "{name}");
        assert_eq!(tree(scratch.dir()), before, "{name}");
        let compact = edit(&path).compact(true).commit()?;
        assert_eq!(way(&compact), EditWay::Copy, "{name}");
        let found = Checkpoint::open(&path)?;
        assert_eq!(
            contents(&found),
            contents(&Checkpoint::from_bytes(before[&path].clone())?)
        );
        assert!(
            fs::metadata(&path)?.len() + 1000 < before[&path].len() as u64,
            "{name}"
        );
    }
    Ok(())
}

/// Whether room can be inserted in the directory of tests.
fn inserts(scratch: &ScratchDir) -> bool {
    let path = scratch.path("probe.safetensors");
    fs::write(&path, large(&[])).unwrap();
    let report = edit(&path).set("a", "b").commit().unwrap();
    fs::remove_file(&path).unwrap();
    let inserts = way(&report) == EditWay::Insert;
    if !inserts {
        skip(&format!("room is not inserted here: {report:?}"));
    }
    inserts
}

#[test]
fn a_large_file_gets_room_and_a_mapped_one_is_copied() -> Result<()> {
    let scratch = ScratchDir::new("edit-ways");
    if !inserts(&scratch) {
        return Ok(());
    }
    let path = scratch.path("w.safetensors");
    fs::write(&path, large(&[("format", "pt")]))?;
    let inserted = edit(&path).set("note", "x".repeat(3000)).commit()?;
    assert_eq!(way(&inserted), EditWay::Insert);
    assert!(inserted.files[0].bytes_written < 16 << 10);
    let in_room = edit(&path).set("note", "y".repeat(3500)).commit()?;
    assert_eq!(way(&in_room), EditWay::Room);
    // a reader's tensors would become others
    let reader = Checkpoint::open(&path)?;
    let before = contents(&reader);
    let copied = edit(&path).set("note", "z".repeat(9000)).commit()?;
    assert_eq!(way(&copied), EditWay::Copy);
    assert_eq!(contents(&reader), before);
    drop(reader);
    let after = Checkpoint::open(&path)?;
    assert_eq!(contents(&after), before);
    assert_eq!(texts(&after)["note"].len(), 9000);
    drop(after);
    let copied = edit(&path).copy(true).set("note", "").commit()?;
    assert_eq!(way(&copied), EditWay::Copy);
    assert_nothing_hidden(&scratch);
    Ok(())
}

#[test]
fn a_file_of_a_hundred_gigabytes_takes_milliseconds() -> Result<()> {
    const NBYTES: u64 = 100_000_000_000;
    let scratch = ScratchDir::new("edit-sparse");
    if !inserts(&scratch) {
        return Ok(());
    }
    let path = scratch.path("w.safetensors");
    let header =
        format!(r#"{{"w":{{"dtype":"U8","shape":[{NBYTES}],"data_offsets":[0,{NBYTES}]}}}}"#);
    let mut file = fs::File::create(&path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    if let Err(e) = file.set_len(8 + header.len() as u64 + NBYTES) {
        skip(&format!("a sparse file of 100 GB: {e}"));
        return Ok(());
    }
    drop(file);
    let start = Instant::now();
    let inserted = edit(&path).set("note", "x".repeat(5000)).commit()?;
    let took = start.elapsed();
    assert_eq!(way(&inserted), EditWay::Insert);
    let start = Instant::now();
    let in_room = edit(&path).set("note", "").commit()?;
    println!(
        "100 GB: {took:.1?} and {} bytes written; in the room {:.1?}",
        inserted.files[0].bytes_written,
        start.elapsed()
    );
    assert_eq!(way(&in_room), EditWay::Room);
    assert!(took < Duration::from_secs(5), "{took:?}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        assert!(fs::metadata(&path)?.blocks() * 512 < 1 << 20);
    }
    assert_eq!(Checkpoint::open(&path)?.catalog().nbytes(), NBYTES);
    Ok(())
}

#[test]
fn keys_of_a_gguf_keep_their_types_and_new_ones_have_the_given() -> Result<()> {
    for big_endian in [false, true] {
        let scratch = ScratchDir::new("edit-types");
        let path = scratch.path("m.gguf");
        fs::write(&path, small_gguf(big_endian))?;
        let named = |kind, text| GgufValue::parse_named(kind, text).unwrap();
        edit(&path)
            .set("x.u8", named("u8", "200")?)
            .set("x.i64", named("i64", "-5")?)
            .set("x.f64", GgufValue::parse(GgufType::F64, "0.1")?)
            .set("x.words", named("[str]", r#"["a", "ü\n", ""]"#)?)
            .set("x.sizes", named("[u16]", "[1, 65535]")?)
            .commit()?;
        edit(&path)
            .set("x.u8", "7")
            .set("x.sizes", "[3]")
            .commit()?;
        let found = Checkpoint::open(&path)?;
        let metadata = found.catalog().metadata();
        assert_eq!(metadata.integer("x.u8"), Some(7));
        assert_eq!(metadata.get("x.i64"), Some(&Value::I64(-5)));
        assert_eq!(metadata.get("x.f64"), Some(&Value::F64(0.1)));
        let list = |key| match found.metadata(key) {
            Ok(Some(Value::List(list))) => list.into_vec(),
            other => panic!("{key}: {other:?}"),
        };
        let texts = ["a", "ü\n", ""].map(Value::text);
        assert_eq!(list("x.words"), texts);
        assert_eq!(list("x.sizes"), [Value::U64(3)]);
        assert_eq!(
            found.catalog().tensors()[0].endian,
            match big_endian {
                true => anamnesis::Endian::Big,
                false => anamnesis::Endian::Little,
            }
        );
        drop(found);
        let before = tree(scratch.dir());
        for (key, value, says) in [
            ("x.u8", "256", "x.u8"),
            ("x.sizes", "[65536]", "x.sizes"),
            ("general.alignment", "64", "general.alignment"),
            ("split.count", "2", "split.count"),
            ("anamnesis.padding", "", "anamnesis.padding"),
        ] {
            let error = edit(&path).set(key, value).commit().unwrap_err();
            assert!(error.to_string().contains(says), "{key}: {error}");
        }
        let aligned = named("u32", "64")?;
        let error = edit(&path).set("general.alignment", aligned).commit();
        assert!(error.unwrap_err().to_string().contains("alignment of 32"));
        // the alignment that it has already
        edit(&path)
            .set("general.alignment", named("u32", "32")?)
            .commit()?;
        edit(&path).unset("general.alignment").commit()?;
        assert_eq!(
            Checkpoint::open(&path)?
                .catalog()
                .metadata()
                .get("general.alignment"),
            None
        );
        assert_eq!(before.len(), tree(scratch.dir()).len());
    }
    Ok(())
}

#[test]
fn refused_edits_change_nothing() -> Result<()> {
    let scratch = ScratchDir::new("edit-refused");
    let path = scratch.path("m.safetensors");
    fs::write(&path, common())?;
    let gguf = scratch.path("m.gguf");
    fs::write(&gguf, small_gguf(false))?;
    let npz = scratch.path("a.npz");
    convert(&Checkpoint::open(&path)?).to_file(&npz)?;
    let cut = scratch.path("cut.safetensors");
    fs::write(&cut, &common()[..2000])?;
    let before = tree(scratch.dir());
    let long = "n".repeat(64);
    let typed = GgufValue::parse(GgufType::U8, "1")?;
    for (change, says) in [
        (edit(&path), "changes nothing"),
        (edit(&path).unset("nothing"), "nothing"),
        (edit(&path).rename_key("nothing", "x"), "nothing"),
        (edit(&path).rename_key("license", "format"), "format"),
        (edit(&path).rename("nothing", "x"), "nothing"),
        (edit(&path).rename("m.i8", "m.f16"), "m.f16"),
        (edit(&path).rename("m.i8", "__metadata__"), "__metadata__"),
        (edit(&path).set("typed", typed), "texts"),
        (edit(&path).set("", "x"), "no name"),
        (edit(&gguf).rename("other", &long), "63 bytes"),
        (edit(&npz).set("a", "b"), "npz has no metadata"),
        (edit(&cut).set("a", "b"), "cut.safetensors"),
        (edit("https://h/m.safetensors").set("a", "b"), "URL"),
        (edit(scratch.path("none")).set("a", "b"), "none"),
    ] {
        let error = change.commit().unwrap_err();
        assert!(error.to_string().contains(says), "{says}: {error}");
        assert!(error.path().is_some(), "{error}");
        assert_eq!(tree(scratch.dir()), before, "{says}");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn links_read_only_files_and_locked_ones_are_refused() -> Result<()> {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let scratch = ScratchDir::new("edit-links");
    let path = scratch.path("m.safetensors");
    fs::write(&path, common())?;
    let refused = |path: &Path, says: &str, remedy: Remedy| {
        let before = tree(scratch.dir());
        let error = edit(path).set("a", "b").commit().unwrap_err();
        assert!(error.to_string().contains(says), "{says}: {error}");
        assert_eq!(error.remedy(), Some(remedy), "{error}");
        assert_eq!(tree(scratch.dir()), before, "{says}");
    };
    let link = scratch.path("link.safetensors");
    symlink(&path, &link)?;
    refused(&link, "symbolic link", Remedy::ConvertInstead);
    let hard = scratch.path("hard.safetensors");
    fs::hard_link(&path, &hard)?;
    refused(&path, "2 names", Remedy::EditCopy);
    // this name gets a file of its own
    let copied = edit(&path).copy(true).set("a", "b").commit()?;
    assert_eq!(way(&copied), EditWay::Copy);
    assert_eq!(fs::read(&hard)?, common());
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o444);
    refused(&path, "no write permission", Remedy::CheckPermissions);
    mode(0o640);
    edit(&path).copy(true).set("c", "d").commit()?;
    assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o7777, 0o640);
    let lock = fs::File::open(&path)?;
    lock.lock()?;
    refused(&path, "locked", Remedy::WaitForOtherRun);
    drop(lock);
    let repository = scratch.path("models--o--n");
    fs::create_dir_all(repository.join("blobs"))?;
    fs::create_dir_all(repository.join("snapshots/a"))?;
    let blob = repository.join("blobs/abc");
    fs::write(&blob, common())?;
    let shown = repository.join("snapshots/a/m.safetensors");
    symlink("../../blobs/abc", &shown)?;
    for path in [&shown, &blob, &repository.join("snapshots/a"), &repository] {
        refused(path, "cache of the hub", Remedy::ConvertInstead);
    }
    assert_eq!(fs::read(&blob)?, common());
    let named = scratch.path(&format!("sha256-{}", "ab".repeat(32)));
    fs::write(&named, common())?;
    refused(&named, "digest of its bytes", Remedy::ConvertInstead);
    Ok(())
}

/// FP8 weights in two shards, with everything that names them.
fn quantised(scratch: &ScratchDir) -> PathBuf {
    let directory = scratch.path("m");
    fs::create_dir(&directory).unwrap();
    let weight = |n: u8| ("F8_E4M3", &[128_u64, 256][..], vec![n; 128 * 256]);
    for (number, module) in ["model.a", "model.b"].into_iter().enumerate() {
        let (dtype, shape, bytes) = weight(0x30 + u8::try_from(number).unwrap());
        let names = [
            format!("{module}.weight"),
            format!("{module}.weight_scale_inv"),
        ];
        let file = safetensors(
            &[("format", "pt"), ("anamnesis.plan", "abc")],
            &[
                (&names[0], dtype, shape, bytes),
                (&names[1], "F32", &[1, 2], vec![0; 8]),
            ],
        );
        let name = format!("model-0000{}-of-00002.safetensors", number + 1);
        fs::write(directory.join(name), file).unwrap();
    }
    let index = r#"{"metadata": {"total_size": 65552},
 "weight_map": {"model.a.weight": "model-00001-of-00002.safetensors", "model.a.weight_scale_inv": "model-00001-of-00002.safetensors",
 "model.b.weight": "model-00002-of-00002.safetensors", "model.b.weight_scale_inv": "model-00002-of-00002.safetensors"}}"#;
    fs::write(directory.join("model.safetensors.index.json"), index).unwrap();
    let config = r#"{"model_type": "x", "eps": 1e-05, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
 "modules_to_not_convert": ["model.a", "lm_head"]}}"#;
    fs::write(directory.join("config.json"), config).unwrap();
    fs::write(directory.join("tokenizer.json"), "{}").unwrap();
    directory
}

#[test]
fn a_directory_changes_as_a_whole() -> Result<()> {
    let scratch = ScratchDir::new("edit-directory");
    let directory = quantised(&scratch);
    let before = tree(&directory);
    let tensors = contents(&Checkpoint::open(&directory)?);
    let report = edit(&directory)
        .rename("model", "net.model")
        .set("license", "mit")
        .commit()?;
    assert_eq!(report.files.len(), 4, "{report:?}");
    let after = Checkpoint::open(&directory)?;
    assert!(
        after.catalog().warnings().is_empty(),
        "{:?}",
        after.catalog().warnings()
    );
    let renamed = tensors
        .iter()
        .map(|(name, values)| (format!("net.{name}"), values.clone()));
    assert_eq!(contents(&after), renamed.collect());
    let plan = anamnesis::remember(&after).plan()?;
    assert_eq!(plan.jobs.len(), 2);
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    let old = |name: &str| String::from_utf8(before[&directory.join(name)].clone()).unwrap();
    assert_eq!(
        read("config.json"),
        old("config.json").replace("\"model.a\"", "\"net.model.a\"")
    );
    let index = "model.safetensors.index.json";
    assert_eq!(read(index), old(index).replace("\"model.", "\"net.model."));
    drop(after);
    for number in 1..=2 {
        let path = directory.join(format!("model-0000{number}-of-00002.safetensors"));
        let shard = Checkpoint::open(&path)?;
        let expected = [("format", "pt"), ("license", "mit")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(texts(&shard), BTreeMap::from(expected));
    }
    // in the room of both, with the index and the configuration, and back to what they were
    let back = edit(directory.join(index))
        .rename("net.model", "model")
        .unset("license");
    let back = back.commit()?;
    assert_eq!(back.files[0].way, EditWay::Room, "{back:?}");
    assert_eq!(contents(&Checkpoint::open(&directory)?), tensors);
    assert_eq!(
        (read("config.json"), read(index)),
        (old("config.json"), old(index))
    );
    let names: Vec<PathBuf> = tree(&directory).into_keys().collect();
    assert_eq!(names, before.keys().cloned().collect::<Vec<_>>());
    Ok(())
}

#[test]
fn parts_of_a_weight_stay_together_and_shards_are_not_renamed_alone() -> Result<()> {
    let scratch = ScratchDir::new("edit-parts");
    let directory = quantised(&scratch);
    let before = tree(&directory);
    let part = edit(&directory).rename("model.b.weight_scale_inv", "model.b.other");
    let error = part.commit().unwrap_err();
    assert!(error.to_string().contains("model.b.weight"), "{error}");
    let shard = directory.join("model-00001-of-00002.safetensors");
    let error = edit(&shard).rename("model", "net").commit().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(
        error.to_string().contains("model.safetensors.index.json"),
        "{error}"
    );
    assert_eq!(tree(&directory), before);
    Ok(())
}

#[test]
fn keys_of_a_split_are_in_its_first_file() -> Result<()> {
    let scratch = ScratchDir::new("edit-split");
    let source = scratch.path("m.gguf");
    fs::write(&source, small_gguf(false))?;
    let whole = Checkpoint::open(&source)?;
    let tensors = contents(&whole);
    let split = scratch.path("split");
    convert(&whole).to_dir(&split, 1)?;
    let mut names: Vec<PathBuf> = tree(&split).into_keys().collect();
    assert_eq!(names.len(), 3);
    let report = edit(&split)
        .set("note", "x")
        .rename("other", "one")
        .commit()?;
    assert_eq!(report.files.len(), 3, "{report:?}");
    let after = Checkpoint::open(&split)?;
    assert_eq!(after.catalog().metadata().text("note"), Some("x"));
    assert!(after.tensor("one").is_some() && contents(&after).len() == tensors.len());
    drop(after);
    names.sort();
    let second = anamnesis::OpenOptions::new().single(true).open(&names[1])?;
    assert_eq!(second.catalog().metadata().get("note"), None);
    drop(second);
    // by any of its files
    edit(&names[2])
        .unset("note")
        .rename("one", "other")
        .commit()?;
    assert_eq!(contents(&Checkpoint::open(&split)?), tensors);
    Ok(())
}

/// A journal is a file that another user may have put there.
#[cfg(unix)]
#[test]
fn journals_of_others_are_not_followed() -> Result<()> {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let scratch = ScratchDir::new("edit-journals");
    let path = scratch.path("m.safetensors");
    fs::write(&path, common())?;
    let victim = scratch.path("victim");
    fs::write(&victim, "kept")?;
    for name in [".m.safetensors.anamnesis-edit", ".anamnesis-edit"] {
        let journal = scratch.path(name);
        let refused = |what: &str| {
            let before = tree(scratch.dir());
            for done in [edit(&path).set("a", "b").commit(), edit(&path).recover()] {
                let error = done.unwrap_err();
                assert!(
                    error.path().is_some_and(|path| path.ends_with(name)),
                    "{what}: {error}"
                );
            }
            assert_eq!(tree(scratch.dir()), before, "{what}");
            assert_eq!(fs::read(&victim).unwrap(), b"kept");
        };
        symlink(&victim, &journal)?;
        refused("a link");
        fs::remove_file(&journal)?;
        fs::create_dir(&journal)?;
        refused("a directory");
        fs::remove_dir(&journal)?;
        for text in [&b""[..], b"anamnesis edit journal 1\n", &[0xff; 100]] {
            fs::write(&journal, text)?;
            fs::set_permissions(&journal, fs::Permissions::from_mode(0o600))?;
            refused("not a journal");
        }
        fs::set_permissions(&journal, fs::Permissions::from_mode(0o666))?;
        refused("others may write");
        // a reader of a sound file does not care
        assert!(Checkpoint::open(&path).is_ok());
        fs::remove_file(&journal)?;
    }
    // a file that is damaged, beside a journal
    fs::write(scratch.path(".m.safetensors.anamnesis-edit"), "")?;
    fs::write(&path, vec![0; 3000])?;
    let error = Checkpoint::open(&path).unwrap_err();
    assert_eq!(error.remedy(), Some(Remedy::RecoverEdit), "{error}");
    Ok(())
}
