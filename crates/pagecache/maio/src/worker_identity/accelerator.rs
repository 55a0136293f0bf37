//! Identifies a worker by the accelerator that its process holds: the one whose device file it has
//! open.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::IdentityRule;

/// Number of open files of a process that are examined; it bounds the time of a search.
const MAX_OPEN_FILES: usize = 1 << 14;
/// Device files of accelerators: the path before the number, and the offset of the first number.
const DEVICE_FILES: [(&str, u32); 5] = [
    ("dev/nvidia", 0),
    ("dev/davinci", 0),
    ("dev/accel/accel", 0),
    ("dev/accel", 0),
    ("dev/dri/renderD", 128),
];

/// The accelerators of the service, in the order of its workers.
#[derive(Clone, Debug)]
pub(crate) struct Accelerators {
    root: PathBuf,
    devices: Vec<u32>,
}

impl Accelerators {
    /// Uses these accelerators, or all of the first type in [`DEVICE_FILES`] that the machine below
    /// `root` has.
    pub(crate) fn new(root: &Path, devices: Option<&[u32]>) -> Self {
        let all = || {
            let kind = |&(prefix, offset): &(&str, u32)| {
                let folder = root
                    .join(prefix)
                    .parent()
                    .map(PathBuf::from)
                    .unwrap_or_default();
                let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
                let numbers: BTreeSet<u32> = files
                    .filter_map(|file| number(file.path().strip_prefix(root).ok()?, prefix, offset))
                    .collect();
                (!numbers.is_empty()).then(|| numbers.into_iter().collect())
            };
            DEVICE_FILES.iter().find_map(kind).unwrap_or_default()
        };
        Self {
            root: root.into(),
            devices: devices.map_or_else(all, <[u32]>::to_vec),
        }
    }

    /// Returns the accelerator of a worker: worker 0 has the first, and after the last the first is
    /// used again.
    pub(crate) fn of_rank(&self, rank: u32) -> Option<u32> {
        let count = u32::try_from(self.devices.len())
            .ok()
            .filter(|&count| count > 0)?;
        self.devices
            .get(usize::try_from(rank % count).ok()?)
            .copied()
    }

    /// Returns the accelerator that a process holds, if it holds exactly one. A process that opened
    /// all of them is not yet bound to one.
    pub(crate) fn held_by(&self, pid: u32) -> Option<u32> {
        let fds =
            std::fs::read_dir(self.root.join("proc").join(pid.to_string()).join("fd")).ok()?;
        let mut held = BTreeSet::new();
        for fd in fds.flatten().take(MAX_OPEN_FILES) {
            let Ok(file) = std::fs::read_link(fd.path()) else {
                // closed meanwhile
                continue;
            };
            let Ok(file) = file.strip_prefix("/") else {
                // a socket or a pipe
                continue;
            };
            held.extend(
                DEVICE_FILES
                    .iter()
                    .find_map(|&(prefix, offset)| number(file, prefix, offset)),
            );
        }
        // devices of other services on the machine do not identify a worker of this one
        held.retain(|device| self.devices.contains(device));
        if held.len() == 1 {
            held.first().copied()
        } else {
            None
        }
    }
}

fn number(file: &Path, prefix: &str, offset: u32) -> Option<u32> {
    file.to_str()?
        .strip_prefix(prefix)?
        .parse::<u32>()
        .ok()?
        .checked_sub(offset)
}

impl IdentityRule for Accelerators {
    fn rank(&mut self, pid: u32) -> Option<u32> {
        let held = self.held_by(pid)?;
        self.devices
            .iter()
            .position(|&device| device == held)
            .and_then(|i| u32::try_from(i).ok())
    }
}
