//! Uploads in parts: bytes, order, memory, and what remains after faults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anamnesis_remote::{ErrorKind, NewObject, RemoteOptions, Store, Uploads};

use super::server::TestServer;
use super::{content, impatient, open};

const PART: usize = 64 << 10;
const MEMORY: u64 = 4 * PART as u64;

fn options() -> RemoteOptions {
    let mut options = impatient();
    options.part = PART as u64;
    options.upload_memory = MEMORY;
    options.retries = 2;
    options
}

pub(super) fn s3(server: &TestServer) -> Store {
    let endpoint = server.url("");
    let variables = [
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "eu-west-1"),
    ];
    open("s3://bucket/dir/", options(), &variables)
}

fn server() -> TestServer {
    let server = TestServer::start();
    server.latency(Duration::from_millis(2));
    server
}

/// Objects of these lengths whose heads are a third of them.
fn objects(lens: &[usize]) -> (Vec<NewObject>, Vec<Vec<u8>>) {
    let bytes: Vec<_> = lens.iter().map(|len| content(*len)).collect();
    let object = |(number, bytes): (usize, &Vec<u8>)| NewObject {
        path: format!("s3://bucket/dir/{number}.bin"),
        head: bytes[..bytes.len() / 3].to_vec(),
        len: bytes.len() as u64,
        replaces: false,
    };
    (bytes.iter().enumerate().map(object).collect(), bytes)
}

/// Writes what is behind the heads, in pieces.
fn write(uploads: &Uploads, bytes: &[Vec<u8>], piece: usize) -> anamnesis_remote::Result<()> {
    for (number, bytes) in bytes.iter().enumerate() {
        let head = bytes.len() / 3;
        for (index, piece_of) in bytes[head..].chunks(piece).enumerate() {
            let start = head + index * piece;
            uploads.write(number, start as u64, piece_of, &mut |_| true)?;
        }
    }
    uploads.flush(&mut |_| true)
}

const LENS: [usize; 4] = [10 * PART + 100, 5, 2 * PART, 3 * PART + 1];

#[test]
fn objects_appear_when_they_are_completed() {
    let server = server();
    let (new, bytes) = objects(&LENS);
    let store = s3(&server);
    let uploads = store.uploads(new).unwrap();
    write(&uploads, &bytes, 10_000).unwrap();
    assert_eq!(server.paths(), Vec::<String>::new(), "none before");
    assert_eq!(server.open_uploads().len(), 4);
    uploads.complete(0..4, &mut |_| true).unwrap();
    uploads.keep();
    drop(uploads);
    for (number, bytes) in bytes.iter().enumerate() {
        let path = format!("/bucket/dir/{number}.bin");
        assert!(server.object(&path).as_ref() == Some(bytes), "{path}");
    }
    assert_eq!(server.open_uploads(), Vec::<String>::new());
    let parts = server.events();
    let parts = parts.iter().filter(|event| event.starts_with("part"));
    assert_eq!(parts.count(), 11 + 1 + 2 + 4);
}

#[test]
fn memory_is_bounded_whatever_the_order_of_writers() {
    let server = server();
    server.latency(Duration::from_millis(5));
    let lens = [40 * PART + 17, 30 * PART];
    let (new, bytes) = objects(&lens);
    let store = s3(&server);
    let uploads = store.uploads(new).unwrap();
    // a thread each, which write every fourth piece
    let pieces: Vec<(usize, u64, &[u8])> = bytes
        .iter()
        .enumerate()
        .flat_map(|(number, bytes)| {
            let head = bytes.len() / 3;
            bytes[head..]
                .chunks(9_999)
                .enumerate()
                .map(move |(i, piece)| (number, (head + i * 9_999) as u64, piece))
        })
        .collect();
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (uploads, pieces) = (&uploads, &pieces);
            scope.spawn(move || {
                for (number, start, piece) in pieces.iter().skip(first).step_by(4) {
                    uploads
                        .write(*number, *start, piece, &mut |_| true)
                        .unwrap();
                }
            });
        }
    });
    uploads.flush(&mut |_| true).unwrap();
    let most = uploads.most_buffered();
    assert!(most <= MEMORY && most > MEMORY / 2, "{most} bytes");
    assert!(server.most_parts_at_a_time() <= 4);
    uploads.complete(0..2, &mut |_| true).unwrap();
    uploads.keep();
    assert!(server.object("/bucket/dir/0.bin").unwrap() == bytes[0]);
    assert!(server.object("/bucket/dir/1.bin").unwrap() == bytes[1]);
    assert_eq!(store_stats(&store), (lens[0] + lens[1]) as u64);
}

/// Bytes that were uploaded, by the length of the objects.
fn store_stats(store: &Store) -> u64 {
    let of = |name: &str| {
        let path = format!("s3://bucket/dir/{name}.bin");
        store.length(&path, &mut || true).unwrap().unwrap()
    };
    of("0") + of("1")
}

#[test]
fn bytes_far_ahead_are_not_waited_for_when_nothing_is_under_way() {
    let server = server();
    let (new, bytes) = objects(&[40 * PART]);
    let uploads = s3(&server).uploads(new).unwrap();
    let start = 39 * PART;
    let far = &bytes[0][start..];
    let error = uploads
        .write(0, start as u64, far, &mut |under_way| under_way)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    // bytes that the object does not have
    let error = uploads.write(0, u64::MAX, &[1], &mut |_| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = uploads.flush(&mut |_| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn failures_that_pass_are_repeated() {
    for (operation, status) in [
        ("part", "503 Slow Down"),
        ("create", "500 Internal Server Error"),
        ("complete", "503 Slow Down"),
        ("part 2", "lost"),
        ("complete", "lost"),
    ] {
        let server = server();
        server.upload_fault(operation, status, 1);
        let (new, bytes) = objects(&LENS);
        let uploads = s3(&server).uploads(new).unwrap();
        write(&uploads, &bytes, PART).unwrap_or_else(|e| panic!("{operation} {status}: {e}"));
        let completed = uploads.complete(0..4, &mut |_| true);
        completed.unwrap_or_else(|e| panic!("{operation} {status}: {e}"));
        uploads.keep();
        for (number, bytes) in bytes.iter().enumerate() {
            let object = server.object(&format!("/bucket/dir/{number}.bin"));
            assert!(object.as_ref() == Some(bytes), "{operation} {status}");
        }
    }
}

#[test]
fn failures_that_stay_abort_the_uploads() {
    for (operation, status, kind) in [
        ("part 3", "403 Forbidden", ErrorKind::Denied),
        ("part", "503 Slow Down", ErrorKind::Network),
        ("part 2", "silent", ErrorKind::Network),
        ("create", "403 Forbidden", ErrorKind::Denied),
        ("complete", "400 Bad Request", ErrorKind::Network),
        ("complete", "503 Slow Down", ErrorKind::Network),
    ] {
        let server = server();
        server.upload_fault(operation, status, usize::MAX);
        let (new, bytes) = objects(&LENS);
        let began = Instant::now();
        let uploads = s3(&server).uploads(new).unwrap();
        let written = write(&uploads, &bytes, PART);
        let error = written
            .and_then(|()| uploads.complete(0..4, &mut |_| true))
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{operation} {status}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        let left = uploads.abort();
        assert!(left.is_empty(), "{operation} {status}: {left}");
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{operation} {status}: {:?}",
            began.elapsed()
        );
        assert_eq!(
            server.open_uploads(),
            Vec::<String>::new(),
            "{operation} {status}"
        );
        assert_eq!(server.paths(), Vec::<String>::new(), "{operation} {status}");
    }
}

#[test]
fn completed_objects_are_removed_when_a_later_one_fails() {
    let server = server();
    let (mut new, bytes) = objects(&[PART, PART, PART]);
    new[1].replaces = true;
    server.upload_fault("complete /bucket/dir/2", "403 Forbidden", usize::MAX);
    let uploads = s3(&server).uploads(new).unwrap();
    write(&uploads, &bytes, PART).unwrap();
    uploads.complete(0..2, &mut |_| true).unwrap();
    assert_eq!(server.paths().len(), 2);
    uploads.complete(2..3, &mut |_| true).unwrap_err();
    let left = uploads.abort();
    assert!(left.is_empty(), "{left}");
    // an object that replaced the upload is not removed
    assert_eq!(server.paths(), ["/bucket/dir/1.bin"]);
    assert_eq!(server.open_uploads(), Vec::<String>::new());
}

#[test]
fn a_cancelled_run_leaves_nothing() {
    let server = server();
    server.upload_fault("part 4", "silent", usize::MAX);
    let (new, bytes) = objects(&[20 * PART]);
    let uploads = s3(&server).uploads(new).unwrap();
    let cancelled = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.open_uploads().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            cancelled.store(true, Ordering::Relaxed);
        });
        let head = bytes[0].len() / 3;
        let error = uploads
            .write(0, head as u64, &bytes[0][head..], &mut |_| {
                !cancelled.load(Ordering::Relaxed)
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    });
    let left = uploads.abort();
    assert!(left.is_empty(), "{left}");
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    // also after the server has answered what was cut off
    std::thread::sleep(Duration::from_millis(3200).saturating_sub(began.elapsed()));
    assert_eq!(server.open_uploads(), Vec::<String>::new());
    assert_eq!(server.paths(), Vec::<String>::new());
    // a further write ends at once
    let error = uploads.write(0, 0, &[1], &mut |_| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
}

#[test]
fn dropping_aborts() {
    let server = server();
    let (new, bytes) = objects(&[20 * PART, PART]);
    let uploads = s3(&server).uploads(new).unwrap();
    let head = bytes[0].len() / 3;
    let some = &bytes[0][head..head + 5 * PART];
    uploads.write(0, head as u64, some, &mut |_| true).unwrap();
    drop(uploads);
    assert_eq!(server.open_uploads(), Vec::<String>::new());
    assert_eq!(server.paths(), Vec::<String>::new());
}

#[test]
fn uploads_that_stay_open_are_named() {
    let server = server();
    let (new, bytes) = objects(&[3 * PART]);
    server.upload_fault("abort", "403 Forbidden", usize::MAX);
    let uploads = s3(&server).uploads(new.clone()).unwrap();
    write(&uploads, &bytes, PART).unwrap();
    let text = uploads.abort().to_string();
    assert!(
        text.contains("s3://bucket/dir/0.bin (id upload-1)"),
        "{text}"
    );
    assert!(text.contains("lifecycle rule"), "{text}");
    // a start without an answer
    server.upload_fault("create", "silent", usize::MAX);
    let uploads = s3(&server).uploads(new).unwrap();
    let error = write(&uploads, &bytes, PART).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Network | ErrorKind::TimedOut),
        "{error}"
    );
    let text = uploads.abort().to_string();
    assert!(
        text.contains("s3://bucket/dir/0.bin (of unknown id)"),
        "{text}"
    );
}

#[test]
fn small_objects_are_written_by_one_request() {
    let server = server();
    let store = s3(&server);
    let path = "s3://bucket/dir/config.json";
    let mut yes = || true;
    assert_eq!(store.length(path, &mut yes).unwrap(), None);
    store.put(path, b"{}".to_vec(), false, &mut yes).unwrap();
    assert_eq!(store.length(path, &mut yes).unwrap(), Some(2));
    let error = store
        .put(path, b"[]".to_vec(), false, &mut yes)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    store.put(path, b"[1]".to_vec(), true, &mut yes).unwrap();
    assert_eq!(server.object("/bucket/dir/config.json").unwrap(), b"[1]");
    assert_eq!(store.list("s3://bucket/dir/").unwrap(), ["config.json"]);
    store.remove(path, &mut yes).unwrap();
    store.remove(path, &mut yes).unwrap();
    assert_eq!(store.length(path, &mut yes).unwrap(), None);
    // a wait that is not wanted any more
    server.upload_fault("put", "silent", 1);
    let began = Instant::now();
    let error = store
        .put(path, Vec::new(), true, &mut || false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert!(began.elapsed() < Duration::from_secs(1));
    let error = super::store("http://127.0.0.1:1/a").remove("http://127.0.0.1:1/a", &mut yes);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
}

/// The other services: their URLs, credentials and protocols.
#[test]
fn google_and_azure_are_read_and_written() {
    let server = server();
    let endpoint = server.url("");
    for (url, path, variables) in [
        (
            "gs://bucket/gs",
            "/bucket/gs",
            vec![
                ("GOOGLE_BASE_URL", &*endpoint),
                ("GOOGLE_BEARER_TOKEN", "secret"),
            ],
        ),
        (
            "az://container/az",
            "/container/az",
            vec![
                ("AZURE_STORAGE_ENDPOINT", &*endpoint),
                ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
                ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0"),
            ],
        ),
        (
            "abfss://container@account.dfs.core.windows.net/abfss",
            "/container/abfss",
            vec![
                ("AZURE_STORAGE_ENDPOINT", &*endpoint),
                ("AZURE_STORAGE_TOKEN", "secret"),
            ],
        ),
    ] {
        let store = open(url, options(), &variables);
        let bytes = content(3 * PART + 5);
        let object = NewObject {
            path: format!("{url}/a.bin"),
            head: bytes[..10].to_vec(),
            len: bytes.len() as u64,
            replaces: false,
        };
        let uploads = store.uploads(vec![object.clone()]).unwrap();
        let mut yes = |_| true;
        uploads.write(0, 10, &bytes[10..], &mut yes).unwrap();
        uploads.flush(&mut yes).unwrap();
        uploads
            .complete(0..1, &mut yes)
            .unwrap_or_else(|e| panic!("{url}: {e}"));
        uploads.keep();
        let object_bytes = server.object(&format!("{path}/a.bin"));
        assert!(
            object_bytes.as_ref() == Some(&bytes),
            "{url}: {:?}",
            server.events()
        );
        let small = format!("{url}/b.json");
        store
            .put(&small, b"{}".to_vec(), false, &mut || true)
            .unwrap();
        let again = store.put(&small, b"{}".to_vec(), false, &mut || true);
        assert!(again.is_err() || url.contains("az"), "{url}");
        assert_eq!(
            store.length(&small, &mut || true).unwrap(),
            Some(2),
            "{url}"
        );
        let mut names = store.list(url).unwrap();
        names.sort();
        assert_eq!(names, ["a.bin", "b.json"], "{url}");
        server.answered();
        let file = store.file(&object.path).unwrap();
        assert_eq!(super::read(&file, 100, 1000).unwrap(), bytes[100..1100]);
        let request = server.answered().remove(0);
        let token = request.headers.get("authorization").map(String::as_str);
        let is_signed = request.query.contains("sig=");
        assert!(
            is_signed != (token == Some("Bearer secret")),
            "{url}: {request:?}"
        );
    }
}
