//! Mapped sources that another process truncates while the command reads them: a message and exit status 1, and nothing is
//! left of an output.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{assert_runs, command, path_str};
use crate::remember::{half_a_gigabyte, of_zeros, sorted_names, wait_for_output};

/// Starts the command, and truncates the source to a megabyte once `is_reading` returns.
fn truncate_while_reading(args: &[&str], source: &Path, is_reading: impl FnOnce(&Child)) -> Output {
    let mut child = command(args);
    child.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    is_reading(&child);
    // stopped meanwhile, so that it cannot end before the file is truncated
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let file = fs::File::options().write(true).open(source).unwrap();
    file.set_len(1 << 20).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    child.wait_with_output().unwrap()
}

/// Waits until a process has read 8 MiB, or touched as much of its maps.
fn wait_for_reads(child: &Child) {
    let field = |file: &str, name: &str, unit: u64| {
        let text = fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        value.unwrap_or(0) * unit
    };
    let begun = Instant::now();
    while field("io", "rchar:", 1) < 8 << 20 && field("status", "RssFile:", 1024) < 24 << 20 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is read");
        assert_runs(child, "it read 8 MiB");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a process has mapped the source.
fn wait_for_map(child: &Child, source: &Path) {
    let begun = Instant::now();
    let maps = format!("/proc/{}/maps", child.id());
    while !fs::read_to_string(&maps).is_ok_and(|maps| maps.contains(path_str(source))) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the source is not mapped"
        );
        assert_runs(child, "it mapped the source");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Checks the status and that the message is one, and returns it.
fn message(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), None, "{stderr}");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.matches("anamnesis: ").count(), 1, "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

/// A file of half a gigabyte with a weight that is decoded: stored tensors are copied without a map.
fn half_a_gigabyte_of_fp8(directory: &Path) -> std::path::PathBuf {
    let (scale, end) = (1u64 << 29, (1u64 << 29) + 4);
    let header = format!(
        "{{\"a.weight\":{{\"dtype\":\"F8_E4M3\",\"shape\":[16384,32768],\"data_offsets\":[0,{scale}]}},\
         \"a.weight_scale\":{{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[{scale},{end}]}}}}"
    );
    of_zeros(directory, &header, end)
}

#[test]
fn remember_reports_a_truncated_source_and_leaves_no_output() {
    let dir = tempfile::tempdir().unwrap();
    let source = half_a_gigabyte_of_fp8(dir.path());
    let out = dir.path().join("out.safetensors");
    let args = ["remember", path_str(&source), "-o", path_str(&out)];
    let output = truncate_while_reading(&args, &source, |child| wait_for_map(child, &source));
    let message = message(&output);
    let place = format!("anamnesis: {}: a page of the mapped file", source.display());
    assert!(
        message.starts_with(&place)
            && message.contains("(at byte ")
            && message.contains("--no-map"),
        "{message}"
    );
    assert_eq!(sorted_names(dir.path()), ["in.safetensors"]);
}

#[test]
fn without_maps_a_truncated_source_is_an_error_with_its_offset() {
    // a copy from file to file, and a weight that is read and decoded
    for options in [&["convert"][..], &["remember", "--no-map"]] {
        let dir = tempfile::tempdir().unwrap();
        let source = match options[0] {
            "convert" => half_a_gigabyte(dir.path()),
            _ => half_a_gigabyte_of_fp8(dir.path()),
        };
        let out = dir.path().join("out.safetensors");
        let args = [options, &[path_str(&source), "-o", path_str(&out)]].concat();
        let output = truncate_while_reading(&args, &source, |child| {
            wait_for_output(child, dir.path());
        });
        let message = message(&output);
        assert!(
            message.contains(path_str(&source)) && message.contains("end of file"),
            "{args:?}: {message}"
        );
        assert_eq!(sorted_names(dir.path()), ["in.safetensors"]);
    }
}

#[test]
fn hashes_of_a_truncated_source_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let source = half_a_gigabyte(dir.path());
    for args in [
        &["inspect", "--hash", path_str(&source)][..],
        &["inspect", "--hash", "--no-map", path_str(&source)],
    ] {
        half_a_gigabyte(dir.path());
        let output = truncate_while_reading(args, &source, wait_for_reads);
        let message = message(&output);
        assert!(message.contains(path_str(&source)), "{message}");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(
            stdout.split_whitespace().all(|word| word.len() != 64),
            "{stdout}"
        );
    }
}

#[test]
fn a_borrowing_load_of_a_truncated_source_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let source = half_a_gigabyte(dir.path());
    let args = ["load", "--loader", "mmap", path_str(&source)];
    let output = truncate_while_reading(&args, &source, wait_for_reads);
    let message = message(&output);
    assert!(message.contains(path_str(&source)), "{message}");
}

/// Any process may send the signal: it ends the command as it would without the handler.
#[test]
fn a_signal_from_another_process_ends_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let source = half_a_gigabyte(dir.path());
    let mut child = command(&["inspect", "--hash", path_str(&source)]);
    child.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    wait_for_reads(&child);
    kill_process(Pid::from_child(&child), Signal::BUS).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::BUS.as_raw()));
    assert!(output.stderr.is_empty(), "{output:?}");
}
