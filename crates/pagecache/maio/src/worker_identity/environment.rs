//! Identifies a worker by an environment variable of its process, as launchers set it. Child
//! processes inherit the variable and belong to the same worker.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::IdentityRule;

/// Bytes of an environment that are read; it bounds the time of a search.
const MAX_ENVIRONMENT: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct RankVariable {
    proc: PathBuf,
    names: Vec<String>,
}

impl RankVariable {
    pub(super) fn new(proc: &Path, names: &[String]) -> Self {
        Self {
            proc: proc.into(),
            names: names.into(),
        }
    }
}

impl IdentityRule for RankVariable {
    fn rank(&mut self, pid: u32) -> Option<u32> {
        let mut environ = Vec::new();
        // the environment with which the process was started: what launchers set, and not what the
        // program changed since
        let file = std::fs::File::open(self.proc.join(pid.to_string()).join("environ")).ok()?;
        file.take(MAX_ENVIRONMENT).read_to_end(&mut environ).ok()?;
        self.names.iter().find_map(|name| {
            let value = |item: &[u8]| {
                let value = item.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
                std::str::from_utf8(value).ok()?.parse().ok()
            };
            environ.split(|byte| *byte == 0).find_map(value)
        })
    }
}
