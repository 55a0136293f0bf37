//! `anamnesis load`: every loader, its report as a table and as JSON, cold loads, interrupts.

use std::fs;

use serde_json::Value;

use crate::process::{json_of, run, safetensors, stdout_of};

#[test]
fn every_loader_loads_all_tensors() {
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
        let document = json_of(&args);
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
fn the_table_shows_loader_time_and_page_faults() {
    let shown = stdout_of(&["load", "fixtures/npz/all_le_compressed.npz"]);
    assert!(
        shown.contains("loader  ") && shown.contains("seconds") && shown.contains("minor faults"),
        "{shown}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_cold_load_reads_from_the_device() {
    let dir = tempfile::tempdir_in(crate::process::workspace().join("target")).unwrap();
    let path = dir.path().join("in.safetensors");
    safetensors(&path, "", &[("a", &[4 << 20]), ("b", &[3, 1000])]);
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let path = path.to_str().unwrap();
    let document = json_of(&["load", path, "--json", "--cold", "--loader", "pread"]);
    let round = &document["rounds"][0];
    let Some(share) = round["resident_share_before"].as_f64() else {
        return;
    };
    // files in memory (tmpfs) have no device
    if document["device"].is_object() {
        assert!(
            share < 0.1 && round["device_bytes"].as_u64() > Some(16 << 20),
            "{document}"
        );
    }
    let filtered = json_of(&["load", path, "--json", "--filter", "b"]);
    assert_eq!(
        (&filtered["tensors"], &filtered["nbytes"]),
        (&1.into(), &12_000.into())
    );
}

#[test]
fn failures_have_a_remedy_and_a_kind() {
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
        none.code == 2 && document["error"]["kind"] == "no_match",
        "{document}"
    );
    assert_eq!(run(&["load", "x", "--loader", "ftp"]).code, 2);
}

/// One tensor of two gibibytes of zeros: a load that ends only after the tensor would have read all of it.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_stops_a_load_within_a_tensor() {
    use anamnesis::Checkpoint;
    use anamnesis::load::{StorageInfo, StorageKind};
    use std::path::Path;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    let dir = tempfile::tempdir_in(crate::process::workspace().join("target")).unwrap();
    // interrupts a running load and returns the cached share of the file at the interrupt and at the end; `None` if the
    // interrupt came too late to measure, which happens on a busy machine
    let interrupt_running_load = |loader: &str, path: &Path, cached: &dyn Fn() -> f64| {
        let args = ["load", path.to_str().unwrap(), "--loader", loader];
        let child = crate::process::command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while cached() < 0.02 && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = cached();
        // a process that has ended but is not reaped still accepts a signal
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::INT,
        )
        .unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(0) || before > 0.4 {
            return None;
        }
        assert_eq!(output.status.code(), Some(130), "{loader}: {stderr}");
        assert!(stderr.contains("cancelled"), "{loader}: {stderr}");
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
            let storage = StorageInfo::of(&checkpoint);
            if storage.resident.is_none() || matches!(storage.kind, StorageKind::Memory(_)) {
                eprintln!(
                    "SKIPPED: the interrupted load: the cached share of a file in memory does not change"
                );
                return Some((0.0, 0.0));
            }
            let cached = || StorageInfo::of(&checkpoint).resident.unwrap();
            let shares = interrupt_running_load(loader, &path, &cached);
            fs::remove_file(path).unwrap();
            shares
        });
        let (before, after) =
            shares.expect("ten loads of 2 GiB ended before they were interrupted");
        assert!(
            after - before < 0.5,
            "{loader}: {before} was read at the interrupt, {after} at the end"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_fallback_is_reported_with_its_reason() {
    let shm = std::path::Path::new("/dev/shm");
    if !shm.is_dir() {
        return eprintln!("SKIPPED: direct reads of a file in memory: /dev/shm does not exist");
    }
    let dir = tempfile::tempdir_in(shm).unwrap();
    let path = dir.path().join("in.safetensors");
    safetensors(&path, "", &[("a", &[1 << 20])]);
    let path = path.to_str().unwrap();
    let io = &json_of(&["load", path, "--json", "--loader", "direct"])["rounds"][0]["io"];
    assert!(
        io["direct"] == "no" && io["fallback"].as_str().unwrap().contains("tmpfs"),
        "{io}"
    );
    let shown = stdout_of(&["load", path, "--loader", "direct"]);
    assert!(
        shown.contains("\n  fallback  ") && shown.contains("through the page cache"),
        "{shown}"
    );
    let plain = json_of(&["load", path, "--json", "--loader", "pread"]);
    let io = &plain["rounds"][0]["io"];
    assert!(
        io["backend"] == "threads" && io["direct"] == "no" && io["fallback"].is_null(),
        "{io}"
    );
    assert!(!stdout_of(&["load", path, "--loader", "pread"]).contains("fallback"));
}

/// The device's rate is measured with direct I/O, or the report says why not.
#[cfg(target_os = "linux")]
#[test]
fn the_device_rate_is_reported_with_its_io() {
    let dir = tempfile::tempdir_in(crate::process::workspace().join("target")).unwrap();
    let path = dir.path().join("in.safetensors");
    safetensors(&path, "", &[("a", &[1 << 20])]);
    let document = json_of(&["load", path.to_str().unwrap(), "--json"]);
    if document["device"].is_null() {
        return eprintln!(
            "SKIPPED: the device rate: the target directory is not on a local device"
        );
    }
    let io = &document["device"]["io"];
    assert_eq!(io["backend"], "threads", "{document}");
    assert_eq!(
        io["direct"] == "all",
        io["fallback"].is_null(),
        "{document}"
    );
    let shown = stdout_of(&["load", path.to_str().unwrap()]);
    assert_eq!(
        shown.contains("/s for these files, direct I/O\n"),
        io["direct"] == "all",
        "{shown}"
    );
}
