//! The accelerator that a process holds: the one whose device file it has open.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Rule;

/// Open files of a process that are looked at.
const MOST: usize = 1 << 14;
/// Device files of accelerators: what stands before their number, and what is subtracted from it.
const FILES: [(&str, u32); 5] = [
    ("dev/nvidia", 0),
    ("dev/davinci", 0),
    ("dev/accel/accel", 0),
    ("dev/accel", 0),
    ("dev/dri/renderD", 128),
];

/// The accelerators of the service, ascending, and who holds them.
#[derive(Clone, Debug)]
pub(crate) struct Accelerators {
    root: PathBuf,
    devices: Vec<u32>,
}

impl Accelerators {
    /// These, or all that the machine below `root` has: those of one kind, the first of the list.
    pub(crate) fn new(root: &Path, devices: Option<&[u32]>) -> Self {
        let all = || {
            let kind = |&(prefix, less): &(&str, u32)| {
                let folder = root
                    .join(prefix)
                    .parent()
                    .map(PathBuf::from)
                    .unwrap_or_default();
                let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
                let numbers: BTreeSet<u32> = files
                    .filter_map(|file| number(file.path().strip_prefix(root).ok()?, prefix, less))
                    .collect();
                (!numbers.is_empty()).then(|| numbers.into_iter().collect())
            };
            FILES.iter().find_map(kind).unwrap_or_default()
        };
        Self {
            root: root.into(),
            devices: devices.map_or_else(all, <[u32]>::to_vec),
        }
    }

    /// The accelerator of a worker: worker 0 has the first, and so on in a circle.
    pub(crate) fn of(&self, rank: u32) -> Option<u32> {
        let count = u32::try_from(self.devices.len())
            .ok()
            .filter(|&count| count > 0)?;
        self.devices
            .get(usize::try_from(rank % count).ok()?)
            .copied()
    }

    /// The accelerator that a process holds, if it holds one and no more.
    pub(crate) fn held(&self, pid: u32) -> Option<u32> {
        let fds =
            std::fs::read_dir(self.root.join("proc").join(pid.to_string()).join("fd")).ok()?;
        let mut held = BTreeSet::new();
        for fd in fds.flatten().take(MOST) {
            let Ok(file) = std::fs::read_link(fd.path()) else {
                continue;
            };
            let Ok(file) = file.strip_prefix("/") else {
                continue;
            };
            held.extend(
                FILES
                    .iter()
                    .find_map(|&(prefix, less)| number(file, prefix, less)),
            );
        }
        held.retain(|device| self.devices.contains(device));
        if held.len() == 1 {
            held.first().copied()
        } else {
            None
        }
    }
}

fn number(file: &Path, prefix: &str, less: u32) -> Option<u32> {
    file.to_str()?
        .strip_prefix(prefix)?
        .parse::<u32>()
        .ok()?
        .checked_sub(less)
}

impl Rule for Accelerators {
    fn rank(&mut self, pid: u32) -> Option<u32> {
        let held = self.held(pid)?;
        self.devices
            .iter()
            .position(|&device| device == held)
            .and_then(|i| u32::try_from(i).ok())
    }
}
