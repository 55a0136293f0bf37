//! Processes of `ppc run`, and models on a device for them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::page_cache::evict_file;
use crate::process::{assert_runs, command, run, safetensors, workspace};

/// Longer than any step takes, also on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A model whose files are not in the page cache; `None`, with a message, without the required privileges.
pub(crate) fn uncached_model() -> Option<tempfile::TempDir> {
    let dir = on_device()?;
    safetensors(
        &dir.path().join("model.safetensors"),
        "",
        &[("a", &[1 << 20]), ("b", &[1 << 20]), ("c", &[100])],
    );
    evict(dir.path());
    Some(dir)
}

/// An empty directory on the disk of the workspace; `None`, with a message, without the required privileges.
pub(crate) fn on_device() -> Option<tempfile::TempDir> {
    let probe = tempfile::tempdir_in(workspace().join("target")).unwrap();
    let path = probe.path().to_str().unwrap();
    let allowed = run(&[
        "ppc",
        "run",
        "--quiet",
        "--require",
        "--dir",
        path,
        "--",
        "true",
    ]);
    if allowed.code != 0 {
        eprintln!("SKIPPED: {}", allowed.stderr);
        return None;
    }
    Some(tempfile::tempdir_in(workspace().join("target")).unwrap())
}

/// Evicts the files of a directory from the page cache.
pub(crate) fn evict(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        evict_file(&entry.unwrap().path());
    }
}

/// A `ppc run` process, killed when dropped.
pub(crate) struct RuntimeProcess(pub(crate) Child);

impl RuntimeProcess {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_command(command(&[&["ppc", "run"], args].concat()))
    }

    /// Starts this command, and waits until it serves its status.
    pub(crate) fn start_command(mut command: Command) -> Self {
        let mut runtime = Self(command.stderr(Stdio::piped()).spawn().unwrap());
        let begun = Instant::now();
        while runtime.status().is_none() {
            assert!(begun.elapsed() < TIMEOUT);
            if let Some(ended) = runtime.0.try_wait().unwrap() {
                let stderr = runtime.0.stderr.take().unwrap();
                let said = std::io::read_to_string(stderr).unwrap();
                panic!("the runtime ended with {ended}: {said}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        runtime
    }

    pub(crate) fn status(&self) -> Option<Value> {
        let shown = run(&["ppc", "status", "--json", &self.0.id().to_string()]);
        let document: Value = serde_json::from_str(&shown.stdout)
            .ok()
            .filter(|_| shown.code == 0)?;
        Some(document["runtimes"][0].clone())
    }

    /// Waits for a status for which `holds` returns true.
    pub(crate) fn wait_for(&self, condition: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let status = self.status().unwrap_or_else(|| {
                self.assert_runs(condition);
                panic!("no status of a runtime that runs")
            });
            if holds(&status) {
                return status;
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "no status with {condition} within the timeout: {status}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Checks that it has not ended before something that a test waits for.
    pub(crate) fn assert_runs(&self, before: &str) {
        assert_runs(&self.0, before);
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
        if signal == rustix::process::Signal::STOP {
            // a thread that waits for a processor stops when it has one, and may answer until then
            let tasks = format!("/proc/{}/task", self.0.id());
            let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
                stat.rsplit_once(") ").unwrap().1.starts_with('T')
            };
            while !std::fs::read_dir(&tasks).unwrap().all(is_stopped) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
}

impl Drop for RuntimeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
