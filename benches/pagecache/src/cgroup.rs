//! A control group for one run that limits its memory and the read rate of its device.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;

/// A memory and a blkio group of cgroup version 1, which the evaluation's machine has; removed when dropped.
pub struct ControlGroup {
    memory: PathBuf,
    blkio: PathBuf,
}

impl ControlGroup {
    pub fn new(memory: Option<u64>, throttle: Option<(&str, u64)>) -> Result<Self, Failure> {
        let create = |controller: &str| -> Result<PathBuf, Failure> {
            let path = Path::new("/sys/fs/cgroup").join(controller);
            if !path.join("cgroup.procs").exists() {
                return Err(format!(
                    "{} is not a cgroup hierarchy of version 1, which the evaluation needs",
                    path.display()
                )
                .into());
            }
            let path = path.join(format!("anamnesis-evaluation-{}", std::process::id()));
            fs::create_dir_all(&path)?;
            Ok(path)
        };
        let group = Self {
            memory: create("memory")?,
            blkio: create("blkio")?,
        };
        if let Some(limit) = memory {
            fs::write(
                group.memory.join("memory.limit_in_bytes"),
                limit.to_string(),
            )?;
        }
        if let Some((device, rate)) = throttle {
            fs::write(
                group.blkio.join("blkio.throttle.read_bps_device"),
                format!("{device} {rate}"),
            )?;
        }
        Ok(group)
    }

    /// A shell command that moves the shell into the group.
    pub fn join_command(&self) -> String {
        let join = |path: &Path| format!("echo $$ > {}/cgroup.procs", path.display());
        format!("{} && {}", join(&self.memory), join(&self.blkio))
    }

    /// Peak memory of the group in bytes, page cache included.
    pub fn peak(&self) -> Option<u64> {
        fs::read_to_string(self.memory.join("memory.max_usage_in_bytes"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for path in [&self.memory, &self.blkio] {
            // a group cannot be removed while page cache is charged to it
            let _ = fs::write(path.join("memory.force_empty"), "0");
            for _ in 0..50 {
                if fs::remove_dir(path).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}
