//! Templates predicted from headers, compared with recordings of what a load reads; and what cannot be predicted or recorded.

use std::fs::File;

use crate::support::scratch_dir::ScratchDir;
use crate::support::{fixture, fixtures, is_memory_limit};
use anamnesis::load::{PreadLoader, RecordingLoader};
use anamnesis::predict::ReadOrder;
use anamnesis::template::coverage;
use anamnesis::{Checkpoint, OpenOptions, load, predict};

/// The share of the recorded bytes that was predicted, the similarity of the order of reads, and the share of the predicted
/// bytes that was read.
fn compare_with_recording(checkpoint: &Checkpoint, order: ReadOrder) -> (f64, Option<f64>, f64) {
    let predict = predict(checkpoint).order(order);
    let recording = RecordingLoader::new(PreadLoader::new().threads(2));
    let load = load(checkpoint).loader(recording.clone()).threads(1);
    let load = match order {
        ReadOrder::Name => load.order(|a, b| a.name.cmp(&b.name)),
        _ => load,
    };
    load.run().unwrap();
    let (recorded, predicted) = (recording.template().unwrap(), predict.template().unwrap());
    let covered = coverage(&recorded, &predicted);
    (
        covered.share(),
        covered.order,
        coverage(&predicted, &recorded).share(),
    )
}

#[test]
fn predictions_equal_recordings_in_bytes_and_order() {
    for path in [
        "safetensors/sharded",
        "model/scribe.safetensors",
        "model/scribe-Q8_0.gguf",
        "npy/be_c16.npy",
    ] {
        let checkpoint = Checkpoint::open(fixture(path)).unwrap();
        assert_eq!(
            compare_with_recording(&checkpoint, ReadOrder::File),
            (1.0, Some(1.0), 1.0),
            "{path}"
        );
        assert_eq!(
            compare_with_recording(&checkpoint, ReadOrder::Name),
            (1.0, Some(1.0), 1.0),
            "{path}"
        );
    }
}

/// Every format, with archives, strides, deflated bytes, tied and sparse tensors.
#[test]
fn every_fixture_is_predicted_completely() {
    let mut compared = 0;
    for (path, _) in fixtures() {
        let Ok(checkpoint) = OpenOptions::new().single(true).open(&path) else {
            continue;
        };
        let template = predict(&checkpoint).tp(3).template().unwrap();
        assert_eq!(template.groups().len(), 3, "{}", path.display());
        let whole = predict(&checkpoint).template().unwrap();
        assert_eq!(
            coverage(&whole, &template).share(),
            1.0,
            "{}",
            path.display()
        );
        let recording = RecordingLoader::new(PreadLoader::new());
        if load(&checkpoint).loader(recording.clone()).run().is_err() {
            continue; // sparse tensors and tensors without data cannot be loaded
        }
        let recorded = recording.template().unwrap();
        let of_recorded = coverage(&recorded, &whole);
        let of_predicted = coverage(&whole, &recorded);
        assert_eq!(of_recorded.share(), 1.0, "{}", path.display());
        // the prediction has whole storages, as PyTorch reads them; a load reads the bytes of the tensors only
        let is_exact = checkpoint.catalog().format() != "pth";
        assert!(
            of_predicted.covered == of_predicted.nbytes || !is_exact,
            "{}: {of_predicted:?}",
            path.display()
        );
        compared += 1;
    }
    assert!(compared > 150, "{compared}");
}

#[test]
fn a_recording_without_a_load_has_no_template() {
    let recording = RecordingLoader::new(PreadLoader::new());
    assert!(
        recording
            .template()
            .unwrap_err()
            .to_string()
            .contains("nothing was recorded")
    );
}

#[test]
fn a_checkpoint_without_a_path_has_no_template() {
    let checkpoint =
        Checkpoint::from_bytes(std::fs::read(fixture("model/scribe.safetensors")).unwrap())
            .unwrap();
    let recording = RecordingLoader::new(PreadLoader::new());
    load(&checkpoint).loader(recording.clone()).run().unwrap();
    for error in [
        predict(&checkpoint).template().unwrap_err(),
        recording.template().unwrap_err(),
    ] {
        assert!(error.to_string().contains("open a path"), "{error}");
    }
}

#[test]
fn a_recording_is_of_one_checkpoint() {
    let open_fixture = |name: &str| Checkpoint::open(fixture(name)).unwrap();
    let (one, two) = (
        open_fixture("model/scribe.safetensors"),
        open_fixture("model/scribe-Q8_0.gguf"),
    );
    let recording = RecordingLoader::new(PreadLoader::new()).rank(3);
    load(&one).loader(recording.clone()).run().unwrap();
    assert_eq!(recording.template().unwrap().groups()[0].rank(), 3);
    load(&two).loader(recording.clone()).run().unwrap();
    assert!(
        recording
            .template()
            .unwrap_err()
            .to_string()
            .contains("more than one was loaded")
    );
}

#[test]
fn parallel_degrees_without_workers_or_with_too_many_are_refused() {
    let checkpoint = Checkpoint::open(fixture("model/scribe.safetensors")).unwrap();
    for ((tp, dp), message) in [
        ((0, 1), "tp is 0"),
        ((1 << 16, 2), "65536 workers"),
        ((4, u32::MAX), "65536 workers"),
    ] {
        let error = predict(&checkpoint).tp(tp).dp(dp).template().unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

/// Each access of a template is charged on the memory limit.
#[test]
fn a_template_over_the_memory_limit_is_refused() {
    let limits = anamnesis::Limits {
        memory: 1 << 20,
        ..anamnesis::Limits::default()
    };
    let bounded = OpenOptions::new()
        .limits(limits)
        .open(fixture("model/scribe.safetensors"))
        .unwrap();
    let error = predict(&bounded).tp(60_000).template().unwrap_err();
    assert!(is_memory_limit(&error), "{error}");
}

#[test]
fn a_file_that_changed_size_is_named() {
    let scratch = ScratchDir::new("predict-truncated");
    let path = scratch.path("in.safetensors");
    std::fs::copy(fixture("model/scribe.safetensors"), &path).unwrap();
    let checkpoint = OpenOptions::new().mmap(false).open(&path).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(5000)
        .unwrap();
    let error = predict(&checkpoint).template().unwrap_err();
    assert!(
        error.path() == Some(&*path) && error.to_string().contains("5000 bytes"),
        "{error}"
    );
}
