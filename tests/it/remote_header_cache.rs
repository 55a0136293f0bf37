//! The cache of headers under the formats: what is opened from it is what is opened from the server.

use std::path::Path;
use std::time::Duration;

use crate::support::scratch_dir::ScratchDir;
use crate::support::web_server::{TestServer, depth, sent};
use crate::support::writers::{StoredTensor, safetensors};
use crate::support::{fixture, fixtures};
use anamnesis::remote::{RemoteOptions, RequestCounters};
use anamnesis::{Checkpoint, ErrorKind, Limits, OpenOptions, Remedy, load};

fn cached(cache: &Path, offline: bool) -> RemoteOptions {
    let mut options = RemoteOptions::default();
    options.header_cache = Some(cache.to_owned());
    options.offline = offline;
    options
}

fn options(cache: &Path, offline: bool) -> OpenOptions {
    OpenOptions::new().remote(cached(cache, offline))
}

/// The checkpoint as opening shows it, or the kind of its error.
fn shown(opened: anamnesis::Result<Checkpoint>) -> Result<String, &'static str> {
    let checkpoint = opened.map_err(|e| e.kind().name())?;
    Ok(format!("{:?}", checkpoint.catalog()))
}

#[test]
fn every_fixture_is_opened_from_the_cache_as_from_the_server() {
    let server = TestServer::start();
    server.latency(Duration::ZERO);
    let scratch = ScratchDir::new("header-cache-fixtures");
    let cache = scratch.path("cache");
    let mut compared = 0;
    for (path, format) in fixtures() {
        let name = path.to_str().unwrap();
        server.put(name, std::fs::read(&path).unwrap());
        let url = server.url(name);
        let open = |offline| {
            let counters = RequestCounters::default();
            let mut remote = cached(&cache, offline);
            remote.counters = Some(counters.clone());
            let options = OpenOptions::new().remote(remote).single(true);
            (shown(options.format(format).open(&url)), counters.stats())
        };
        let expected = shown(OpenOptions::new().single(true).format(format).open(&url));
        assert_eq!(open(false).0, expected, "{name}");
        let (found, stats) = open(false);
        assert_eq!(found, expected, "{name}");
        let is_empty = std::fs::metadata(&path).unwrap().len() == 0;
        if expected.is_ok() && !is_empty {
            assert_eq!((stats.requests, stats.received), (1, 0), "{name}");
            let (found, stats) = open(true);
            assert_eq!((found, stats.requests), (expected, 0), "{name}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

/// Serves shards whose headers are longer than their first request would be without them.
fn serve_shards(server: &TestServer, count: usize) {
    let mut map = Vec::new();
    for shard in 1..=count {
        let name = format!("model-{shard:05}-of-{count:05}.safetensors");
        let tensors: Vec<_> = (0..2000)
            .map(|i| StoredTensor::new(&format!("layers.{shard}.t{i}"), "U8", &[100], vec![7; 100]))
            .collect();
        map.extend(tensors.iter().map(|t| format!("\"{}\":\"{name}\"", t.name)));
        server.put(&format!("/m/{name}"), safetensors(&tensors, &[]));
    }
    let index = format!("{{\"weight_map\":{{{}}}}}", map.join(","));
    server.put("/m/model.safetensors.index.json", index);
}

#[test]
fn shards_are_compared_side_by_side() {
    let server = TestServer::start();
    serve_shards(&server, 24);
    let scratch = ScratchDir::new("header-cache-shards");
    let cache = scratch.path("cache");
    let url = server.url("/m/model.safetensors.index.json");
    let open = |offline| options(&cache, offline).open(&url).unwrap();
    assert_eq!(open(false).catalog().tensors().len(), 48_000);
    let first = server.answered();
    assert!(first.len() >= 25 && sent(&first) > 24 * (128 << 10));
    assert_eq!(open(false).catalog().tensors().len(), 48_000);
    let second = server.answered();
    assert_eq!((second.len(), sent(&second)), (25, 0));
    assert!(depth(&second) <= 2, "{}", depth(&second));
    // one of them is another one
    let name = "/m/model-00003-of-00024.safetensors";
    let mut bytes = server.object(name).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    server.put(name, bytes);
    open(false);
    let third = server.answered();
    let changed: Vec<_> = third.iter().filter(|request| request.sent > 0).collect();
    assert!(!changed.is_empty() && changed.iter().all(|request| request.path == name));

    let checkpoint = open(true);
    assert_eq!(checkpoint.catalog().tensors().len(), 48_000);
    let error = load(&checkpoint).run().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error}");
    assert!(error.to_string().contains("no tensors"), "{error}");
    let tensor = checkpoint.tensor("layers.7.t9").unwrap();
    let error = tensor.bytes().unwrap_err();
    assert!(
        error
            .path()
            .unwrap()
            .ends_with("model-00007-of-00024.safetensors")
    );
    assert!(error.to_string().contains("(offline)"), "{error}");
    assert_eq!(error.remedy(), Some(Remedy::AllowRequests));
    assert!(server.answered().is_empty());
}

#[test]
fn a_configuration_that_is_not_there_is_known_without_a_network() {
    let server = TestServer::start();
    let name = "/m/model.safetensors";
    // beside plain floats none is asked for
    server.put(
        name,
        std::fs::read(fixture("quant/deepseek_v4/model.safetensors")).unwrap(),
    );
    let scratch = ScratchDir::new("header-cache-config");
    let cache = scratch.path("cache");
    let url = server.url(name);
    options(&cache, false).open(&url).unwrap();
    // whether there is one decides what tensors are: it is not guessed
    let unknown = options(&cache, true).open(&url).unwrap().inspect();
    let warnings = format!("{:?}", unknown.unwrap().warnings);
    assert!(warnings.contains("config.json"), "{warnings}");
    let inspected = options(&cache, false).open(&url).unwrap().inspect();
    let expected = format!("{:?}", inspected.unwrap());
    server.answered();
    let inspected = options(&cache, true).open(&url).unwrap().inspect();
    assert_eq!(format!("{:?}", inspected.unwrap()), expected);
    assert!(server.answered().is_empty());
}

#[test]
fn what_is_kept_is_charged_while_a_header_is_read() {
    let server = TestServer::start();
    server.latency(Duration::ZERO);
    serve_shards(&server, 2);
    let scratch = ScratchDir::new("header-cache-memory");
    let cache = scratch.path("cache");
    let url = server.url("/m/model-00001-of-00002.safetensors");
    let small = Limits {
        memory: 1 << 20,
        ..Limits::default()
    };
    let peak = |cached: bool| {
        let usage = anamnesis::Usage::new();
        let opening = match cached {
            true => options(&cache, false),
            false => OpenOptions::new(),
        };
        opening.usage(&usage).open(&url).unwrap();
        usage.memory()
    };
    let without = peak(false);
    let first = peak(true);
    assert!(first > without, "{first}, {without}");
    // the cache is used within a limit that suffices without it
    let opened = options(&cache, false).limits(small).open(&url);
    assert_eq!(opened.unwrap().catalog().tensors().len(), 2000);
}
