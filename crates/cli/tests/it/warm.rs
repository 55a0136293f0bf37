//! `anamnesis warm`: what is read into the page cache, in which order of events, within which memory, and for whom.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::hub_cache::HubCache;
use crate::page_cache::{evict_file, is_resident, resident};
use crate::process::{command, finish, json_of, path_str, run, safetensors, stdout_of, workspace};
use crate::robustness::memory_group::MemoryGroup;

fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Whether files of this directory can be evicted, which is so on a device and not in memory.
fn evicts(path: &Path) -> bool {
    evict_file(path);
    let evicts = resident(path) == 0;
    if !evicts {
        eprintln!("SKIPPED: {} cannot be evicted", path.display());
    }
    evicts
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(workspace().join("target")).unwrap()
}

fn model(path: &Path) {
    safetensors(path, "", &[("a", &[1 << 20]), ("b", &[1 << 20])]);
}

fn warmed(args: &[&str]) -> Value {
    json_of(&[&["warm", "--json"], args].concat())["warm"].clone()
}

#[test]
fn every_path_of_a_model_in_the_hubs_cache_is_warmed() {
    let cache = HubCache::new();
    let file = cache.snapshot().join("model.safetensors");
    if !evicts(&file) {
        return;
    }
    let mut paths = vec![cache.snapshot(), cache.repository(), file.clone()];
    if cfg!(feature = "remote") {
        paths.push("hf://org/name".into());
    }
    for path in paths {
        cache.evict();
        let mut warm = command(&["warm", "--json", path_str(&path)]);
        warm.env("HF_HUB_CACHE", cache.dir.path());
        let done = finish(warm);
        assert_eq!((done.code, &*done.stderr), (0, ""), "{}", path.display());
        let document: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(document["warm"]["end"], "complete", "{document}");
        assert_eq!(document["warm"]["nbytes"], len(&file), "{document}");
        assert!(is_resident(&file), "{}", path.display());
    }
    let again = stdout_of(&["warm", path_str(&cache.snapshot())]);
    assert!(
        again.starts_with("warmed 0 B of 0 B in ") && again.contains("were cached"),
        "{again}"
    );
}

#[test]
fn a_directory_of_several_models_is_warmed_model_by_model() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("two/deep")).unwrap();
    fs::create_dir(path("loose")).unwrap();
    let files = [
        "two/deep/model.safetensors",
        "loose/a.safetensors",
        "loose/b.safetensors",
    ];
    files.iter().for_each(|name| model(&path(name)));
    if !files.iter().all(|name| evicts(&path(name))) {
        return;
    }
    let document = warmed(&[path_str(dir.path())]);
    assert_eq!(
        (&document["models"], &document["end"]),
        (&3.into(), &"complete".into())
    );
    for name in files {
        assert!(is_resident(&path(name)), "{name}");
    }
    // one that is damaged keeps the others from nothing
    fs::write(path("loose/c.safetensors"), "no header").unwrap();
    evict_file(&path(files[0]));
    let done = run(&["warm", path_str(dir.path())]);
    assert!(
        done.code == 1 && done.stderr.contains("c.safetensors"),
        "{}",
        done.stderr
    );
    assert!(is_resident(&path(files[0])));
    let empty = scratch();
    let done = run(&["warm", path_str(empty.path())]);
    assert!(
        done.code == 1 && done.stderr.contains("no checkpoint"),
        "{}",
        done.stderr
    );
}

#[test]
fn the_missing_file_of_a_rank_is_named() {
    let names: [&dyn Fn(u64) -> String; 3] = [
        &|rank| format!("model{rank}-mp8.safetensors"),
        &|rank| format!("rank_{rank}_of_8.safetensors"),
        &|rank| format!("model_world_size_8_rank_{rank}.safetensors"),
    ];
    for name in names {
        let scratch = tempfile::tempdir().unwrap();
        for rank in (0..8).filter(|rank| *rank != 3) {
            safetensors(&scratch.path().join(name(rank)), "", &[("a", &[4])]);
        }
        let path = path_str(scratch.path());
        for words in [&["warm", path][..], &["ls", path], &["check", path]] {
            let run = run(words);
            let text = format!("{}{}", run.stdout, run.stderr);
            assert!(run.code != 0, "{words:?}: {text}");
            assert!(text.contains("missing part"), "{words:?}: {text}");
            assert!(text.contains(&name(3)), "{words:?}: {text}");
        }
        safetensors(&scratch.path().join(name(3)), "", &[("a", &[4])]);
        let whole = run(&["warm", path]);
        assert_eq!(whole.code, 0, "{}", whole.stderr);
    }
}

#[test]
fn a_worker_is_warmed_alone_by_prediction_or_template() {
    let dir = scratch();
    let file = dir.path().join("model.safetensors");
    // 16 MiB that are split by rows of outputs
    safetensors(
        &file,
        "",
        &[("model.layers.0.self_attn.q_proj.weight", &[2048, 2048])],
    );
    if !evicts(&file) {
        return;
    }
    let template = dir.path().join("t.iot");
    let (source, made) = (path_str(dir.path()), path_str(&template));
    stdout_of(&["template", "predict", source, "--tp", "4", "-o", made]);
    for args in [
        &[source, "--tp", "4", "--rank", "3"][..],
        &[made, "--rank", "3"],
    ] {
        evict_file(&file);
        let document = warmed(args);
        let part = document["nbytes"].as_u64().unwrap();
        assert!((4 << 20..5 << 20).contains(&part), "{document}");
        let cached = resident(&file);
        assert!((part - part / 10..len(&file)).contains(&cached), "{cached}");
    }
    let wrong = run(&["warm", source, "--tp", "4", "--rank", "4"]);
    assert!(
        wrong.code == 1 && wrong.stderr.contains("rank 4"),
        "{}",
        wrong.stderr
    );
    // a template in another place needs the directory of its model
    let elsewhere = scratch();
    let moved = elsewhere.path().join("t.iot");
    fs::copy(&template, &moved).unwrap();
    let lost = run(&["warm", path_str(&moved)]);
    assert!(
        lost.code == 1 && lost.stderr.contains("--dir"),
        "{}",
        lost.stderr
    );
    warmed(&[path_str(&moved), "--dir", source]);
    let found = run(&["warm", path_str(&moved), "--", "cat", "/dev/null", source]);
    assert!(found.stderr.contains("warmed"), "{}", found.stderr);
}

#[test]
fn the_command_is_started_at_once_or_after_warming_and_its_status_passed_on() {
    let dir = scratch();
    let file = dir.path().join("model.safetensors");
    model(&file);
    let source = path_str(dir.path());
    let done = run(&[
        "warm",
        source,
        "--",
        "sh",
        "-c",
        "echo out; sleep 0.3; exit 7",
    ]);
    assert_eq!((done.code, &*done.stdout), (7, "out\n"), "{}", done.stderr);
    assert!(
        done.stderr.starts_with("anamnesis: warmed"),
        "{}",
        done.stderr
    );
    if evicts(&file) {
        let check = format!(
            "'{}' warm --json '{source}'",
            env!("CARGO_BIN_EXE_anamnesis")
        );
        // slow: without --wait, the command would find next to nothing
        let waiting = ["warm", "--quiet", "--wait", "--bandwidth", "40MB", source];
        let done = run(&[&waiting[..], &["--", "sh", "-c", &check]].concat());
        let document: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(document["warm"]["read"], 0, "{document}");
    }
    // a command is started whatever becomes of warming
    let done = run(&["warm", "no/such", "--", "sh", "-c", "exit 5"]);
    assert!(
        done.code == 5 && done.stderr.contains("no/such"),
        "{}",
        done.stderr
    );
    let done = run(&["warm", "no/such", "--wait", "--", "sh", "-c", "exit 6"]);
    assert_eq!(done.code, 6, "{}", done.stderr);
    assert_eq!(run(&["warm", source, "--wait"]).code, 2);
    let missing = run(&["warm", source, "--", "/no/such/program"]);
    assert!(
        missing.code == 1 && missing.stderr.contains("after `--`"),
        "{}",
        missing.stderr
    );
}

#[test]
fn an_interrupt_ends_with_a_summary() {
    let dir = scratch();
    let file = dir.path().join("model.safetensors");
    model(&file);
    if !evicts(&file) {
        return;
    }
    let mut warm = command(&["warm", "--bandwidth", "100KB", path_str(dir.path())]);
    let child = warm
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    // the handler of the signal exists once the first bytes were read
    while resident(&file) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{printed}");
    assert!(printed.trim_end().ends_with("; interrupted"), "{printed}");
}

#[test]
fn reading_stops_when_the_memory_of_the_group_is_full() {
    let dir = scratch();
    let file = dir.path().join("model.safetensors");
    // 128 MiB, in a group of 64
    safetensors(&file, "", &[("a", &[32 << 20])]);
    if !evicts(&file) {
        return;
    }
    let Some(group) = MemoryGroup::new("warm", 64 << 20) else {
        return;
    };
    let done = group.run(&["warm", "--json", path_str(dir.path())]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(document["warm"]["end"], "memory", "{document}");
    let read = document["warm"]["read"].as_u64().unwrap();
    assert!(((16 << 20)..(64 << 20)).contains(&read), "{document}");
    // nothing that was read has been evicted again
    let kept = resident(&file);
    assert!(kept + (2 << 20) >= read, "{kept} {document}");
    // the group is full of pages of another file: they are as good as free memory
    evict_file(&file);
    let other = dir.path().join("other");
    fs::write(&other, vec![0; 100 << 20]).unwrap();
    evict_file(&other);
    let read_other = format!(
        "cat '{}' > /dev/null; exec '{}' warm --json '{}'",
        other.display(),
        env!("CARGO_BIN_EXE_anamnesis"),
        dir.path().display()
    );
    let text = format!("{}; {read_other}", group.enter());
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(text).current_dir(workspace());
    let done = finish(shell);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let read = document["warm"]["read"].as_u64().unwrap();
    assert!(read >= 16 << 20, "{document}");
}

/// `ppc run` starts its command whatever is not available, and reads the model of its policy as `warm` does.
#[test]
fn ppc_run_starts_the_command_without_events_and_warms() {
    let dir = scratch();
    let file = dir.path().join("model.safetensors");
    model(&file);
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    if !evicts(&file) {
        return;
    }
    let template = dir.path().join("t.iot");
    let (source, made) = (path_str(dir.path()), path_str(&template));
    stdout_of(&["template", "predict", path_str(&file), "-o", made]);
    let command = ["--", "sh", "-c", "sleep 1; echo out; exit 7"];
    let with = |policy: &str| {
        evict_file(&file);
        let run_args = ["ppc", "run", "--dir", source, "--source", "rumours"];
        run(&[&run_args[..], &["--policy", policy], &command].concat())
    };
    for policy in [
        format!("maio:{made}"),
        "eager".into(),
        format!("maio:{source}"),
    ] {
        let mut done = with(&policy);
        for _ in 0..3 {
            // on a busy machine a second may not suffice
            if done.stderr.contains("the command has ended") {
                done = with(&policy);
            }
        }
        assert_eq!((done.code, &*done.stdout), (7, "out\n"), "{}", done.stderr);
        let warnings = done.stderr.matches("warning").count();
        assert!(
            warnings == 1 && done.stderr.contains("rumours"),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains("anamnesis: warmed"), "{}", done.stderr);
        assert!(is_resident(&file), "{policy}: {}", done.stderr);
    }
    // a policy that prefetches nothing
    for policy in ["none".to_owned(), format!("maio:{made},prefetch=no")] {
        let done = with(&policy);
        assert_eq!(done.code, 7, "{}", done.stderr);
        assert!(!done.stderr.contains("warmed"), "{}", done.stderr);
        assert_eq!(resident(&file), 0, "{policy}");
    }
    // the template describes other files, or the directory does not exist: the command runs all the same
    for dir in [path_str(&other), "/no/such"] {
        let policy = format!("maio:{made}");
        let started = ["ppc", "run", "--dir", dir, "--policy", &policy];
        let done = run(&[&started[..], &command].concat());
        assert_eq!((done.code, &*done.stdout), (7, "out\n"), "{}", done.stderr);
    }
}

/// The command runs as a user without privileges, and the model belongs to another user.
#[test]
fn an_unprivileged_user_warms_files_that_it_may_read() {
    let dir = tempfile::Builder::new()
        .prefix("anamnesis-warm-")
        .tempdir_in("/var/tmp");
    let Ok(dir) = dir else {
        return eprintln!("SKIPPED: /var/tmp is not writable");
    };
    let (file, program) = (
        dir.path().join("model.safetensors"),
        dir.path().join("anamnesis"),
    );
    model(&file);
    // the build directory may be closed to other users
    fs::copy(env!("CARGO_BIN_EXE_anamnesis"), &program).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if !evicts(&file) {
        return;
    }
    let mut warm = std::process::Command::new(&program);
    warm.args(["warm", "--json", path_str(dir.path())])
        .current_dir("/")
        .uid(1000)
        .gid(1000);
    let output = match warm.output() {
        Ok(output) => output,
        Err(error) => return eprintln!("SKIPPED: another user: {error}"),
    };
    let printed = String::from_utf8(output.stdout).unwrap();
    let document: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(document["warm"]["end"], "complete", "{printed}");
    assert!(is_resident(&file));
    // no event source is permitted
    evict_file(&file);
    let mut policies = std::process::Command::new(&program);
    policies
        .args([
            "ppc",
            "run",
            "--dir",
            path_str(dir.path()),
            "--policy",
            "eager",
        ])
        .args(["--", "sh", "-c", "sleep 1; exit 7"])
        .current_dir("/")
        .uid(1000)
        .gid(1000);
    let output = policies.output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{printed}");
    assert!(
        printed.contains("is read as by `anamnesis warm`"),
        "{printed}"
    );
    assert!(is_resident(&file), "{printed}");
}
