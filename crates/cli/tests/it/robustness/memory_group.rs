//! A control group with a limit on memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{Run, command, finish, workspace};

/// A control group of the memory controller (v1 or v2), removed at the end.
pub(crate) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// `None`, with a message, where no group can be made.
    pub(crate) fn new(name: &str, limit: u64) -> Option<Self> {
        let name = format!("anamnesis-{name}-{}", std::process::id());
        for (root, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let group = Self(Path::new(root).join(&name));
            if fs::create_dir(&group.0).is_ok()
                && fs::write(group.0.join(file), limit.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        eprintln!("SKIPPED: no control group with a memory limit can be made");
        None
    }

    /// A shell command that moves its process into the group.
    pub(crate) fn enter(&self) -> String {
        format!("echo $$ > {}", self.0.join("cgroup.procs").display())
    }

    /// Runs the command in the group.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        let text = format!("{} && exec \"$0\" \"$@\"", self.enter());
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(text)
            .arg(command(args).get_program())
            .args(args)
            .current_dir(workspace())
            .stdin(Stdio::null());
        finish(shell)
    }

    /// How often the limit was reached: `failcnt` (v1), or `max` of the events (v2).
    pub(crate) fn times_full(&self) -> u64 {
        if let Ok(count) = fs::read_to_string(self.0.join("memory.failcnt")) {
            return count.trim().parse().unwrap();
        }
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap();
        let line = events.lines().find_map(|line| line.strip_prefix("max "));
        line.unwrap().parse().unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // the kernel may keep a group busy for a moment after its last process has ended
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
