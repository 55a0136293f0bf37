//! The requests that reads make, and a comparison of their bytes with the file.

use std::thread;
use std::time::{Duration, Instant};

use anamnesis_remote::{ErrorKind, RemoteOptions, RequestCounters, Store};

use super::server::{TestServer, depth, sent};
use super::{content, file, open, read, store};

#[test]
fn a_read_of_the_first_bytes_is_one_request() {
    let server = TestServer::start();
    let bytes = content(3_000_000);
    server.put("/a.safetensors", bytes.clone());
    let file = file(&server.url("/a.safetensors"));
    assert_eq!(file.len().unwrap(), 3_000_000);
    assert_eq!(read(&file, 8, 100_000).unwrap(), bytes[8..100_008]);
    let requests = server.answered();
    assert_eq!((requests.len(), sent(&requests)), (1, 128 << 10));
    assert_eq!(requests[0].method, "GET");
    assert_eq!(requests[0].headers["range"], "bytes=0-131071");
    assert_eq!(requests[0].headers["accept-encoding"], "identity");
}

#[test]
fn a_small_file_is_read_whole() {
    let server = TestServer::start();
    server.put("/config.json", "{}");
    let file = file(&server.url("/config.json"));
    assert_eq!(read(&file, 0, 100).unwrap(), b"{}");
    file.settled();
    assert_eq!(read(&file, 1, 100).unwrap(), b"}");
    assert_eq!(read(&file, 2, 100).unwrap(), b"");
    assert_eq!(read(&file, u64::MAX, 100).unwrap(), b"");
    assert_eq!(server.answered().len(), 1);
}

#[test]
fn an_empty_file_has_no_bytes() {
    let server = TestServer::start();
    server.put("/a.safetensors", "");
    server.put("/a.npz", "");
    for name in ["/a.safetensors", "/a.npz"] {
        let file = file(&server.url(name));
        assert!(file.is_empty().unwrap());
        assert_eq!(read(&file, 0, 10).unwrap(), b"");
    }
}

#[test]
fn the_last_bytes_are_requested_with_the_first() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    server.put("/a.npz", bytes.clone());
    let file = file(&server.url("/a.npz"));
    assert_eq!(read(&file, 999_900, 100).unwrap(), bytes[999_900..]);
    assert_eq!(read(&file, 940_000, 60_000).unwrap(), bytes[940_000..]);
    assert_eq!(read(&file, 0, 4096).unwrap(), bytes[..4096]);
    let requests = server.answered();
    assert_eq!((requests.len(), depth(&requests)), (2, 1));
}

#[test]
fn head_and_tail_of_a_small_file_overlap() {
    let server = TestServer::start();
    for len in [1, 5000, 9000, 60_000, 70_000] {
        let bytes = content(len);
        let path = format!("/{len}.npz");
        server.put(&path, bytes.clone());
        let file = file(&server.url(&path));
        assert_eq!(read(&file, 0, len + 1).unwrap(), bytes, "{len}");
        // a request of the file before may be answered late
        let own = server
            .answered()
            .into_iter()
            .filter(|request| request.path == path);
        assert!(own.count() <= 2, "{len}");
    }
}

#[test]
fn reading_forward_requests_twice_as_much_each_time() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    let bytes = content(8_000_000);
    server.put("/a.gguf", bytes.clone());
    let file = file(&server.url("/a.gguf"));
    for (i, part) in bytes.chunks(64 << 10).enumerate() {
        assert!(
            read(&file, (i as u64) << 16, 64 << 10).unwrap() == part,
            "part {i}"
        );
    }
    let requests = server.answered();
    assert!(requests.len() <= 9, "{} requests", requests.len());
    assert_eq!(sent(&requests), bytes.len());
}

#[test]
fn announced_ranges_are_requested_side_by_side_and_neighbours_as_one() {
    let server = TestServer::start();
    let bytes = content(12_000_000);
    server.put("/a.npz", bytes.clone());
    let file = file(&server.url("/a.npz"));
    file.len().unwrap();
    let ranges: Vec<(u64, u64)> = (1..20).rev().map(|i| (i * 500_000, 4000)).collect();
    file.scattered(
        &mut ranges
            .iter()
            .copied()
            .chain((0..50).map(|i| (700_000 + i * 1000, 10))),
    );
    for (start, len) in ranges {
        let place = usize::try_from(start).unwrap();
        assert_eq!(
            read(&file, start, usize::try_from(len).unwrap()).unwrap(),
            bytes[place..place + 4000]
        );
    }
    assert_eq!(read(&file, 749_000, 10).unwrap(), bytes[749_000..749_010]);
    let requests = server.answered();
    assert_eq!((requests.len(), depth(&requests)), (2 + 20, 2));
}

#[test]
fn announcements_are_bounded() {
    let server = TestServer::start();
    server.latency(Duration::ZERO);
    let bytes = content(1 << 20);
    server.put("/a.npz", bytes.clone());
    let file = file(&server.url("/a.npz"));
    file.scattered(&mut (0..100_000).map(|i| (i * 1_000_000_000_000, u64::MAX)));
    assert_eq!(read(&file, 500_000, 1000).unwrap(), bytes[500_000..501_000]);
    assert!(server.answered().len() <= 3);
}

#[test]
fn what_is_read_ahead_is_within_the_memory() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    let bytes = content(12_000_000);
    server.put("/a.npz", bytes.clone());
    for memory in [0, 100_000, 1 << 20] {
        let mut options = anamnesis_remote::RemoteOptions::default();
        options.memory = memory;
        let store = super::open(&server.url("/a.npz"), options, &[]);
        let file = store.file(store.path()).unwrap();
        let within = |file: &anamnesis_remote::RemoteFile| {
            let held = file.held();
            // the first bytes of a file are requested in any case
            assert!(held <= memory + 4096, "{held} of {memory}");
        };
        within(&file);
        file.scattered(&mut (0..100).map(|i| (i * 100_000, 50_000)));
        within(&file);
        for (i, part) in bytes.chunks(64 << 10).enumerate() {
            assert!(
                read(&file, (i as u64) << 16, 64 << 10).unwrap() == part,
                "part {i}"
            );
            within(&file);
        }
        assert!(read(&file, 5, 11_000_000).unwrap() == bytes[5..11_000_005]);
        within(&file);
        assert!(read(&file, 11_999_990, 10).unwrap() == bytes[11_999_990..]);
        let other = store.file(store.path()).unwrap();
        within(&other);
    }
}

#[test]
fn a_large_read_is_made_of_pieces() {
    let server = TestServer::start();
    let bytes = content(40_000_000);
    server.put("/a.safetensors", bytes.clone());
    let file = file(&server.url("/a.safetensors"));
    file.len().unwrap();
    assert!(read(&file, 1_000_001, 38_999_999).unwrap() == bytes[1_000_001..]);
    let requests = server.answered();
    assert_eq!(requests.len(), 1 + 5);
    assert!(depth(&requests) <= 3, "{}", depth(&requests));
    assert_eq!(sent(&requests), (128 << 10) + 38_999_999);
    // past the end
    assert!(read(&file, 39_000_000, 2_000_000).unwrap() == bytes[39_000_000..]);
}

#[test]
fn many_threads_read_one_file() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(2));
    let bytes = content(9_000_000);
    server.put("/a.bin", bytes.clone());
    let file = file(&server.url("/a.bin"));
    thread::scope(|scope| {
        for thread in 0..8 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                for i in 0..20 {
                    let start = (thread * 997_001 + i * 313_007) % 8_000_000;
                    let len = if i % 5 == 0 { 1_500_000 } else { 10_000 };
                    let end = bytes.len().min(start + len);
                    assert!(read(file, start as u64, len).unwrap() == bytes[start..end]);
                    if i == 10 {
                        file.settled();
                    }
                }
            });
        }
    });
}

#[test]
fn a_caller_may_be_a_task_of_another_runtime() {
    let server = TestServer::start();
    server.put("/a.npy", content(100));
    let url = server.url("/a.npy");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let len = runtime.block_on(async { file(&url).len() });
    assert_eq!(len.unwrap(), 100);
}

#[test]
fn a_file_that_is_dropped_ends_its_requests() {
    let server = TestServer::start();
    server.put("/a.safetensors", content(100));
    let begun = Instant::now();
    drop(file(&server.faulty("silent", "/a.safetensors")));
    assert!(begun.elapsed() < Duration::from_millis(500));
}

#[test]
fn announced_files_are_requested_side_by_side() {
    let server = TestServer::start();
    for i in 0..40 {
        server.put(&format!("/m/{i}.safetensors"), content(1000 + i));
    }
    // longer than a busy machine takes to send the requests
    server.latency(Duration::from_millis(150));
    let store = store(&server.url("/m/0.safetensors"));
    let path = |i: usize| server.url(&format!("/m/{i}.safetensors"));
    store.begin(&mut (0..40).map(path));
    for i in 0..40 {
        assert_eq!(
            store.file(&path(i)).unwrap().len().unwrap(),
            1000 + i as u64
        );
    }
    let requests = server.answered();
    assert_eq!(requests.len(), 40);
    // 32 at a time; a thread of the server may be late
    assert!(depth(&requests) <= 5, "{}", depth(&requests));
}

#[test]
fn bytes_are_counted_from_the_request_to_the_reader() {
    let server = TestServer::start();
    server.put("/a.safetensors", content(5_000_000));
    let counters = RequestCounters::default();
    let store = store_of(&server.url("/a.safetensors"), &counters);
    let file = store.file(store.path()).unwrap();
    let head = 128 << 10;
    // a header of 1000 bytes behind its length, which is read again
    for (start, len) in [(0, 8), (8, 1000), (0, 500)] {
        read(&file, start, len).unwrap();
    }
    let stats = counters.stats();
    assert_eq!((stats.requested, stats.used), (head, 1008));
    // a long read goes into the caller's buffer: all of it is used
    read(&file, 1_000_000, 3_000_000).unwrap();
    let stats = counters.stats();
    assert_eq!(stats.requested, head + 3_000_000);
    assert_eq!(stats.used, 1008 + 3_000_000);
    assert!(stats.received > 3_000_000 && stats.received <= stats.requested);
    assert_eq!(stats.uploaded, 0);
    // a file that is shorter than the first request gives as much as it has
    server.put("/b.safetensors", content(5000));
    let short = store_of(&server.url("/b.safetensors"), &counters);
    read(&short.file(short.path()).unwrap(), 0, 5000).unwrap();
    let now = counters.stats();
    assert_eq!(
        (now.requested - stats.requested, now.used - stats.used),
        (5000, 5000)
    );
}

/// The files of a URL, of which requests are counted.
fn store_of(url: &str, counters: &RequestCounters) -> Store {
    let mut options = RemoteOptions::default();
    options.counters = Some(counters.clone());
    open(url, options, &[])
}

/// Headers and tokens are for the host of the URL: a redirect to another one is followed without them.
#[test]
fn credentials_are_sent_to_the_host_of_the_url_alone() {
    let server = TestServer::start();
    server.put("/m/a.bin", content(1000));
    let host = server.url("").replace("http://", "");
    let mut options = RemoteOptions::default();
    options.headers.add("Authorization: Bearer s3cret");
    options.headers.add("X-Team: models");
    let token = format!("{host}=s3cret");
    for (options, variables) in [
        (options, &[][..]),
        (RemoteOptions::default(), &[("ANAMNESIS_TOKENS", &*token)]),
    ] {
        let is_given = variables.is_empty();
        for url in [
            server.url("/m/a.bin"),
            server.faulty("redirect", "/m/a.bin"),
        ] {
            let store = open(&url, options.clone(), variables);
            let file = store.file(store.path()).unwrap();
            assert_eq!(read(&file, 0, 1000).unwrap(), content(1000));
            for request in server.answered() {
                let is_own = request.headers["host"] == host;
                let sent = |name: &str| request.headers.get(name).map(String::as_str);
                assert_eq!(sent("authorization"), is_own.then_some("Bearer s3cret"));
                assert_eq!(sent("x-team"), (is_own && is_given).then_some("models"));
            }
        }
    }
}

#[test]
fn headers_that_are_none_are_refused() {
    for header in [
        "s3cret",
        "Range: bytes=0-1",
        "host: elsewhere",
        "X-Y:",
        "a b: c",
    ] {
        let mut options = RemoteOptions::default();
        options.headers.add(header);
        let error = Store::open_with("https://a.example/x", options, &|_| None).map(|_| ());
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{header}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}
