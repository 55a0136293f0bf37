//! Damaged templates: each is refused with an error, or followed like any other; the command ends by itself. The library is
//! tested with each byte and bit (`crates/template/tests/it/damaged_files.rs`, `crates/pagecache/maio/tests/it/damaged_templates.rs`).

use std::fs;

use super::model::RandomModel;
use crate::process::{path_str, run};

/// Each is one process: as many as a few seconds allow.
const CASES: usize = 24;

#[test]
fn damaged_templates_end_in_a_message_or_are_followed() {
    let Some(model) = RandomModel::new(1) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let template = model.template(scratch.path());
    let bytes = fs::read(&template).unwrap();
    let damaged = scratch.path().join("damaged.iot");
    let script = RandomModel::script(&model.root);
    let policy = format!("maio:{}", damaged.display());
    let load = |what: &str| {
        let args = ["ppc", "run", "--quiet", "--dir", path_str(&model.root)];
        let done = run(&[&args[..], &["--policy", &policy, "--", "sh", "-c", &script]].concat());
        assert_eq!(done.code, 0, "{what}: {}", done.stderr);
        assert_eq!(done.stdout, model.expected, "{what}");
        assert!(!done.stderr.contains("panicked"), "{what}: {}", done.stderr);
        done.stderr
    };
    fs::copy(&template, &damaged).unwrap();
    assert_eq!(load("whole"), "");
    let step = bytes.len().div_ceil(CASES / 2).max(1);
    let mut refused = 0;
    for at in (0..bytes.len()).step_by(step) {
        fs::write(&damaged, &bytes[..at]).unwrap();
        let printed = load(&format!("cut at {at}"));
        assert!(printed.contains("damaged.iot"), "cut at {at}: {printed}");
        let shown = run(&["template", "show", path_str(&damaged)]);
        assert_eq!(shown.code, 1, "cut at {at}: {}", shown.stdout);
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&damaged, &flipped).unwrap();
        let printed = load(&format!("a bit of byte {at}"));
        assert!(printed.contains("damaged.iot"), "byte {at}: {printed}");
        refused += 2;
    }
    println!("{refused} damaged templates of {} bytes", bytes.len());
}
