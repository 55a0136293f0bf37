//! Paths, variables, listings and the cache.

use std::path::Path;

use super::*;

fn settings(variables: &[(&str, &str)]) -> HubSettings {
    let get = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    HubSettings::from_variables(&get).unwrap()
}

#[test]
fn paths() {
    let parsed = HubPath::parse("org/model@refs/x/sub/a b.gguf");
    // a revision with a slash cannot be told from a file
    assert_eq!(parsed.unwrap().file, "x/sub/a b.gguf");
    let file = HubPath::parse("org/model@v1.0/sub/a b.gguf").unwrap();
    assert_eq!(
        (&*file.revision, &*file.file, file.is_file()),
        ("v1.0", "sub/a b.gguf", true)
    );
    let endpoint = settings(&[]).endpoint;
    assert_eq!(
        file.resolve_url(&endpoint, "abc").unwrap().as_str(),
        "https://huggingface.co/org/model/resolve/abc/sub/a%20b.gguf"
    );
    let repository = HubPath::parse("org/model").unwrap();
    assert_eq!(
        (&*repository.revision, repository.is_file()),
        ("main", false)
    );
    assert_eq!(
        repository.listing_url(&endpoint).unwrap().as_str(),
        "https://huggingface.co/api/models/org/model/revision/main"
    );
    for wrong in [
        "",
        "org",
        "org/",
        "/model",
        "../model",
        "org/..",
        "org/m@",
        "org/m/../x",
        "org/m/a//b",
        "datasets/o/n",
        "o?x/n",
        "o/n@..",
        "o/n/a\\b",
    ] {
        assert!(HubPath::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_environment_decides() {
    let own = settings(&[
        ("HF_ENDPOINT", "http://127.0.0.1:9/hub/"),
        ("HF_TOKEN", " t \n"),
        ("HF_HOME", "/nowhere"),
    ]);
    assert_eq!(own.endpoint.as_str(), "http://127.0.0.1:9/hub/");
    assert_eq!(own.token.unwrap(), "Bearer t");
    assert_eq!(own.cache.unwrap(), Path::new("/nowhere/hub"));
    let none = settings(&[("HF_TOKEN", ""), ("HF_HOME", "/nowhere")]);
    assert!(none.token.is_none());
    assert!(HubSettings::from_variables(&|_| Some("ftp://h".to_owned())).is_err());
    for (value, expected) in [("1", true), ("yes", true), ("0", false), ("", false)] {
        let get = |name: &str| (name == "HF_HUB_OFFLINE").then(|| value.to_owned());
        assert_eq!(is_offline(&get), expected, "{value}");
    }
    assert!(!is_offline(&|_| None));
}

#[test]
fn listings_name_the_files_of_one_folder() {
    let text = br#"{"sha": "abc", "siblings": [{"rfilename": "a.gguf"}, {"rfilename": "sub/b.gguf"}, {"rfilename": ".."}, {"rfilename": "sub/../../c"}, {}]}"#;
    assert_eq!(
        parse_listing(text, "", 1000).unwrap(),
        ("abc".to_owned(), vec!["a.gguf".to_owned()])
    );
    assert_eq!(parse_listing(text, "sub", 1000).unwrap().1, ["b.gguf"]);
    for wrong in [
        "",
        "{}",
        r#"{"sha": "a/b", "siblings": []}"#,
        r#"{"sha": "abc"}"#,
        "[]",
    ] {
        assert!(
            parse_listing(wrong.as_bytes(), "", 1000).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn a_snapshot_counts_if_it_is_whole() {
    let home = std::env::temp_dir().join(format!("anamnesis-hub-{}", std::process::id()));
    let commit = "0123456789012345678901234567890123456789";
    let repository = home.join("hub/models--org--model");
    let snapshot = repository.join("snapshots").join(commit);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), commit).unwrap();
    let settings = settings(&[("HF_HOME", home.to_str().unwrap())]);
    let cached = |path: &str| HubPath::parse(path).unwrap().cached(&settings, 1 << 20);
    assert_eq!(cached("org/model"), None);
    std::fs::write(
        snapshot.join("model.safetensors.index.json"),
        r#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#,
    )
    .unwrap();
    std::fs::write(snapshot.join("1.safetensors"), "").unwrap();
    assert_eq!(cached("org/model"), None);
    assert_eq!(cached("org/model/model.safetensors.index.json"), None);
    assert_eq!(
        cached("org/model/1.safetensors"),
        Some(snapshot.join("1.safetensors"))
    );
    assert_eq!(cached("org/model@other/1.safetensors"), None);
    std::fs::write(snapshot.join("2.safetensors"), "").unwrap();
    assert_eq!(cached("org/model"), Some(snapshot.join("")));
    assert_eq!(
        cached(&format!("org/model@{commit}")),
        Some(snapshot.join(""))
    );
    std::fs::remove_dir_all(home).unwrap();
}
