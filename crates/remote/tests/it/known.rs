//! Requests that are not repeated: configurations, and names that a list does not have.

use anamnesis_remote::{ErrorKind, RemoteFile, Store};

use super::server::TestServer;
use super::{content, read, store, store_with};

/// Announces the files and opens them.
fn opened(store: &Store, paths: &[String; 2]) -> [RemoteFile; 2] {
    store.begin(&mut paths.iter().cloned());
    paths.each_ref().map(|path| store.file(path).unwrap())
}

#[test]
fn a_configuration_is_requested_once_and_so_is_one_that_is_absent() {
    let server = TestServer::start();
    server.put("/m/config.json", "{}");
    let store = store(&server.url("/m/model.safetensors"));
    let paths = ["config.json", "none.json"].map(|name| server.url(&format!("/m/{name}")));
    for _ in 0..3 {
        let [config, none] = opened(&store, &paths);
        assert_eq!(read(&config, 0, 100).unwrap(), b"{}");
        config.settled();
        assert_eq!(none.len().unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(server.answered().len(), 2);
    // two at a time are one file, and the end of one does not end the other
    let mut both = [&paths[0], &paths[0]]
        .map(|path| store.file(path).unwrap())
        .into_iter();
    drop(both.next());
    assert_eq!(read(&both.next().unwrap(), 1, 100).unwrap(), b"}");
    assert!(server.answered().is_empty());
    // another checkpoint has a file of its own, as it may have changed since
    server.put("/m/config.json", "[1]");
    let later = super::store(&server.url("/m/model.safetensors"));
    assert_eq!(
        read(&later.file(&paths[0]).unwrap(), 0, 100).unwrap(),
        b"[1]"
    );
}

#[test]
fn what_is_long_or_no_configuration_is_requested_again() {
    let server = TestServer::start();
    for (name, len) in [
        ("a.safetensors", 100),
        ("b.index.json", 100),
        ("c.json", 200_000),
    ] {
        let bytes = content(len);
        server.put(&format!("/m/{name}"), bytes.clone());
        let url = server.url(&format!("/m/{name}"));
        let store = store(&url);
        for round in 0..2 {
            let file = store.file(&url).unwrap();
            assert!(read(&file, 0, len).unwrap() == bytes);
            file.settled();
            drop(file);
            assert!(!server.answered().is_empty(), "{name}, {round}");
        }
    }
}

#[test]
fn what_a_list_does_not_have_is_not_requested() {
    let server = TestServer::start();
    server.put("/bucket/m/config.json", "{}");
    server.put("/org/model/config.json", "{}");
    server.put("/org/model/a b.json", "{}");
    let endpoint = server.url("");
    let variables = [
        ("HF_ENDPOINT", &*endpoint),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    for url in ["s3://bucket/m", "s3://bucket/m/", "hf://org/model"] {
        let store = store_with(url, &variables);
        let path = |name: &str| format!("{}/{name}", url.trim_end_matches('/'));
        store.list(store.path()).unwrap();
        server.answered();
        let error = store.file(&path("hf_quant_config.json")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{url}");
        assert!(server.answered().is_empty(), "{url}");
        let config = store.file(&path("config.json")).unwrap();
        assert_eq!(read(&config, 0, 100).unwrap(), b"{}", "{url}");
        // nothing is known of other directories, and of names that lists may have in another form
        for name in ["sub/config.json", "c d.json"] {
            let error = store.file(&path(name)).unwrap().len().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{url} {name}");
        }
        assert!(server.answered().len() >= 3, "{url}");
    }
    // a written file is there, whatever the list was
    let store = store_with("s3://bucket/m/", &variables);
    store.list(store.path()).unwrap();
    let path = "s3://bucket/m/new.json";
    assert!(store.file(path).is_err());
    store
        .put(path, b"{}".to_vec(), false, &mut || true)
        .unwrap();
    assert_eq!(store.file(path).unwrap().len().unwrap(), 2);
}
