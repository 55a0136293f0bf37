//! A model of random bytes, and programs that load it and print checksums of what they have read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::page_cache::{evict_file, resident};
use crate::process::{finish, path_str, safetensors, stdout_of};
use crate::runtime_process::{TIMEOUT, on_device};

/// Two shards that are not in the page cache.
pub(crate) struct RandomModel {
    pub(crate) root: PathBuf,
    /// Its checksums, as a load prints them.
    pub(crate) expected: String,
    _dir: Option<tempfile::TempDir>,
}

pub(crate) const FILES: [&str; 2] = [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];

impl RandomModel {
    /// A model with files of this length, on a device; `None`, with a message, where events are not available.
    pub(crate) fn new(mib: usize) -> Option<Self> {
        let dir = on_device()?;
        let root = dir.path().canonicalize().unwrap();
        Some(Self {
            _dir: Some(dir),
            ..Self::below(&root, mib)
        })
    }

    /// A model in this directory.
    pub(crate) fn below(root: &Path, mib: usize) -> Self {
        for (seed, name) in (1..).zip(FILES) {
            let tensor = format!("t{seed}");
            let path = root.join(name);
            safetensors(&path, "", &[(tensor.as_str(), &[mib << 18])]);
            fill(&path, 200, seed);
        }
        let mut model = Self {
            root: root.to_owned(),
            expected: String::new(),
            _dir: None,
        };
        model.expected = model.load();
        model.evict();
        model
    }

    /// The same files below another directory.
    pub(crate) fn at(self, root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            ..self
        }
    }

    /// A shell command that loads the model, or another directory with its files.
    pub(crate) fn script(root: &Path) -> String {
        format!("cd '{}' && exec cksum {}", root.display(), FILES.join(" "))
    }

    /// Starts a process that loads the model.
    pub(crate) fn start_load(&self) -> std::process::Child {
        let mut load = Command::new("sh");
        load.args(["-c", &Self::script(&self.root)]);
        load.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Loads the model in a process of its own, and returns what it prints.
    pub(crate) fn load(&self) -> String {
        let mut load = Command::new("sh");
        load.args(["-c", &Self::script(&self.root)]);
        let done = finish(load);
        assert_eq!(done.code, 0, "{}", done.stderr);
        done.stdout
    }

    pub(crate) fn path(&self, number: usize) -> PathBuf {
        self.root.join(FILES[number])
    }

    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        FILES.iter().map(|name| self.root.join(name))
    }

    pub(crate) fn len(&self) -> u64 {
        let lens = self.paths().map(|path| fs::metadata(path).unwrap().len());
        lens.sum()
    }

    pub(crate) fn evict(&self) {
        wait_until("an empty page cache", || {
            self.paths().for_each(|path| evict_file(&path));
            self.cached() == 0
        });
    }

    pub(crate) fn cached(&self) -> u64 {
        self.paths().map(|path| resident(&path)).sum()
    }

    /// The predicted template, in a file of this directory.
    pub(crate) fn template(&self, dir: &Path) -> PathBuf {
        let template = dir.join("t.iot");
        let (root, made) = (path_str(&self.root), path_str(&template));
        stdout_of(&["template", "predict", root, "-o", made, "--overwrite"]);
        self.evict();
        template
    }

    /// The names in the directory.
    pub(crate) fn names(&self) -> Vec<String> {
        crate::remember::sorted_names(&self.root)
    }
}

/// Replaces the bytes of a file from `start` on by pseudo-random ones.
pub(crate) fn fill(path: &Path, start: u64, seed: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let len = usize::try_from(file.metadata().unwrap().len() - start).unwrap();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    file.write_all_at(&bytes[..len], start).unwrap();
    file.sync_all().unwrap();
}

pub(crate) fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < TIMEOUT,
            "no {condition} within the timeout"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Marks a process and those that it starts.
pub(crate) const MARK: &str = "ANAMNESIS_TEST_MARK";

/// The command lines of the processes with this mark; those that have ended and were not waited for have none.
pub(crate) fn marked(mark: &str) -> Vec<String> {
    let mark = format!("{MARK}={mark}");
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    let paths = processes.map(|entry| entry.path());
    let marked = paths.filter(|path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        let mut variables = environment.split(|&byte| byte == 0);
        variables.any(|variable| variable == mark.as_bytes())
    });
    marked
        .map(|path| {
            let line = fs::read(path.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ")
        })
        .collect()
}

/// Whether a process has bound the name of a status socket.
pub(crate) fn has_socket(pid: u32) -> bool {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let name = format!("@anamnesis-ppc/{pid}");
    sockets.lines().any(|line| {
        let bound = line.split(' ').next_back().unwrap_or_default();
        bound == name || bound.starts_with(&format!("{name}/"))
    })
}
