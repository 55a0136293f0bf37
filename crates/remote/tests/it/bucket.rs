//! Buckets: signed URLs, listings, and what is missing.

use anamnesis_remote::{CancelCheck, ErrorKind, Store};

use std::time::{Duration, Instant};

use super::server::{TestServer, depth};
use super::{content, impatient, open, read, store_with};

fn bucket(server: &TestServer, url: &str, more: &[(&str, &str)]) -> Store {
    let endpoint = server.url("");
    let mut variables = vec![
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "eu-west-1"),
    ];
    variables.extend(more);
    store_with(url, &variables)
}

#[test]
fn an_object_is_read_by_a_signed_url() {
    let server = TestServer::start();
    let bytes = content(3_000_000);
    server.put("/models/llama/a.safetensors", bytes.clone());
    let store = bucket(&server, "s3://models/llama/a.safetensors", &[]);
    assert!(!store.is_directory(store.path()));
    let file = store.file(store.path()).unwrap();
    assert_eq!(read(&file, 0, 1000).unwrap(), bytes[..1000]);
    assert_eq!(
        read(&file, 2_000_000, 1000).unwrap(),
        bytes[2_000_000..2_001_000]
    );
    let requests = server.answered();
    assert_eq!((requests.len(), depth(&requests)), (2, 2));
    assert!(
        requests
            .iter()
            .all(|request| request.query.contains("X-Amz-Signature="))
    );
    // signed once
    assert_eq!(requests[0].query, requests[1].query);
}

#[test]
fn a_signature_that_expires_is_renewed() {
    let server = TestServer::start();
    let bytes = content(3_000_000);
    server.put("/expiring/a.bin", bytes.clone());
    let store = bucket(&server, "s3://expiring/a.bin", &[]);
    let file = store.file(store.path()).unwrap();
    for i in 0..6 {
        let start = 300_000 + i * 400_000;
        assert_eq!(
            read(&file, start as u64, 10).unwrap(),
            bytes[start..start + 10]
        );
    }
}

#[test]
fn a_prefix_is_listed() {
    let server = TestServer::start();
    for name in ["a.safetensors", "config.json", "sub/b.safetensors"] {
        server.put(&format!("/models/llama/{name}"), "{}");
        server.put(&format!("/models/qwen2.5/{name}"), "{}");
    }
    // a slash at the end says what a dot does not
    for url in [
        "s3://models/llama",
        "s3://models/llama/",
        "s3://models/qwen2.5/",
    ] {
        let store = bucket(&server, url, &[]);
        assert!(store.is_directory(store.path()));
        let mut names = store.list(store.path()).unwrap();
        names.sort();
        assert_eq!(names, ["a.safetensors", "config.json"]);
        let path = format!("{}/config.json", url.trim_end_matches('/'));
        assert_eq!(store.file(&path).unwrap().len().unwrap(), 2);
    }
}

#[test]
fn a_public_bucket_is_read_without_a_signature() {
    let server = TestServer::start();
    server.put("/models/a b.json", "{}");
    let store = bucket(
        &server,
        "s3://models/a b.json",
        &[("AWS_SKIP_SIGNATURE", "true")],
    );
    assert_eq!(store.file(store.path()).unwrap().len().unwrap(), 2);
    assert!(
        server
            .answered()
            .iter()
            .all(|request| request.query.is_empty())
    );
}

#[test]
fn what_is_missing_is_said() {
    let server = TestServer::start();
    let store = bucket(&server, "s3://models/none.bin", &[]);
    let error = store.file(store.path()).unwrap().len().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn listings_without_an_end_are_errors() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    let endpoint = server.url("");
    let variables = [
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_SKIP_SIGNATURE", "true"),
    ];
    for (url, kind, what) in [
        ("s3://standing/a", ErrorKind::Refused, "have the same token"),
        ("s3://circling/a", ErrorKind::Refused, "have the same token"),
        ("s3://endless/a", ErrorKind::Refused, "have no new name"),
        ("s3://repeating/a", ErrorKind::Refused, "have no new name"),
        ("s3://growing/a", ErrorKind::TimedOut, "takes longer than"),
    ] {
        for is_deep in [false, true] {
            let mut options = impatient();
            // a list at any depth takes ten times that
            options.listing = match kind == ErrorKind::TimedOut && is_deep {
                true => Duration::from_millis(200),
                false => Duration::from_secs(2),
            };
            let began = Instant::now();
            let store = open(url, options, &variables);
            let error = match is_deep {
                true => store.list_below(url, &mut |_| true).unwrap_err(),
                false => store.list(url).unwrap_err(),
            };
            assert_eq!(error.kind(), kind, "{url} {is_deep}: {error}");
            assert!(error.to_string().contains(what), "{url}: {error}");
            let elapsed = began.elapsed();
            assert!(
                elapsed < Duration::from_secs(4),
                "{url} {is_deep}: {elapsed:?}"
            );
        }
    }
    assert!(server.answered().len() > 4);
}

#[test]
fn answers_that_are_too_long_are_errors() {
    let server = TestServer::start();
    let endpoint = server.url("");
    let variables = [
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_SKIP_SIGNATURE", "true"),
    ];
    // with memory for a terabyte the process would have ended
    for (url, what) in [("s3://long/a", "longer than"), ("s3://immense/a", "listed")] {
        let error = open(url, impatient(), &variables).list(url).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(what), "{url}: {text}");
    }
}

#[test]
fn waits_end_when_opening_is_cancelled() {
    let server = TestServer::start();
    server.put("/bucket/a.bin", content(3_000_000));
    server.latency(Duration::from_secs(3));
    let endpoint = server.url("");
    let variables = [
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_SKIP_SIGNATURE", "true"),
    ];
    let began = Instant::now();
    let mut options = super::RemoteOptions::default();
    options.cancel = Some(CancelCheck::new(move || {
        began.elapsed() > Duration::from_millis(200)
    }));
    let store = open("s3://bucket/a.bin", options, &variables);
    let file = store.file("s3://bucket/a.bin").unwrap();
    let listed = store.list("s3://bucket/").map(|_| ());
    for outcome in [
        file.len().map(|_| ()),
        read(&file, 0, 10).map(|_| ()),
        listed,
    ] {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
    }
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    // not any more when all files are open
    store.opened();
    server.latency(Duration::ZERO);
    assert_eq!(
        store.file("s3://bucket/a.bin").unwrap().len().unwrap(),
        3_000_000
    );
}
