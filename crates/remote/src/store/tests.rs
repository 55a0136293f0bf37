use super::*;

fn store(url: &str) -> Store {
    match Store::open_with(url, RemoteOptions::default(), &|name| {
        (name == "HF_HOME").then(|| "/nowhere".into())
    }) {
        Ok(OpenedUrl::Store(store)) => *store,
        Ok(OpenedUrl::Local(path)) => panic!("{}", path.display()),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn the_query_is_sent_and_not_shown() {
    let store = store("https://h/m%20x/a.safetensors?sig=1#part");
    assert_eq!(store.path(), "https://h/m%20x/a.safetensors");
    let StorePlace::Web { url, .. } = &store.place else {
        panic!("a web server")
    };
    let of = |path: &str| store.web_url(url, path).map(|url| url.to_string());
    assert_eq!(
        of(store.path()).unwrap(),
        "https://h/m%20x/a.safetensors?sig=1"
    );
    assert_eq!(
        of("https://h/m%20x/b c#%.json").unwrap(),
        "https://h/m%20x/b%20c%23%25.json?sig=1"
    );
    for wrong in [
        "https://h/other/a",
        "https://g/m%20x/a",
        "a",
        "https://h/m%20x/",
    ] {
        assert!(of(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn urls_that_name_nothing_are_refused() {
    for wrong in [
        "https://user:secret@h/a",
        "http://",
        "https://h:x/a",
        "hf://org",
        "ftp://h/a",
        "s3:///key",
        "a",
    ] {
        let error = Store::open(wrong)
            .err()
            .unwrap_or_else(|| panic!("{wrong}"));
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let offline = |name: &str| match name {
        "HF_HUB_OFFLINE" => Some("1".to_owned()),
        "HF_HOME" => Some("/nowhere".to_owned()),
        _ => None,
    };
    let error = Store::open_with("hf://org/model", RemoteOptions::default(), &offline)
        .err()
        .unwrap();
    assert!(error.to_string().contains("hf download"), "{error}");
}

#[test]
fn directories_are_known_by_their_form() {
    let hub = store("hf://org/model@main/");
    assert_eq!(hub.path(), "hf://org/model@main");
    assert!(hub.is_directory("hf://org/model") && hub.is_directory("hf://org/model/sub"));
    assert!(!hub.is_directory("hf://org/model/a.gguf"));
    let folder = store("hf://org/model/v2.5//");
    assert!(folder.path() == "hf://org/model/v2.5/" && folder.is_directory(folder.path()));
    for url in [
        "s3://bucket/qwen2.5/",
        "s3://bucket/qwen",
        "s3://bucket",
        "s3://bucket/",
    ] {
        let bucket = store(url);
        assert!(bucket.path() == url && bucket.is_directory(url), "{url}");
    }
    assert!(!store("s3://bucket/qwen2.5").is_directory("s3://bucket/qwen2.5"));
    let web = store("https://h/a/");
    assert!(web.is_directory("https://h/a/") && !web.is_directory("https://h/a"));
    assert_eq!(
        web.list("https://h/a/").unwrap_err().kind(),
        ErrorKind::Unsupported
    );
}
