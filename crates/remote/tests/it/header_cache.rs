//! The cache of headers: what a second opening requests, what it never uses, and what a process without a network reads.

use std::path::Path;

use anamnesis_remote::{ErrorKind, OpenedUrl, RemoteFile, RemoteOptions, RequestCounters, Store};

use super::read;
use super::server::{AnsweredRequest, COMMIT, TestServer, sent};

/// Bytes of which no piece is found twice.
fn content(len: usize) -> Vec<u8> {
    let mixed = |i: u64| {
        (i ^ (i >> 29))
            .wrapping_mul(0xBF58_476D_1CE4_E5B9)
            .to_le_bytes()
    };
    (1..=len as u64)
        .map(|i| mixed(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))[7])
        .collect()
}

/// The options of a process that has a cache in this directory.
fn cached(directory: &Path) -> RemoteOptions {
    let mut options = RemoteOptions::default();
    options.header_cache = Some(directory.to_owned());
    options
}

fn offline(directory: &Path) -> RemoteOptions {
    let mut options = cached(directory);
    options.offline = true;
    options
}

fn open(server: &TestServer, url: &str, options: RemoteOptions) -> Store {
    let variables = [
        ("HF_ENDPOINT", &*server.url("")),
        ("HF_TOKEN", "secret"),
        ("AWS_ENDPOINT_URL", &*server.url("")),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let get = |name: &str| {
        let own = variables.iter().find(|(known, _)| *known == name);
        own.map(|(_, value)| value.clone())
            .or_else(|| (name == "HF_HOME").then(|| "/nowhere".to_owned()))
    };
    match Store::open_with(url, options, &get).unwrap() {
        OpenedUrl::Store(store) => *store,
        OpenedUrl::Local(path) => panic!("{} is local", path.display()),
    }
}

/// The reads of a format: the first bytes of a file, a part of them again, and some elsewhere.
const HEADER: [(u64, usize); 6] = [
    (0, 8),
    (8, 3000),
    (0, 100),
    (500_000, 2000),
    (998_000, 2000),
    // the end of an announcement, so that all of it has been answered
    (703_999, 1),
];

/// Reads a header, announces more than is read, and says that it is parsed.
fn read_header(file: &RemoteFile) -> anamnesis_remote::Result<Vec<Vec<u8>>> {
    file.len()?;
    file.scattered(&mut [(500_000, 40_000), (700_000, 4000)].into_iter());
    let header = HEADER.iter().map(|(start, len)| read(file, *start, *len));
    let header = header.collect();
    file.settled();
    header
}

fn expected(bytes: &[u8]) -> Vec<Vec<u8>> {
    let ranges = HEADER.iter();
    ranges
        .map(|(start, len)| {
            let start = usize::try_from(*start).unwrap();
            bytes[start..start + len].to_vec()
        })
        .collect()
}

/// Opens a file, compares its header, and returns the requests.
fn opened(
    server: &TestServer,
    url: &str,
    options: RemoteOptions,
    bytes: &[u8],
) -> Vec<AnsweredRequest> {
    server.answered();
    let store = open(server, url, options);
    let file = store.file(store.path()).unwrap();
    assert_eq!(file.len().unwrap(), bytes.len() as u64, "{url}");
    assert!(read_header(&file).unwrap() == expected(bytes), "{url}");
    server.answered()
}

/// The error of a file whose length cannot be known.
fn length_error(server: &TestServer, url: &str, options: RemoteOptions) -> anamnesis_remote::Error {
    let store = open(server, url, options);
    store.file(store.path()).unwrap().len().unwrap_err()
}

/// The text of all files below a directory.
fn everything(directory: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .flat_map(|entry| {
            let path = entry.unwrap().path();
            let name = path.to_str().unwrap().as_bytes().to_vec();
            [name, std::fs::read(path).unwrap()].concat()
        })
        .collect()
}

fn contains(all: &[u8], text: &[u8]) -> bool {
    all.windows(text.len()).any(|window| window == text)
}

#[test]
fn a_second_opening_is_one_request_without_a_body() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    for (url, name) in [
        (
            format!("{}?Signature=secret", server.url("/m/a.npz")),
            "/m/a.npz",
        ),
        ("s3://bucket/m/a.npz".to_owned(), "/bucket/m/a.npz"),
        ("hf://org/model/a.npz".to_owned(), "/org/model/a.npz"),
    ] {
        server.put(name, bytes.clone());
        let scratch = tempfile::tempdir().unwrap();
        let first = opened(&server, &url, cached(scratch.path()), &bytes);
        assert!(first.len() >= 4 && sent(&first) > 100_000, "{first:#?}");
        let second = opened(&server, &url, cached(scratch.path()), &bytes);
        // on the hub, behind a redirect
        let requests = if url.starts_with("hf") { 2 } else { 1 };
        assert_eq!((second.len(), sent(&second)), (requests, 0), "{second:#?}");
        let last = &second[requests - 1];
        assert!(last.headers["if-none-match"].starts_with('"'));
        assert_eq!(last.headers["range"], "bytes=0-8191");
        // the following requests are for the version that was compared
        let store = open(&server, &url, cached(scratch.path()));
        let file = store.file(store.path()).unwrap();
        read_header(&file).unwrap();
        server.answered();
        assert_eq!(
            read(&file, 800_000, 5000).unwrap(),
            bytes[800_000..805_000],
            "{url}"
        );
        let requests = server.answered();
        assert!(
            requests.last().unwrap().headers.contains_key("if-match"),
            "{requests:#?}"
        );
        // no tensors, no signatures, no tokens
        let all = everything(scratch.path());
        assert!(!contains(&all, b"secret") && !contains(&all, b"ignature"));
        assert!(contains(&all, &bytes[500_000..500_100]));
        assert!(!contains(&all, &bytes[700_000..700_100]));
        assert!(!contains(&all, &bytes[800_000..800_100]));
        assert!(all.len() < 10_000, "{}", all.len());
    }
}

#[test]
fn counts_say_where_headers_are_from() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    server.put("/a.npz", bytes.clone());
    let scratch = tempfile::tempdir().unwrap();
    let url = server.url("/a.npz");
    let counted = |options: RemoteOptions| {
        let counters = RequestCounters::default();
        let mut options = options;
        options.counters = Some(counters.clone());
        opened(&server, &url, options, &bytes);
        counters.stats()
    };
    let first = counted(cached(scratch.path()));
    assert!(first.cached_headers == 0 && first.used > 7000);
    let second = counted(cached(scratch.path()));
    assert_eq!(
        (second.cached_headers, second.requests, second.depth),
        (1, 1, 1)
    );
    // the bytes that were read were not received
    assert_eq!((second.requested, second.received, second.used), (0, 0, 0));
    let third = counted(offline(scratch.path()));
    assert_eq!((third.cached_headers, third.requests), (1, 0));
}

#[test]
fn a_file_that_changed_is_read_anew() {
    let server = TestServer::start();
    let scratch = tempfile::tempdir().unwrap();
    let url = server.url("/a.npz");
    let mut bytes = content(1_000_000);
    for round in 0..3 {
        server.put("/a.npz", bytes.clone());
        let requests = opened(&server, &url, cached(scratch.path()), &bytes);
        // the condition fails: the answer has the first bytes
        assert!(requests.len() >= 4, "{round}: {requests:#?}");
        assert_eq!(requests[0].headers.contains_key("if-none-match"), round > 0);
        assert!(requests[0].sent > 0);
        bytes[4] ^= 1;
        bytes.push(7);
        bytes.remove(500_010);
        bytes.extend(content(round));
    }
    // shorter than what was kept
    let short = content(1000);
    server.put("/a.npz", short.clone());
    let store = open(&server, &url, cached(scratch.path()));
    let file = store.file(store.path()).unwrap();
    assert_eq!(file.len().unwrap(), 1000);
    assert_eq!(read(&file, 0, 2000).unwrap(), short);
}

#[test]
fn a_file_that_changes_after_the_comparison_is_an_error() {
    let server = TestServer::start();
    let scratch = tempfile::tempdir().unwrap();
    let url = server.url("/a.npz");
    let mut bytes = content(1_000_000);
    server.put("/a.npz", bytes.clone());
    opened(&server, &url, cached(scratch.path()), &bytes);
    let store = open(&server, &url, cached(scratch.path()));
    let file = store.file(store.path()).unwrap();
    read_header(&file).unwrap();
    bytes[900_000] ^= 1;
    server.put("/a.npz", bytes);
    let error = read(&file, 890_000, 20_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

#[test]
fn without_a_version_nothing_is_kept() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    server.put("/a.npz", bytes.clone());
    for fault in ["no-etag", "weak-etag"] {
        let scratch = tempfile::tempdir().unwrap();
        let url = server.faulty(fault, "/a.npz");
        for _ in 0..2 {
            let requests = opened(&server, &url, cached(scratch.path()), &bytes);
            assert!(sent(&requests) > 100_000, "{fault}");
        }
        assert_eq!(everything(scratch.path()), b"", "{fault}");
        let error = length_error(&server, &url, offline(scratch.path()));
        assert_eq!(error.kind(), ErrorKind::Offline, "{error}");
    }
}

#[test]
fn answers_that_contradict_a_comparison_do_not_count() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    server.put("/a.npz", bytes.clone());
    // one of another ETag is followed by a request without a condition, and a place where it would lead to is not
    for (fault, expected) in [("304-other", (2, 8192)), ("304-moved", (1, 0))] {
        let scratch = tempfile::tempdir().unwrap();
        let url = server.faulty(fault, "/a.npz");
        opened(&server, &url, cached(scratch.path()), &bytes);
        let second = opened(&server, &url, cached(scratch.path()), &bytes);
        assert!(second[0].headers.contains_key("if-none-match"), "{fault}");
        assert_eq!((second.len(), sent(&second)), expected, "{fault}");
    }
    // to a request without a condition
    let scratch = tempfile::tempdir().unwrap();
    let url = server.faulty("304", "/a.npz");
    let error = length_error(&server, &url, cached(scratch.path()));
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

#[test]
fn a_query_that_chooses_the_file_is_kept_apart_from_signatures() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    server.put("/a.npz", bytes.clone());
    let scratch = tempfile::tempdir().unwrap();
    let url = |query: &str| format!("{}?{query}", server.url("/a.npz"));
    let first = url("file=b&token=secret&X-Amz-Signature=secret1");
    opened(&server, &first, cached(scratch.path()), &bytes);
    let again = url("file=b&token=secret&X-Amz-Signature=secret2");
    assert!(opened(&server, &again, offline(scratch.path()), &bytes).is_empty());
    assert!(!contains(&everything(scratch.path()), b"secret"));
    for other in ["file=c&token=secret", "file=b", ""] {
        let error = length_error(&server, &url(other), offline(scratch.path()));
        assert_eq!(error.kind(), ErrorKind::Offline, "{other}");
        // with a network, there is nothing to compare: the ETag is one of another URL
        let requests = opened(&server, &url(other), cached(scratch.path()), &bytes);
        assert!(!requests[0].headers.contains_key("if-none-match"));
    }
}

/// Each place and each length of the only entry.
#[test]
fn a_damaged_cache_is_as_good_as_none() {
    let server = TestServer::start();
    server.latency(std::time::Duration::ZERO);
    let bytes = content(300);
    server.put("/a.gguf", bytes.clone());
    let scratch = tempfile::tempdir().unwrap();
    let url = server.url("/a.gguf");
    let open_small = |options: RemoteOptions| {
        let store = open(&server, &url, options);
        let file = store.file(store.path()).unwrap();
        let read = read(&file, 0, 20);
        file.settled();
        read
    };
    assert_eq!(open_small(cached(scratch.path())).unwrap(), bytes[..20]);
    let entry = std::fs::read_dir(scratch.path()).unwrap().next().unwrap();
    let entry = entry.unwrap().path();
    let whole = std::fs::read(&entry).unwrap();
    let damaged = (0..whole.len()).map(|len| whole[..len].to_vec());
    let damaged = damaged.chain((0..whole.len()).map(|at| {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        damaged
    }));
    for damaged in damaged {
        std::fs::write(&entry, &damaged).unwrap();
        let error = open_small(offline(scratch.path())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Offline, "{error}");
        server.answered();
        assert_eq!(open_small(cached(scratch.path())).unwrap(), bytes[..20]);
        let requests = server.answered();
        assert!(requests.len() == 1 && !requests[0].headers.contains_key("if-none-match"));
        // and is replaced
        assert_eq!(std::fs::read(&entry).unwrap(), whole);
    }
    assert_eq!(open_small(offline(scratch.path())).unwrap(), bytes[..20]);
}

#[test]
fn without_a_network_headers_are_read_and_tensors_are_an_error() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    server.put("/a.npz", bytes.clone());
    let scratch = tempfile::tempdir().unwrap();
    let url = server.url("/a.npz");
    opened(&server, &url, cached(scratch.path()), &bytes);
    assert!(opened(&server, &url, offline(scratch.path()), &bytes).is_empty());
    let store = open(&server, &url, offline(scratch.path()));
    let file = store.file(store.path()).unwrap();
    read_header(&file).unwrap();
    for (start, len) in [(800_000, 100), (0, 900_000), (100_000, 1 << 20)] {
        let error = read(&file, start, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Offline, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("no tensors") && text.contains("allow requests"),
            "{text}"
        );
    }
    // a file next to it that was never opened, and one that the server does not have
    let next = |name: &str| {
        let file = store.file(&server.url(name)).unwrap();
        file.len().unwrap_err()
    };
    assert_eq!(next("/b.npz").kind(), ErrorKind::Offline);
    {
        let online = open(&server, &url, cached(scratch.path()));
        let file = online.file(&server.url("/b.npz")).unwrap();
        assert_eq!(file.len().unwrap_err().kind(), ErrorKind::NotFound);
    }
    server.answered();
    assert_eq!(next("/b.npz").kind(), ErrorKind::NotFound);
    assert!(server.answered().is_empty());
    // once it is there, it is found
    server.put("/b.npz", bytes.clone());
    opened(
        &server,
        &server.url("/b.npz"),
        cached(scratch.path()),
        &bytes,
    );
    assert!(
        opened(
            &server,
            &server.url("/b.npz"),
            offline(scratch.path()),
            &bytes
        )
        .is_empty()
    );
}

#[test]
fn a_repository_is_opened_again_by_its_list_alone() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    let names: Vec<String> = (1..=6).map(|i| format!("{i}.npz")).collect();
    for name in &names {
        server.put(&format!("/org/model/{name}"), bytes.clone());
    }
    server.put("/org/model/model.safetensors.index.json", "{}");
    let scratch = tempfile::tempdir().unwrap();
    let open_all = |options: RemoteOptions| {
        server.answered();
        let store = open(&server, "hf://org/model", options);
        assert_eq!(store.list(store.path()).unwrap().len(), 7);
        let path = |name: &String| format!("hf://org/model/{name}");
        let index = store.file("hf://org/model/model.safetensors.index.json");
        let index = index.unwrap();
        assert_eq!(read(&index, 0, 10).unwrap(), b"{}");
        index.settled();
        store.begin(&mut names.iter().map(path));
        for name in &names {
            let file = store.file(&path(name)).unwrap();
            assert!(read_header(&file).unwrap() == expected(&bytes));
        }
        server.answered()
    };
    assert!(open_all(cached(scratch.path())).len() > 12);
    // the list, and the index, which is requested before the commit is known; the files of a commit do not change
    let second = open_all(cached(scratch.path()));
    assert_eq!(second.len(), 2, "{second:#?}");
    assert!(open_all(offline(scratch.path())).is_empty());
    // a revision that names the commit: the file is known already, the list and the index are from now on
    let pinned = format!("hf://org/model@{COMMIT}");
    let url = format!("{pinned}/1.npz");
    assert!(opened(&server, &url, cached(scratch.path()), &bytes).is_empty());
    let list_pinned = || {
        server.answered();
        let store = open(&server, &pinned, cached(scratch.path()));
        assert_eq!(store.list(store.path()).unwrap().len(), 7);
        let index = store.file(&format!("{pinned}/model.safetensors.index.json"));
        let index = index.unwrap();
        assert_eq!(read(&index, 0, 10).unwrap(), b"{}");
        index.settled();
        server.answered()
    };
    assert!(!list_pinned().is_empty());
    assert!(list_pinned().is_empty());
    assert!(!contains(&everything(scratch.path()), b"secret"));
    // lists of buckets have no version
    let bucket = open(&server, "s3://org/model/", offline(scratch.path()));
    let error = bucket.list(bucket.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Offline);
    assert!(error.to_string().contains("open a file or an index"));
}

#[test]
fn what_a_further_opening_reads_is_added() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    server.put("/a.npz", bytes.clone());
    let scratch = tempfile::tempdir().unwrap();
    let url = server.url("/a.npz");
    opened(&server, &url, cached(scratch.path()), &bytes);
    let read_other = |options: RemoteOptions| {
        let store = open(&server, &url, options);
        let file = store.file(store.path()).unwrap();
        let read = read(&file, 300_000, 1000);
        file.settled();
        read
    };
    let other = &bytes[300_000..301_000];
    assert_eq!(read_other(cached(scratch.path())).unwrap(), other);
    assert_eq!(read_other(offline(scratch.path())).unwrap(), other);
    // and what was there before is there still
    assert!(opened(&server, &url, offline(scratch.path()), &bytes).is_empty());
}

#[test]
fn without_memory_for_it_the_cache_is_not_used() {
    let server = TestServer::start();
    let bytes = content(1_000_000);
    server.put("/a.npz", bytes.clone());
    let scratch = tempfile::tempdir().unwrap();
    let url = server.url("/a.npz");
    let small = || {
        let mut options = cached(scratch.path());
        options.memory = 6000;
        options
    };
    // neither kept nor read
    opened(&server, &url, small(), &bytes);
    assert_eq!(everything(scratch.path()), b"");
    opened(&server, &url, cached(scratch.path()), &bytes);
    let requests = opened(&server, &url, small(), &bytes);
    assert!(sent(&requests) > 7000, "{requests:#?}");
}

#[test]
fn threads_share_a_cache() {
    let server = TestServer::start();
    server.latency(std::time::Duration::from_millis(1));
    let bytes = content(1_000_000);
    for i in 0..4 {
        server.put(&format!("/{i}.npz"), bytes.clone());
    }
    let scratch = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (server, bytes, scratch) = (&server, &bytes, &scratch);
            scope.spawn(move || {
                for i in 0..20 {
                    let url = server.url(&format!("/{}.npz", (thread + i) % 4));
                    let mut options = cached(scratch.path());
                    // entries of two files: they are evicted all the time
                    options.header_cache_size = 16 << 10;
                    let store = open(server, &url, options);
                    let file = store.file(store.path()).unwrap();
                    assert!(read_header(&file).unwrap() == expected(bytes));
                }
            });
        }
    });
    let left = std::fs::read_dir(scratch.path()).unwrap().count();
    assert!((1..=4).contains(&left), "{left}");
}
