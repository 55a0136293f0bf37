//! `anamnesis ppc reg` and `ppc rm`: changes of the policies of a running `ppc run`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use anamnesis::source::local_path;
use anamnesis_ppc::runtime::{ChangeCallback, PolicyChange, change_policies};
use anamnesis_ppc::{PolicyLimits, Runtime};

use super::policy::PolicyArgument;
use super::status;
use crate::args::{PpcRegArgs, PpcRmArgs};
use crate::checkpoint_warnings::found_path;
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::shown_path::shown;

pub(super) fn register(args: &PpcRegArgs) -> Result<Completion, RunError> {
    let directory = found_path(&args.dir).map_err(Failure::from)?;
    let change = PolicyChange::Register {
        // the runtime has a working directory of its own
        directory: absolute(&directory)?,
        policy: PolicyArgument::with_absolute_paths(&args.policy)?,
    };
    request(args.pid, &change)
}

pub(super) fn unregister(args: &PpcRmArgs) -> Result<Completion, RunError> {
    let directory = absolute(&local_path(&args.dir).map_err(Failure::from)?)?;
    request(args.pid, &PolicyChange::Unregister { directory })
}

/// The path without links, or as it is if it does not exist: a directory that was removed is registered under the path it had.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let known = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    known.map_err(|error| {
        let message = format!("{}: {error}", shown(path));
        Failure::new("io", message, "check the path and its permissions")
    })
}

/// Has the runtime in a process make a change, or the only runtime.
fn request(pid: Option<u32>, change: &PolicyChange) -> Result<Completion, RunError> {
    let pid = match pid {
        Some(pid) => pid,
        None => only_runtime()?,
    };
    let made = change_policies(pid, change).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => {
            let message = "the path or the policy is no UTF-8, or longer than 64 KiB";
            Failure::new("usage", message, "use other names")
        }
        ErrorKind::InvalidData => Failure::new(
            "unavailable",
            format!("process {pid} did not answer as a runtime of this version does"),
            "use the command of the version that is running",
        ),
        _ => status::unavailable(pid, &error),
    })?;
    made.map_err(|reason| {
        let message = format!("process {pid}: {reason}");
        Failure::new("policy", message, "see `anamnesis ppc status`")
    })?;
    Ok(Completion::Done)
}

fn only_runtime() -> Result<u32, Failure> {
    let found = status::running()?;
    let answering = found.documents.iter().map(|(pid, _)| pid);
    let mut pids: Vec<u32> = answering.chain(&found.unresponsive).copied().collect();
    pids.sort_unstable();
    // a runtime may have answered on one socket and not on another
    pids.dedup();
    match pids[..] {
        [pid] => Ok(pid),
        [] => {
            let remedy = "start one with `anamnesis ppc run`";
            Err(Failure::new("unavailable", "no runtime is running", remedy))
        }
        _ => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            let message = format!("several runtimes are running: {}", pids.join(", "));
            Err(Failure::new(
                "usage",
                message,
                "name one of them with --pid",
            ))
        }
    }
}

/// Makes the changes that other processes request of a runtime.
pub(super) fn make_changes(runtime: &Arc<Runtime>, limits: PolicyLimits) -> ChangeCallback {
    // weak: the runtime ends with its last owner, which is not its own socket
    let runtime: Weak<Runtime> = Arc::downgrade(runtime);
    Arc::new(move |change| {
        let runtime = runtime.upgrade().ok_or("the runtime is ending")?;
        match change {
            PolicyChange::Register { directory, policy } => {
                PolicyArgument::of_directory(policy, directory.clone())
                    .register(&runtime, limits)
                    .map_err(|failure| failure.text())
            }
            PolicyChange::Unregister { directory } => match runtime.unregister(directory) {
                // a policy that failed before, or failed to end, is removed as well
                Err(error) if !matches!(error.kind(), anamnesis_ppc::ErrorKind::Policy(_)) => {
                    Err(error.to_string())
                }
                _ => Ok(()),
            },
            // the type is open for changes of later versions, which may run beside this one
            _ => Err("the change is not known to this version".into()),
        }
    })
}
