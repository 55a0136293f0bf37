//! A variable of the process' environment, as launchers set it. Children inherit it, and are the same worker.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::Rule;

/// Bytes of an environment that are looked at.
const MOST: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Environment {
    proc: PathBuf,
    names: Vec<String>,
}

impl Environment {
    pub(super) fn new(proc: &Path, names: &[String]) -> Self {
        Self {
            proc: proc.into(),
            names: names.into(),
        }
    }
}

impl Rule for Environment {
    fn rank(&mut self, pid: u32) -> Option<u32> {
        let mut environ = Vec::new();
        let file = std::fs::File::open(self.proc.join(pid.to_string()).join("environ")).ok()?;
        file.take(MOST).read_to_end(&mut environ).ok()?;
        self.names.iter().find_map(|name| {
            let value = |item: &[u8]| {
                let value = item.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
                std::str::from_utf8(value).ok()?.parse().ok()
            };
            environ.split(|byte| *byte == 0).find_map(value)
        })
    }
}
