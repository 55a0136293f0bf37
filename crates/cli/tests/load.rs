//! `anamnesis load`, as a user runs it.

mod common;

use std::fs;

use common::{ok, run, safetensors};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).unwrap()
}

#[test]
fn every_loader_loads_all_of_it() {
    for loader in ["auto", "mmap", "pread", "uring", "direct"] {
        let args = [
            "load",
            "fixtures/model/scribe-Q8_0.gguf",
            "--json",
            "--loader",
            loader,
            "--repeat",
            "2",
        ];
        let document = json(&args);
        assert_eq!(
            (&document["version"], &document["tensors"]),
            (&1.into(), &20.into()),
            "{document}"
        );
        assert!(
            document["nbytes"].as_u64() > Some(100_000) && document["why"].is_string(),
            "{document}"
        );
        let rounds = document["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 2);
        for round in rounds {
            assert!(
                round["seconds"].as_f64() > Some(0.0)
                    && round["bytes_per_second"].as_u64() > Some(0),
                "{round}"
            );
        }
    }
}

#[test]
fn a_table_says_which_loader_and_what_it_took() {
    let shown = ok(&["load", "fixtures/npz/all_le_compressed.npz"]);
    assert!(
        shown.contains("loader  ") && shown.contains("seconds") && shown.contains("minor faults"),
        "{shown}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn cold_means_from_the_device() {
    let dir = tempfile::tempdir_in(common::workspace().join("target")).unwrap();
    let path = dir.path().join("in.safetensors");
    safetensors(&path, "", &[("a", &[4 << 20]), ("b", &[3, 1000])]);
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let path = path.to_str().unwrap();
    let document = json(&["load", path, "--json", "--cold", "--loader", "pread"]);
    let round = &document["rounds"][0];
    let Some(share) = round["resident_share_before"].as_f64() else {
        return;
    };
    // a file system in memory has no device behind it
    if document["device"].is_object() {
        assert!(
            share < 0.1 && round["device_bytes"].as_u64() > Some(16 << 20),
            "{document}"
        );
    }
    let filtered = json(&["load", path, "--json", "--filter", "b"]);
    assert_eq!(
        (&filtered["tensors"], &filtered["nbytes"]),
        (&1.into(), &12_000.into())
    );
}

#[test]
fn what_cannot_be_loaded_is_said() {
    let missing = run(&["load", "missing.gguf"]);
    assert!(
        missing.code == 1 && missing.stderr.contains("check the path"),
        "{}",
        missing.stderr
    );
    let none = run(&[
        "load",
        "fixtures/model/scribe-Q8_0.gguf",
        "--filter",
        "nothing",
        "--json",
    ]);
    let document: Value = serde_json::from_str(&none.stdout).unwrap();
    assert!(
        none.code == 1 && document["error"]["kind"] == "no_match",
        "{document}"
    );
    assert_eq!(run(&["load", "x", "--loader", "ftp"]).code, 2);
}

/// Two gibibytes of zeros, one tensor: whoever waits for its end would have read all of it.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_it_inside_a_tensor() {
    use anamnesis::Checkpoint;
    use anamnesis::load::{Facts, Kind};
    use std::path::Path;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    let dir = tempfile::tempdir_in(common::workspace().join("target")).unwrap();
    // interrupts a load that is under way, and says how much had been read when it was and in the end; `None` if that was
    // too late to tell, as it may be on a busy machine
    let interrupted = |loader: &str, path: &Path, cached: &dyn Fn() -> f64| {
        let args = ["load", path.to_str().unwrap(), "--loader", loader];
        let child = common::command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while cached() < 0.02 && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = cached();
        // whoever has ended and is not waited for takes a signal
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::INT,
        )
        .unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(0) || before > 0.4 {
            return None;
        }
        assert_eq!(output.status.code(), Some(130), "{loader}: {said}");
        assert!(said.contains("cancelled"), "{loader}: {said}");
        Some((before, cached()))
    };
    for loader in ["pread", "uring", "mmap"] {
        let shares = (0..10).find_map(|round| {
            let path = dir.path().join(format!("{loader}-{round}.safetensors"));
            let nbytes = 1u64 << 31;
            let header = format!(
                r#"{{"a":{{"dtype":"U8","shape":[{nbytes}],"data_offsets":[0,{nbytes}]}}}}"#
            );
            let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
            fs::write(&path, &bytes).unwrap();
            fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(bytes.len() as u64 + nbytes)
                .unwrap();
            let checkpoint = Checkpoint::open(&path).unwrap();
            let facts = Facts::of(&checkpoint);
            if facts.resident.is_none() || matches!(facts.kind, Kind::Memory(_)) {
                eprintln!(
                    "SKIPPED: an interrupted load: what is read of a file in memory is not seen"
                );
                return Some((0.0, 0.0));
            }
            let cached = || Facts::of(&checkpoint).resident.unwrap();
            let shares = interrupted(loader, &path, &cached);
            fs::remove_file(path).unwrap();
            shares
        });
        let (before, after) =
            shares.expect("ten loads of 2 GiB were over before they were interrupted");
        assert!(
            after - before < 0.5,
            "{loader}: interrupted at {before}, {after} of it was read"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_was_not_done_as_asked_is_said() {
    let shm = std::path::Path::new("/dev/shm");
    if !shm.is_dir() {
        return eprintln!("SKIPPED: direct reads of a file in memory: no tmpfs at /dev/shm");
    }
    let dir = tempfile::tempdir_in(shm).unwrap();
    let path = dir.path().join("in.safetensors");
    safetensors(&path, "", &[("a", &[1 << 20])]);
    let path = path.to_str().unwrap();
    let way = &json(&["load", path, "--json", "--loader", "direct"])["rounds"][0]["way"];
    assert!(
        way["direct"] == "no" && way["instead"].as_str().unwrap().contains("tmpfs"),
        "{way}"
    );
    let shown = ok(&["load", path, "--loader", "direct"]);
    assert!(
        shown.contains("\n  instead ") && shown.contains("through the page cache"),
        "{shown}"
    );
    let plain = json(&["load", path, "--json", "--loader", "pread"]);
    let way = &plain["rounds"][0]["way"];
    assert!(
        way["by"] == "threads" && way["direct"] == "no" && way["instead"].is_null(),
        "{way}"
    );
    assert!(!ok(&["load", path, "--loader", "pread"]).contains("instead"));
}

/// The device's rate is of reads past the page cache, or it says that it is not.
#[cfg(target_os = "linux")]
#[test]
fn the_device_says_how_it_was_read() {
    let dir = tempfile::tempdir_in(common::workspace().join("target")).unwrap();
    let path = dir.path().join("in.safetensors");
    safetensors(&path, "", &[("a", &[1 << 20])]);
    let document = json(&["load", path.to_str().unwrap(), "--json"]);
    if document["device"].is_null() {
        return eprintln!("SKIPPED: the device: files here are on none");
    }
    let way = &document["device"]["way"];
    assert_eq!(way["by"], "threads", "{document}");
    assert_eq!(
        way["direct"] == "all",
        way["instead"].is_null(),
        "{document}"
    );
    let shown = ok(&["load", path.to_str().unwrap()]);
    assert_eq!(
        shown.contains("/s on these files, past the page cache\n"),
        way["direct"] == "all",
        "{shown}"
    );
}
