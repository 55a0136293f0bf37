//! Places that other users can change: each verb that reads the hub's cache in the place of the hub says who else can change it,
//! and a policy says so of its templates.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::hub_cache::HubCache;
use crate::process::{Run, command, finish, is_root, path_str};

const URL: &str = "hf://org/name";

/// A cache below a directory with the sticky bit, which is as safe as the user's own.
fn cache() -> HubCache {
    let dir = tempfile::tempdir().unwrap();
    let cache = HubCache { dir };
    cache.add("org", "name", &[64]);
    fs::write(cache.repository().join("blobs/ca3d163bab055381"), CONFIG).unwrap();
    for path in [cache.repository(), cache.snapshot()]
        .into_iter()
        .chain(["blobs", "refs", "snapshots"].map(|name| cache.repository().join(name)))
    {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    cache
}

const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1,
    "vocab_size": 8, "intermediate_size": 8}"#;

fn run_in(cache: &HubCache, scratch: &Path, args: &[&str]) -> Run {
    let mut command = command(args);
    command
        .env("HF_HUB_CACHE", cache.dir.path())
        .current_dir(scratch);
    finish(command)
}

/// Every verb that reads a model, by a URL of the hub.
pub(crate) static VERBS: &[&[&str]] = &[
    &["inspect", URL],
    &["plan", URL],
    &["remember", "--overwrite", URL, "-o", "out"],
    &["convert", "--overwrite", URL, "-o", "out"],
    &["load", URL],
    &["check", URL],
    &["diff", URL, URL],
    &["fit", URL],
    &["report", URL, "-o", "-"],
    &["template", "predict", URL, "--overwrite", "-o", "t.iot"],
    &["warm", URL],
    &["ppc", "run", "--policy", "none", "--dir", URL, "--", "true"],
];

fn said(done: &Run) -> String {
    format!("{}{}", done.stdout, done.stderr)
}

#[test]
fn every_verb_says_who_else_can_change_the_hub_cache() {
    if !cfg!(feature = "remote") {
        return eprintln!("SKIPPED: built without URLs");
    }
    let (cache, scratch) = (cache(), tempfile::tempdir().unwrap());
    let blobs = cache.repository().join("blobs");
    for args in VERBS {
        let run = || run_in(&cache, scratch.path(), args);
        let quiet = said(&run());
        assert!(!quiet.contains("hub's cache"), "{args:?}: {quiet}");
        fs::set_permissions(&blobs, Permissions::from_mode(0o777)).unwrap();
        let warned = said(&run());
        let expected = format!("other users can write to {}", path_str(&blobs));
        assert!(warned.contains(&expected), "{args:?}: {warned}");
        fs::set_permissions(&blobs, Permissions::from_mode(0o755)).unwrap();
        if !is_root("files of another user") {
            continue;
        }
        let blob = blobs.join("5891b5b522d5df08");
        chown(&blob, Some(54_321), None).unwrap();
        let warned = said(&run());
        assert!(
            warned.contains("belongs to user 54321"),
            "{args:?}: {warned}"
        );
        chown(&blob, Some(0), None).unwrap();
    }
    // a directory that the user names is the user's choice, as any other one
    fs::set_permissions(&blobs, Permissions::from_mode(0o777)).unwrap();
    let repository = cache.repository();
    let named = said(&run_in(
        &cache,
        scratch.path(),
        &["inspect", path_str(&repository)],
    ));
    assert!(!named.contains("other users"), "{named}");
}

#[test]
fn a_policy_says_who_else_can_change_its_templates() {
    let root = tempfile::tempdir().unwrap();
    let (model, templates) = (root.path().join("model"), root.path().join("templates"));
    for directory in [&model, &templates] {
        fs::create_dir(directory).unwrap();
    }
    let warning = |place: &Path| {
        let policy = format!("maio:{}", place.display());
        let dir = path_str(&model);
        let args = [
            "ppc", "run", "--policy", &policy, "--dir", dir, "--", "true",
        ];
        finish(command(&args)).stderr
    };
    let mode = |mode| fs::set_permissions(&templates, Permissions::from_mode(mode)).unwrap();
    // a directory, one that does not exist yet, and a file
    let places = [
        templates.clone(),
        templates.join("new"),
        templates.join("t.iot"),
    ];
    for place in &places {
        mode(0o755);
        let quiet = warning(place);
        assert!(!quiet.contains("other users"), "{quiet}");
        mode(0o777);
        let warned = warning(place);
        let expected = format!("other users can write to {}", path_str(&templates));
        assert!(warned.contains(&expected), "{warned}");
        if rustix::process::geteuid().is_root() {
            mode(0o755);
            chown(&templates, Some(54_321), None).unwrap();
            let warned = warning(place);
            assert!(warned.contains("belongs to user 54321"), "{warned}");
            chown(&templates, Some(0), None).unwrap();
        }
    }
}
