//! SIGKILL of a runtime at random moments.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::model::{MARK, RandomModel, has_socket, marked, wait_until};
use crate::policy_library::compile;
use crate::process::{command, path_str, workspace};

/// Kills of each policy, as a daemon and as often with a command.
const KILLS: u64 = 5;

/// Waits for a random time below `limit`.
fn pause(random: &mut u64, limit: Duration) {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    let limit = u64::try_from(limit.as_micros()).unwrap();
    std::thread::sleep(Duration::from_micros((*random >> 33) % limit));
}

#[test]
fn a_runtime_killed_at_any_moment_changes_no_byte_and_leaves_nothing() {
    let Some(model) = RandomModel::new(8) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let temporary = scratch.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let template = model.template(scratch.path());
    let mut policies = vec!["eager".to_owned(), format!("maio:{}", template.display())];
    let library = scratch.path().join("libeager.so");
    let example = workspace().join("crates/pagecache/ppc/examples/policies/eager.c");
    if compile(&std::fs::read_to_string(example).unwrap(), &library).is_some() {
        policies.push(library.display().to_string());
    }
    let names = model.names();
    let mut random = 2311;
    let (mut kills, mut before_the_command) = (0, 0);
    for policy in &policies {
        for kill in 0..2 * KILLS {
            let is_daemon = kill < KILLS;
            let what = format!("{policy}, kill {kill}");
            let mark = format!("{}-{kills}", std::process::id());
            model.evict();
            let script = RandomModel::script(&model.root);
            let mut run = command(&["ppc", "run", "--quiet", "--dir", path_str(&model.root)]);
            // the prefetch takes 40 ms at least
            run.args(["--policy", policy, "--bandwidth", "400MB"]);
            if !is_daemon {
                run.args(["--", "sh", "-c", &script]);
            }
            run.env(MARK, &mark).env("TMPDIR", &temporary);
            run.stdout(Stdio::piped()).stderr(Stdio::null());
            let mut runtime = run.spawn().unwrap();
            let load = if is_daemon {
                pause(&mut random, Duration::from_millis(60));
                Some(model.start_load())
            } else {
                None
            };
            pause(&mut random, Duration::from_millis(80));
            runtime.kill().unwrap();
            let pid = runtime.id();
            // to the end of the command, which goes on
            let own = runtime.wait_with_output().unwrap().stdout;
            let loaded = load.map_or(own, |load| load.wait_with_output().unwrap().stdout);
            let loaded = String::from_utf8(loaded).unwrap();
            if loaded.is_empty() && !is_daemon {
                before_the_command += 1;
            } else {
                assert_eq!(loaded, model.expected, "{what}");
            }
            wait_until("process is left", || {
                // also those that `sh` and `cksum` were
                marked(&mark).iter().all(String::is_empty)
            });
            assert!(!has_socket(pid), "{what}: its socket is left");
            assert_eq!(model.names(), names, "{what}: files are left");
            let left = std::fs::read_dir(&temporary).unwrap().count();
            assert_eq!(left, 0, "{what}: temporary files are left");
            kills += 1;
        }
    }
    println!("{kills} kills, {before_the_command} of them before the command was started");
    assert!(before_the_command < kills / 2);
}

/// A runtime that is killed while its load reads leaves the load as a process of its own, with its status.
#[test]
fn the_command_of_a_killed_runtime_ends_with_its_own_status() {
    let Some(model) = RandomModel::new(1) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let (started, ended) = (scratch.path().join("started"), scratch.path().join("ended"));
    let script = format!(
        "touch '{}'; sleep 0.5; cksum '{}' > '{}'",
        started.display(),
        model.path(0).display(),
        ended.display()
    );
    let mut run = command(&["ppc", "run", "--quiet", "--dir", path_str(&model.root)]);
    run.args(["--policy", "eager", "--", "sh", "-c", &script]);
    let mut runtime = run.spawn().unwrap();
    wait_until("command", || started.exists());
    runtime.kill().unwrap();
    runtime.wait().unwrap();
    let mut cksum = Command::new("cksum");
    let expected = cksum.arg(model.path(0)).output().unwrap().stdout;
    wait_until("output of the command", || {
        std::fs::read(&ended).is_ok_and(|printed| printed == expected)
    });
}
