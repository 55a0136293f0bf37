//! A directory of several models: each is recorded and followed by itself, by one runtime that is never restarted. Needs
//! CAP_PERFMON and a file system on a device, and is skipped with a message elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Instant;

use serde_json::Value;

use crate::page_cache::resident;
use crate::process::{assert_runs, json_of, path_str, safetensors, stdout_of};
use crate::runtime_process::{RuntimeProcess, TIMEOUT, evict, on_device};

/// A directory of models, and a directory of templates.
pub(crate) struct ModelDirectory {
    pub(crate) models: PathBuf,
    pub(crate) templates: PathBuf,
    _dir: tempfile::TempDir,
}

impl ModelDirectory {
    /// Two models; `None`, with a message, where events are not available.
    pub(crate) fn new() -> Option<Self> {
        let dir = on_device()?;
        let (models, templates) = (dir.path().join("models"), dir.path().join("templates"));
        fs::create_dir_all(&models).unwrap();
        fs::create_dir_all(&templates).unwrap();
        let directory = Self {
            models,
            templates,
            _dir: dir,
        };
        directory.add("a", 1 << 20);
        directory.add("org/b", 3 << 19);
        Some(directory)
    }

    /// Adds a model of 8 × `elements` bytes, which is not in the page cache.
    pub(crate) fn add(&self, name: &str, elements: usize) {
        let path = self.models.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("config.json"), "{}").unwrap();
        let tensors: [(&str, &[usize]); 2] = [("a", &[elements]), ("b", &[elements])];
        safetensors(&path.join("model.safetensors"), "", &tensors);
        evict(&path);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.models.join(name).join("model.safetensors")
    }

    /// Reads the beginning of a model, or the whole, in a process that ends.
    pub(crate) fn read(&self, name: &str, whole: bool) {
        let mut read = Command::new("dd");
        read.arg(format!("if={}", self.file(name).display()));
        read.args(["of=/dev/null", "status=none"]);
        read.args(if whole {
            &["bs=1M"][..]
        } else {
            // the second page misses where the runtime has just cached the first
            &["bs=4k", "count=2"]
        });
        assert!(read.status().unwrap().success());
    }

    pub(crate) fn saved(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = fs::read_dir(&self.templates).unwrap();
        let paths = files.map(|entry| entry.unwrap().path());
        let saved = paths.filter(|path| path.extension().is_some_and(|end| end == "iot"));
        saved
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect()
    }

    /// Loads a model for the first time, and waits until its template is saved by this process.
    pub(crate) fn record(&self, runtime: &Child, name: &str) {
        let before = self.saved().len();
        self.read(name, true);
        wait_until(&format!("a template of {name}"), || {
            assert_runs(runtime, "it saved a template");
            self.saved().len() > before
        });
    }

    /// Reads the first pages of a model that is not cached: this process prefetches the rest.
    pub(crate) fn follow(&self, runtime: &Child, name: &str) {
        self.evict(name);
        self.read(name, false);
        self.wait_cached(name, || assert_runs(runtime, "it prefetched a model"));
    }

    pub(crate) fn evict(&self, name: &str) {
        let path = self.file(name);
        // the runtime looks for changed files, and caches the first page of each for a moment
        wait_until(&format!("{name} out of the page cache"), || {
            evict(path.parent().unwrap());
            resident(&path) == 0
        });
    }

    /// Waits until a model is in the page cache, and checks meanwhile that it can get there.
    pub(crate) fn wait_cached(&self, name: &str, check: impl Fn()) {
        let path = self.file(name);
        let len = fs::metadata(&path).unwrap().len();
        wait_until(&format!("all of {name} in the page cache"), || {
            let is_cached = resident(&path) >= len / 100 * 99;
            if !is_cached {
                check();
            }
            is_cached
        });
    }

    /// Removes all templates.
    pub(crate) fn forget(&self) {
        for path in self.saved().into_keys() {
            fs::remove_file(path).unwrap();
        }
    }
}

fn wait_until(condition: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < TIMEOUT,
            "no {condition} within the timeout"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn prefetched(status: &Value) -> u64 {
    status["prefetch"]["bytes_read"].as_u64().unwrap()
}

#[test]
fn each_model_of_a_directory_is_recorded_and_then_followed() {
    let Some(directory) = ModelDirectory::new() else {
        return;
    };
    let policy = format!("maio:{},param.tp=1", directory.templates.display());
    let args = ["--dir", path_str(&directory.models), "--policy", &policy];
    let runtime = RuntimeProcess::start(&args);
    assert_eq!(runtime.status().unwrap()["source"], "misses and accesses");
    let phases = |status: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let services = status["policies"][0]["services"].as_array().unwrap();
        let phases = services.iter();
        phases
            .map(|service| (text(&service["model"]), text(&service["phase"])))
            .collect()
    };
    let pair = |model: &str, phase: &str| (model.to_owned(), phase.to_owned());
    let recorded = [pair("a", "recording"), pair("org/b", "recording")];
    assert_eq!(phases(&runtime.status().unwrap()), recorded);
    directory.record(&runtime.0, "a");
    runtime.wait_for("one model that is followed", |status| {
        phases(status) == [pair("a", "following"), pair("org/b", "recording")]
    });
    assert_eq!(prefetched(&runtime.status().unwrap()), 0);
    // under the id that a prediction has
    let predicted = directory.templates.with_extension("predicted.iot");
    let model = directory.models.join("a");
    let predict = [
        "template",
        "predict",
        path_str(&model),
        "-o",
        path_str(&predicted),
    ];
    let document = json_of(&[&predict[..], &["--json"]].concat());
    let id = document["template"]["service"].as_str().unwrap();
    let expected = directory.templates.join(format!("{id}.iot"));
    assert!(directory.saved().contains_key(&expected), "{document}");
    // the other one is still recorded, while this one is followed
    directory.follow(&runtime.0, "a");
    let of_a = runtime.status().unwrap()["policies"][0]["services"][0].clone();
    let len = fs::metadata(directory.file("a")).unwrap().len();
    assert!(
        of_a["wanted"].as_u64().unwrap().abs_diff(len) < 1 << 16,
        "{of_a}"
    );
    // the kernel has read ahead of the first pages
    assert!(of_a["prefetched"].as_u64().unwrap() > 0, "{of_a}");
    assert_eq!(of_a["wasted"], 0);
    let shown = stdout_of(&["ppc", "status", &runtime.0.id().to_string()]);
    assert!(
        shown.contains("following") && shown.contains("recording, 0 B so far"),
        "{shown}"
    );
    directory.record(&runtime.0, "org/b");
    let followed = runtime.wait_for("only misses", |status| status["source"] == "misses");
    assert!(prefetched(&followed) > 7 << 20, "{followed}");
    directory.follow(&runtime.0, "org/b");
    directory.follow(&runtime.0, "a");
    let before = directory.saved();

    // a model that is added has a template of its own, and changes no other
    directory.add("c", 5 << 18);
    let files = |status: &Value| status["policies"][0]["files"] == 6;
    runtime.wait_for("the files of three models", files);
    runtime.wait_for("accesses", |status| {
        status["source"] == "misses and accesses"
    });
    directory.record(&runtime.0, "c");
    let mut after = directory.saved();
    after.retain(|path, _| before.contains_key(path));
    assert_eq!(after, before);
    assert_eq!(directory.saved().len(), 3);
    for name in ["c", "a", "org/b"] {
        directory.follow(&runtime.0, name);
    }
    // another runtime follows the same templates from its start
    drop(runtime);
    let again = RuntimeProcess::start(&args);
    assert_eq!(again.status().unwrap()["source"], "misses");
    directory.follow(&again.0, "org/b");
    directory.follow(&again.0, "c");
    assert_eq!(directory.saved().len(), 3);
}
