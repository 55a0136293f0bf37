//! Models in the layout of the Hugging Face hub's cache, whose snapshots are links to blobs: each path that names a model
//! leads to the same files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::page_cache::evict_file;
use crate::process::{command, finish, path_str, run, safetensors, stdout_of, workspace};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A cache on the disk of the workspace with the repository `org/name`.
pub(crate) struct HubCache {
    pub(crate) dir: tempfile::TempDir,
}

impl HubCache {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir_in(workspace().join("target")).unwrap();
        let cache = Self { dir };
        cache.add("org", "name", &[1 << 20]);
        cache
    }

    /// Adds a repository with one model of this shape, and a configuration.
    pub(crate) fn add(&self, owner: &str, name: &str, shape: &[usize]) {
        let repository = self.dir.path().join(format!("models--{owner}--{name}"));
        let snapshot = repository.join("snapshots").join(COMMIT);
        for made in [
            &repository.join("blobs"),
            &repository.join("refs"),
            &snapshot,
        ] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(repository.join("refs/main"), COMMIT).unwrap();
        let blob = repository.join("blobs/5891b5b522d5df08");
        safetensors(&blob, "", &[("a", shape), ("b", shape)]);
        fs::write(repository.join("blobs/ca3d163bab055381"), "{}").unwrap();
        for (name, blob) in [
            ("model.safetensors", "5891b5b522d5df08"),
            ("config.json", "ca3d163bab055381"),
        ] {
            symlink(format!("../../blobs/{blob}"), snapshot.join(name)).unwrap();
        }
        self.evict();
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.dir
            .path()
            .canonicalize()
            .unwrap()
            .join("models--org--name")
    }

    pub(crate) fn snapshot(&self) -> PathBuf {
        self.repository().join("snapshots").join(COMMIT)
    }

    /// Evicts all blobs from the page cache.
    pub(crate) fn evict(&self) {
        for repository in fs::read_dir(self.dir.path()).unwrap() {
            for blob in fs::read_dir(repository.unwrap().path().join("blobs")).unwrap() {
                evict_file(&blob.unwrap().path());
            }
        }
    }
}

#[test]
fn every_path_of_a_model_predicts_the_same_template() {
    let cache = HubCache::new();
    let scratch = tempfile::tempdir().unwrap();
    let mut templates = Vec::new();
    let mut paths = vec![
        cache.snapshot(),
        cache.repository(),
        cache.snapshot().join("model.safetensors"),
    ];
    if cfg!(feature = "remote") {
        paths.push("hf://org/name".into());
        paths.push("hf://org/name/model.safetensors".into());
    }
    for (number, path) in paths.iter().enumerate() {
        let template = scratch.path().join(format!("{number}.iot"));
        let mut predict = command(&[
            "template",
            "predict",
            path_str(path),
            "-o",
            path_str(&template),
        ]);
        predict.env("HF_HUB_CACHE", cache.dir.path());
        let done = finish(predict);
        assert_eq!((done.code, &*done.stderr), (0, ""), "{}", path.display());
        templates.push(fs::read(template).unwrap());
    }
    assert!(templates.iter().all(|template| *template == templates[0]));
    let loaded = stdout_of(&["load", "--json", path_str(&cache.repository())]);
    let loaded: Value = serde_json::from_str(&loaded).unwrap();
    assert_eq!(loaded["tensors"], 2, "{loaded}");
}

#[test]
fn repositories_without_a_chosen_snapshot_are_refused() {
    let cache = HubCache::new();
    fs::remove_file(cache.repository().join("refs/main")).unwrap();
    let inspect = || run(&["inspect", "--summary", path_str(&cache.repository())]);
    assert_eq!(inspect().code, 0, "the only snapshot");
    fs::create_dir(cache.repository().join("snapshots/other")).unwrap();
    let refused = inspect();
    assert!(
        refused.code == 1 && refused.stderr.contains("several snapshots"),
        "{}",
        refused.stderr
    );
}

/// Runs `ppc run` with these arguments; `None`, with a message, without the required privileges.
fn policy_run(dir: &Path, args: &[&str]) -> Option<crate::process::Run> {
    let done = run(&[&["ppc", "run", "--require", "--dir", path_str(dir)], args].concat());
    let denied = ["CAP_PERFMON", "not permitted"];
    if done.code != 0 && denied.iter().any(|text| done.stderr.contains(text)) {
        eprintln!("SKIPPED: {}", done.stderr);
        return None;
    }
    Some(done)
}

/// The bytes that `ppc run` reports as prefetched are the whole model, whichever path it is given.
#[test]
fn policies_follow_links_out_of_their_directory() {
    let cache = HubCache::new();
    let scratch = tempfile::tempdir().unwrap();
    let template = scratch.path().join("t.iot");
    stdout_of(&[
        "template",
        "predict",
        path_str(&cache.repository()),
        "-o",
        path_str(&template),
    ]);
    let policy = format!("maio:{}", template.display());
    for dir in [cache.snapshot(), cache.repository()] {
        cache.evict();
        let read = format!(
            "cat '{}/model.safetensors' > /dev/null; sleep 0.5",
            cache.snapshot().display()
        );
        let Some(done) = policy_run(&dir, &["--policy", &policy, "--", "sh", "-c", &read]) else {
            return;
        };
        assert_eq!(done.code, 0, "{}", done.stderr);
        assert!(
            done.stderr.contains("2 files are links to elsewhere"),
            "{}",
            done.stderr
        );
        // 8 MiB and the header, except what `cat` read first
        assert!(!done.stderr.contains("0 B prefetched"), "{}", done.stderr);
    }
    let recorded = scratch.path().join("recorded.iot");
    for dir in [cache.snapshot(), cache.repository()] {
        let model = cache.snapshot().join("model.safetensors");
        let read = format!("cat '{}' > /dev/null", model.display());
        let (out, dir) = (path_str(&recorded), path_str(&dir));
        let record = ["record", "--overwrite", "-o", out, "--dir", dir];
        let record = run(&[&record[..], &["--", "sh", "-c", &read]].concat());
        assert_eq!(record.code, 0, "{}", record.stderr);
        let covered = stdout_of(&[
            "template",
            "coverage",
            path_str(&recorded),
            path_str(&template),
            "--json",
        ]);
        let covered: Value = serde_json::from_str(&covered).unwrap();
        assert!(covered["share"].as_f64().unwrap() > 0.99, "{covered}");
    }
}
