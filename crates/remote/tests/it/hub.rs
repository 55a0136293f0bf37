//! The hub: tokens, commits, listings, its errors and its cache.

use anamnesis_remote::{ErrorKind, OpenedUrl, RemoteOptions, RequestCounters, Store};

use super::server::{COMMIT, TestServer, depth};
use super::{content, read, store_with};

fn hub(server: &TestServer, url: &str) -> Store {
    store_with(
        url,
        &[("HF_ENDPOINT", &server.url("")), ("HF_TOKEN", "secret")],
    )
}

#[test]
fn a_file_is_a_redirect_and_its_ranges_go_to_the_signed_url() {
    let server = TestServer::start();
    let bytes = content(3_000_000);
    server.put("/org/model/a.safetensors", bytes.clone());
    let store = hub(&server, "hf://org/model/a.safetensors");
    let file = store.file(store.path()).unwrap();
    assert_eq!(read(&file, 0, 100).unwrap(), bytes[..100]);
    let requests = server.answered();
    assert_eq!((requests.len(), depth(&requests)), (2, 2));
    assert_eq!(requests[0].path, "/org/model/resolve/main/a.safetensors");
    assert_eq!(requests[0].headers["authorization"], "Bearer secret");
    assert!(!requests[1].headers.contains_key("authorization"));
    assert_eq!(
        read(&file, 1_000_000, 100).unwrap(),
        bytes[1_000_000..1_000_100]
    );
    let requests = server.answered();
    assert_eq!((requests.len(), &*requests[0].query), (1, "Signature=1"));
}

#[test]
fn a_folder_whose_name_has_a_dot_is_listed() {
    let server = TestServer::start();
    server.put("/org/model/v2.5/config.json", "{}");
    let store = hub(&server, "hf://org/model/v2.5/");
    assert!(store.is_directory(store.path()));
    assert_eq!(store.list(store.path()).unwrap(), ["config.json"]);
    let file = store.file("hf://org/model/v2.5/config.json").unwrap();
    assert_eq!(file.len().unwrap(), 2);
}

#[test]
fn a_repository_is_listed_and_read_at_one_commit() {
    let server = TestServer::start();
    for name in [
        "model.safetensors.index.json",
        "config.json",
        "sub/x.json",
        "1.safetensors",
        "2.safetensors",
    ] {
        server.put(&format!("/org/model/{name}"), "{}");
    }
    let store = hub(&server, "hf://org/model");
    assert!(store.is_directory(store.path()));
    let mut names = store.list(store.path()).unwrap();
    names.sort();
    assert_eq!(
        names,
        [
            "1.safetensors",
            "2.safetensors",
            "config.json",
            "model.safetensors.index.json"
        ]
    );
    let index = store
        .file("hf://org/model/model.safetensors.index.json")
        .unwrap();
    assert_eq!(index.len().unwrap(), 2);
    let requests = server.answered();
    assert_eq!(
        (requests.len(), depth(&requests)),
        (2, 1),
        "the index is read while the list is"
    );
    store.begin(
        &mut [
            "hf://org/model/1.safetensors".to_owned(),
            "hf://org/model/2.safetensors".to_owned(),
        ]
        .into_iter(),
    );
    store
        .file("hf://org/model/1.safetensors")
        .unwrap()
        .len()
        .unwrap();
    store
        .file("hf://org/model/2.safetensors")
        .unwrap()
        .len()
        .unwrap();
    let requests = server.answered();
    assert_eq!((requests.len(), depth(&requests)), (4, 2));
    let resolved = requests
        .iter()
        .filter(|request| request.path.contains("/resolve/"));
    assert!(
        resolved.clone().count() == 2
            && resolved
                .clone()
                .all(|request| request.path.contains(COMMIT))
    );
    assert_eq!(store.list("hf://org/model/sub").unwrap(), ["x.json"]);
}

#[test]
fn a_repository_that_moves_on_is_an_error() {
    let server = TestServer::start();
    for name in ["a.json", "b.json"] {
        server.put(&format!("/org/moving/{name}"), "{}");
    }
    let store = hub(&server, "hf://org/moving/a.json");
    store.file(store.path()).unwrap().len().unwrap();
    let error = store
        .file("hf://org/moving/b.json")
        .unwrap()
        .len()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

#[test]
fn errors_name_their_remedy() {
    let server = TestServer::start();
    server.put("/org/model/a.json", "{}");
    server.put("/org/gated/a.json", "{}");
    let error = |url: &str, token: &str| {
        let store = store_with(
            url,
            &[("HF_ENDPOINT", &server.url("")), ("HF_TOKEN", token)],
        );
        let error = if store.is_directory(store.path()) {
            store.list(store.path()).map(|_| ()).unwrap_err()
        } else {
            store
                .file(store.path())
                .unwrap()
                .len()
                .map(|_| ())
                .unwrap_err()
        };
        (error.kind(), error.to_string())
    };
    for (url, kind, text) in [
        ("hf://org/gated/a.json", ErrorKind::Denied, "request access"),
        ("hf://org/none", ErrorKind::Denied, "HF_TOKEN"),
        ("hf://org/model@v9", ErrorKind::NotFound, "revision"),
        ("hf://org/model/b.json", ErrorKind::NotFound, "no such file"),
    ] {
        let (found, message) = error(url, "wrong");
        assert_eq!(found, kind, "{url}: {message}");
        assert!(
            message.contains(text) && !message.contains("wrong"),
            "{url}: {message}"
        );
    }
    // the right token opens it
    let store = hub(&server, "hf://org/gated/a.json");
    assert_eq!(store.file(store.path()).unwrap().len().unwrap(), 2);
}

#[test]
fn what_the_cache_holds_is_not_requested() {
    let server = TestServer::start();
    let home = tempfile::tempdir().unwrap();
    let snapshot = home
        .path()
        .join("hub/models--org--model/snapshots")
        .join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::write(snapshot.join("a.gguf"), "x").unwrap();
    let variables = |name: &str| match name {
        "HF_ENDPOINT" => Some(server.url("")),
        "HF_HOME" => Some(home.path().to_str().unwrap().to_owned()),
        _ => None,
    };
    let url = format!("hf://org/model@{COMMIT}/a.gguf");
    let counters = RequestCounters::default();
    let mut options = RemoteOptions::default();
    options.counters = Some(counters.clone());
    match Store::open_with(&url, options, &variables).unwrap() {
        OpenedUrl::Local(path) => assert_eq!(path, snapshot.join("a.gguf")),
        OpenedUrl::Store(_) => panic!("{url} is in the cache"),
    }
    assert!(server.answered().is_empty());
    let stats = counters.stats();
    assert_eq!((stats.from_cache, stats.requests), (1, 0));
}
