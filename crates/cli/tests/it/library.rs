//! The command as a library, in a process that is not `anamnesis`: statuses, interrupts, and handlers of signals that stay.

use anamnesis::CancelToken;
use anamnesis_cli::{Interrupt, run_with};

use crate::process::{path_str, stdout_of, workspace};

fn status(args: &[&str]) -> u8 {
    run_with(args, &Interrupt::by_token(&CancelToken::new()))
}

#[test]
fn statuses_are_those_of_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let source = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    let [by_library, by_program] =
        ["library.safetensors", "program.safetensors"].map(|n| dir.path().join(n));
    let remember = |out| ["remember", path_str(&source), "-o", path_str(out)];
    let words: Vec<&str> = std::iter::once("anamnesis")
        .chain(remember(&by_library))
        .collect();
    assert_eq!(status(&words), 0);
    stdout_of(&remember(&by_program));
    assert!(std::fs::read(&by_library).unwrap() == std::fs::read(&by_program).unwrap());
    // the file exists, and `--overwrite` is not given
    assert_eq!(status(&words), 1);
    assert_eq!(status(&["anamnesis", "remember"]), 2);
    assert_eq!(status(&["anamnesis", "--version"]), 0);
}

#[test]
fn a_cancelled_token_interrupts_every_run_that_has_it_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let source = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    let out = dir.path().join("out.safetensors");
    let token = CancelToken::new();
    token.cancel();
    let interrupt = Interrupt::by_token(&token);
    let source = path_str(&source);
    for words in [
        &["anamnesis", "remember", source, "-o", path_str(&out)][..],
        &["anamnesis", "load", source],
        &["anamnesis", "inspect", "--hash", source],
    ] {
        assert_eq!(run_with(words, &interrupt), 130, "{words:?}");
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "{words:?}"
        );
    }
    assert_eq!(
        status(&["anamnesis", "inspect", "--summary", "--hash", source]),
        0
    );
}

/// The handlers of the signals that the program handles, from the system's own record of this process.
#[cfg(target_os = "linux")]
#[test]
fn runs_install_no_handler_of_a_signal() {
    let caught = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let before = caught();
    let source = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    assert_eq!(status(&["anamnesis", "load", path_str(&source)]), 0);
    assert_eq!(
        status(&["anamnesis", "inspect", "--hash", path_str(&source)]),
        0
    );
    assert_eq!(caught(), before);
    let [interrupt, terminate] = [2, 15].map(|number| 1u64 << (number - 1));
    assert_eq!(before & (interrupt | terminate), 0);
}
