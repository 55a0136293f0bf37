//! NPY and NPZ against the corpus (what numpy wrote, what it says is in it, and what must be refused).

use std::path::{Path, PathBuf};
use std::time::Instant;

use anamnesis::{Checkpoint, Error, ErrorKind, OpenOptions};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The corpus is larger than the repository: tests that need it say so where it is absent.
fn corpus(set: &str) -> Option<(PathBuf, Vec<Value>)> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let root = std::env::var_os("ANAMNESIS_CORPUS").map_or_else(beside, PathBuf::from).join(set);
    let Ok(text) = std::fs::read_to_string(root.join("manifest.json")) else {
        eprintln!("SKIPPED: no corpus at {}; set ANAMNESIS_CORPUS", root.display());
        return None;
    };
    let manifest: Value = serde_json::from_str(&text).expect("a manifest");
    let ours = |e: &&Value| matches!(e["format"].as_str(), Some("npy" | "npz"));
    let entries = manifest["entries"].as_array().expect("entries").iter().filter(ours).cloned().collect();
    Some((root, entries))
}

fn sha256(checkpoint: &Checkpoint, name: &str) -> Result<String, Error> {
    let mut hash = Sha256::new();
    checkpoint.tensor(name).expect("it was listed").chunks(|piece| {
        hash.update(piece);
        Ok(())
    })?;
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// Our name for a dtype of numpy; `None` where the manifest tells what the file does not.
fn ours(dtype: &str) -> Option<&'static str> {
    Some(match dtype {
        "bool" => "BOOL",
        "int8" => "I8",
        "int16" => "I16",
        "int32" => "I32",
        "int64" => "I64",
        "uint8" => "U8",
        "uint16" => "U16",
        "uint32" => "U32",
        "uint64" => "U64",
        "float16" => "F16",
        "float32" => "F32",
        "float64" => "F64",
        "complex64" => "C64",
        "complex128" => "C128",
        "float128" => "F128",
        "float8_e5m2" => "F8_E5M2",
        "bfloat16" => "V2",
        "datetime64[D]" => "M8[D]",
        "timedelta64[s]" => "m8[s]",
        "structured" => "V20",
        "str96" => "U3",
        "bytes16" => "S2",
        other if other.starts_with("float8") || other.ends_with("int4") || other.starts_with("float4") => "V1",
        other => match other.strip_prefix("|S").or(other.strip_prefix("bytes")) {
            Some(_) => return None,
            None => panic!("{other}: a dtype the test does not know"),
        },
    })
}

/// Compares everything the manifest says of a file; returns how many arrays that were.
fn compare(path: &Path, entry: &Value) -> usize {
    let shown = path.display();
    let mut last = None;
    for map in [true, false] {
        let checkpoint = OpenOptions::new().map(map).open(path).unwrap_or_else(|e| panic!("{shown}: {e}"));
        let wanted = entry["tensors"].as_array().map_or(&[][..], Vec::as_slice);
        let expected: Vec<&str> = wanted.iter().map(|t| t["name"].as_str().expect("a name")).collect();
        let notes = entry["notes"].as_str().unwrap_or_default();
        // real files: arrays outside plain dtypes are only mentioned
        let mut names: Vec<&str> = checkpoint.catalog().tensors().iter().map(|t| &*t.name).collect();
        names.retain(|name| expected.contains(name) || !notes.contains(&format!("{name}:|S")));
        assert_eq!(names, expected, "{shown}");
        for want in wanted {
            let name = want["name"].as_str().expect("a name");
            let info = checkpoint.catalog().get(name).expect("listed");
            let shape: Vec<u64> = want["shape"].as_array().expect("a shape").iter().flat_map(Value::as_u64).collect();
            assert_eq!(info.shape[..], shape[..], "{shown} {name}");
            if let Some(dtype) = ours(want["dtype"].as_str().expect("a dtype")) {
                assert_eq!(info.encoding.name(), dtype, "{shown} {name}");
            }
            assert_eq!(Some(info.nbytes()), want["nbytes"].as_u64(), "{shown} {name}");
            let hash = sha256(&checkpoint, name).unwrap_or_else(|e| panic!("{shown} {name}: {e}"));
            assert_eq!(Some(&*hash), want["sha256"].as_str(), "{shown} {name}");
        }
        last = Some(wanted.len());
    }
    last.expect("opened twice")
}

/// Whether the error says that the file may be good and is not read.
fn unsupported(path: &Path) -> String {
    let error = Checkpoint::open(path).expect_err("unsupported");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    error.to_string()
}

#[test]
fn every_good_file_is_listed_and_read_as_numpy_does() {
    for (set, least) in [("public", 80), ("real", 90)] {
        let Some((root, entries)) = corpus(set) else { continue };
        let mut arrays = 0;
        for entry in &entries {
            let path = root.join(entry["path"].as_str().expect("a path"));
            let name = path.file_name().and_then(|n| n.to_str()).expect("a name");
            match entry["expect"].as_str().expect("an expectation") {
                "ok_or_unsupported" if name == "method_bzip2.npz" => assert!(unsupported(&path).contains("bzip2")),
                "ok_or_unsupported" if name == "method_lzma.npz" => assert!(unsupported(&path).contains("lzma")),
                "ok_or_unsupported" if name == "py3-objarr.npz" || name.ends_with("py3-objarr.npz") => {
                    assert!(unsupported(&path).contains("pickle"));
                }
                "ok" | "ok_or_unsupported" | "ok_or_reject_object" => arrays += compare(&path, entry),
                "reject" => assert!(Checkpoint::open(&path).is_err(), "{}", path.display()),
                "reject_or_unsupported" => assert!(unsupported(&path).contains("pickle")),
                other => panic!("{other}: an expectation the test does not know"),
            }
        }
        assert!(arrays >= least, "{set}: only {arrays} arrays");
    }
}

#[test]
fn every_hostile_file_is_refused_in_time() {
    let Some((root, entries)) = corpus("malformed") else { return };
    for entry in &entries {
        let path = root.join(entry["path"].as_str().expect("a path"));
        let expect = entry["expect"].as_str().expect("an expectation");
        for map in [true, false] {
            let begun = Instant::now();
            let outcome = OpenOptions::new().map(map).open(&path).and_then(|checkpoint| {
                for tensor in checkpoint.tensors() {
                    tensor.chunks(|_| Ok(()))?;
                }
                Ok(checkpoint.catalog().tensors().len())
            });
            let shown = path.display();
            assert!(begun.elapsed().as_secs_f64() < 2.0, "{shown} took {:?}", begun.elapsed());
            if map && std::env::var_os("ANAMNESIS_SHOW").is_some() {
                eprintln!("{expect:13} {shown} {outcome:?}");
            }
            match expect {
                "must_reject" | "should_reject" => {
                    let error = outcome.expect_err(&shown.to_string());
                    assert!(!matches!(error.kind(), ErrorKind::Io(_)), "{error}");
                }
                "must_accept" => assert!(outcome.is_ok(), "{shown}: {outcome:?}"),
                "may_accept" => {}
                other => panic!("{other}: an expectation the test does not know"),
            }
        }
    }
    assert!(entries.len() > 90, "only {} entries", entries.len());
}

#[test]
fn void_items_become_the_dtype_that_the_caller_knows() {
    let path = fixtures().join("npz/ml_dtypes.npz");
    let raw = Checkpoint::open(&path).expect("opens");
    assert_eq!(raw.catalog().get("bfloat16").expect("listed").encoding.name(), "V2");
    assert_eq!(raw.catalog().get("float8_e5m2").expect("listed").encoding.name(), "F8_E5M2");
    let said = |what: &str| raw.catalog().warnings.iter().filter(|w| w.contains(what)).count();
    assert_eq!((said("void-as"), said("'f1'")), (1, 1), "{:?}", raw.catalog().warnings);

    let options = OpenOptions::new().void_as(anamnesis::Dtype::BF16).void_as(anamnesis::Dtype::F8_E4M3);
    let known = options.open(&path).expect("opens");
    assert_eq!(known.catalog().get("bfloat16").expect("listed").encoding.name(), "BF16");
    assert_eq!(known.catalog().get("float8_e4m3fn").expect("listed").encoding.name(), "F8_E4M3");
    assert!(!known.catalog().warnings.iter().any(|w| w.contains("void-as")));
    assert_eq!(sha256(&raw, "bfloat16").expect("reads"), sha256(&known, "bfloat16").expect("reads"));
}

#[test]
fn object_arrays_are_refused_beside_their_neighbours() {
    let checkpoint = Checkpoint::open(fixtures().join("npz/object.npz")).expect("opens");
    assert_eq!(checkpoint.catalog().tensors().len(), 1);
    let refused = &checkpoint.catalog().refused;
    assert_eq!((refused.len(), &*refused[0].name), (1, "obj"));
    assert!(refused[0].reason.contains("pickle"));
}

#[test]
fn members_that_are_not_arrays_are_named_once() {
    let checkpoint = Checkpoint::open(fixtures().join("npz/extra_members.npz")).expect("opens");
    assert_eq!(checkpoint.catalog().warnings, ["member `README.txt` is not an array"]);
    assert_eq!(checkpoint.catalog().details.integer("members"), Some(4));
    assert_eq!(checkpoint.catalog().details.integer("deflated"), Some(0));
    let packed = Checkpoint::open(fixtures().join("npz/all_le_compressed.npz")).expect("opens");
    assert!(packed.catalog().details.integer("deflated") > Some(10));
}

#[test]
fn an_array_is_listed_from_a_stream() {
    let listed = |bytes: Vec<u8>| Checkpoint::from_stream(std::io::Cursor::new(bytes));
    for name in ["v1.npy", "v3.npy", "hdr_trailing_data.npy", "hdr_big_v2.npy"] {
        let bytes = std::fs::read(fixtures().join("npy").join(name)).expect("a fixture");
        let checkpoint = listed(bytes.clone()).expect("listed");
        assert_eq!(checkpoint.catalog().tensors()[0].name, "".into());
        assert_eq!(checkpoint.catalog().details.text("order"), Some("c"));
        let data = checkpoint.catalog().tensors()[0].bytes;
        let short = usize::try_from(data.end() - 1).expect("small");
        assert!(listed(bytes[..short].to_vec()).is_err(), "{name} cut off");
    }
    let zip = std::fs::read(fixtures().join("npz/all_le.npz")).expect("a fixture");
    assert!(matches!(listed(zip).expect_err("a zip").kind(), ErrorKind::Unsupported(_)));
}
