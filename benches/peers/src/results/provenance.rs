//! When, of which commit and on which machine results were measured.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// UTC.
    pub date: String,
    pub commit: String,
    /// Whether the working tree differed from the commit.
    pub dirty: bool,
    pub rustc: String,
    pub kernel: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_gib: f64,
    /// Versions of Python and of its packages.
    pub python: BTreeMap<String, String>,
    /// Processes per variant, where the section's time sufficed.
    pub rounds: usize,
}

impl Provenance {
    pub fn now(rounds: usize, python: Result<&Path, &str>) -> Self {
        let root = super::repository();
        let git = |args: &[&str]| stdout_of(Command::new("git").arg("-C").arg(&root).args(args));
        // a section that was measured before in the same run does not make the tree dirty
        let results = [
            ":!benches/results",
            ":!benches/pagecache/results.json",
            ":!benches/pagecache/overhead.json",
        ];
        let changes = git(&[&["status", "--porcelain", "--", "."][..], &results].concat());
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default();
            line.split_once(':')
                .map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let kib = field("/proc/meminfo", "MemTotal");
        let kib: f64 = kib
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse().ok())
            .unwrap_or(0.0);
        Self {
            date: stdout_of(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
            commit: git(&["rev-parse", "HEAD"]),
            dirty: !changes.is_empty(),
            rustc: stdout_of(Command::new("rustc").arg("--version")),
            kernel: stdout_of(Command::new("uname").args(["-s", "-r", "-m"])),
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: (kib / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            python: python.map(packages).unwrap_or_default(),
            rounds,
        }
    }

    /// All of it in one line of text.
    pub fn line(&self) -> String {
        let commit = self.commit.get(..10).unwrap_or(&self.commit);
        let mut parts = vec![
            format!(
                "{}, commit {commit}{}",
                self.date,
                if self.dirty { " with changes" } else { "" }
            ),
            format!(
                "{}, {} cores, {} GiB",
                self.cpu, self.cores, self.memory_gib
            ),
            self.kernel.clone(),
            self.rustc.clone(),
        ];
        let python: Vec<String> = self
            .python
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        if !python.is_empty() {
            parts.push(python.join(", "));
        }
        parts.join(" · ")
    }
}

/// Its standard output, trimmed; empty if it cannot be run.
fn stdout_of(command: &mut Command) -> String {
    let out = command
        .output()
        .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    out.unwrap_or_default()
}

fn packages(python: &Path) -> BTreeMap<String, String> {
    let script = "import platform\nprint('python', platform.python_version())\n\
                  from importlib.metadata import version, PackageNotFoundError\n\
                  for name in ('numpy', 'safetensors', 'gguf', 'torch'):\n    \
                  try: print(name, version(name))\n    except PackageNotFoundError: pass\n";
    let text = stdout_of(Command::new(python).args(["-c", script]));
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .collect()
}
