//! `fit` and `template predict` of models at URLs: the results of local copies, in few requests.

use serde_json::Value;

use crate::process::{command, finish, json_of, path_str, run, stdout_of, workspace};
use crate::remote::{serve, server_command};
use crate::schema;
use crate::web_server::{TestServer, depth, sent};

const SHARDED: &str = "safetensors/sharded";

/// Serves the files of the sharded model below a path.
fn serve_sharded(server: &TestServer, below: &str) {
    for entry in std::fs::read_dir(workspace().join("fixtures").join(SHARDED)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        serve(
            server,
            &format!("{below}/{name}"),
            &format!("{SHARDED}/{name}"),
        );
    }
}

/// The only model of a document of `fit`, without its path.
fn model(text: &str, path: &str) -> Value {
    let mut document = schema::document(text, "fit.schema.json");
    let mut model = document["models"][0].take();
    assert_eq!(model["path"].take(), path, "{document}");
    model
}

#[test]
fn a_model_at_a_url_fits_as_its_copy_does() {
    let server = TestServer::start();
    serve(&server, "/web/scribe.gguf", "model/scribe-Q8_0.gguf");
    serve_sharded(&server, "/web");
    serve_sharded(&server, "/bucket/models/sharded");
    serve_sharded(&server, "/org/model");
    let index = "fixtures/safetensors/sharded/model.safetensors.index.json";
    for (url, local, requests, rounds) in [
        // the metadata of a GGUF is its configuration
        (
            &*server.url("/web/scribe.gguf"),
            "fixtures/model/scribe-Q8_0.gguf",
            1,
            1,
        ),
        // index, two shards, and seven configurations that are not there, which nothing else tells
        (
            &*server.url("/web/model.safetensors.index.json"),
            index,
            10,
            4,
        ),
        // list, index, and two shards
        ("s3://bucket/models/sharded", index, 4, 3),
        // the list while the index is read, two shards by redirects
        ("hf://org/model", index, 6, 3),
    ] {
        let args = ["fit", "--json", "--context", "1000"];
        let expected = model(&stdout_of(&[&args[..], &[local]].concat()), local);
        server.answered();
        let command = server_command(&server, &[&args[..], &[url]].concat());
        let found = finish(command);
        assert_eq!((found.code, &*found.stderr), (0, ""), "{url}");
        assert_eq!(model(&found.stdout, url), expected, "{url}");
        let answered = server.answered();
        assert_eq!(answered.len(), requests, "{url}: {answered:#?}");
        assert!(depth(&answered) <= rounds, "{url}: {answered:#?}");
    }
}

#[test]
fn a_configuration_at_a_url_fits_alone() {
    let server = TestServer::start();
    serve(&server, "/web/gpt-oss.json", "fit/gpt-oss.json");
    serve(&server, "/org/model/config.json", "fit/gpt-oss.json");
    serve(&server, "/bucket/models/config.json", "fit/gpt-oss.json");
    let local = "fixtures/fit/gpt-oss.json";
    let expected = model(&stdout_of(&["fit", "--json", local]), local);
    let url = server.url("/web/gpt-oss.json");
    let found = run(&[
        "fit",
        "--json",
        "--stats",
        &format!("{url}?Signature=secret"),
    ]);
    assert_eq!(found.code, 0, "{}", found.stderr);
    assert!(!found.stdout.contains("secret"), "{}", found.stdout);
    assert_eq!(model(&found.stdout, &url), expected);
    let requests: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(requests["requests"]["requests"], 1, "{}", found.stdout);
    // a directory without weights
    for url in ["hf://org/model", "s3://bucket/models"] {
        let command = server_command(&server, &["fit", "--json", url]);
        let found = finish(command);
        assert_eq!((found.code, &*found.stderr), (0, ""), "{url}");
        assert_eq!(model(&found.stdout, url), expected, "{url}");
    }
    // and without a configuration
    serve(&server, "/bucket/none/a.txt", "fit/gpt-oss.json");
    let none = finish(server_command(&server, &["fit", "s3://bucket/none"]));
    assert_eq!(none.code, 2);
    assert!(
        none.stderr.contains("a directory without tensor files"),
        "{}",
        none.stderr
    );
}

#[test]
fn a_template_is_predicted_from_a_url_and_used_with_the_copy() {
    let server = TestServer::start();
    serve_sharded(&server, "/org/model");
    let scratch = tempfile::tempdir().unwrap();
    let [remote, local] = ["remote.iot", "local.iot"].map(|name| scratch.path().join(name));
    let args = ["template", "predict", "--tp", "2", "--order", "layer", "-o"];
    let copy = workspace().join("fixtures").join(SHARDED);
    stdout_of(&[&args[..], &[path_str(&local), path_str(&copy)]].concat());
    server.answered();
    let predict = server_command(
        &server,
        &[
            &args[..],
            &[path_str(&remote), "hf://org/model", "--json", "--stats"],
        ]
        .concat(),
    );
    let predicted = finish(predict);
    assert_eq!(predicted.code, 0, "{}", predicted.stderr);
    let document: Value = serde_json::from_str(&predicted.stdout).unwrap();
    let of_copy = json_of(&["template", "show", "--json", path_str(&local)]);
    assert_eq!(document["template"]["service"], of_copy["service"]);
    // shards that are read whole when they are opened are not requested again for the template
    let answered = server.answered();
    assert!(answered.len() <= 7, "{answered:#?}");
    assert!(sent(&answered) < 100_000);
    let same = run(&["template", "diff", path_str(&remote), path_str(&local)]);
    assert_eq!(same.code, 0, "{}{}", same.stdout, same.stderr);
    #[cfg(target_os = "linux")]
    {
        let dir = ["--dir", path_str(&copy)];
        let warmed = json_of(&[&["warm", "--json", path_str(&remote)], &dir[..]].concat());
        assert_eq!(warmed["warm"]["end"], "complete", "{warmed}");
        assert!(warmed["warm"]["nbytes"].as_u64().unwrap() > 0, "{warmed}");
        let other = ["--dir", "fixtures/model"];
        let stale = run(&[&["warm", path_str(&remote)], &other[..]].concat());
        assert!(stale.stderr.contains("stale"), "{}", stale.stderr);
        // the page cache is of files on this machine
        let refused = run(&["warm", &server.url("/org/model/a.safetensors")]);
        assert_eq!(refused.code, 1);
        assert!(
            refused.stderr.contains("download it first"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_load_of_a_url_is_recorded() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    let scratch = tempfile::tempdir().unwrap();
    let [remote, local] = ["remote.json", "local.json"].map(|name| scratch.path().join(name));
    let record = |source: &str, to: &std::path::Path| {
        run(&["load", "--threads", "1", source, "--record", path_str(to)]);
        let mut shown = json_of(&["template", "show", "--json", path_str(to)]);
        shown["files"].take()
    };
    let url = server.url("/m/scribe.gguf");
    let remote = record(&url, &remote);
    let copy = scratch.path().join("scribe.gguf");
    std::fs::copy(workspace().join("fixtures/model/scribe-Q8_0.gguf"), &copy).unwrap();
    let mut local = record(path_str(&copy), &local);
    local[0].as_object_mut().unwrap().remove("mtime").unwrap();
    assert_eq!(remote, local);
}

/// `check --against`: one request for the digests of a repository, of files in LFS and of those in git.
#[test]
fn a_folder_is_compared_with_the_digests_of_the_hub() {
    let server = TestServer::start();
    let weights = std::fs::read(workspace().join("fixtures/model/scribe.safetensors")).unwrap();
    server.put("/org/model/model.safetensors", weights.clone());
    server.put("/org/model/config.json", "{}");
    server.put("/org/model/README.md", "# a model");
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    put("model.safetensors", &weights);
    put("config.json", b"{}");
    let check = || {
        let path = folder.path().to_str().unwrap();
        let against = ["check", path, "--against", "hf://org/model", "--json"];
        let mut command = command(&against);
        command
            .env("HF_ENDPOINT", server.url(""))
            .env("HF_HOME", "/nowhere");
        let run = finish(command);
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        (run.code, document["models"][0].clone())
    };
    let (code, report) = check();
    assert_eq!(code, 0, "{report}");
    let requests = server.answered();
    let paths: Vec<_> = requests.iter().map(|request| &*request.path).collect();
    assert_eq!(paths, ["/api/models/org/model/revision/main"]);
    let evidence = &report["evidence"][0];
    assert_eq!(evidence["compared"], 2, "{evidence}");
    let path = evidence["path"].as_str().unwrap();
    assert_eq!(path, format!("hf://org/model@{}", "a".repeat(40)));
    let said = evidence["unused"].as_str().unwrap();
    assert_eq!(said, "of its files are not here: `README.md`");
    let rules = |report: &Value| {
        let findings = report["findings"].as_array().unwrap();
        let rules = findings.iter().filter(|finding| finding["level"] != "note");
        rules
            .map(|finding| format!("{} {}", finding["rule"], finding["file"]))
            .collect::<Vec<_>>()
    };
    // one bit of the weights, a byte of the configuration, a file that the repository does not have
    let mut changed = weights.clone();
    *changed.last_mut().unwrap() ^= 1;
    put("model.safetensors", &changed);
    put("config.json", b"{ }");
    let (code, report) = check();
    assert_eq!(code, 1);
    let wrong = rules(&report);
    for file in ["model.safetensors", "config.json"] {
        assert!(wrong.contains(&format!("\"hash\" \"{file}\"")), "{wrong:?}");
    }
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    put("other.safetensors", &weights);
    let (code, report) = check();
    assert_eq!(code, 1);
    let wrong = rules(&report);
    assert!(
        wrong.contains(&"\"hash-unlisted\" \"other.safetensors\"".to_owned()),
        "{wrong:?}"
    );
}
