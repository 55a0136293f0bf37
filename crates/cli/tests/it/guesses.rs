//! Guesses of the command are opened as guesses: an argument of a COMMAND that is a stream is left to the program, and a
//! stream that a directory holds is never waited for.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::process::{command, finish, path_str, safetensors, workspace};

fn make_fifo(path: &Path) {
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn a_stream_is_left_to_the_command() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir(path("m")).unwrap();
    safetensors(&path("m/model.safetensors"), "", &[("w", &[4096])]);
    let bytes = fs::read(path("m/model.safetensors")).unwrap();
    make_fifo(&path("fifo"));
    let (fifo, sent) = (path("fifo"), bytes.clone());
    // waits until it is read, as the other end of `<(…)` does
    let writer = std::thread::spawn(move || fs::write(fifo, sent).is_ok());
    let (template, copy) = (path("t.iot"), path("copy"));
    let script = "cat \"$0\" > \"$2\"; cat \"$1\" > /dev/null";
    let mut record = command(&[
        "record",
        "-o",
        path_str(&template),
        "--",
        "sh",
        "-c",
        script,
    ]);
    record.args([path("fifo"), path("m/model.safetensors"), copy.clone()]);
    let done = finish(record);
    if done.code == 0 {
        assert_eq!(fs::read(&copy).unwrap(), bytes);
    } else {
        assert!(!copy.exists(), "{}", done.stderr);
        eprintln!("SKIPPED: {}", done.stderr);
    }
    // lets the writer end where the pipe was not read
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    drop(rustix::fs::open(path("fifo"), flags, Mode::empty()));
    writer.join().unwrap();
}

/// Each verb that opens a directory, for each name by which a FIFO may be taken for a part of a model: alone, and beside
/// models of other formats, so that it is opened as the model, as one of several and as a file next to one.
#[test]
fn a_fifo_of_a_directory_is_not_waited_for() {
    let names = [
        "x.gguf",
        "m-00001-of-00002.gguf",
        "x.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
        "x.npz",
        "x.npy",
        "config.json",
        "SHA256SUMS",
    ];
    let beside = [
        None,
        Some(("a.gguf", "fixtures/ask/check/stats-q8_0.gguf")),
        Some(("a.safetensors", "fixtures/ask/check/clean.safetensors")),
    ];
    let mut waiting = Vec::new();
    for name in names {
        for model in beside {
            let scratch = tempfile::tempdir().unwrap();
            let directory = scratch.path().join("m");
            fs::create_dir(&directory).unwrap();
            make_fifo(&directory.join(name));
            if let Some((to, from)) = model {
                fs::copy(workspace().join(from), directory.join(to)).unwrap();
            }
            let directory = path_str(&directory);
            for args in [
                &["check", directory][..],
                &["check", "--headers", directory],
                &["inspect", directory],
                &["plan", directory],
                &["ls", directory],
                &["fit", directory],
                &["diff", directory, directory],
                &["inspect", "--hash", directory],
            ] {
                let mut run = command(args);
                run.stdout(Stdio::null()).stderr(Stdio::null());
                let mut child = run.spawn().unwrap();
                let end = Instant::now() + Duration::from_secs(20);
                let ended = loop {
                    match child.try_wait().unwrap() {
                        Some(status) => break Some(status),
                        None if Instant::now() > end => break None,
                        None => std::thread::sleep(Duration::from_millis(5)),
                    }
                };
                if ended.is_none() {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    waiting.push(format!("{} with {name} beside {model:?}", args[0]));
                }
            }
        }
    }
    assert!(waiting.is_empty(), "{waiting:#?}");
}

#[test]
fn a_fifo_among_several_models_is_unreadable() {
    let scratch = tempfile::tempdir().unwrap();
    let gguf = workspace().join("fixtures/ask/check/stats-q8_0.gguf");
    fs::copy(gguf, scratch.path().join("a.gguf")).unwrap();
    make_fifo(&scratch.path().join("m-00001-of-00002.gguf"));
    let done = finish(command(&["check", path_str(scratch.path())]));
    assert_eq!(done.code, 2, "{}", done.stdout);
    let text: Vec<&str> = done.stdout.split_whitespace().collect();
    let text = text.join(" ");
    assert!(text.contains("unreadable m-00001-of-00002.gguf:"), "{text}");
}
