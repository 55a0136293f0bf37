//! Servers that fail, lie, or are slow: the bytes of the file, or an error that says why, within two seconds.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anamnesis_remote::{ErrorKind, RemoteFile, Result};

use super::server::TestServer;
use super::{content, file, impatient_file, read};

/// The first bytes, a range in the middle, a large range, and the last bytes.
fn read_all(file: &RemoteFile, len: usize) -> Result<Vec<Vec<u8>>> {
    let end = len as u64;
    [
        (0, 1000),
        (end / 2, 1000),
        (200_000, 2_000_000),
        (end - 10, 10),
    ]
    .into_iter()
    .map(|(start, n)| read(file, start, n))
    .collect()
}

const LEN: usize = 3_000_000;

/// The longest that a fault takes.
const MOST: Duration = Duration::from_secs(2);

/// The outcome of reading a file with this fault, compared with the file. Ends within [`MOST`], or panics.
fn outcome(fault: &'static str) -> Result<()> {
    let server = TestServer::start();
    server.latency(Duration::ZERO);
    let bytes = content(LEN);
    server.put("/a.npz", bytes.clone());
    let url = server.faulty(fault, "/a.npz");
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(read_all(&impatient_file(&url), LEN)));
    let found = receive.recv_timeout(MOST);
    let found =
        found.unwrap_or_else(|_| panic!("{fault}: no end after {:#?}", server.answered().last()));
    for (found, start) in found?.iter().zip([0, LEN / 2, 200_000, LEN - 10]) {
        assert!(
            *found == bytes[start..start + found.len()],
            "{fault}: other bytes at {start}"
        );
    }
    Ok(())
}

#[test]
fn failures_that_pass_are_not_seen() {
    for fault in [
        "503-twice",
        "500-once",
        "reset-once",
        "half",
        "last-byte",
        "less",
        "chunked",
        "endless",
        "no-etag",
        "weak-etag",
        "no-suffix",
        "redirect",
        "expires",
        "deep-5",
        "slow-first",
    ] {
        outcome(fault).unwrap_or_else(|e| panic!("{fault}: {e}"));
    }
}

#[test]
fn the_time_that_a_server_names_is_waited() {
    for fault in [
        "429-once",
        "date-once",
        "ratelimit-once",
        "reset-of-limit-once",
    ] {
        let server = TestServer::start();
        server.put("/a.safetensors", content(1000));
        let begun = Instant::now();
        let file = file(&server.faulty(fault, "/a.safetensors"));
        assert_eq!(file.len().unwrap(), 1000);
        let waited = begun.elapsed();
        assert!(
            (Duration::from_secs(1)..MOST).contains(&waited),
            "{fault}: {waited:?}"
        );
        assert_eq!(server.answered().len(), 2, "{fault}");
    }
}

#[test]
fn failures_that_stay_say_why() {
    use ErrorKind::{
        Changed, Denied, Network, NotFound, RateLimited, Refused, TimedOut, Unsupported,
    };
    let mut wrong = Vec::new();
    for (fault, kind, text) in [
        ("429-long", RateLimited, "3600 s"),
        ("503", Network, "503"),
        ("401", Denied, "credentials"),
        ("403", Denied, "403"),
        ("404", NotFound, "no such file"),
        ("410", NotFound, "no such file"),
        ("204", Refused, "204"),
        ("418", Refused, "418"),
        ("200", Unsupported, "ranges"),
        ("200-later", Unsupported, "ranges"),
        ("416", Changed, "open it again"),
        ("etag", Changed, "ETag"),
        ("etag-vanishes", Changed, "ETag"),
        ("modified", Changed, "time"),
        ("grows", Changed, "bytes"),
        ("412", Changed, "ETag"),
        ("elsewhere", Refused, "the bytes 1 to"),
        ("more", Refused, "the bytes 0 to"),
        ("no-content-range", Refused, "without Content-Range"),
        ("multipart", Refused, "without Content-Range"),
        ("star", Refused, "length"),
        ("overflow", Refused, "length"),
        ("gzip", Refused, "gzip"),
        ("always-half", Network, "broke off"),
        ("empty-body", Network, "broke off"),
        ("not-http", Network, "no answer"),
        ("short-length", Network, "too early"),
        ("loop", Refused, "5 redirects"),
        ("deep-6", Refused, "5 redirects"),
        ("to-file", Refused, "file:"),
        ("to-metadata", Refused, "inside of a network"),
        ("to-mapped", Refused, "inside of a network"),
        ("to-nothing", Refused, "no URL"),
        ("to-password", Refused, "credentials"),
        ("silent", TimedOut, "did not answer"),
        ("stalls", TimedOut, "too slowly"),
        // never silent for long, and never done
        ("drips", TimedOut, "too slowly"),
        ("429-date", RateLimited, "86400 s"),
    ] {
        let error = outcome(fault).expect_err(fault);
        let shown = error.to_string();
        let safe = !shown.contains("secret") && !shown.contains('?');
        if error.kind() != kind || !shown.contains(text) || !safe {
            wrong.push(format!("{fault}: {:?}: {shown}", error.kind()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_connection_and_no_host_are_errors() {
    // a port that nothing listens on
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for url in [
        format!("http://{address}/a.safetensors?secret=1"),
        "http://no-such-host.invalid/a.safetensors?secret=1".to_owned(),
    ] {
        let error = file(&url).len().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Network, "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn a_file_that_changes_is_an_error_that_says_so() {
    let server = TestServer::start();
    server.put("/a.safetensors", content(LEN));
    let file = file(&server.url("/a.safetensors"));
    file.len().unwrap();
    let mut other = content(LEN);
    other[LEN - 1] ^= 1;
    server.put("/a.safetensors", other);
    for len in [10, 2_000_000] {
        let error = read(&file, 500_000, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert!(error.to_string().contains("open it again"), "{error}");
    }
    // the condition is sent, so that the server need not send the bytes
    let requests = server.answered();
    assert!(
        requests[1..]
            .iter()
            .all(|request| request.sent == 0 && request.headers.contains_key("if-match"))
    );
}

#[test]
fn a_length_without_end_is_no_memory() {
    let server = TestServer::start();
    server.put("/a.safetensors", content(LEN));
    let file = file(&server.faulty("huge", "/a.safetensors"));
    assert_eq!(file.len().unwrap(), u64::MAX);
    // the server has less than it says
    assert!(read(&file, u64::MAX - 100, 100).is_err());
    assert_eq!(read(&file, 0, 10).unwrap().len(), 10);
}

#[test]
fn a_wait_ends_with_the_file() {
    let server = TestServer::start();
    server.latency(Duration::ZERO);
    server.put("/a.safetensors", content(1000));
    let mut options = super::impatient();
    options.retry_after = Duration::from_secs(5000);
    for fault in ["429-long", "silent"] {
        let store = super::open(
            &server.faulty(fault, "/a.safetensors"),
            options.clone(),
            &[],
        );
        let file = store.file(store.path()).unwrap();
        // until the server has answered, or does not answer
        while fault == "429-long" && server.answered().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        let begun = Instant::now();
        drop((file, store));
        assert!(begun.elapsed() < Duration::from_millis(500), "{fault}");
    }
    thread::sleep(Duration::from_millis(200));
    assert!(server.answered().len() <= 1, "no further request");
}
