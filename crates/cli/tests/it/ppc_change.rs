//! `anamnesis ppc reg` and `ppc rm`: policies of a running process are replaced and removed. Most tests need CAP_PERFMON and a file
//! system on a device, and are skipped with a message elsewhere.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::process::{command, finish, path_str, run, stdout_of};
use crate::runtime_process::{RuntimeProcess, evict, uncached_model};

fn policies(status: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let policies = status["policies"].as_array().unwrap().iter();
    policies
        .map(|policy| (text(&policy["path"]), text(&policy["name"])))
        .collect()
}

#[test]
fn policies_of_a_running_process_are_replaced_and_removed() {
    let Some(dir) = uncached_model() else { return };
    let dir_text = path_str(dir.path());
    let root = fs::canonicalize(dir.path()).unwrap().display().to_string();
    let template = dir.path().join("t.iot");
    let predict = ["template", "predict", dir_text, "-o", path_str(&template)];
    stdout_of(&predict);
    let runtime = RuntimeProcess::start(&["--quiet", "--dir", dir_text]);
    let pid = runtime.0.id().to_string();
    let change = |args: &[&str]| run(&[&["ppc"], args, &["--pid", &pid]].concat());
    let current = || policies(&runtime.status().unwrap());
    let pair = |name: &str| (root.clone(), name.to_owned());
    assert_eq!(current(), [pair("none")]);
    let read_page = || {
        evict(dir.path());
        let mut read = Command::new("dd");
        read.arg(format!("if={dir_text}/model.safetensors"));
        read.args(["of=/dev/null", "bs=4k", "count=1", "status=none"]);
        assert!(read.status().unwrap().success());
    };
    let prefetched = |status: &Value| status["policies"][0]["prefetched"].as_u64().unwrap();

    let registered = change(&["reg", dir_text, "eager"]);
    assert_eq!((registered.code, &*registered.stderr), (0, ""));
    assert_eq!(current(), [pair("eager")]);
    read_page();
    runtime.wait_for("8 MiB prefetched", |status| prefetched(status) >= 7 << 20);

    // a template that is named relative to another directory than the runtime's
    let mut relative = command(&["ppc", "reg", ".", "maio:t.iot,start=no", "--pid", &pid]);
    relative.current_dir(dir.path());
    let registered = finish(relative);
    assert_eq!((registered.code, &*registered.stderr), (0, ""));
    let status = runtime.status().unwrap();
    assert_eq!(policies(&status), [pair("maio")]);
    assert_eq!(prefetched(&status), 0);
    assert_eq!(status["policies"][0]["services"][0]["phase"], "following");
    read_page();
    runtime.wait_for("8 MiB prefetched", |status| prefetched(status) >= 7 << 20);

    // a refused change leaves the policies as they are
    for (args, what) in [
        (
            &["reg", dir_text, "clever"][..],
            "unknown policy \"clever\"",
        ),
        (&["reg", dir_text, "maio:/no/such.iot"], "/no/such.iot"),
        (&["reg", dir_text, "./no.so"], "no.so"),
        (
            &["reg", "/no/such/directory", "eager"],
            "/no/such/directory",
        ),
        (&["rm", "/proc"], "no policy is registered"),
    ] {
        let refused = change(args);
        assert!(
            refused.code == 1 && refused.stderr.contains(what),
            "{args:?}: {}",
            refused.stderr
        );
        assert_eq!(current(), [pair("maio")]);
    }
    let removed = change(&["rm", dir_text]);
    assert_eq!((removed.code, &*removed.stderr), (0, ""));
    assert_eq!(current(), []);
    let again = change(&["reg", dir_text, "eager"]);
    assert_eq!((again.code, current()), (0, vec![pair("eager")]));
}

#[test]
fn a_runtime_is_named_where_there_are_several() {
    let Some(dir) = uncached_model() else { return };
    let dir = path_str(dir.path());
    let (_one, _other) = (
        RuntimeProcess::start(&["--dir", dir]),
        RuntimeProcess::start(&["--dir", dir]),
    );
    let refused = run(&["ppc", "reg", dir, "eager"]);
    assert!(
        refused.code == 1 && refused.stderr.contains("several runtimes are running"),
        "{}",
        refused.stderr
    );
    let absent = run(&["ppc", "rm", dir, "--pid", "1"]);
    assert!(
        absent.code == 1 && absent.stderr.contains("no runtime responds in process 1"),
        "{}",
        absent.stderr
    );
}
