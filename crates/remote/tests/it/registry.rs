//! Registries: tags that move, the cache of headers, and bytes of another digest.

use anamnesis_remote::{ErrorKind, RemoteOptions};

use super::server::{TestServer, digest_of};
use super::{content, open, read, store};

const WEIGHTS: &str = "application/vnd.cncf.model.weight.v1.raw";

#[test]
fn a_tag_that_moves_changes_nothing_that_is_open() {
    let server = TestServer::start();
    let (old, new) = (content(200_000), content(300_000));
    server.put_model("a/b", "v1", &[(WEIGHTS, Some("x.bin"), &old)]);
    let opened = store(&server.oci("a/b:v1"));
    assert_eq!(opened.list(opened.path()).unwrap(), ["x.bin"]);
    server.put_model("a/b", "v1", &[(WEIGHTS, Some("x.bin"), &new)]);
    let path = format!("{}/x.bin", opened.path());
    let file = opened.file(&path).unwrap();
    assert_eq!(file.len().unwrap(), 200_000);
    assert_eq!(read(&file, 150_000, 100).unwrap(), old[150_000..150_100]);
    let again = store(&server.oci("a/b:v1"));
    assert_eq!(again.file(&path).unwrap().len().unwrap(), 300_000);
}

#[test]
fn headers_of_blobs_are_kept_by_their_digest() {
    let server = TestServer::start();
    let folder = tempfile::tempdir().unwrap();
    let bytes = content(200_000);
    // one request: other endings have one for the last bytes, which may arrive after the file is settled
    let digest = server.put_model("a/b", "v1", &[(WEIGHTS, Some("x.npy"), &bytes)]);
    for (reference, requests) in [
        (":v1", 2),
        (":v1", 1),
        (&*format!("@{digest}"), 1),
        (&*format!("@{digest}"), 0),
    ] {
        let mut options = RemoteOptions::default();
        options.header_cache = Some(folder.path().to_owned());
        let opened = open(&server.oci(&format!("a/b{reference}")), options, &[]);
        assert_eq!(opened.list(opened.path()).unwrap(), ["x.npy"]);
        let file = opened.file(&format!("{}/x.npy", opened.path())).unwrap();
        assert_eq!(read(&file, 0, 100).unwrap(), bytes[..100]);
        file.settled();
        assert_eq!(server.answered().len(), requests, "{reference}");
    }
}

#[test]
fn a_blob_that_is_another_one_is_refused() {
    let server = TestServer::start();
    let short = content(1000);
    server.put_model("a/b", "v1", &[(WEIGHTS, Some("x.bin"), &short)]);
    let mut other = short.clone();
    other[500] ^= 1;
    server.put(&format!("/blobs/{}", digest_of(&short)), other);
    let opened = store(&server.oci("a/b:v1"));
    let file = opened.file(&format!("{}/x.bin", opened.path())).unwrap();
    // not one byte of it is read
    let error = read(&file, 0, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let error = opened
        .file("oci://other/a:v1/x.bin")
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}
