//! Conversions: what is copied as it is stored comes back as it was, by any way through files and containers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, gguf};
use crate::support::{fixture, fixtures, sha256};
use anamnesis::sink::{GGUF, GgufType, GgufValue, NPY, NPZ, SAFETENSORS, Sharding};
use anamnesis::{Checkpoint, ErrorKind, Result, Value, convert, remember};
use serde_json::json;

/// A safetensors file of these tensors (name, dtype, shape, bytes) and this metadata.
pub(crate) fn safetensors(
    metadata: &[(&str, &str)],
    tensors: &[(&str, &str, &[u64], Vec<u8>)],
) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let pairs = metadata.iter().map(|(key, value)| (*key, *value));
    header.insert(
        "__metadata__".into(),
        pairs
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .map(|(k, v)| (k.to_owned(), json!(v)))
            .collect(),
    );
    let mut data = Vec::<u8>::new();
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend(bytes);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert((*name).into(), entry);
    }
    let text = serde_json::Value::Object(header).to_string();
    let mut file = (text.len() as u64).to_le_bytes().to_vec();
    file.extend(text.as_bytes());
    file.extend(data);
    file
}

/// Dtypes that every container has, of several tiles, and of sizes that are no multiple of an alignment.
pub(crate) fn common() -> Vec<u8> {
    safetensors(
        &[("format", "pt"), ("license", "mit"), ("empty", "")],
        &[
            ("m.f64", "F64", &[3], random_bytes(1, 24)),
            (
                "m.large",
                "F32",
                &[700, 512],
                random_bytes(2, 700 * 512 * 4),
            ),
            ("m.i32", "I32", &[2, 1, 3], random_bytes(3, 24)),
            ("m.f16", "F16", &[5], random_bytes(4, 10)),
            ("m.i8", "I8", &[7, 3], random_bytes(5, 21)),
            ("m.scalar", "F32", &[], random_bytes(6, 4)),
            ("other", "I64", &[1], random_bytes(7, 8)),
        ],
    )
}

/// Name, dtype, shape and digest of each tensor.
pub(crate) fn contents(checkpoint: &Checkpoint) -> BTreeMap<String, (String, Vec<u64>, String)> {
    let tensors = checkpoint.tensors();
    let row = |tensor: anamnesis::Tensor<'_>| {
        let info = tensor.info();
        let values = (
            info.encoding.to_string(),
            info.shape.to_vec(),
            sha256(&tensor).unwrap(),
        );
        (info.name.to_string(), values)
    };
    tensors.map(row).collect()
}

pub(crate) fn texts(checkpoint: &Checkpoint) -> BTreeMap<String, String> {
    let metadata = checkpoint.catalog().metadata();
    let text = |(key, value): (&str, &Value)| match value {
        Value::Text(text) => (key.to_owned(), text.to_string()),
        other => (key.to_owned(), format!("{other:?}")),
    };
    metadata.iter().map(text).collect()
}

fn written(path: &Path, file: Vec<u8>) -> Checkpoint {
    std::fs::write(path, file).unwrap();
    Checkpoint::open(path).unwrap()
}

#[test]
fn tensors_and_metadata_come_back_through_every_container() {
    let scratch = ScratchDir::new("convert-containers");
    let source = written(&scratch.path("source.safetensors"), common());
    for container in [&GGUF, &NPZ, &SAFETENSORS] {
        let there = scratch.path(&format!("there.{}", container.name));
        convert(&source).threads(2).to_file(&there).unwrap();
        let middle = Checkpoint::open(&there).unwrap();
        assert_eq!(middle.catalog().format(), container.name);
        assert_eq!(contents(&middle), contents(&source), "{}", container.name);
        let back = scratch.path(&format!("{}.safetensors", container.name));
        convert(&middle).to_file(&back).unwrap();
        let back = Checkpoint::open(&back).unwrap();
        assert_eq!(contents(&back), contents(&source), "{}", container.name);
        // arrays of NumPy have no metadata
        if *container != NPZ {
            let mut found = texts(&back);
            // the types of the keys of the GGUF, of which there are none of its own
            found.remove("anamnesis.gguf_types");
            assert_eq!(found, texts(&source), "{}", container.name);
        }
    }
    let one = scratch.path("one.npy");
    convert(&source)
        .filter(|name| name == "m.f16")
        .to_file(&one)
        .unwrap();
    let (one, expected) = (Checkpoint::open(&one).unwrap(), contents(&source));
    let tensor = one.tensors().next().unwrap();
    assert_eq!(sha256(&tensor).unwrap(), expected["m.f16"].2);
    let several = convert(&source).to_file(scratch.path("several.npy"));
    assert!(several.unwrap_err().to_string().contains("one array"));
}

#[test]
fn keys_of_a_gguf_keep_their_types_through_safetensors() {
    let scratch = ScratchDir::new("convert-types");
    let source = written(&scratch.path("source.safetensors"), common());
    let value =
        |kind: &str, text| GgufValue::parse(GgufType::from_name(kind).unwrap(), text).unwrap();
    let list = |kind: &str, text| {
        GgufValue::parse_array(GgufType::from_name(kind).unwrap(), text).unwrap()
    };
    let first = scratch.path("first.gguf");
    convert(&source)
        .metadata("general.architecture", value("str", "llama"))
        .metadata("x.u8", value("u8", "200"))
        .metadata("x.i64", value("i64", "-5"))
        .metadata("x.f32", value("f32", "0.1"))
        .metadata("x.f64", value("f64", "0.1"))
        .metadata("x.on", value("bool", "true"))
        .metadata("x.words", list("str", r#"["a", "ü\n", ""]"#))
        .metadata("x.sizes", list("u16", "[1, 65535]"))
        .to_file(&first)
        .unwrap();
    let first_open = Checkpoint::open(&first).unwrap();
    let middle = scratch.path("middle.safetensors");
    convert(&first_open).to_file(&middle).unwrap();
    let second = scratch.path("second.gguf");
    convert(&Checkpoint::open(&middle).unwrap())
        .to_file(&second)
        .unwrap();
    let second = Checkpoint::open(&second).unwrap();
    let keys = |checkpoint: &Checkpoint| {
        let keys = checkpoint.catalog().metadata().iter();
        let typed = |(key, value): (&str, &Value)| match value {
            Value::Array(array) => {
                let items = checkpoint.metadata(key).unwrap().unwrap();
                (key.to_owned(), format!("{:?} {items:?}", array.item))
            }
            other => (key.to_owned(), format!("{other:?}")),
        };
        keys.map(typed).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(keys(&first_open), keys(&second));
    // a text for a key that exists is read by its type
    let changed = convert(&second)
        .metadata("x.u8", "256")
        .to_file(scratch.path("no.gguf"));
    assert!(changed.unwrap_err().to_string().contains("x.u8"));
    assert!(!scratch.path("no.gguf").exists());
}

#[test]
fn splits_are_merged_to_what_they_were() {
    let scratch = ScratchDir::new("convert-splits");
    let of_gguf = gguf(
        false,
        &[],
        &[
            StoredTensor::new("a.weight", "8", &[64, 32], random_bytes(1, 64 * 34)),
            StoredTensor::new("b.weight", "0", &[3], random_bytes(2, 12)),
            StoredTensor::new("c.weight", "2", &[32, 32], random_bytes(3, 32 * 18)),
        ],
    );
    for (name, file) in [("source.safetensors", common()), ("source.gguf", of_gguf)] {
        let source = written(&scratch.path(name), file);
        for nbytes in [1, 100, 3000, 1 << 30] {
            let split = scratch.path(&format!("{name}-{nbytes}"));
            convert(&source).to_dir(&split, nbytes).unwrap();
            let split_open = Checkpoint::open(&split).unwrap();
            assert_eq!(contents(&split_open), contents(&source), "{name} {nbytes}");
            let merged = scratch.path(&format!("merged-{nbytes}-{name}"));
            convert(&split_open).to_file(&merged).unwrap();
            let merged = Checkpoint::open(&merged).unwrap();
            assert_eq!(contents(&merged), contents(&source), "{name} {nbytes}");
            let mut keys = texts(&merged);
            // a file has no id of a plan
            keys.remove("anamnesis.plan");
            assert_eq!(keys, texts(&source), "{name} {nbytes}");
            // a split replaces another one, and leaves nothing of it
            convert(&source)
                .overwrite(true)
                .to_dir(&split, nbytes * 2)
                .unwrap();
            let again = Checkpoint::open(&split).unwrap();
            assert_eq!(contents(&again), contents(&source), "{name} {nbytes}");
        }
    }
}

#[test]
fn renames_are_undone_by_the_reverse_ones() {
    let scratch = ScratchDir::new("convert-renames");
    let source = written(&scratch.path("source.safetensors"), common());
    let there = scratch.path("there.safetensors");
    convert(&source)
        .rename("m", "a.b")
        .rename("*.f16", "*.half")
        .to_file(&there)
        .unwrap();
    let renamed = Checkpoint::open(&there).unwrap();
    assert!(renamed.tensor("a.b.half").is_some() && renamed.tensor("other").is_some());
    let back = scratch.path("back.safetensors");
    convert(&renamed)
        .rename("*.half", "*.f16")
        .rename("a.b", "m")
        .to_file(&back)
        .unwrap();
    assert_eq!(
        contents(&Checkpoint::open(&back).unwrap()),
        contents(&source)
    );
    for (from, to, says) in [("nothing", "x", "nothing"), ("*", "same", "same")] {
        let error = convert(&source)
            .rename(from, to)
            .to_file(scratch.path("no.safetensors"));
        let error = error.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    assert!(!scratch.path("no.safetensors").exists());
}

/// An FP8 weight with scales of blocks, and a plain one.
fn quantised() -> Vec<u8> {
    safetensors(
        &[("format", "pt")],
        &[
            ("a.weight", "F8_E4M3", &[128, 256], vec![0x38; 128 * 256]),
            ("a.weight_scale_inv", "F32", &[1, 2], vec![0; 8]),
            ("norm.weight", "BF16", &[4], vec![1; 8]),
        ],
    )
}

#[test]
fn parts_of_a_weight_go_together() -> Result<()> {
    let checkpoint = Checkpoint::from_bytes(quantised())?;
    let names = |plan: anamnesis::Plan| {
        let jobs = plan.jobs.iter();
        let mut names: Vec<_> = jobs.map(|job| job.output.name.to_string()).collect();
        names.sort();
        names
    };
    let both = ["a.weight", "a.weight_scale_inv"];
    for selected in both {
        let plan = convert(&checkpoint)
            .filter(move |name| name == selected)
            .plan()?;
        assert_eq!(names(plan), both);
    }
    let plan = convert(&checkpoint)
        .exclude(|name| name == "a.weight")
        .plan()?;
    assert_eq!(names(plan), ["norm.weight"]);
    let part = convert(&checkpoint)
        .exclude(|name| name.contains("scale"))
        .plan();
    let error = part.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::InvalidArgument(_)),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("`a.weight_scale_inv`"),
        "{error}"
    );
    // a part under the name of another module is no part any more
    let apart = convert(&checkpoint)
        .rename("a.weight_scale_inv", "b.weight_scale_inv")
        .plan();
    assert!(apart.unwrap_err().to_string().contains("`a.weight`"));
    assert_eq!(
        names(convert(&checkpoint).rename("a", "x.y").plan()?),
        ["norm.weight", "x.y.weight", "x.y.weight_scale_inv"]
    );
    Ok(())
}

/// A rename of all tensors alike, with the configuration, changes no weight of any scheme.
#[test]
fn weights_of_every_scheme_are_renamed() {
    let mut renamed = 0;
    for family in fs::read_dir(fixture("quant")).unwrap() {
        let Ok(models) = fs::read_dir(family.unwrap().path()) else {
            continue;
        };
        for model in models.map(|model| model.unwrap().path()) {
            let Ok(checkpoint) = Checkpoint::open(&model) else {
                continue;
            };
            let plan = convert(&checkpoint).plan();
            if plan.is_ok_and(|plan| plan.quantised) {
                let plan = convert(&checkpoint).rename("*", "net.*").plan();
                plan.unwrap_or_else(|e| panic!("{}: {e}", model.display()));
                renamed += 1;
            }
        }
    }
    assert!(renamed > 80, "{renamed}");
}

#[test]
fn metadata_too_long_for_another_header_is_refused() {
    let scratch = ScratchDir::new("convert-long-metadata");
    let text = "x".repeat(65 << 20);
    let words = StoredTensor::new("a", "0", &[3], random_bytes(2, 12));
    let path = scratch.path("long.gguf");
    fs::write(&path, gguf(false, &[("long.text", &text)], &[words])).unwrap();
    let source = Checkpoint::open(&path).unwrap();
    for result in [
        convert(&source).to_file(scratch.path("out.safetensors")),
        remember(&source).to_file(scratch.path("out.safetensors")),
    ] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("long.text"), "{error}");
        assert!(!scratch.path("out.safetensors").exists());
    }
}

#[test]
fn containers_refuse_by_name_and_leave_nothing() {
    let scratch = ScratchDir::new("convert-refusals");
    let source = written(&scratch.path("source.safetensors"), quantised());
    for (name, says) in [
        ("out.gguf", "a.weight"),
        ("out.npz", "a.weight"),
        ("out.npy", "a.weight"),
    ] {
        let error = convert(&source).to_file(scratch.path(name)).unwrap_err();
        assert!(error.to_string().contains(says), "{name}: {error}");
        assert!(!scratch.path(name).exists());
    }
    let file = scratch.path("void.npz");
    convert(&source).void(true).to_file(&file).unwrap();
    assert_eq!(Checkpoint::open(&file).unwrap().tensors().len(), 3);
    let error = convert(&source).sharding("out.bin", None).unwrap_err();
    assert!(error.to_string().contains(".bin"), "{error}");
    for (container, name) in [(&NPY, "out.npz"), (&GGUF, "out.safetensors")] {
        let other = convert(&source).container(container).sharding(name, None);
        let text = other.unwrap_err().to_string();
        assert!(text.contains(container.name), "{text}");
    }
    assert!(convert(&source).sharding("out/", Some(0)).is_err());
}

#[test]
fn every_fixture_is_copied_to_its_own_container() {
    let scratch = ScratchDir::new("convert-fixtures");
    let (mut copied, mut refused) = (0, 0);
    for (number, (path, format)) in fixtures().into_iter().enumerate() {
        let Ok(source) = Checkpoint::open(&path) else {
            continue;
        };
        let container = match format.name {
            "gguf" => &GGUF,
            "npz" => &NPZ,
            "npy" => &NPY,
            _ => &SAFETENSORS,
        };
        let out = scratch.path(&format!("{number}.{}", container.name));
        let all = convert(&source).void(true).untie(true);
        if all.to_file(&out).is_err() {
            assert!(!out.exists(), "{}", path.display());
            refused += 1;
            continue;
        }
        copied += 1;
        let found = contents(&Checkpoint::open(&out).unwrap());
        let mut expected = contents(&source);
        // the only tensor of a file that names none has the file's
        let can_be_alone = matches!(source.catalog().format(), "npy" | "pth");
        if can_be_alone
            && expected.len() == 1
            && let Some(unnamed) = expected.remove("")
        {
            let stem = path.file_stem().unwrap().to_string_lossy();
            expected.insert(stem.into_owned(), unnamed);
        }
        if *container == NPY {
            expected = expected
                .into_values()
                .map(|row| (String::new(), row))
                .collect();
        }
        assert!(found.keys().eq(expected.keys()), "{}", path.display());
        let same = found.values().zip(expected.values());
        for ((dtype, shape, digest), (was, had, expected)) in same {
            let is_big = source
                .tensors()
                .any(|tensor| tensor.info().endian == anamnesis::Endian::Big);
            let is_void = dtype != was;
            assert!(shape == had || format.name == "gguf", "{}", path.display());
            assert!(
                digest == expected || is_void || is_big,
                "{}",
                path.display()
            );
        }
    }
    assert!(copied > 60, "{copied} copied, {refused} refused");
}

#[test]
fn a_sink_of_a_container_is_chosen_by_the_ending() -> Result<()> {
    let scratch = ScratchDir::new("convert-sinks");
    let source = Checkpoint::from_bytes(common())?;
    let builder = convert(&source);
    let path = scratch.path("sink.gguf");
    let plan = builder.plan()?;
    let mut sink = builder.sink(&path, Sharding::SingleFile)?;
    builder.run(&plan, &mut sink)?;
    assert_eq!(sink.files().collect::<Vec<_>>(), [path.as_path()]);
    assert_eq!(contents(&Checkpoint::open(&path)?), contents(&source));
    Ok(())
}
