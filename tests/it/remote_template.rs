//! I/O templates of checkpoints at URLs: they equal the templates of a local copy, and cost one request a file.

use std::path::Path;

use crate::support::fixture;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::web_server::{TestServer, depth, sent};
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::load::{PreadLoader, RecordingLoader, RemoteLoader};
use anamnesis::remote::{RemoteOptions, Variables};
use anamnesis::template::{ContentKey, File, Template, coverage};
use anamnesis::{Checkpoint, OpenOptions, load, predict};

/// Options that reach the buckets and the hub of a server.
pub(crate) fn options(server: &TestServer) -> OpenOptions {
    let mut options = RemoteOptions::default();
    options.variables = Variables::from_iter([
        ("AWS_ENDPOINT_URL", &*server.url("")),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("HF_ENDPOINT", &*server.url("")),
        ("HF_HOME", "/nowhere"),
    ]);
    OpenOptions::new().remote(options)
}

/// Serves the files of a directory, or a file, below a path.
fn serve(server: &TestServer, from: &Path, below: &str) {
    if from.is_file() {
        let name = from.file_name().unwrap().to_str().unwrap();
        return server.put(&format!("{below}/{name}"), std::fs::read(from).unwrap());
    }
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            serve(server, &path, below);
        }
    }
}

/// Asserts that two templates differ in nothing but times of modification, which the first has none of.
fn assert_same_without_times(remote: &Template, local: &Template, what: &str) {
    assert_eq!(remote.files().len(), local.files().len(), "{what}");
    for (remote, local) in remote.files().iter().zip(local.files()) {
        assert_eq!(
            remote,
            &File {
                mtime: None,
                ..local.clone()
            },
            "{what}"
        );
        assert!(remote.key.is_some() && remote.same(local), "{what}");
    }
    assert_eq!(remote.groups(), local.groups(), "{what}");
    assert_eq!(remote.service(), local.service(), "{what}");
    let parameters = |template: &Template| {
        let parameters = template.parameters();
        let owned = parameters.map(|(key, value)| (key.to_owned(), value.to_owned()));
        owned.collect::<Vec<_>>()
    };
    assert_eq!(parameters(remote), parameters(local), "{what}");
}

#[test]
fn a_template_of_a_url_is_that_of_the_copy() {
    let server = TestServer::start();
    server.latency(std::time::Duration::ZERO);
    let sharded = fixture("safetensors/sharded");
    serve(&server, &sharded, "/web");
    serve(&server, &sharded, "/bucket/models/llama");
    serve(&server, &sharded, "/org/model");
    for name in [
        "model/scribe.safetensors",
        "model/scribe-Q8_0.gguf",
        "npy/be_c16.npy",
    ] {
        serve(&server, &fixture(name), "/web");
    }
    for (url, local) in [
        (
            &*server.url("/web/model.safetensors.index.json"),
            sharded.clone(),
        ),
        (
            &*format!("{}?Signature=x", server.url("/web/scribe.safetensors")),
            fixture("model/scribe.safetensors"),
        ),
        (
            &*server.url("/web/scribe-Q8_0.gguf"),
            fixture("model/scribe-Q8_0.gguf"),
        ),
        (&*server.url("/web/be_c16.npy"), fixture("npy/be_c16.npy")),
        ("s3://bucket/models/llama/", sharded.clone()),
        ("hf://org/model", sharded.clone()),
        ("hf://org/model@main/model.safetensors.index.json", sharded),
    ] {
        let remote = options(&server).open(url).unwrap();
        let local = Checkpoint::open(local).unwrap();
        let template = |checkpoint: &Checkpoint| {
            let predict = predict(checkpoint).tp(2).parameter("loader", "vllm");
            predict.template().unwrap()
        };
        assert_same_without_times(&template(&remote), &template(&local), url);
    }
}

/// Serves shards that are longer than the request that opens them, so that nothing of them is kept.
fn serve_large_shards(server: &TestServer, count: usize) {
    let mut map = Vec::new();
    for shard in 1..=count {
        let name = format!("model-{shard:05}-of-{count:05}.safetensors");
        let values = random_bytes(shard as u64, 300_000);
        let tensor = StoredTensor::new(&format!("t{shard}"), "U8", &[300_000], values);
        server.put(&format!("/m/{name}"), safetensors(&[tensor], &[]));
        map.push(format!("\"t{shard}\":\"{name}\""));
    }
    let index = format!("{{\"weight_map\":{{{}}}}}", map.join(","));
    server.put("/m/model.safetensors.index.json", index);
}

#[test]
fn the_first_bytes_of_all_files_are_one_round() {
    let server = TestServer::start();
    serve_large_shards(&server, 24);
    let checkpoint = Checkpoint::open(server.url("/m/model.safetensors.index.json")).unwrap();
    server.answered();
    let template = predict(&checkpoint).template().unwrap();
    let requests = server.answered();
    // and the configuration, which is not there
    assert_eq!(requests.len(), 25);
    assert!(depth(&requests) <= 2, "{}", depth(&requests));
    assert!(sent(&requests) <= 24 * (64 << 10) + 100);
    for (number, file) in (1..).zip(template.files()) {
        let name = format!("/m/model-{number:05}-of-00024.safetensors");
        let bytes = server.object(&name).unwrap();
        assert_eq!(file.key, Some(ContentKey::of(&bytes)), "{name}");
    }
}

#[test]
fn a_load_of_a_url_is_recorded() {
    let server = TestServer::start();
    serve_large_shards(&server, 3);
    let checkpoint = Checkpoint::open(server.url("/m/model.safetensors.index.json")).unwrap();
    let recording = RecordingLoader::new(RemoteLoader::new());
    let record = || load(&checkpoint).loader(recording.clone()).threads(1).run();
    record().unwrap();
    let (recorded, predicted) = (
        recording.template().unwrap(),
        predict(&checkpoint).template().unwrap(),
    );
    assert_eq!(recorded.files(), predicted.files());
    let covered = coverage(&recorded, &predicted);
    assert_eq!((covered.share(), covered.order), (1.0, Some(1.0)));
    // a second load of it is the same recording, and another checkpoint is none
    record().unwrap();
    recording.template().unwrap();
    let other = Checkpoint::open(server.url("/m/model.safetensors.index.json")).unwrap();
    load(&other).loader(recording.clone()).run().unwrap();
    let error = recording.template().unwrap_err();
    assert!(error.to_string().contains("more than one"), "{error}");
}

#[test]
fn a_template_of_a_url_applies_to_the_downloaded_directory() {
    let server = TestServer::start();
    serve_large_shards(&server, 3);
    let checkpoint = Checkpoint::open(server.url("/m/model.safetensors.index.json")).unwrap();
    let template = predict(&checkpoint).template().unwrap();
    let scratch = ScratchDir::new("remote-template");
    for path in server.paths() {
        let name = path.strip_prefix("/m/").unwrap();
        std::fs::write(scratch.path(name), server.object(&path).unwrap()).unwrap();
    }
    let now = |path: &str| File::probe(scratch.dir(), path).ok();
    assert!(template.stale(now).is_empty());
    let local = Checkpoint::open(scratch.dir()).unwrap();
    let recording = RecordingLoader::new(PreadLoader::new());
    let load = load(&local).loader(recording.clone()).threads(1);
    load.run().unwrap();
    let covered = coverage(&recording.template().unwrap(), &template);
    assert_eq!((covered.share(), covered.order), (1.0, Some(1.0)));
    // other bytes at the beginning of a file
    let changed = scratch.path("model-00002-of-00003.safetensors");
    let mut bytes = std::fs::read(&changed).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&changed, bytes).unwrap();
    let stale = template.stale(now);
    assert_eq!(stale.len(), 1);
    assert_eq!(&*stale[0].path, "model-00002-of-00003.safetensors");
}

#[test]
fn a_file_that_was_replaced_since_it_was_opened_has_no_template() {
    let server = TestServer::start();
    serve_large_shards(&server, 2);
    let checkpoint = Checkpoint::open(server.url("/m/model.safetensors.index.json")).unwrap();
    let name = "/m/model-00002-of-00002.safetensors";
    let mut bytes = server.object(name).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    server.put(name, bytes);
    let error = predict(&checkpoint).template().unwrap_err();
    assert!(
        error
            .path()
            .is_some_and(|path| path.ends_with("model-00002-of-00002.safetensors")),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("the file changed since it was opened"),
        "{error}"
    );
}
