//! Models in registries, by the command: what is requested, tokens, redirects, and answers that are wrong.

use std::path::Path;

use serde_json::Value;

use crate::process::{command, finish, json_of, stdout_of, workspace};
use crate::web_server::{TestLayer, TestServer, archive, depth, digest_of};

const WEIGHTS: &str = "application/vnd.cncf.model.weight.v1.raw";
const CONFIG: &str = "application/vnd.cncf.model.weight.config.v1.raw";

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(workspace().join("fixtures").join(name)).unwrap()
}

/// The tensors that `inspect --json` shows.
fn tensors(url: &str) -> Value {
    json_of(&["inspect", "--json", url])["checkpoints"][0]["tensors"].take()
}

/// The failure of `inspect`.
fn failure(url: &str) -> String {
    let run = finish(command(&["inspect", url]));
    assert_ne!(run.code, 0, "{}", run.stdout);
    run.stderr
}

#[test]
fn raw_layers_are_inspected_without_a_pull() {
    let server = TestServer::start();
    let weights = fixture("model/scribe.safetensors");
    let config = fixture("quant/deepseek_v4/config.json");
    let layers: [TestLayer<'_>; 2] = [
        (WEIGHTS, Some("model.safetensors"), &weights),
        (CONFIG, Some("config.json"), &config),
    ];
    let digest = server.put_model("team/scribe", "v1", &layers);
    let local = tensors("fixtures/model/scribe.safetensors");
    for model in ["team/scribe:v1".to_owned(), format!("team/scribe@{digest}")] {
        server.answered();
        assert_eq!(tensors(&server.oci(&model)), local);
        let requests = server.answered();
        assert!(depth(&requests) <= 3, "{requests:#?}");
        assert!(requests.len() <= 3, "{requests:#?}");
    }
    // a file of the model, and listing
    assert_eq!(
        tensors(&server.oci("team/scribe:v1/model.safetensors")),
        local
    );
    let shown = stdout_of(&["ls", &server.oci("team/scribe:v1")]);
    assert!(shown.contains("safetensors"), "{shown}");
    // without a tag
    assert!(failure(&server.oci("team/scribe")).contains("no such repository, tag or digest"));
    assert!(failure(&server.oci("team/scribe:v1/other.safetensors")).contains("no such file"));
}

#[test]
fn shards_cost_one_request_each() {
    let server = TestServer::start();
    let folder = workspace().join("fixtures/safetensors/sharded");
    let files: Vec<(String, Vec<u8>)> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    let layers: Vec<TestLayer<'_>> = files
        .iter()
        .map(|(name, bytes)| (WEIGHTS, Some(&**name), &**bytes))
        .collect();
    server.put_model("team/sharded", "v1", &layers);
    let url = server.oci("team/sharded:v1");
    assert_eq!(tensors(&url), tensors(folder.to_str().unwrap()));
    let requests = server.answered();
    assert!(depth(&requests) <= 4, "{requests:#?}");
    assert!(requests.len() <= 1 + files.len(), "{requests:#?}");
}

#[test]
fn archives_are_read_by_their_headers() {
    let server = TestServer::start();
    let weights = fixture("model/scribe.safetensors");
    let long = format!("{}/notes.txt", "n".repeat(120));
    let model = archive(&[
        ("./config.json", b"{}"),
        (&long, b"words"),
        ("empty.txt", b""),
        ("model.safetensors", &weights),
    ]);
    server.put_model(
        "kit/scribe",
        "latest",
        &[("application/vnd.kitops.modelkit.model.v1.tar", None, &model)],
    );
    let url = server.oci("kit/scribe");
    assert_eq!(tensors(&url), tensors("fixtures/model/scribe.safetensors"));
    let requests = server.answered();
    assert!(depth(&requests) <= 4, "{requests:#?}");
    let sent: usize = requests.iter().map(|request| request.sent).sum();
    assert!(sent < weights.len().max(400_000), "{sent}");
    // the bytes of the tensors, from the middle of the archive
    let scratch = tempfile::tempdir().unwrap();
    let copy = |source: &str, name: &str| {
        let path = scratch.path().join(name);
        stdout_of(&["convert", source, "-o", path.to_str().unwrap()]);
        std::fs::read(path).unwrap()
    };
    let expected = copy("fixtures/model/scribe.safetensors", "a.safetensors");
    assert!(copy(&url, "b.safetensors") == expected);
    // the same in a layer with compression, and an archive that ends too early
    let kind = "application/vnd.kitops.modelkit.model.v1.tar+gzip";
    server.put_model("kit/gzip", "latest", &[(kind, None, &model)]);
    let said = failure(&server.oci("kit/gzip"));
    assert!(
        said.contains("is compressed") && said.contains(kind),
        "{said}"
    );
    let kind = "application/vnd.kitops.modelkit.model.v1.tar";
    server.put_model(
        "kit/cut",
        "latest",
        &[(kind, None, &model[..model.len() - 5000])],
    );
    let said = failure(&server.oci("kit/cut"));
    assert!(said.contains("ends behind it"), "{said}");
    let outside = archive(&[("../model.safetensors", &weights)]);
    server.put_model("kit/outside", "latest", &[(kind, None, &outside)]);
    let said = failure(&server.oci("kit/outside"));
    assert!(said.contains("leads out of it"), "{said}");
}

#[test]
fn models_of_docker_and_indexes_are_opened() {
    let server = TestServer::start();
    let weights = fixture("model/scribe-Q8_0.gguf");
    let layers: [TestLayer<'_>; 2] = [
        ("application/vnd.docker.ai.gguf.v3", None, &weights),
        ("application/vnd.docker.ai.license", None, b"free"),
    ];
    let digest = server.put_model("ai/scribe", "q8", &layers);
    let local = tensors("fixtures/model/scribe-Q8_0.gguf");
    assert_eq!(tensors(&server.oci("ai/scribe:q8")), local);
    let entry = |digest: &str, os: &str| {
        format!(r#"{{"digest":"{digest}","size":1,"platform":{{"os":"{os}"}}}}"#)
    };
    let index = |entries: &[String]| format!(r#"{{"manifests":[{}]}}"#, entries.join(","));
    let other = digest_of(b"other");
    server.put_manifest(
        "ai/scribe",
        "index",
        &index(&[entry(&digest, "linux"), entry(&other, "unknown")]),
    );
    assert_eq!(tensors(&server.oci("ai/scribe:index")), local);
    server.put_manifest(
        "ai/scribe",
        "both",
        &index(&[entry(&digest, "linux"), entry(&other, "windows")]),
    );
    let said = failure(&server.oci("ai/scribe:both"));
    assert!(
        said.contains("several manifests") && said.contains(&digest),
        "{said}"
    );
    // an image of a container
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    server.put_model("ai/image", "latest", &[(kind, None, b"x")]);
    assert!(failure(&server.oci("ai/image")).contains("is compressed"));
    server.put_model("ai/none", "latest", &[("text/other", None, b"x")]);
    assert!(failure(&server.oci("ai/none")).contains("text/other"));
}

#[test]
fn tokens_are_requested_and_follow_no_redirect() {
    let server = TestServer::start();
    let weights = fixture("model/scribe.safetensors");
    let layers: [TestLayer<'_>; 1] = [(WEIGHTS, Some("model.safetensors"), &weights)];
    for repository in ["private/scribe", "moved/scribe"] {
        server.put_model(repository, "v1", &layers);
    }
    let url = server.oci("private/scribe:v1");
    assert_eq!(tensors(&url), tensors("fixtures/model/scribe.safetensors"));
    let requests = server.answered();
    let paths: Vec<_> = requests.iter().map(|request| &*request.path).collect();
    assert_eq!(paths[1], "/token", "{paths:?}");
    // refused manifest, token, manifest, weights
    assert_eq!((requests.len(), depth(&requests)), (4, 4), "{paths:?}");
    // a header of the command goes to the registry, and to the host of a blob it does not
    let header = [
        "--header",
        "Authorization: Bearer own",
        "--header",
        "X-Own: 1",
    ];
    let url = server.oci("moved/scribe:v1");
    let run = finish(command(&[&["inspect"][..], &header, &[&url]].concat()));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let requests = server.answered();
    let elsewhere: Vec<_> = requests
        .iter()
        .filter(|request| request.path.starts_with("/blobs/"))
        .collect();
    assert!(!elsewhere.is_empty(), "{requests:#?}");
    for request in &requests {
        let is_here = request.path.starts_with("/v2/");
        for name in ["authorization", "x-own"] {
            assert_eq!(request.headers.contains_key(name), is_here, "{request:#?}");
        }
    }
    // a token that the registry does not accept, which is no login of its service
    let url = server.oci("private/other:v1");
    let said = failure(&url);
    assert!(said.contains("no such repository"), "{said}");
}

#[test]
fn bytes_of_another_digest_are_refused() {
    let server = TestServer::start();
    let weights = fixture("model/scribe.safetensors");
    let config = br#"{"model_type": "llama", "vocab_size": 7}"#;
    let layers: [TestLayer<'_>; 2] = [
        (WEIGHTS, Some("model.safetensors"), &weights),
        (CONFIG, Some("config.json"), config),
    ];
    let digest = server.put_model("team/scribe", "v1", &layers);
    let url = server.oci("team/scribe:v1");
    let check = |url: &str| {
        let run = finish(command(&["check", "--json", url]));
        let document: Value = serde_json::from_str(&run.stdout).unwrap_or_default();
        (run.code, document.to_string() + &run.stderr)
    };
    let (code, report) = check(&url);
    assert_eq!(code, 0, "{report}");
    assert!(
        report.contains("the manifest or list of its server"),
        "{report}"
    );
    // one bit of the weights: opening cannot know, and a check says it
    let mut changed = weights.clone();
    *changed.last_mut().unwrap() ^= 1;
    let path = |bytes: &[u8]| format!("/blobs/{}", digest_of(bytes));
    server.put(&path(&weights), changed);
    let (code, report) = check(&url);
    assert_eq!(code, 1, "{report}");
    assert!(report.contains("\"rule\":\"hash\""), "{report}");
    // another length than the manifest's
    server.put(&path(&weights), &weights[..weights.len() - 1]);
    assert!(failure(&url).contains("its manifest or list says"));
    server.put(&path(&weights), &*weights);
    // a configuration that is read whole
    server.put(
        &path(config),
        &br#"{"model_type": "llama", "vocab_size": 9}"#[..],
    );
    let said = finish(command(&["fit", "--context", "1000", &url]));
    assert_ne!(said.code, 0, "{}", said.stdout);
    assert!(
        said.stderr.contains("other bytes than the digest"),
        "{}",
        said.stderr
    );
    // a manifest under the digest of another one
    server.put(
        &format!("/manifests/team/scribe/{digest}"),
        &br#"{"layers":[]}"#[..],
    );
    let said = failure(&server.oci(&format!("team/scribe@{digest}")));
    assert!(said.contains("other bytes than the digest"), "{said}");
}

#[test]
fn a_folder_is_compared_with_a_manifest() {
    let server = TestServer::start();
    let weights = fixture("model/scribe.safetensors");
    let digest = server.put_model(
        "team/scribe",
        "v1",
        &[(WEIGHTS, Some("model.safetensors"), &weights)],
    );
    let folder = tempfile::tempdir().unwrap();
    let put =
        |bytes: &[u8]| std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let check = |path: &Path| {
        let url = server.oci("team/scribe:v1");
        let run = finish(command(&[
            "check",
            path.to_str().unwrap(),
            "--against",
            &url,
            "--json",
        ]));
        (run.code, run.stdout)
    };
    put(&weights);
    let (code, report) = check(folder.path());
    assert!(code == 0 && report.contains(&digest), "{report}");
    let mut changed = weights;
    *changed.last_mut().unwrap() ^= 1;
    put(&changed);
    let (code, report) = check(folder.path());
    assert!(code == 1 && report.contains("\"hash\""), "{report}");
}

/// The store on this machine needs no request; without the model in it, the registry is asked, whose blobs are the same.
#[test]
fn models_of_ollama_are_opened_from_the_store_or_the_registry() {
    let server = TestServer::start();
    let weights = fixture("model/scribe-Q8_0.gguf");
    let kind = |kind: &str| format!("application/vnd.ollama.image.{kind}");
    let kinds = ["model", "projector", "license", "template"].map(kind);
    let layers: [TestLayer<'_>; 4] = [
        (&kinds[0], None, &weights),
        (&kinds[1], None, b"projector"),
        (&kinds[2], None, b"free"),
        (&kinds[3], None, b"{{ .Prompt }}"),
    ];
    server.put_model("me/scribe", "8b", &layers);
    let host = server.url("").replace("http://", "");
    let url = format!("ollama://{host}/me/scribe:8b");
    let store = tempfile::tempdir().unwrap();
    let with_store = |args: &[&str]| {
        let mut command = command(args);
        command.env("OLLAMA_MODELS", store.path());
        let run = finish(command);
        assert_eq!(run.code, 0, "{args:?}: {}", run.stderr);
        run.stdout
    };
    let shown = || {
        let text = with_store(&["inspect", "--json", &url]);
        let mut document: Value = serde_json::from_str(&text).unwrap();
        document["checkpoints"][0]["tensors"].take()
    };
    let local = tensors("fixtures/model/scribe-Q8_0.gguf");
    assert_eq!(shown(), local);
    let requests = server.answered();
    assert_eq!((requests.len(), depth(&requests)), (2, 2), "{requests:#?}");
    with_store(&["check", &url]);
    server.answered();
    // the store after `ollama pull`
    let manifest = store
        .path()
        .join("manifests")
        .join(&host)
        .join("me/scribe/8b");
    let blobs = store.path().join("blobs");
    std::fs::create_dir_all(manifest.parent().unwrap()).unwrap();
    std::fs::create_dir_all(&blobs).unwrap();
    let digest = digest_of(&weights);
    let text = format!(
        r#"{{"layers":[{{"mediaType":"{}","digest":"{digest}","size":1}}]}}"#,
        kinds[0]
    );
    std::fs::write(&manifest, text).unwrap();
    let blob = blobs.join(digest.replace(':', "-"));
    std::fs::write(&blob, &weights).unwrap();
    assert_eq!(shown(), local);
    with_store(&["check", &url]);
    with_store(&["fit", "--context", "1000", &url]);
    assert_eq!(tensors(blob.to_str().unwrap()), local);
    assert_eq!(server.answered().len(), 0);
}
