//! Without requests: what a cache on this machine has is read, and everything else is an error before anything is sent.

use anamnesis_remote::{ErrorKind, OpenedUrl, RemoteOptions, Store};

use super::content;
use super::server::{COMMIT, TestServer};

fn offline(server: &TestServer, url: &str, home: &str) -> anamnesis_remote::Result<OpenedUrl> {
    let mut options = RemoteOptions::default();
    options.offline = true;
    let variables = |name: &str| match name {
        "HF_ENDPOINT" | "AWS_ENDPOINT_URL" | "GOOGLE_BASE_URL" => Some(server.url("")),
        "AZURE_STORAGE_ENDPOINT" => Some(server.url("")),
        "AZURE_STORAGE_ACCOUNT_NAME" => Some("account".to_owned()),
        "HF_HOME" => Some(home.to_owned()),
        // credentials would be requested of an instance
        "AWS_METADATA_ENDPOINT" => Some(server.url("/credentials")),
        _ => None,
    };
    Store::open_with(url, options, &variables)
}

#[test]
fn nothing_is_requested() {
    let server = TestServer::start();
    server.put("/m/a.safetensors", content(1000));
    server.put("/org/model/model.safetensors", content(1000));
    for url in [
        &*server.url("/m/a.safetensors"),
        "s3://m/a.safetensors",
        "gs://m/a.safetensors",
        "az://m/a.safetensors",
        "s3://m/",
        "hf://org/model",
        "hf://org/model/model.safetensors",
    ] {
        let error = offline(&server, url, "/nowhere").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Offline, "{url}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("no request is sent (offline"),
            "{url}: {text}"
        );
        assert!(text.contains("download it"), "{url}: {text}");
        let error = std::io::Error::from(error);
        assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown);
    }
    assert!(server.answered().is_empty());
}

#[test]
fn the_hubs_cache_is_read() {
    let server = TestServer::start();
    let home = tempfile::tempdir().unwrap();
    let repository = home.path().join("hub/models--org--model");
    let snapshot = repository.join("snapshots").join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), COMMIT).unwrap();
    std::fs::write(snapshot.join("model.safetensors"), "x").unwrap();
    let home = home.path().to_str().unwrap();
    for (url, expected) in [
        ("hf://org/model", snapshot.clone()),
        (
            "hf://org/model/model.safetensors",
            snapshot.join("model.safetensors"),
        ),
    ] {
        match offline(&server, url, home).unwrap() {
            OpenedUrl::Local(path) => assert_eq!(path, expected),
            OpenedUrl::Store(_) => panic!("{url} is in the cache"),
        }
    }
    let absent = offline(&server, "hf://org/model/other.gguf", home);
    assert_eq!(absent.err().unwrap().kind(), ErrorKind::Offline);
    assert!(server.answered().is_empty());
}
