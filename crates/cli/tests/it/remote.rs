//! URLs in place of paths.

use serde_json::Value;

use crate::process::{command, finish, json_of, run, stdout_of, workspace};
use crate::web_server::TestServer;

fn serve(server: &TestServer, path: &str, fixture: &str) {
    let bytes = std::fs::read(workspace().join("fixtures").join(fixture)).unwrap();
    server.put(path, bytes);
}

#[test]
fn a_url_is_inspected_as_the_file_is() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    let url = server.url("/m/scribe.gguf");
    let mut remote = json_of(&["inspect", "--json", &format!("{url}?Signature=secret")]);
    let mut local = json_of(&["inspect", "--json", "fixtures/model/scribe-Q8_0.gguf"]);
    let take = |document: &mut Value| document["checkpoints"][0]["path"].take();
    assert_eq!(take(&mut remote), url);
    take(&mut local);
    let tensors = |document: &Value| document["checkpoints"][0]["tensors"].clone();
    assert_eq!(tensors(&remote), tensors(&local));
    assert!(!remote.to_string().contains("secret"));
    // a word after `--metadata` is a path if it is a URL
    let shown = stdout_of(&["inspect", "--metadata", &url]);
    assert!(shown.contains("general.architecture"), "{shown}");
}

#[test]
fn a_repository_of_the_hub_is_inspected() {
    let server = TestServer::start();
    let shards = "safetensors/sharded";
    for entry in std::fs::read_dir(workspace().join("fixtures").join(shards)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        serve(
            &server,
            &format!("/org/model/{name}"),
            &format!("{shards}/{name}"),
        );
    }
    let mut command = command(&["inspect", "hf://org/model"]);
    command
        .env("HF_ENDPOINT", server.url(""))
        .env("HF_HOME", "/nowhere");
    let run = finish(command);
    assert_eq!((run.code, &*run.stderr), (0, ""));
    assert!(run.stdout.starts_with("hf://org/model\n"), "{}", run.stdout);
    assert!(run.stdout.contains("lm_head.weight"), "{}", run.stdout);
}

#[test]
fn a_url_that_cannot_be_read_is_a_failure_that_says_why() {
    let server = TestServer::start();
    let url = server.url("/none.safetensors");
    let missing = run(&["inspect", &format!("{url}?Signature=secret")]);
    assert_eq!(missing.code, 1);
    assert_eq!(
        missing.stderr,
        format!("anamnesis: {url}: the server has no such file (404)\n")
    );
}

#[test]
fn stats_say_what_was_requested() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    let url = server.url("/m/scribe.gguf");
    let shown = run(&["inspect", "--summary", "--stats", &url]);
    assert_eq!(shown.code, 0);
    let lines: Vec<&str> = shown.stderr.lines().collect();
    assert!(
        lines[0].starts_with("stats: 1 request, 1 of them in sequence, over 1 connection; "),
        "{lines:?}"
    );
    assert!(
        lines[1].contains("0 repeated after failures, 0 because late"),
        "{lines:?}"
    );
    assert!(!shown.stdout.contains("stats"), "{}", shown.stdout);
    for verb in [
        &["load", "--json"][..],
        &["plan", "--json"],
        &["inspect", "--json", "--hash"],
    ] {
        let counted = run(&[verb, &["--stats", &url]].concat());
        let document: Value = serde_json::from_str(&counted.stdout).unwrap();
        let requests = &document["requests"];
        server.answered();
        assert!(
            requests["requests"].as_u64().unwrap() >= 1,
            "{verb:?}: {requests}"
        );
        assert!(
            requests["first_byte_seconds_median"].as_f64().unwrap() > 0.05,
            "{requests}"
        );
        assert_eq!(json_of(&[verb, &[&*url]].concat()).get("requests"), None);
    }
    let local = run(&[
        "inspect",
        "--summary",
        "--stats",
        "fixtures/model/scribe-Q8_0.gguf",
    ]);
    assert!(
        local.stderr.starts_with("stats: 0 requests"),
        "{}",
        local.stderr
    );
    let missing = run(&["inspect", "--stats", &server.url("/none.gguf")]);
    assert!(
        missing.code == 1 && missing.stderr.contains("stats: 1 request,"),
        "{}",
        missing.stderr
    );
}

#[test]
fn the_loader_of_urls_refuses_local_files() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    let url = server.url("/m/scribe.gguf");
    for loader in ["auto", "remote"] {
        let document = json_of(&["load", "--json", "--loader", loader, &url]);
        assert_eq!(
            (&document["loader"], &document["rounds"][0]["io"]["backend"]),
            (&"remote".into(), &"requests".into())
        );
    }
    let local = run(&[
        "load",
        "--loader",
        "remote",
        "fixtures/model/scribe-Q8_0.gguf",
    ]);
    assert_eq!(local.code, 1);
    assert!(
        local.stderr.contains("the loader `remote` reads URLs")
            && local.stderr.contains("help: leave out --loader"),
        "{}",
        local.stderr
    );
}
