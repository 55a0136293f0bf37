//! The parts of a weight that is refused go together, or the run is refused: without one of them the rest would be decoded.

use std::fs;
use std::path::Path;

use crate::process::{Run, path_str, run, stored_tensors};

/// A tensor: name, dtype, shape, bytes.
type Stored<'t> = (&'t str, &'t str, &'t [u64], &'t [u8]);

const CODES: Stored<'_> = (
    "model.layers.0.mlp.up_proj.weight",
    "F8_E4M3",
    &[8, 8],
    &[0x38; 64],
);
const SCALE: Stored<'_> = (
    "model.layers.0.mlp.up_proj.weight_scale",
    "F32",
    &[1],
    &[0, 0, 128, 63],
);
/// A tensor that no scheme knows, in the module of the weight.
const INSIDE: Stored<'_> = (
    "model.layers.0.mlp.up_proj.mystery",
    "F32",
    &[2],
    &[0, 0, 128, 63, 0, 0, 0, 64],
);
/// One that is named after the module, and is in the module around it.
const BESIDE: Stored<'_> = (
    "model.layers.0.mlp.up_proj_lut",
    "F32",
    &[2],
    &[0, 0, 128, 63, 0, 0, 0, 64],
);
const OTHER: Stored<'_> = ("model.norm.weight", "BF16", &[4], &[0; 8]);

fn model(path: &Path, unknown: Stored<'_>) {
    stored_tensors(path, &[CODES, SCALE, unknown, OTHER]);
}

/// `convert` and `edit` with the same renames; the output of the first.
fn renamed(model: &Path, out: &Path, renames: &[&str]) -> [Run; 2] {
    let words: Vec<&str> = renames
        .iter()
        .flat_map(|rename| ["--rename", rename])
        .collect();
    let convert = [
        "convert",
        path_str(model),
        "-o",
        path_str(out),
        "--overwrite",
    ];
    let converted = run(&[&convert[..], &words].concat());
    let copy = model.with_file_name("copy.safetensors");
    fs::copy(model, &copy).unwrap();
    let edited = run(&[&["edit", path_str(&copy)][..], &words].concat());
    if edited.code != 0 {
        assert_eq!(fs::read(model).unwrap(), fs::read(&copy).unwrap());
    }
    [converted, edited]
}

#[test]
fn a_part_of_a_refused_weight_is_not_renamed_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let (path, out) = (
        scratch.path().join("m.safetensors"),
        scratch.path().join("out.safetensors"),
    );
    for unknown in [INSIDE, BESIDE] {
        model(&path, unknown);
        let plan = run(&["plan", path_str(&path)]);
        assert!(plan.stdout.contains(unknown.0), "{}", plan.stdout);
        let alone = format!("{}=elsewhere", unknown.0);
        let codes = format!("{}=elsewhere.weight", CODES.0);
        for rename in [&alone, &codes] {
            for run in renamed(&path, &out, &[rename]) {
                assert_eq!(run.code, 2, "{rename}: {}{}", run.stdout, run.stderr);
                assert!(run.stderr.contains("up_proj"), "{}", run.stderr);
                assert!(
                    run.stderr.contains("refused as it is stored"),
                    "{}",
                    run.stderr
                );
                assert!(run.stderr.contains("alike"), "{}", run.stderr);
            }
            assert!(!out.exists());
        }
        // all of them alike: it is refused as before
        for run in renamed(&path, &out, &["model.layers=net.layers"]) {
            assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        }
        for made in [&out, &path.with_file_name("copy.safetensors")] {
            let plan = run(&["plan", path_str(made)]);
            assert_eq!(plan.code, 1, "{}", plan.stdout);
            assert!(
                plan.stdout.contains("net.layers.0.mlp.up_proj"),
                "{}",
                plan.stdout
            );
        }
        fs::remove_file(&out).unwrap();
    }
}

#[test]
fn a_part_of_a_refused_weight_is_not_left_out_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let (path, out) = (
        scratch.path().join("m.safetensors"),
        scratch.path().join("out.safetensors"),
    );
    let convert = |more: &[&str]| {
        let words = [
            "convert",
            path_str(&path),
            "-o",
            path_str(&out),
            "--overwrite",
        ];
        run(&[&words[..], more].concat())
    };
    for unknown in [INSIDE, BESIDE] {
        model(&path, unknown);
        for pattern in [unknown.0, SCALE.0] {
            let run = convert(&["--exclude", pattern]);
            assert_eq!(run.code, 2, "{pattern}: {}", run.stdout);
            assert!(run.stderr.contains("up_proj"), "{}", run.stderr);
            assert!(!out.exists());
        }
        // whole, without the weight, or the weight alone with what is in its module
        for more in [
            &[][..],
            &["--exclude", "*up_proj*"],
            &["--filter", "*up_proj*"],
        ] {
            let run = convert(more);
            assert_eq!(run.code, 0, "{more:?}: {}", run.stderr);
            let made = run_plan(&out);
            assert_eq!(made, more.first() == Some(&"--exclude"), "{more:?}");
            fs::remove_file(&out).unwrap();
        }
        let run = convert(&["--tp", "2", "--rank", "0"]);
        assert_eq!(run.code, 1, "{}", run.stdout);
        assert!(run.stderr.contains("up_proj"), "{}", run.stderr);
        assert!(run.stderr.contains("cannot be divided"), "{}", run.stderr);
        let run = convert(&["--tp", "2", "--rank", "0", "--exclude", "*up_proj*"]);
        // nothing else is divided
        assert!(
            run.stderr.contains("no tensor is divided"),
            "{}",
            run.stderr
        );
    }
}

/// Whether all weights of a model can be made.
fn run_plan(model: &Path) -> bool {
    run(&["plan", path_str(model)]).code == 0
}

/// Integers without anything beside them may be data, and are copied as the caller likes.
#[test]
fn data_are_renamed_and_left_out() {
    let scratch = tempfile::tempdir().unwrap();
    let (path, out) = (
        scratch.path().join("m.safetensors"),
        scratch.path().join("out.safetensors"),
    );
    let table = [7u8; 16384];
    stored_tensors(
        &path,
        &[
            ("train.table", "I32", &[64, 64], &table),
            ("validation.table", "I32", &[64, 64], &table),
            ("mean", "F32", &[2], &[0; 8]),
        ],
    );
    assert!(!run_plan(&path));
    for run in renamed(&path, &out, &["train.table=position_ids"]) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let words = [
        "convert",
        path_str(&path),
        "-o",
        path_str(&out),
        "--overwrite",
    ];
    for more in ["mean", "train.table"] {
        let run = run(&[&words[..], &["--exclude", more]].concat());
        assert_eq!(run.code, 0, "{more}: {}", run.stderr);
    }
}
