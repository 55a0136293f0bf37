//! Joining the control groups of a service, so that its prefetched pages are charged to it.

use std::fs;
use std::path::{Path, PathBuf};

use anamnesis_os::cgroup::{CgroupMounts, Cgroups};

use crate::error::{Error, ErrorKind, Result};

/// Membership of this process in the control groups of another process; dropping it moves this process back.
///
/// The kernel charges a page of the page cache to the control group of the thread that reads it first. Pages that are
/// prefetched for a service from outside of its groups would be charged to the prefetcher, and neither the service's
/// memory limit nor its I/O throttle would apply. All threads of this process are moved, because cgroup v1 charges
/// memory per process; consequently this process shares the service's other limits, and killing the group kills it
/// too.
///
/// ```no_run
/// let joined = anamnesis_ppc::cache::join_cgroups(1234)?;
/// // prefetch
/// drop(joined); // moves this process back
/// # Ok::<_, anamnesis_ppc::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it moves this process back"]
pub struct JoinedCgroups {
    /// Group before and after the move, per hierarchy.
    moves: Vec<(PathBuf, PathBuf)>,
}

/// Moves this process into the control groups of process `pid`: the groups of the memory and blkio controllers under cgroup
/// v1, and the group of cgroup v2.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] without the right to move this process. There is no such process. After an error the
/// process is in the groups that it was in before.
pub fn join_cgroups(pid: u32) -> Result<JoinedCgroups> {
    let mounts = CgroupMounts::read()?;
    let (own, other) = (
        Cgroups::of("self", &mounts)?,
        Cgroups::of(&pid.to_string(), &mounts)?,
    );
    let mut joined = JoinedCgroups { moves: Vec::new() };
    let hierarchies = [
        (own.memory, other.memory),
        (own.blkio, other.blkio),
        (own.unified, other.unified),
    ]
    .into_iter()
    .filter_map(|(own, other)| match (own, other) {
        (Some(own), Some(other)) if own != other => Some((own, other)),
        _ => None,
    });
    for (own, other) in hierarchies {
        // controllers mounted as one hierarchy move together
        if joined.moves.iter().any(|(_, joined)| *joined == other) {
            continue;
        }
        enter(&other).map_err(|error| {
            let what = format!(
                "this process cannot be moved into the control group ({error}); this takes root or delegation of the group"
            );
            Error::new(ErrorKind::Unavailable(what)).in_file(&other)
        })?;
        joined.moves.push((own, other));
    }
    Ok(joined)
}

impl JoinedCgroups {
    /// Directories of the groups that this process was moved into; empty if it was in them already.
    pub fn groups(&self) -> impl Iterator<Item = &Path> {
        self.moves.iter().map(|(_, joined)| joined.as_path())
    }
}

impl Drop for JoinedCgroups {
    fn drop(&mut self) {
        // in reverse order, so that after a partial failure the process is where it was before the first move
        for (own, _) in self.moves.iter().rev() {
            if let Err(error) = enter(own) {
                tracing::warn!(group = %own.display(), "this process could not be moved back into its control group: {error}");
            }
        }
    }
}

/// Moves this process into a group.
fn enter(group: &Path) -> std::io::Result<()> {
    // 0 stands for the writing process
    fs::write(group.join("cgroup.procs"), "0")
}
