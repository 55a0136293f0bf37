//! The command as a library, in a process that is not `anamnesis`: statuses, interrupts, and handlers of signals that stay.

use anamnesis::CancelToken;
use anamnesis_cli::{Interrupt, VerbAnswer, answer, run_with};

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

fn answered(args: &[&str]) -> VerbAnswer {
    let interrupt = Interrupt::by_token(&CancelToken::new());
    let words = std::iter::once("anamnesis").chain(args.iter().copied());
    answer(words, &interrupt, |_| {})
}

#[test]
fn an_answer_is_what_the_program_writes() {
    let source = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    let arguments = ["fit", "--json", path_str(&source)];
    let found = answered(&arguments);
    assert_eq!((found.status, found.failures.len()), (0, 0));
    assert_eq!(
        String::from_utf8(found.output).unwrap(),
        stdout_of(&arguments)
    );
    let missing = answered(&["fit", "--json", "no such model"]);
    let [failure] = &missing.failures[..] else {
        panic!("{:?}", missing.failures)
    };
    assert_eq!((missing.status, failure.kind), (2, "io"));
    assert!(failure.message.contains("no such model"), "{failure:?}");
    let error = failure.error.as_ref().expect("an error of the library");
    assert!(
        matches!(error.kind(), anamnesis::ErrorKind::Io(e) if e.kind() == std::io::ErrorKind::NotFound)
    );
    let wrong = answered(&["fit", "--engine", "bogus"]);
    assert_eq!(
        (wrong.status, wrong.failures[0].kind),
        (2, "invalid_argument")
    );
    assert!(wrong.failures[0].error.is_none());
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
