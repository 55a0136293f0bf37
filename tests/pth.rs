//! PyTorch files against the corpus: names, dtypes, shapes and bytes as PyTorch reads them, and
//! hostile files refused.

use std::fmt::Write as _;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anamnesis::catalog::Quantizer;
use anamnesis::{Checkpoint, ErrorKind, Layout, OpenOptions, Result, Tensor};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/pth")
}

/// The corpus, if it is there.
fn corpus(set: &str) -> Option<PathBuf> {
    let root = std::env::var_os("ANAMNESIS_CORPUS").map(PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"));
    let set = root.join(set);
    if !set.join("manifest.json").is_file() {
        eprintln!("skipped: no corpus at {} (set ANAMNESIS_CORPUS)", set.display());
        return None;
    }
    Some(set)
}

fn entries(set: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(set.join("manifest.json")).expect("a readable manifest");
    let manifest: Value = serde_json::from_str(&text).expect("a manifest of JSON");
    let entries = manifest["entries"].as_array().expect("a list of entries").clone();
    entries.into_iter().filter(|e| e["format"].as_str().is_some_and(|f| f.starts_with("pth"))).collect()
}

fn sha256(tensor: Tensor<'_>) -> Result<String> {
    let mut hash = Sha256::new();
    tensor.chunks(|piece| {
        hash.update(piece);
        Ok(())
    })?;
    Ok(hash.finalize().iter().fold(String::new(), |mut hex, b| {
        write!(hex, "{b:02x}").unwrap();
        hex
    }))
}

/// What of an entry is not as the manifest says.
fn differences(checkpoint: &Checkpoint, entry: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let expected = entry["tensors"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = expected.iter().map(|t| t["name"].as_str().unwrap()).collect();
    // `state_dict()` of a TorchScript module leaves plain attributes out; the file has them
    let script = checkpoint.catalog().details.text("container") == Some("torchscript");
    for info in checkpoint.catalog().tensors() {
        if !names.contains(&&*info.name) && !script {
            wrong.push(format!("{} is not expected", info.name));
        }
    }
    if !script && checkpoint.catalog().tensors().iter().map(|t| &*t.name).ne(names.iter().copied()) {
        wrong.push("other names, or in another order".into());
    }
    for want in expected {
        let name = want["name"].as_str().unwrap();
        let Some(tensor) = checkpoint.tensor(name) else {
            wrong.push(format!("{name} is missing"));
            continue;
        };
        let info = tensor.info();
        let mut shape: Vec<u64> = want["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
        if want["dtype"] == "F4" {
            *shape.last_mut().unwrap() *= 2; // the manifest counts pairs
        }
        if info.encoding.name() != want["dtype"] || info.shape[..] != shape[..] {
            wrong.push(format!("{name} is {} {:?}", info.encoding, info.shape));
        }
        let Some(hash) = want["sha256"].as_str() else {
            if matches!(info.layout, Layout::RowMajor | Layout::Strided(_)) {
                wrong.push(format!("{name} should not be dense"));
            }
            continue;
        };
        if info.nbytes() != want["nbytes"].as_u64().unwrap() {
            wrong.push(format!("{name} has {} bytes", info.nbytes()));
        }
        match sha256(tensor) {
            Ok(found) if found == hash => {}
            Ok(_) => wrong.push(format!("{name} has other bytes")),
            Err(e) => wrong.push(format!("{name}: {e}")),
        }
    }
    // tied tensors share their storage, and only they
    let storage = |t: &Value| t["storage_id"].as_u64();
    for a in expected {
        for b in expected {
            let ours = |t: &Value| checkpoint.catalog().get(t["name"].as_str().unwrap()).and_then(|info| info.member);
            if storage(a).is_some() && storage(b).is_some() && entry["expect"] == "ok" && names.len() < 200 {
                let empty = a["nbytes"] == 0 || b["nbytes"] == 0; // PyTorch gives all empty storages one address
                if !empty && (storage(a) == storage(b)) != (ours(a) == ours(b)) {
                    wrong.push(format!("{} and {}: tied or not?", a["name"], b["name"]));
                }
            }
        }
    }
    wrong
}

/// Opens a file in every way there is; all must tell the same.
fn opened(path: &Path) -> Vec<(&'static str, Result<Checkpoint>)> {
    let bytes = std::fs::read(path).unwrap();
    vec![
        ("mapped", Checkpoint::open(path)),
        ("read", OpenOptions::new().map(false).open(path)),
        ("bytes", Checkpoint::from_bytes(bytes.clone())),
        ("reader", Checkpoint::from_reader(Cursor::new(bytes))),
    ]
}

fn check_good(set: &Path) {
    let (mut failures, mut count) = (Vec::new(), 0);
    for entry in entries(set) {
        let path = set.join(entry["path"].as_str().unwrap());
        let category = entry["category"].as_str().unwrap_or_default();
        let module = category.ends_with("module_object");
        let code = module || category == "pth/evil";
        let rejected = entry["expect"].as_str().is_some_and(|e| e.starts_with("reject"));
        for (how, checkpoint) in opened(&path) {
            count += 1;
            match checkpoint {
                Err(e) if rejected || module => {
                    if code && !matches!(e.kind(), ErrorKind::RefusedGlobal { .. }) {
                        failures.push(format!("{} ({how}): refused, but by {e}", path.display()));
                    }
                }
                Err(e) => failures.push(format!("({how}) {e}")),
                Ok(_) if rejected || module => {
                    failures.push(format!("{} ({how}): accepted", path.display()));
                }
                Ok(checkpoint) => {
                    for what in differences(&checkpoint, &entry) {
                        failures.push(format!("{} ({how}): {what}", path.display()));
                    }
                    checkpoint.inspect();
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    assert!(count > 0);
}

#[test]
fn public_files_are_read_as_pytorch_reads_them() {
    if let Some(set) = corpus("public") {
        check_good(&set);
    }
}

#[test]
fn real_files_are_read_as_pytorch_reads_them() {
    if let Some(set) = corpus("real") {
        check_good(&set);
    }
}

#[test]
fn hostile_files_are_refused_in_time() {
    let Some(set) = corpus("malformed") else { return };
    let mut failures = Vec::new();
    for entry in entries(&set) {
        let path = set.join(entry["path"].as_str().unwrap());
        let start = Instant::now();
        drop(Checkpoint::open(&path));
        let took = start.elapsed();
        if took > Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 }) {
            failures.push(format!("{}: took {took:?}", path.display()));
        }
        for (how, outcome) in opened(&path) {
            // what is listed must also be readable, or say why not
            let outcome = outcome.and_then(|checkpoint| {
                checkpoint.tensors().try_for_each(|t| t.chunks(|_| Ok(())))?;
                Ok(checkpoint.inspect())
            });
            let wrong = match (entry["expect"].as_str().unwrap(), &outcome) {
                ("must_reject", Ok(_)) => Some("accepted".to_owned()),
                ("must_accept", Err(e)) => Some(format!("refused: {e}")),
                _ => None,
            };
            failures.extend(wrong.map(|what| format!("{} ({how}): {what}", path.display())));
            if std::env::var_os("ANAMNESIS_SHOW").is_some() && how == "mapped" {
                let said = outcome.err().map_or("accepted".to_owned(), |e| e.to_string());
                eprintln!("{} [{}]: {said}", entry["path"], entry["expect"]);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn fixtures_of_code_are_refused_by_name() {
    for file in std::fs::read_dir(fixtures().join("evil")).unwrap() {
        let path = file.unwrap().path();
        for (how, outcome) in opened(&path) {
            let error = outcome.expect_err("code is refused");
            assert!(matches!(error.kind(), ErrorKind::RefusedGlobal { .. }), "{} ({how}): {error}", path.display());
        }
    }
}

#[test]
fn fixtures_open_and_read_whole() {
    let mut folders = vec![fixtures(), fixtures().join("dtype")];
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() || name.starts_with("whole_module") {
                continue;
            }
            let checkpoint = Checkpoint::open(&path).unwrap();
            for tensor in checkpoint.tensors() {
                match &tensor.info().layout {
                    Layout::Absent => assert!(tensor.bytes().is_err()),
                    Layout::Sparse(sparse) => assert!(sparse.parts.len() >= 2),
                    _ => assert_eq!(tensor.bytes().unwrap().len() as u64, tensor.info().nbytes(), "{name}"),
                }
            }
        }
    }
}

#[test]
fn a_legacy_stream_is_listed_from_a_pipe() {
    let path = fixtures().join("checkpoint.legacy.pth");
    let whole = Checkpoint::open(&path).unwrap();
    let piped = Checkpoint::from_stream(std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(whole.catalog().tensors(), piped.catalog().tensors());
    assert_eq!(whole.catalog().metadata, piped.catalog().metadata);
}

#[test]
fn metadata_stands_under_dotted_names() {
    for name in ["checkpoint.pth", "checkpoint.legacy.pth"] {
        let checkpoint = Checkpoint::open(fixtures().join(name)).unwrap();
        let metadata = &checkpoint.catalog().metadata;
        assert_eq!(metadata.integer("epoch"), Some(3), "{name}");
        assert!(metadata.iter().any(|(key, _)| key.starts_with("optimizer.param_groups.0.")), "{name}");
    }
}

#[test]
fn quantisers_are_described() {
    let checkpoint = Checkpoint::open(fixtures().join("qint.pth")).unwrap();
    let quantizer = |name: &str| checkpoint.catalog().get(name).unwrap().quantizer.as_deref().unwrap();
    assert_eq!(*quantizer("q"), Quantizer::PerTensor { scale: 0.1, zero_point: 3 });
    let Quantizer::PerChannel { scales, axis, .. } = quantizer("qc") else { panic!("per channel") };
    assert_eq!((scales.shape.as_slice(), *axis), (&[3][..], 0));
}

#[test]
fn numpy_values_are_metadata() {
    let array = Checkpoint::open(fixtures().join("numpy_array.pth")).unwrap();
    assert!(matches!(array.catalog().metadata.get("arr"), Some(anamnesis::Value::List(list)) if list.len() == 3));
    let scalar = Checkpoint::open(fixtures().join("numpy_scalar.pth")).unwrap();
    assert!(scalar.catalog().metadata.iter().any(|(_, value)| matches!(value, anamnesis::Value::F64(_))));
}
