//! `--header-cache`: further runs, runs without a network, and several at a time.

use std::process::Stdio;

use serde_json::Value;

use crate::process::{command, finish, path_str, run, stdout_of};
use crate::remote::serve;
use crate::web_server::{TestServer, sent};

fn serve_model(server: &TestServer) -> String {
    serve(server, "/m/scribe.safetensors", "model/scribe.safetensors");
    server.url("/m/scribe.safetensors")
}

#[test]
fn a_further_run_compares_and_one_without_a_network_says_so() {
    let server = TestServer::start();
    let url = serve_model(&server);
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path().join("headers");
    let args = ["inspect", &*url, "--header-cache", path_str(&cache)];
    let shown = stdout_of(&args);
    server.answered();
    assert_eq!(stdout_of(&args), shown);
    let requests = server.answered();
    // the header: beside plain floats no configuration is asked for
    assert_eq!(requests.len(), 1, "{requests:#?}");
    assert!(sent(&requests) < 100);
    let offline = run(&[&args[..], &["--offline"]].concat());
    assert_eq!((offline.code, &*offline.stdout), (0, &*shown));
    assert_eq!(
        offline.stderr,
        "anamnesis: offline: 1 header from the cache, not compared with the server\n"
    );
    let counted = run(&[&args[..], &["--offline", "--stats", "--json"]].concat());
    let document: Value = serde_json::from_str(&counted.stdout).unwrap();
    assert_eq!(document["requests"]["cached_headers"], 1);
    assert_eq!(document["requests"]["requests"], 0);
    assert!(
        counted
            .stderr
            .contains("stats: 1 header from the cache of headers"),
        "{}",
        counted.stderr
    );
    // tensors are not kept
    let load = [&["load"], &args[1..], &["--offline"]].concat();
    let refused = run(&load);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("no request is sent (offline)")
            && refused
                .stderr
                .contains("help: requests are sent without --offline")
            && refused.stderr.contains("no tensors"),
        "{}",
        refused.stderr
    );
    assert!(server.answered().is_empty());
}

#[test]
fn the_directory_may_be_a_variable() {
    let server = TestServer::start();
    let url = serve_model(&server);
    let scratch = tempfile::tempdir().unwrap();
    let with = |args: &[&str], directory: &std::path::Path| {
        let mut command = command(args);
        command.env("ANAMNESIS_HEADER_CACHE", directory);
        finish(command)
    };
    let first = with(&["inspect", &url], scratch.path());
    assert_eq!(first.code, 0, "{}", first.stderr);
    let second = with(&["inspect", "--offline", &url], scratch.path());
    assert_eq!((second.code, second.stdout), (0, first.stdout));
    // an empty one is none
    let none = with(&["inspect", "--offline", &url], "".as_ref());
    assert_eq!(none.code, 1);
    assert!(
        none.stderr.contains("no cache on this machine"),
        "{}",
        none.stderr
    );
    // `check` opens files like every verb, and reads configurations, which are not there
    let check = ["check", "--headers", &*url];
    assert_eq!(with(&check, scratch.path()).code, 0);
    let checked = with(&["check", "--headers", "--offline", &url], scratch.path());
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert!(
        checked.stderr.contains("not compared"),
        "{}",
        checked.stderr
    );
    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    let unusable = with(&["inspect", &url], &file);
    assert_eq!(unusable.code, 1);
    assert!(
        unusable.stderr.contains("the cache of headers"),
        "{}",
        unusable.stderr
    );
}

#[test]
fn processes_share_a_cache() {
    let server = TestServer::start();
    let url = serve_model(&server);
    let expected = stdout_of(&["inspect", &url]);
    let scratch = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let args = ["inspect", &*url, "--header-cache", path_str(scratch.path())];
        let running: Vec<_> = (0..6)
            .map(|_| {
                let mut command = command(&args);
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().unwrap()
            })
            .collect();
        for run in running {
            let output = run.wait_with_output().unwrap();
            assert!(output.status.success());
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
            assert_eq!(output.stderr, b"");
        }
        let names = std::fs::read_dir(scratch.path()).unwrap();
        // the header, and nothing unfinished
        assert_eq!(names.count(), 1);
    }
}
