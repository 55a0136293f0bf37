//! PyTorch files: names, dtypes, shapes, strides, ties and bytes equal what PyTorch reads (the manifests), and pickles that would
//! run code are refused.

use std::path::PathBuf;

use crate::support;
use crate::support::open_modes::OPEN_MODES;
use crate::support::valid_files::check_corpus_set;
use anamnesis::catalog::Quantizer;
use anamnesis::format::pth;
use anamnesis::{Checkpoint, ErrorKind, Layout};

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

#[test]
fn numpy_values_are_metadata() {
    let array = Checkpoint::open(fixtures().join("numpy_array.pth")).unwrap();
    assert!(
        matches!(array.catalog().metadata().get("arr"), Some(anamnesis::Value::List(list)) if list.len() == 3)
    );
    let scalar = Checkpoint::open(fixtures().join("numpy_scalar.pth")).unwrap();
    assert!(
        scalar
            .catalog()
            .metadata()
            .iter()
            .any(|(_, value)| matches!(value, anamnesis::Value::F64(_)))
    );
}
