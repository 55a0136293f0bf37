//! Opening, planning and checking say the same of a file.

use std::path::Path;

use anamnesis::{Checkpoint, ErrorKind, OpenOptions, remember};

use super::uploads::stored;
use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

#[test]
fn assumed_codes_are_listed() {
    let directory = ScratchDir::new("account-assumed");
    let path = stored(&[("a.weight", "BF16", &[64, 64]), ("x.codes", "U8", &[8, 8])])
        .write(&directory, "model.safetensors");
    let checkpoint = OpenOptions::new().assume_plain(true).open(&path).unwrap();
    let plan = remember(&checkpoint).plan().unwrap();
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    assert!(
        plan.notes.iter().any(|note| note.contains("`x.codes`")),
        "{:?}",
        plan.notes
    );
}

#[test]
fn a_check_fails_where_planning_does() {
    use anamnesis::check::{FindingLevel, check};
    let directory = ScratchDir::new("account-check");
    // AQLM, which is known and not supported
    let path = stored(&[
        ("a.weight", "BF16", &[64, 64]),
        ("q.codes", "I16", &[64, 8, 1]),
        ("q.codebooks", "F16", &[1, 256, 1, 8]),
        ("q.scales", "F16", &[64, 1, 1, 1]),
    ])
    .write(&directory, "model.safetensors");
    let checkpoint = Checkpoint::open(&path).unwrap();
    let plan = remember(&checkpoint).plan().unwrap();
    assert!(matches!(
        plan.refused[0].error.kind(),
        ErrorKind::Unsupported(_)
    ));
    let report = check(&checkpoint).run().unwrap();
    assert!(report.found(FindingLevel::Warning), "{:?}", report.findings);
}

#[test]
fn a_check_that_assumes_does_not_advise_to_assume() {
    let path = fixture("unexplained/v-offset/model.safetensors");
    let remedies = |assume: bool| {
        let options = OpenOptions::new().assume_plain(assume);
        let report = anamnesis::check::check_path(&path, &options).run().unwrap();
        let unexplained = report
            .findings
            .into_iter()
            .filter(|f| f.rule == "unexplained");
        unexplained
            .map(|finding| finding.remedy.is_some())
            .collect::<Vec<_>>()
    };
    assert!(remedies(false).contains(&true));
    let assumed = remedies(true);
    assert!(!assumed.is_empty() && !assumed.contains(&true));
}

#[test]
fn parts_that_are_opened_alone_say_so() {
    let directory = ScratchDir::new("account-parts");
    let open = |name: &str| {
        let path = stored(&[("w", "F32", &[2])]).write(&directory, name);
        let checkpoint = Checkpoint::open(&path).unwrap();
        let warnings = checkpoint.catalog().warnings().iter();
        let warnings: Vec<&str> = warnings.map(anamnesis::Note::text).collect();
        let report = anamnesis::check::check_path(&path, &OpenOptions::new());
        let report = report.run().unwrap();
        let findings = report.findings.iter();
        let repeated = findings.filter(|finding| finding.rule == "part-alone");
        let repeated: Vec<&str> = repeated.map(|finding| &*finding.message).collect();
        assert_eq!(repeated, warnings, "{name}");
        warnings.join("; ")
    };
    for (name, text) in [
        ("rank_0_of_2.safetensors", "rank 0 of 2"),
        ("model.rank1.safetensors", "rank 1"),
        ("model_00001_of_00003.safetensors", "file 1 of 3"),
    ] {
        assert!(open(name).contains(text), "{name}: {}", open(name));
    }
    for name in [
        "lora.rank16.safetensors",
        "rank_0_of_1.safetensors",
        "model_1_of_1.safetensors",
    ] {
        assert_eq!(open(name), "", "{name}");
    }
}

#[test]
fn models_of_several_folders_say_what_they_are() {
    for (list, text) in [
        ("model_index.json", "pipeline of diffusers"),
        ("modules.json", "sentence-transformers"),
    ] {
        let directory = ScratchDir::new("account-folders");
        let root = directory.path("");
        std::fs::write(directory.path(list), "{}").unwrap();
        let message = |path: &Path| Checkpoint::open(path).unwrap_err().to_string();
        assert!(message(&root).contains(text), "{}", message(&root));
    }
    let directory = ScratchDir::new("account-underscores");
    for number in 1..=2 {
        let name = format!("model_{number:05}_of_00002.safetensors");
        stored(&[("w", "F32", &[2])]).write(&directory, &name);
    }
    let error = Checkpoint::open(directory.path(""))
        .unwrap_err()
        .to_string();
    assert!(error.contains("2 files of one checkpoint"), "{error}");
}
