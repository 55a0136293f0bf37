//! ModelScope: lists, texts without ranges, redirects, tokens, and files that are not the ones of the list.

use anamnesis_remote::{ErrorKind, RemoteOptions, Store};

use super::server::TestServer;
use super::{content, open, read};

fn modelscope(server: &TestServer, url: &str, token: &str) -> Store {
    opened(server, url, token, RemoteOptions::default())
}

fn opened(server: &TestServer, url: &str, token: &str, options: RemoteOptions) -> Store {
    let endpoint = server.url("");
    let variables = [
        ("MODELSCOPE_ENDPOINT", &*endpoint),
        ("MODELSCOPE_API_TOKEN", token),
    ];
    open(url, options, &variables)
}

#[test]
fn files_are_listed_once_and_read_by_ranges() {
    let server = TestServer::start();
    let bytes = content(600_000);
    server.put("/org/model/a.gguf", bytes.clone());
    server.put("/org/model/config.json", "{}");
    server.put("/org/model/sub/b.gguf", bytes.clone());
    let store = modelscope(&server, "ms://org/model", "");
    let mut names = store.list("ms://org/model").unwrap();
    names.sort();
    assert_eq!(names, ["a.gguf", "config.json"]);
    assert_eq!(store.list("ms://org/model/sub").unwrap(), ["b.gguf"]);
    assert_eq!(server.answered().len(), 1);
    let file = store.file("ms://org/model/sub/b.gguf").unwrap();
    assert_eq!(file.len().unwrap(), 600_000);
    assert_eq!(read(&file, 100, 50).unwrap(), bytes[100..150]);
    let requests = server.answered();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    assert_eq!(requests[0].query, "Revision=master&FilePath=sub%2Fb.gguf");
    // a second range goes where the redirect led
    assert_eq!(read(&file, 500_000, 50).unwrap(), bytes[500_000..500_050]);
    let requests = server.answered();
    assert!(
        requests
            .iter()
            .all(|request| request.path.starts_with("/cdn/")),
        "{requests:#?}"
    );
    // in chunks, without ranges
    let text = store.file("ms://org/model/config.json").unwrap();
    assert_eq!(read(&text, 0, 10).unwrap(), b"{}");
    let file = modelscope(&server, "ms://org/model@v1/a.gguf", "");
    assert_eq!(file.path(), "ms://org/model@v1/a.gguf");
    assert_eq!(
        read(&file.file(file.path()).unwrap(), 0, 10).unwrap(),
        bytes[..10]
    );
}

#[test]
fn tokens_follow_no_redirect() {
    let server = TestServer::start();
    server.put("/private/model/a.gguf", content(300_000));
    let store = modelscope(&server, "ms://private/model", "ms-token");
    let file = store.file("ms://private/model/a.gguf").unwrap();
    assert_eq!(file.len().unwrap(), 300_000);
    for request in server.answered() {
        let is_own = request.path.starts_with("/api/");
        for name in ["authorization", "cookie"] {
            assert_eq!(request.headers.contains_key(name), is_own, "{request:#?}");
        }
    }
    let refused = modelscope(&server, "ms://private/model", "");
    let error = refused.list("ms://private/model").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(
        error.to_string().contains("MODELSCOPE_API_TOKEN"),
        "{error}"
    );
}

#[test]
fn other_files_than_the_listed_ones_are_refused() {
    let server = TestServer::start();
    let bytes = content(1000);
    let mut other = bytes.clone();
    other[500] ^= 1;
    server.put("/org/model/a.bin", other.clone());
    server.put("/former/org/model/a.bin", bytes.clone());
    server.put("/org/model/b.bin", &bytes[..999]);
    server.put("/former/org/model/b.bin", bytes.clone());
    // without a digest in the list there is nothing to compare with
    server.put("/org/model/new/a.bin", other.clone());
    let store = modelscope(&server, "ms://org/model", "");
    for name in ["a.bin", "b.bin"] {
        let file = store.file(&format!("ms://org/model/{name}")).unwrap();
        let error = read(&file, 0, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{name}: {error}");
    }
    let file = store.file("ms://org/model/new/a.bin").unwrap();
    assert_eq!(read(&file, 0, 1000).unwrap(), other);
    for (url, said) in [
        ("ms://org/model/c.bin", "no such file"),
        ("ms://org/none/c.bin", "no such model"),
        (
            "ms://org/model@v9/a.bin",
            "no such public model or revision",
        ),
    ] {
        let store = modelscope(&server, url, "");
        let error = store.file(url).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_list_that_ends_early_is_said() {
    let server = TestServer::start();
    server.put("/org/many/a.bin", content(1000));
    server.put("/org/many/hidden/b.bin", content(2000));
    let store = modelscope(&server, "ms://org/many", "");
    let error = store.list("ms://org/many").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(store.stated_digests().is_err());
    let file = store.file("ms://org/many/hidden/b.bin").unwrap();
    assert_eq!(read(&file, 0, 2000).unwrap(), content(2000));
}

#[test]
fn headers_are_kept_by_their_digest() {
    let server = TestServer::start();
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (content(200_000), content(300_000));
    // the redirect is a request of its own
    for (bytes, requests) in [(&old, 3), (&old, 1), (&new, 3)] {
        server.put("/org/model/x.npy", bytes.clone());
        let mut options = RemoteOptions::default();
        options.header_cache = Some(folder.path().to_owned());
        let store = opened(&server, "ms://org/model", "", options);
        let file = store.file("ms://org/model/x.npy").unwrap();
        assert_eq!(file.len().unwrap(), bytes.len() as u64);
        assert_eq!(read(&file, 0, 100).unwrap(), bytes[..100]);
        file.settled();
        assert_eq!(server.answered().len(), requests);
    }
    // the list is kept too
    let mut options = RemoteOptions::default();
    options.header_cache = Some(folder.path().to_owned());
    options.offline = true;
    let store = opened(&server, "ms://org/model", "", options);
    assert_eq!(store.list("ms://org/model").unwrap(), ["x.npy"]);
    let file = store.file("ms://org/model/x.npy").unwrap();
    assert_eq!(read(&file, 0, 100).unwrap(), new[..100]);
    assert_eq!(server.answered().len(), 0);
}
