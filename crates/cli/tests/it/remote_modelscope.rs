//! Models on ModelScope, by the command: what is requested, tokens, redirects, and files that are not the listed ones.

use std::process::Command;

use serde_json::Value;

use crate::process::{Run, command, finish, json_of, workspace};
use crate::web_server::{TestServer, depth};

fn modelscope(server: &TestServer, args: &[&str]) -> Run {
    let with_server = |mut command: Command| {
        command.env("MODELSCOPE_ENDPOINT", server.url(""));
        command.env("MODELSCOPE_API_TOKEN", "ms-token");
        command
    };
    finish(with_server(command(args)))
}

/// The tensors that `inspect --json` shows.
fn tensors(server: &TestServer, url: &str) -> Value {
    let run = modelscope(server, &["inspect", "--json", url]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let mut document: Value = serde_json::from_str(&run.stdout).unwrap();
    document["checkpoints"][0]["tensors"].take()
}

fn local(path: &str) -> Value {
    json_of(&["inspect", "--json", path])["checkpoints"][0]["tensors"].take()
}

/// Serves the files of a folder of fixtures as a model, and returns how many there are.
fn put_folder(server: &TestServer, folder: &str, model: &str) -> usize {
    let entries = std::fs::read_dir(workspace().join(folder)).unwrap();
    let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    for path in &paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        server.put(&format!("{model}/{name}"), std::fs::read(path).unwrap());
    }
    paths.len()
}

#[test]
fn a_model_is_one_list_and_two_requests_a_file() {
    let server = TestServer::start();
    let sharded = "fixtures/safetensors/sharded";
    let files = put_folder(&server, sharded, "/private/sharded");
    let expected = local(sharded);
    for url in ["ms://private/sharded", "ms://private/sharded@v1"] {
        assert_eq!(tensors(&server, url), expected);
        let requests = server.answered();
        // the list, the index, and the shards side by side, each behind a redirect
        assert!(depth(&requests) <= 4, "{requests:#?}");
        assert!(requests.len() <= 1 + 2 * files, "{requests:#?}");
        for request in &requests {
            let is_own = request.path.starts_with("/api/v1/");
            let has_token = request.headers.contains_key("authorization");
            assert!(has_token == is_own && request.headers.contains_key("cookie") == is_own);
        }
    }
    let shown = modelscope(&server, &["ls", "ms://private/sharded"]);
    assert!(shown.stdout.contains("safetensors"), "{}", shown.stdout);
    let weights = std::fs::read(workspace().join("fixtures/model/scribe-Q8_0.gguf")).unwrap();
    server.put("/org/scribe/sub/a.gguf", weights);
    let expected = local("fixtures/model/scribe-Q8_0.gguf");
    for url in ["ms://org/scribe/sub/a.gguf", "ms://org/scribe/sub"] {
        server.answered();
        assert_eq!(tensors(&server, url), expected);
        let requests = server.answered();
        assert!(depth(&requests) <= 3, "{requests:#?}");
    }
    let fit = ["fit", "--context", "1000", "ms://org/scribe/sub/a.gguf"];
    assert_eq!(modelscope(&server, &fit).code, 0);
    let absent = modelscope(&server, &["inspect", "ms://org/scribe@v9"]);
    assert_ne!(absent.code, 0);
    assert!(
        absent.stderr.contains("no such public model or revision"),
        "{}",
        absent.stderr
    );
}

#[test]
fn files_are_compared_with_the_list() {
    let server = TestServer::start();
    let weights = std::fs::read(workspace().join("fixtures/model/scribe.safetensors")).unwrap();
    let mut changed = weights.clone();
    *changed.last_mut().unwrap() ^= 1;
    server.put("/org/scribe/model.safetensors", weights.clone());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    std::fs::write(&file, &weights).unwrap();
    let path = folder.path().to_str().unwrap();
    let check = |args: &[&str]| {
        let run = modelscope(&server, &[&["check", "--json"], args].concat());
        let is_hash =
            run.stdout.contains("\"rule\":\"hash\"") || run.stdout.contains("\"rule\": \"hash\"");
        (run.code, is_hash, run.stdout + &run.stderr)
    };
    let url = "ms://org/scribe";
    for args in [&[url][..], &[path, "--against", url]] {
        let (code, is_hash, report) = check(args);
        assert!(
            code == 0 && !is_hash && report.contains("org/scribe"),
            "{report}"
        );
    }
    // the same length, one bit of the tensors
    server.put("/former/org/scribe/model.safetensors", weights);
    server.put("/org/scribe/model.safetensors", changed.clone());
    let (code, is_hash, report) = check(&[url]);
    assert!(code == 1 && is_hash, "{report}");
    std::fs::write(&file, changed).unwrap();
    let (code, is_hash, report) = check(&[path, "--against", url]);
    assert!(
        code == 1 && is_hash && report.contains("ms://org/scribe@master"),
        "{report}"
    );
}
