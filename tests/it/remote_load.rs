//! Loads of files at URLs, over all shards at once: the bytes, the requests, and how loads end.

use std::time::{Duration, Instant};

use crate::support::cancelled_load::assert_cancelled_soon;
use crate::support::fixtures;
use crate::support::random::random_bytes;
use crate::support::web_server::{TestServer, sent};
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::load::{Backend, RemoteLoader};
use anamnesis::remote::{RemoteOptions, RequestCounters, RequestStats};
use anamnesis::{Checkpoint, OpenOptions, load, remember};

/// Bytes of a request.
const PIECE: usize = 64 << 10;

fn loader() -> RemoteLoader {
    RemoteLoader::new().request_size(PIECE)
}

/// Opens a URL with counters.
fn open(url: &str) -> (Checkpoint, RequestCounters) {
    let counters = RequestCounters::default();
    let mut options = RemoteOptions::default();
    options.counters = Some(counters.clone());
    options.pause = Duration::from_millis(5);
    let checkpoint = OpenOptions::new().remote(options).open(url).unwrap();
    (checkpoint, counters)
}

/// A file with one tensor `t` of this length, and the tensor's bytes.
fn file(len: usize) -> (Vec<u8>, Vec<u8>) {
    let values = random_bytes(3, len);
    let tensor = StoredTensor::new("t", "U8", &[len as u64], values.clone());
    (safetensors(&[tensor], &[]), values)
}

/// Loads a file of `pieces` requests through a URL of this fault. Returns what was requested.
fn load_through(server: &TestServer, fault: Option<&'static str>, pieces: usize) -> RequestStats {
    let (bytes, values) = file(pieces * PIECE);
    server.put("/a.safetensors", bytes);
    let url = fault.map_or_else(
        || server.url("/a.safetensors"),
        |fault| server.faulty(fault, "/a.safetensors"),
    );
    let (checkpoint, counters) = open(&url);
    let loaded = load(&checkpoint).loader(loader()).run();
    let loaded = loaded.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
    assert!(loaded.get("t").unwrap().bytes() == values, "{fault:?}");
    assert_eq!(loaded.report().unwrap().backend, Backend::Requests);
    counters.stats()
}

#[test]
fn every_fixture_is_loaded_and_dequantised_as_the_local_file_is() {
    let server = TestServer::start();
    server.latency(Duration::ZERO);
    for (path, format) in fixtures() {
        let options = OpenOptions::new().single(true).format(format);
        let Ok(local) = options.open(&path) else {
            continue;
        };
        let name = path.to_str().unwrap();
        server.put(name, std::fs::read(&path).unwrap());
        let remote = options.open(server.url(name)).unwrap();
        let loaded = |checkpoint: &Checkpoint| {
            let loaded = load(checkpoint).loader(loader()).run();
            let loaded = loaded.map_err(|e| e.kind().name())?;
            let bytes = loaded
                .tensors()
                .iter()
                .map(|tensor| tensor.bytes().to_vec());
            Ok::<_, &str>(bytes.collect::<Vec<_>>())
        };
        assert!(loaded(&remote) == loaded(&local), "{name}");
        let dequantised = |checkpoint: &Checkpoint| {
            let all = remember(checkpoint).loader(loader()).all();
            let all = all.map_err(|e| e.kind().name())?;
            Ok::<_, &str>(
                all.into_iter()
                    .map(|weight| weight.bytes)
                    .collect::<Vec<_>>(),
            )
        };
        assert!(dequantised(&remote) == dequantised(&local), "{name}");
    }
}

#[test]
fn a_load_is_one_queue_over_all_shards() {
    let server = TestServer::start();
    let mut entries = Vec::new();
    for shard in 1..=4 {
        let name = format!("m-{shard:05}-of-00004.safetensors");
        let values = random_bytes(shard, 2 * PIECE);
        let tensor = StoredTensor::new(&format!("t{shard}"), "U8", &[2 * PIECE as u64], values);
        server.put(&format!("/m/{name}"), safetensors(&[tensor], &[]));
        entries.push(format!("\"t{shard}\":\"{name}\""));
    }
    let index = format!("{{\"weight_map\":{{{}}}}}", entries.join(","));
    server.put("/m/model.safetensors.index.json", index);
    let (checkpoint, counters) = open(&server.url("/m/model.safetensors.index.json"));
    let opened = counters.stats();
    assert_eq!((opened.requests, opened.retries, opened.hedges), (5, 0, 0));
    assert!(opened.depth <= 2 && opened.connections >= 1, "{opened:?}");
    server.answered();
    let loaded = load(&checkpoint).loader(loader()).run().unwrap();
    for shard in 1..=4 {
        let tensor = loaded.get(&format!("t{shard}")).unwrap();
        assert!(tensor.bytes() == random_bytes(shard, 2 * PIECE));
    }
    let requests = server.answered();
    // the requests of all shards are answered in one round of 100 ms
    let rounds = crate::support::web_server::depth(&requests);
    assert!(
        requests.len() <= 12 && rounds <= 2,
        "{rounds}: {requests:#?}"
    );
    let loaded = counters.stats();
    assert_eq!(loaded.requests - opened.requests, requests.len() as u64);
    assert_eq!(loaded.received - opened.received, sent(&requests) as u64);
    assert!(loaded.first_byte_median.unwrap() >= Duration::from_millis(100));
    assert!(loaded.first_byte_p95 >= loaded.first_byte_median);
}

#[test]
fn weights_are_dequantised_from_requests_of_many_tiles() {
    const ROWS: usize = 4096;
    let (rows, scales) = (ROWS as u64, ROWS / 128 * 16);
    let codes = random_bytes(7, ROWS * 2048).into_iter();
    // without the codes of NaN
    let codes = codes.map(|code| code & 0xbf).collect();
    let ones: Vec<u8> = (0..scales).flat_map(|_| 1f32.to_le_bytes()).collect();
    let tensors = [
        StoredTensor::new("a.weight", "F8_E4M3", &[rows, 2048], codes),
        StoredTensor::new("a.weight_scale_inv", "F32", &[rows / 128, 16], ones),
    ];
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    let bytes = safetensors(&tensors, &[]);
    let local = OpenOptions::new().from_bytes(bytes.clone()).unwrap();
    server.put("/a.safetensors", bytes);
    let (checkpoint, counters) = open(&server.url("/a.safetensors"));
    let opened = counters.stats().requests;
    let found = remember(&checkpoint).all().unwrap();
    // 8 MiB in requests of 2 MiB, and those for a configuration, which is not there; a tile has 256 KiB
    let requests = counters.stats().requests - opened;
    assert!((4..16).contains(&requests), "{requests}");
    assert!(found[0].bytes == remember(&local).all().unwrap()[0].bytes);
}

#[test]
fn answers_that_break_off_go_on() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    for fault in [
        "half",
        "last-byte",
        "less",
        "reset-once",
        "503-twice",
        "chunked",
    ] {
        let stats = load_through(&server, Some(fault), 40);
        assert!(stats.requests > 40, "{fault}: {stats:?}");
        if !matches!(fault, "less" | "chunked") {
            assert!(stats.retries > 0, "{fault}: {stats:?}");
        }
    }
}

#[test]
fn refused_requests_are_waited_for() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    // one of five is refused, until a second later
    let stats = load_through(&server, Some("429-some"), 40);
    assert!((6..=12).contains(&stats.retries), "{stats:?}");
}

#[test]
fn a_request_that_is_late_is_repeated() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(5));
    let begun = Instant::now();
    // one answer in 40 stops in its middle, for 20 seconds
    let stats = load_through(&server, Some("stops-some"), 120);
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert!(stats.hedges >= 1, "{stats:?}");
    assert!(stats.hedges * 20 <= stats.requests, "{stats:?}");
}

#[test]
fn a_load_is_cancelled_within_an_answer() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    server.put("/a.safetensors", file(40 * PIECE).0);
    // the header is at the beginning, and all other answers take minutes
    let (checkpoint, _) = open(&server.faulty("slow-later", "/a.safetensors"));
    assert_cancelled_soon(&checkpoint, loader(), Duration::from_millis(200));
    server.answered();
    std::thread::sleep(Duration::from_millis(200));
    assert!(server.answered().is_empty(), "no further request");
}

#[test]
fn a_read_that_fails_names_url_and_range() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    let (bytes, _) = file(40 * PIECE);
    server.put("/a.safetensors", bytes);
    let url = server.faulty("403-later", "/a.safetensors");
    let (checkpoint, _) = open(&format!("{url}?Signature=secret"));
    let error = load(&checkpoint).loader(loader()).run().unwrap_err();
    assert_eq!(error.path().unwrap().to_str(), Some(&*url));
    let text = error.to_string();
    assert!(
        text.contains("403") && text.contains("requested bytes"),
        "{text}"
    );
    assert!(
        error.offset().is_some() && !text.contains("secret"),
        "{text}"
    );

    let (mut bytes, _) = file(40 * PIECE);
    let (checkpoint, _) = open(&server.url("/a.safetensors"));
    *bytes.last_mut().unwrap() ^= 1;
    server.put("/a.safetensors", bytes);
    let error = load(&checkpoint).loader(loader()).run().unwrap_err();
    assert!(error.to_string().contains("open it again"), "{error}");
}

#[test]
fn a_url_is_loaded_by_requests_unless_another_loader_is_set() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    server.put("/a.safetensors", file(20 * PIECE).0);
    let (checkpoint, counters) = open(&server.url("/a.safetensors"));
    let loaded = load(&checkpoint).run().unwrap();
    assert_eq!(loaded.choice().loader.name(), "remote");
    assert_eq!(counters.stats().hedges, 0);
    let other = anamnesis::load::PreadLoader::new();
    assert!(load(&checkpoint).loader(other).run().is_ok());
    // a local file has no concurrent reads
    let local = Checkpoint::from_bytes(file(100).0).unwrap();
    let loaded = load(&local).loader(loader()).run().unwrap();
    let report = loaded.report().unwrap();
    assert_eq!(report.backend, Backend::Threads);
    assert!(report.fallback.as_ref().unwrap().contains("no requests"));
}
