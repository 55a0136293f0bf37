//! PyTorch files: names, dtypes, shapes, strides, ties and bytes equal what PyTorch reads (the manifests), and pickles that would
//! run code are refused.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::support;
use crate::support::open_modes::OPEN_MODES;
use crate::support::scratch_dir::ScratchDir;
use crate::support::valid_files::check_corpus_set;
use anamnesis::catalog::Quantizer;
use anamnesis::format::pth;
use anamnesis::{Checkpoint, ErrorKind, Layout, OpenOptions};
use serde_json::Value as Json;

fn fixtures() -> PathBuf {
    support::fixture("pth")
}

#[test]
fn public_files_are_read_as_pytorch_reads_them() {
    check_corpus_set("public", &["pth"], 490);
}

#[test]
fn real_files_are_read_as_pytorch_reads_them() {
    check_corpus_set("real", &["pth"], 370);
}

#[test]
fn pickles_that_run_code_are_refused() {
    for file in std::fs::read_dir(fixtures().join("evil")).unwrap() {
        let path = file.unwrap().path();
        for mode in OPEN_MODES {
            let error = mode
                .open(&path, Some(&pth::FORMAT))
                .expect_err("a pickle that runs code");
            assert!(
                matches!(error.kind(), ErrorKind::RefusedGlobal { .. }),
                "{} ({mode:?}): {error}",
                path.display()
            );
        }
    }
}

#[test]
fn every_tensor_of_the_fixtures_is_read() {
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
                    _ => assert_eq!(
                        tensor.bytes().unwrap().len() as u64,
                        tensor.info().nbytes(),
                        "{name}"
                    ),
                }
            }
        }
    }
}

#[test]
fn a_legacy_file_is_listed_from_a_stream() {
    let path = fixtures().join("checkpoint.legacy.pth");
    let whole = Checkpoint::open(&path).unwrap();
    let streamed = Checkpoint::from_stream(std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(whole.catalog().tensors(), streamed.catalog().tensors());
    assert_eq!(whole.catalog().metadata(), streamed.catalog().metadata());
}

#[test]
fn nested_values_are_metadata_under_dotted_names() {
    for name in ["checkpoint.pth", "checkpoint.legacy.pth"] {
        let checkpoint = Checkpoint::open(fixtures().join(name)).unwrap();
        let metadata = checkpoint.catalog().metadata();
        assert_eq!(metadata.integer("epoch"), Some(3), "{name}");
        assert!(
            metadata
                .iter()
                .any(|(key, _)| key.starts_with("optimizer.param_groups.0.")),
            "{name}"
        );
    }
}

#[test]
fn quantised_tensors_have_scales_and_zero_points() {
    let checkpoint = Checkpoint::open(fixtures().join("qint.pth")).unwrap();
    let quantizer = |name: &str| checkpoint.catalog().get(name).unwrap().quantizer().unwrap();
    assert_eq!(
        *quantizer("q"),
        Quantizer::PerTensor {
            scale: 0.1,
            zero_point: 3
        }
    );
    let Quantizer::PerChannel { scales, axis, .. } = quantizer("qc") else {
        panic!("`qc` is quantised per channel")
    };
    assert_eq!((scales.shape.as_slice(), *axis), (&[3][..], 0));
}

/// The tensors of the files in `values/`, as numpy and torch hold them: shape and SHA-256 by name.
fn expected_values(prefix: &str) -> Vec<(PathBuf, serde_json::Map<String, Json>)> {
    let text = std::fs::read_to_string(fixtures().join("values/expected.json")).unwrap();
    let files: serde_json::Map<String, Json> = serde_json::from_str(&text).unwrap();
    let files = files
        .into_iter()
        .filter(|(file, _)| file.starts_with(prefix));
    let files = files.map(|(file, tensors)| {
        let path = fixtures().join("values").join(file);
        (path, tensors.as_object().unwrap().clone())
    });
    files.collect()
}

/// Compares names, shapes and bytes, as they are read, and as `remember` writes them.
fn compare_values(
    options: &OpenOptions,
    path: &std::path::Path,
    expected: &serde_json::Map<String, Json>,
) {
    let scratch = ScratchDir::new("pth-values");
    let out = scratch.path("out.safetensors");
    for mmap in [true, false] {
        let checkpoint = options.clone().mmap(mmap).open(path).unwrap();
        // safetensors has no dtype for two doubles
        let names = expected.keys().cloned().collect::<HashSet<_>>();
        let written = move |name: &str| names.contains(name) && !name.ends_with("c16");
        let remember = anamnesis::remember(&checkpoint).filter(written);
        remember.overwrite(true).to_file(&out).unwrap();
        let written = Checkpoint::open(&out).unwrap();
        let mut names: Vec<_> = checkpoint.tensors().map(|t| &*t.info().name).collect();
        names.sort_unstable();
        let mut keys: Vec<_> = expected.keys().collect();
        keys.sort_unstable();
        assert_eq!(names, keys, "{}", path.display());
        for (name, row) in expected {
            let tensor = checkpoint.tensor(name).unwrap();
            let what = format!("{}: {name}", path.display());
            let shape: Vec<u64> = serde_json::from_value(row[0].clone()).unwrap();
            assert_eq!(*tensor.info().shape, *shape, "{what}");
            assert_eq!(support::sha256(&tensor).unwrap(), row[1], "{what}");
            if let Some(tensor) = written.tensor(name) {
                assert_eq!(support::sha256(&tensor).unwrap(), row[1], "{what}, written");
            } else {
                assert!(name.ends_with("c16"), "{what}");
            }
        }
    }
}

#[test]
fn numpy_arrays_are_tensors() {
    let files = expected_values("arrays");
    assert_eq!(files.len(), 8);
    for (path, tensors) in files {
        compare_values(&OpenOptions::new(), &path, &tensors);
        let checkpoint = Checkpoint::open(&path).unwrap();
        let catalog = checkpoint.catalog();
        let warnings = support::texts(catalog.warnings());
        let counts = "cannot be shown: 2 (numpy arrays that are not of numbers: 1, numpy arrays of objects: 1; \
                      the first is `names`)";
        assert!(warnings.contains(counts), "{}: {warnings}", path.display());
        assert_eq!(
            catalog.metadata().get("step"),
            Some(&anamnesis::Value::F64(0.5))
        );
        let packings: HashSet<_> = catalog.tensors().iter().map(|t| t.packing.name()).collect();
        let name = path.file_name().unwrap().to_str().unwrap();
        let packed = match (name.starts_with("arrays2"), name.contains("deflated")) {
            (true, true) => Some("deflate+latin1"),
            (true, false) => Some("latin1"),
            (false, true) => Some("deflate"),
            (false, false) => None,
        };
        assert!(packings.contains(&packed), "{name}: {packings:?}");
    }
}

#[test]
fn names_of_nested_keys_and_of_keys_with_dots_are_distinguished() {
    for (path, tensors) in [expected_values("dots"), expected_values("keys")].concat() {
        compare_values(&OpenOptions::new(), &path, &tensors);
        let checkpoint = Checkpoint::open(&path).unwrap();
        for name in tensors.keys() {
            let only = anamnesis::load(&checkpoint).filter(|other| other == name);
            let loaded = only.run().unwrap();
            let [tensor] = loaded.tensors() else {
                panic!("{name} is not one tensor")
            };
            let expected = checkpoint.tensor(name).unwrap().bytes().unwrap();
            assert_eq!(*tensor.bytes(), *expected, "{name}");
        }
    }
}

#[test]
fn opaque_objects_are_set_aside_and_the_tensors_around_them_read() {
    let opaque = OpenOptions::new().opaque(true);
    let files = expected_values("opaque");
    assert_eq!(files.len(), 2);
    for (path, tensors) in files {
        let error = Checkpoint::open(&path).unwrap_err();
        assert_eq!(error.remedy(), Some(anamnesis::Remedy::KeepOpaque));
        compare_values(&opaque, &path, &tensors);
        let checkpoint = opaque.open(&path).unwrap();
        let catalog = checkpoint.catalog();
        let metadata = catalog.metadata();
        assert_eq!(metadata.text("args"), Some("argparse.Namespace"));
        assert_eq!(metadata.get("args.lr"), Some(&anamnesis::Value::F64(0.1)));
        assert_eq!(metadata.text("path"), Some("pathlib.PurePosixPath"));
        assert_eq!(metadata.text("path.args.0"), Some("out"));
        assert_eq!(metadata.text("callbacks.1"), Some("__main__.Callback"));
        // floats of an unknown class are as stored
        assert!(catalog.refused().is_empty(), "{:?}", catalog.refused());
        let warnings = support::texts(catalog.warnings());
        for listed in [
            "set aside by class name and plain state: 5 (",
            "`argparse.Namespace`: 1",
            "`pathlib.PurePosixPath`: 2",
            "`__main__.Callback`: 1",
            "`__main__.rebuilt`: 1",
            "`__main__.Labelled`: named only",
        ] {
            assert!(warnings.contains(listed), "{listed}: {warnings}");
        }
    }
}

/// Pickles that would run code elsewhere: with the option, what they would call is an opaque object, and nothing is run.
#[test]
fn pickles_that_run_code_are_opaque() {
    let opaque = OpenOptions::new().opaque(true);
    let directory = fixtures().join("evil");
    let modules = std::fs::read_dir(fixtures()).unwrap();
    let modules = modules.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("whole_module")
    });
    let mut count = 0;
    for file in std::fs::read_dir(directory).unwrap().chain(modules) {
        let path = file.unwrap().path();
        let checkpoint = opaque.open(&path).unwrap();
        let warnings = support::texts(checkpoint.catalog().warnings());
        assert!(
            warnings.contains("objects of unknown classes"),
            "{warnings}"
        );
        for tensor in checkpoint.tensors() {
            assert_eq!(tensor.bytes().unwrap().len() as u64, tensor.info().nbytes());
        }
        count += 1;
    }
    assert_eq!(count, 24);
}

#[test]
fn numpy_scalars_are_metadata() {
    let array = Checkpoint::open(fixtures().join("numpy_array.pth")).unwrap();
    assert!(array.catalog().get("arr").is_some());
    let scalar = Checkpoint::open(fixtures().join("numpy_scalar.pth")).unwrap();
    assert!(
        scalar
            .catalog()
            .metadata()
            .iter()
            .any(|(_, value)| matches!(value, anamnesis::Value::F64(_)))
    );
}
