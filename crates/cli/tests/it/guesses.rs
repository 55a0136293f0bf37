//! Guesses of the command are opened as guesses: an argument of a COMMAND that is a stream is left to the program.

use std::fs;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::process::{command, finish, path_str, safetensors};

#[test]
fn a_stream_is_left_to_the_command() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir(path("m")).unwrap();
    safetensors(&path("m/model.safetensors"), "", &[("w", &[4096])]);
    let bytes = fs::read(path("m/model.safetensors")).unwrap();
    mknodat(
        CWD,
        path("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
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
