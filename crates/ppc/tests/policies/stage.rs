//! A namespace of two files, and C policies that are compiled and registered for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::cc;
use anamnesis_ppc::host::{HostCommand, LibraryPolicy};
use anamnesis_ppc::{
    EventKind, FileAccess, Namespace, PolicyContext, PolicyLimits, PolicyOutput, PrefetchRequest,
    RangeList, Result, Supervisor,
};

/// A timeout that is only reached if something hangs, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Bytes of the file `a`.
pub(crate) const LEN: u64 = (1 << 20) + 100;

pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) out: tempfile::TempDir,
    pub(crate) limits: PolicyLimits,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), vec![0; usize::try_from(LEN).unwrap()]).unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/b"), vec![0; 5000]).unwrap();
        // long deadlines, so that a busy machine causes no failures; tests of deadlines set their own
        let limits = PolicyLimits {
            call: LONG,
            init: LONG,
            exit: LONG,
            ..PolicyLimits::default()
        };
        Self {
            dir,
            out: tempfile::tempdir().unwrap(),
            limits,
        }
    }

    pub(crate) fn namespace(&self) -> Arc<Namespace> {
        Arc::new(Namespace::scan(self.dir.path()).unwrap())
    }

    /// Compiles a policy; `None` without gcc.
    pub(crate) fn compile(&self, name: &str, source: &str) -> Option<PathBuf> {
        cc::gcc(
            self.out.path(),
            name,
            source,
            &["-shared", "-fPIC", "-O1", "-w"],
        )
    }

    pub(crate) fn library(&self, path: &Path) -> LibraryPolicy {
        LibraryPolicy::new(
            HostCommand::new(env!("CARGO_BIN_EXE_ppc-host")),
            path,
            self.limits,
        )
    }

    pub(crate) fn register(&self, path: &Path, config: &str) -> Result<Actor> {
        let context = PolicyContext {
            namespace: self.namespace(),
            config: config.into(),
            memory: 1 << 30,
        };
        let (sender, answers) = channel();
        let send = move |answer| drop(sender.send(answer)); // fails after the end of the test
        let supervisor =
            Supervisor::spawn(Box::new(self.library(path)), context, self.limits, send)?;
        Ok(Actor {
            supervisor,
            answers,
        })
    }
}

/// A registered policy and its answers.
pub(crate) struct Actor {
    pub(crate) supervisor: Supervisor,
    pub(crate) answers: Receiver<PolicyOutput>,
}

impl Actor {
    pub(crate) fn next(&self) -> PolicyOutput {
        self.answers.recv_timeout(LONG).expect("an answer")
    }

    pub(crate) fn prefetch(&self, miss: FileAccess) -> PrefetchRequest {
        self.supervisor.queue_prefetch(miss);
        match self.next() {
            PolicyOutput::Prefetch(prefetch) => prefetch,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn evict(&self, miss: Option<FileAccess>) -> RangeList {
        self.supervisor.queue_evict(miss);
        match self.next() {
            PolicyOutput::Evict(ranges) => ranges,
            other => panic!("{other:?}"),
        }
    }

    /// The reason for which the policy was deregistered.
    pub(crate) fn failure(&self) -> String {
        match self.next() {
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

/// Path, start and length.
pub(crate) fn plain(ranges: &RangeList) -> Vec<(String, u64, u64)> {
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
