//! Exit statuses and error messages; standard input and closed pipes; completions and manual pages.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::process::{command, finish, run, stdout_of, workspace};

const GGUF: &str = "fixtures/gguf/plain_v3.gguf";

#[test]
fn success_prints_nothing_to_standard_error() {
    assert!(stdout_of(&["inspect", GGUF]).contains("gguf version 3"));
}

#[test]
fn invalid_arguments_exit_with_status_2() {
    for args in [
        &["inspect"][..],
        &[],
        &["inspect", "--nope", GGUF],
        &["inspect", "--filter", "[", GGUF],
        &["inspect", "--format", "zip", GGUF],
        &["inspect", "--void-as", "F9", GGUF],
        &["inspect", "--all", GGUF],
    ] {
        let run = run(args);
        assert_eq!(run.code, 2, "{args:?}");
        assert_eq!(run.stdout, "", "{args:?}");
        assert!(
            run.stderr.contains("Usage") || run.stderr.contains("--help"),
            "{args:?}: {}",
            run.stderr
        );
    }
}

#[test]
fn messages_name_flags_instead_of_options_of_the_library() {
    let raw = stdout_of(&["inspect", "fixtures/npy/bf16.npy"]);
    let raw: Vec<&str> = raw.split_whitespace().collect();
    let raw = raw.join(" ");
    assert!(raw.contains("give BF16 to --void-as"), "{raw}");
    let directory = tempfile::tempdir().unwrap();
    let renamed = directory.path().join("renamed.gguf");
    let split = workspace().join("fixtures/gguf/split/m-00001-of-00003.gguf");
    std::fs::copy(split, &renamed).unwrap();
    let run = run(&["inspect", renamed.to_str().unwrap()]);
    assert_eq!(run.code, 1);
    let expected = "or open it alone with --single\n";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
}

#[test]
fn a_failure_prints_file_reason_and_remedy() {
    let run = run(&["inspect", "no/such/file.gguf"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(
        run.stderr.starts_with("anamnesis: no/such/file.gguf: "),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.ends_with("\n  help: check the path\n"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_refused_global_names_the_option_that_keeps_its_objects() {
    let path = "fixtures/pth/values/opaque.pth";
    let refused = run(&["inspect", path]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("`argparse.Namespace`"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("use --opaque"),
        "{}",
        refused.stderr
    );
    let json = stdout_of(&["inspect", "--json", "--opaque", path]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let json = &json["checkpoints"][0];
    let warnings = json["warnings"].to_string();
    assert!(
        warnings.contains("`pathlib.PurePosixPath`: 2"),
        "{warnings}"
    );
    assert_eq!(json["metadata"]["args"], "argparse.Namespace");
    // floats of an unknown class are as stored; the warning names it
    assert!(warnings.contains("`__main__.Labelled`"), "{warnings}");
    assert_eq!(json["tensors"][5]["name"], "labelled");
}

#[test]
fn inputs_after_a_failed_one_are_still_shown() {
    let run = run(&["inspect", "missing.npy", GGUF, "nothing*here"]);
    assert_eq!(run.code, 1);
    assert!(run.stdout.starts_with(GGUF), "{}", run.stdout);
    assert!(
        run.stderr.contains("missing.npy: ")
            && run.stderr.contains("nothing*here: no file matches")
    );
}

#[test]
fn files_of_another_kind_are_named_in_the_error() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes, expected) in [
        ("page.gguf", &b"<!DOCTYPE html><html>"[..], "HTML"),
        (
            "pointer.safetensors",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
            "git lfs pull",
        ),
        ("empty.npy", b"", "empty"),
        ("cut.gguf", b"GGUF\x03\0\0\0", "gguf: "),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let run = run(&["inspect", path.to_str().unwrap()]);
        assert_eq!(run.code, 1, "{name}");
        assert!(
            run.stderr.contains(expected) && run.stderr.contains(name),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn a_closed_pipe_exits_with_status_0() {
    for args in [
        &["inspect", GGUF][..],
        &["inspect", "--json", GGUF],
        &["--help"],
        &["man"],
        &["completions", "bash"],
    ] {
        let mut child = command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        assert_eq!(
            (child.wait().unwrap().code(), stderr.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_exits_with_status_1() {
    let mut command = command(&["inspect", GGUF]);
    command.stdout(
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap(),
    );
    let run = finish(command);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.starts_with("anamnesis: standard output: "),
        "{}",
        run.stderr
    );
}

#[test]
fn standard_input_from_a_file_and_from_a_pipe_print_the_same() {
    let mut from_file = command(&["inspect", "-"]);
    from_file.stdin(std::fs::File::open(crate::process::workspace().join(GGUF)).unwrap());
    let from_file = finish(from_file);
    assert_eq!(from_file.code, 0, "{}", from_file.stderr);
    assert!(from_file.stdout.starts_with("standard input\n"));

    let bytes = std::fs::read(crate::process::workspace().join(GGUF)).unwrap();
    let mut child = command(&["inspect", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), from_file.stdout);

    let empty = run(&["inspect", "-"]);
    assert_eq!(empty.code, 1);
    assert!(
        empty
            .stderr
            .starts_with("anamnesis: standard input: not a tensor file"),
        "{}",
        empty.stderr
    );
}

#[test]
fn version_prints_the_package_version_and_the_instruction_set() {
    let text = stdout_of(&["--version"]);
    assert!(
        text.starts_with(concat!("anamnesis ", env!("CARGO_PKG_VERSION"), " (")),
        "{text}"
    );
}

#[test]
fn completions_and_manual_pages_cover_every_subcommand() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(
            stdout_of(&["completions", shell]).contains("no-limits"),
            "{shell}"
        );
    }
    assert!(stdout_of(&["man"]).contains(".TH anamnesis-inspect 1"));
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    assert_eq!(stdout_of(&["man", "--out", pages.to_str().unwrap()]), "");
    let mut names: Vec<_> = std::fs::read_dir(pages)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    let verbs = [
        "check",
        "completions",
        "convert",
        "diff",
        "edit",
        "fit",
        "inspect",
        "load",
        "ls",
        "man",
        "plan",
        "remember",
        "report",
        "template",
    ];
    let of_template =
        ["coverage", "diff", "merge", "predict", "show"].map(|verb| format!("template-{verb}"));
    let verbs = verbs.map(str::to_owned).into_iter().chain(of_template);
    let linux = [
        "ppc",
        "ppc-reg",
        "ppc-rm",
        "ppc-run",
        "ppc-status",
        "record",
        "warm",
    ];
    let linux = linux.map(str::to_owned);
    let verbs = verbs.chain(linux.into_iter().filter(|_| cfg!(target_os = "linux")));
    let mut pages: Vec<_> = verbs
        .map(|verb| format!("anamnesis-{verb}.1"))
        .chain(["anamnesis.1".into()])
        .collect();
    pages.sort();
    assert!(
        names
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .eq(pages),
        "{names:?}"
    );
}
