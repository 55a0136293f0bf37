//! `anamnesis ppc` and `anamnesis record`: policies prefetch, logs replay, recordings cover what was read. Most tests need
//! CAP_PERFMON and a file system on a device, and are skipped with a message elsewhere.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::process::{command, finish, path_str, run, stdout_of};
use crate::runtime_process::{RuntimeProcess, evict, uncached_model};

#[test]
fn run_exits_with_the_status_of_the_command() {
    let Some(dir) = uncached_model() else { return };
    let dir = path_str(dir.path());
    let done = run(&[
        "ppc",
        "run",
        "--dir",
        dir,
        "--",
        "sh",
        "-c",
        "echo out; exit 7",
    ]);
    assert_eq!((done.code, &*done.stdout), (7, "out\n"), "{}", done.stderr);
    assert!(
        done.stderr.contains("events from misses") && done.stderr.contains("0 events lost"),
        "{}",
        done.stderr
    );
    let signalled = run(&[
        "ppc",
        "run",
        "--quiet",
        "--dir",
        dir,
        "--",
        "sh",
        "-c",
        "kill -9 $$",
    ]);
    assert_eq!((signalled.code, &*signalled.stderr), (137, ""));
    let missing = run(&[
        "ppc",
        "run",
        "--quiet",
        "--dir",
        dir,
        "--",
        "/no/such/program",
    ]);
    assert!(
        missing.code == 1 && missing.stderr.contains("after `--`"),
        "{}",
        missing.stderr
    );
}

#[test]
fn invalid_arguments_are_named_in_the_error() {
    for (args, what) in [
        (&["--dir", "/no/such"][..], "/no/such"),
        (
            &["--dir", "fixtures", "--policy", "clever"],
            "unknown policy \"clever\"",
        ),
        (
            &["--dir", "fixtures", "--policy", "maio:/no/such.iot"],
            "/no/such.iot",
        ),
        (&["--dir", "fixtures", "--policy", "./no.so"], "no.so"),
        (&["--dir", "fixtures", "--source", "rumours"], "rumours"),
    ] {
        let failed = run(&[&["ppc", "run", "--require"], args, &["--", "true"]].concat());
        assert!(
            failed.code == 1 && failed.stderr.contains(what),
            "{args:?}: {}",
            failed.stderr
        );
    }
    assert_eq!(
        run(&["ppc", "run", "--require", "--dir", "fixtures"]).code,
        2
    );
    assert_eq!(
        run(&["ppc", "run", "--dir", "fixtures", "--threshold", "101"]).code,
        2
    );
    let absent = run(&["ppc", "status", "1"]);
    assert!(
        absent.code == 1 && absent.stderr.contains("no runtime responds in process 1"),
        "{}",
        absent.stderr
    );
}

#[test]
fn maio_prefetches_the_template_after_the_first_miss() {
    check_policy_prefetches_template("maio");
}

#[test]
fn a_policy_in_a_shared_library_prefetches_the_template() {
    let built = Path::new(env!("CARGO_BIN_EXE_anamnesis")).parent().unwrap();
    let name = "libanamnesis_maio.so";
    match [built.join(name), built.join("deps").join(name)]
        .into_iter()
        .find(|path| path.exists())
    {
        Some(library) => check_policy_prefetches_template(path_str(&library)),
        None => eprintln!("SKIPPED: {name} is not built"),
    }
}

/// Checks that the policy of this name prefetches a template's bytes after the first miss.
fn check_policy_prefetches_template(name: &str) {
    let Some(dir) = uncached_model() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let template = scratch.path().join("t.iot");
    stdout_of(&[
        "template",
        "predict",
        path_str(dir.path()),
        "-o",
        path_str(&template),
    ]);
    evict(dir.path());
    let policy = format!("{name}:{},start=no", template.display());
    let runtime = RuntimeProcess::start(&["--dir", path_str(dir.path()), "--policy", &policy]);
    let mut read = std::process::Command::new("dd");
    read.arg(format!(
        "if={}",
        dir.path().join("model.safetensors").display()
    ));
    assert_eq!(
        exit_status(read.args(["of=/dev/null", "bs=4k", "count=1", "status=none"])),
        0
    );
    let prefetched = |status: &Value| {
        status["prefetch"]["bytes_read"].as_u64().unwrap()
            + status["prefetch"]["bytes_skipped"].as_u64().unwrap()
    };
    let status = runtime.wait_for("8 MiB prefetched", |status| prefetched(status) >= 8 << 20);
    assert_eq!(status["policies"][0]["name"], name);
    let shown = stdout_of(&["ppc", "status", &runtime.0.id().to_string()]);
    assert!(
        shown.contains("misses") && shown.contains("registered"),
        "{shown}"
    );
    let scraped = stdout_of(&["ppc", "status", "--prometheus", &runtime.0.id().to_string()]);
    let labels = format!(
        "pid=\"{}\",directory=\"{}\",policy=\"{name}\"",
        runtime.0.id(),
        fs::canonicalize(dir.path()).unwrap().display()
    );
    let registered = format!("anamnesis_ppc_policy_registered{{{labels}}} 1\n");
    assert!(scraped.contains(&registered), "{scraped}");
}

fn exit_status(command: &mut std::process::Command) -> i32 {
    command.status().unwrap().code().unwrap()
}

/// A log that is not whole is a failure of the run, also where the command succeeded; the status of one that failed is
/// passed on.
#[test]
fn a_log_on_a_full_disk_is_a_failure() {
    let Some(dir) = uncached_model() else { return };
    let scratch = tempfile::tempdir().unwrap();
    for (number, status) in [(0, 1), (7, 7)] {
        let log = scratch.path().join(format!("events-{number}.log"));
        // a limit of the size of files, which fails writes as a full disk does
        let script = "ulimit -f 0; exec \"$0\" \"$@\"";
        let mut limited = std::process::Command::new("bash");
        limited.args(["-c", script, env!("CARGO_BIN_EXE_anamnesis")]);
        limited.args(["ppc", "run", "--dir", path_str(dir.path()), "--event-log"]);
        limited.arg(&log).args(["--", "sh", "-c"]);
        limited.arg(format!("exit {number}"));
        let done = crate::process::finish(limited);
        assert_eq!(done.code, status, "{}", done.stderr);
        assert!(done.stderr.contains("events-"), "{}", done.stderr);
    }
}

#[test]
fn a_logged_run_replays_with_the_same_misses() {
    let Some(dir) = uncached_model() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("events.log");
    let model = dir.path().join("model.safetensors");
    let read = format!(
        "dd 'if={}' of=/dev/null bs=4k count=1 status=none",
        model.display()
    );
    let logged = run(&[
        "ppc",
        "run",
        "--dir",
        path_str(dir.path()),
        "--event-log",
        path_str(&log),
        "--",
        "sh",
        "-c",
        &read,
    ]);
    assert!(
        logged.code == 0 && logged.stderr.contains("1 miss of"),
        "{}",
        logged.stderr
    );
    let source = format!("replay:{}", log.display());
    let again = run(&[
        "ppc",
        "run",
        "--dir",
        path_str(dir.path()),
        "--source",
        &source,
    ]);
    assert!(
        again.code == 0 && again.stderr.contains("1 miss of"),
        "{}",
        again.stderr
    );
}

#[test]
fn sigterm_ends_a_runtime_and_sigkill_leaves_no_socket() {
    let Some(dir) = uncached_model() else { return };
    let mut terminated =
        RuntimeProcess::start(&["--dir", path_str(dir.path()), "--policy", "eager"]);
    terminated.signal(rustix::process::Signal::TERM);
    assert_eq!(terminated.0.wait().unwrap().code(), Some(0));
    let mut killed = RuntimeProcess::start(&["--dir", path_str(dir.path()), "--policy", "eager"]);
    killed.signal(rustix::process::Signal::KILL);
    killed.0.wait().unwrap();
    let document: Value = serde_json::from_str(&stdout_of(&["ppc", "status", "--json"])).unwrap();
    let pids: Vec<_> = document["runtimes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|status| status["pid"].as_u64())
        .collect();
    assert!(!pids.contains(&Some(killed.0.id().into())), "{document}");
    // the status socket of the killed runtime does not prevent another one
    drop(RuntimeProcess::start(&[
        "--dir",
        path_str(dir.path()),
        "--policy",
        "eager",
    ]));
}

#[test]
fn a_recording_covers_the_prediction_and_no_other_processes() {
    let Some(dir) = uncached_model() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let (recorded, predicted) = (
        scratch.path().join("recorded.iot"),
        scratch.path().join("predicted.iot"),
    );
    let model = dir.path().join("model.safetensors");
    for loader in ["pread", "mmap"] {
        evict(dir.path());
        let mut record = command(&[
            "record",
            "--json",
            "--overwrite",
            "-o",
            path_str(&recorded),
            "--dir",
            path_str(dir.path()),
        ]);
        record.args([
            "--",
            env!("CARGO_BIN_EXE_anamnesis"),
            "load",
            path_str(&model),
            "--loader",
            loader,
            "--json",
        ]);
        let done = finish(record);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let document: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(document["template"]["files"], 1, "{document}");
        stdout_of(&[
            "template",
            "predict",
            path_str(dir.path()),
            "-o",
            path_str(&predicted),
            "--overwrite",
        ]);
        let covered = stdout_of(&[
            "template",
            "coverage",
            path_str(&recorded),
            path_str(&predicted),
            "--json",
        ]);
        let covered: Value = serde_json::from_str(&covered).unwrap();
        assert!(
            covered["share"].as_f64().unwrap() >= 0.99,
            "{loader}: {covered}"
        );
    }
    // reads by processes outside the command are not recorded
    let unread = run(&[
        "record",
        "--overwrite",
        "-o",
        path_str(&recorded),
        "--dir",
        path_str(dir.path()),
        "--",
        "true",
    ]);
    assert!(
        unread.code == 1
            && unread
                .stderr
                .contains("no reads of the model were observed"),
        "{}",
        unread.stderr
    );
}

#[test]
fn files_on_tmpfs_are_reported_as_without_events() {
    const TMPFS: i64 = 0x0102_1994;
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("SKIPPED: files without events: /dev/shm does not exist");
    };
    if rustix::fs::statfs(dir.path()).unwrap().f_type != TMPFS {
        return eprintln!("SKIPPED: files without events: /dev/shm is not a tmpfs");
    }
    fs::write(dir.path().join("model"), [0; 5000]).unwrap();
    let done = run(&[
        "ppc",
        "run",
        "--source",
        "misses",
        "--dir",
        path_str(dir.path()),
        "--",
        "true",
    ]);
    if done.stderr.contains("CAP_PERFMON") || done.stderr.contains("reading the trace points") {
        return eprintln!("SKIPPED: {}", done.stderr);
    }
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(
        done.stderr
            .contains("no events are reported for 1 of 1 files; model: "),
        "{}",
        done.stderr
    );
}
