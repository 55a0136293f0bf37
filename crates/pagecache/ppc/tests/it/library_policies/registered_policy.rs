//! A namespace of two files, and policies that are compiled and registered for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use anamnesis_ppc::host::{HostCommand, LibraryPolicy};
use anamnesis_ppc::{
    EventKind, FileAccess, Namespace, PolicyContext, PolicyLimits, PolicyOutput, PrefetchRequest,
    RangeList, Result, Supervisor,
};

use crate::support::files::HANG_TIMEOUT;
use crate::support::gcc;

/// Length of the file `a` in bytes.
pub(crate) const LEN_OF_A: u64 = (1 << 20) + 100;

/// The files `a` and `sub/b`, for which policies are registered.
pub(crate) struct PolicyDirectory {
    dir: tempfile::TempDir,
    /// Where compiled policies are stored, and files that they write.
    pub(crate) output_dir: tempfile::TempDir,
    pub(crate) limits: PolicyLimits,
}

impl PolicyDirectory {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let len = usize::try_from(LEN_OF_A).unwrap();
        std::fs::write(dir.path().join("a"), vec![0; len]).unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/b"), vec![0; 5000]).unwrap();
        // long deadlines, so that a busy machine causes no failures; tests of deadlines set their own
        let limits = PolicyLimits {
            call: HANG_TIMEOUT,
            init: HANG_TIMEOUT,
            exit: HANG_TIMEOUT,
            ..PolicyLimits::default()
        };
        Self {
            dir,
            output_dir: tempfile::tempdir().unwrap(),
            limits,
        }
    }

    /// The context with which a policy for these files is initialised.
    pub(crate) fn context(&self, config: &str) -> PolicyContext {
        PolicyContext {
            namespace: Arc::new(Namespace::scan(self.dir.path()).unwrap()),
            config: config.into(),
            memory: 1 << 30,
        }
    }

    /// Compiles a policy in C. Prints a message and returns `None` without gcc.
    pub(crate) fn compile(&self, name: &str, source: &str) -> Option<PathBuf> {
        gcc::compile(
            self.output_dir.path(),
            name,
            source,
            &["-shared", "-fPIC", "-O1", "-w"],
        )
    }

    /// Registers the policy in a shared library.
    pub(crate) fn register(&self, library: &Path, config: &str) -> Result<RegisteredPolicy> {
        let host = HostCommand::new(env!("CARGO_BIN_EXE_ppc-host"));
        let policy = LibraryPolicy::new(host, library, self.limits);
        let (sender, outputs) = channel();
        let send = move |output| drop(sender.send(output)); // fails after the end of the test
        let supervisor =
            Supervisor::spawn(Box::new(policy), self.context(config), self.limits, send)?;
        Ok(RegisteredPolicy {
            supervisor,
            outputs,
        })
    }
}

/// A registered policy and its outputs.
pub(crate) struct RegisteredPolicy {
    pub(crate) supervisor: Supervisor,
    pub(crate) outputs: Receiver<PolicyOutput>,
}

impl RegisteredPolicy {
    pub(crate) fn next_output(&self) -> PolicyOutput {
        self.outputs.recv_timeout(HANG_TIMEOUT).expect("an output")
    }

    pub(crate) fn prefetch(&self, miss: FileAccess) -> PrefetchRequest {
        self.supervisor.queue_prefetch(miss);
        self.next_prefetch()
    }

    pub(crate) fn next_prefetch(&self) -> PrefetchRequest {
        match self.next_output() {
            PolicyOutput::Prefetch(prefetch) => prefetch,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn evict(&self, miss: Option<FileAccess>) -> RangeList {
        self.supervisor.queue_evict(miss);
        match self.next_output() {
            PolicyOutput::Evict(ranges) => ranges,
            other => panic!("{other:?}"),
        }
    }

    /// The reason for which the policy was deregistered.
    pub(crate) fn next_failure(&self) -> String {
        match self.next_output() {
            PolicyOutput::Failed(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn miss(path: &str, start: u64) -> FileAccess {
    FileAccess {
        kind: EventKind::Miss,
        path: Path::new(path).into(),
        start,
        len: 4096,
        pid: 1,
        tid: 1,
        time: 0,
    }
}

/// Path, start and length of each range.
pub(crate) fn triples(ranges: &RangeList) -> Vec<(String, u64, u64)> {
    ranges
        .iter()
        .map(|range| {
            (
                range.path.to_str().unwrap().to_owned(),
                range.start,
                range.len,
            )
        })
        .collect()
}
