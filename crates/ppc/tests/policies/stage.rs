//! A namespace of two files, and policies that are compiled and registered for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::cc;
use anamnesis_ppc::host::{HostCommand, Library};
use anamnesis_ppc::{
    Access, Answer, Context, Guarded, Ios, Kind, Limits, Namespace, Prefetch, Result,
};

/// Longer than anything takes, also on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Bytes of the file `a`.
pub(crate) const LEN: u64 = (1 << 20) + 100;

pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) out: tempfile::TempDir,
    pub(crate) limits: Limits,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), vec![0; usize::try_from(LEN).unwrap()]).unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/b"), vec![0; 5000]).unwrap();
        // a busy machine is no reason to fail; tests of deadlines have their own
        let limits = Limits {
            call: SOON,
            begin: SOON,
            exit: SOON,
            ..Limits::default()
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

    pub(crate) fn library(&self, path: &Path) -> Library {
        Library::new(
            HostCommand::new(env!("CARGO_BIN_EXE_ppc-host")),
            path,
            self.limits,
        )
    }

    pub(crate) fn register(&self, path: &Path, config: &str) -> Result<Actor> {
        let context = Context {
            namespace: self.namespace(),
            config: config.into(),
            memory: 1 << 30,
        };
        let (sender, answers) = channel();
        let tell = move |answer| drop(sender.send(answer)); // a test that has ended hears no more
        let guarded = Guarded::register(Box::new(self.library(path)), context, self.limits, tell)?;
        Ok(Actor { guarded, answers })
    }
}

/// A registered policy and its answers.
pub(crate) struct Actor {
    pub(crate) guarded: Guarded,
    pub(crate) answers: Receiver<Answer>,
}

impl Actor {
    pub(crate) fn next(&self) -> Answer {
        self.answers.recv_timeout(SOON).expect("an answer")
    }

    pub(crate) fn prefetch(&self, miss: Access) -> Prefetch {
        self.guarded.prefetch(miss);
        match self.next() {
            Answer::Prefetch(prefetch) => prefetch,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn evict(&self, miss: Option<Access>) -> Ios {
        self.guarded.evict(miss);
        match self.next() {
            Answer::Evict(ios) => ios,
            other => panic!("{other:?}"),
        }
    }

    /// Why it lost its registration.
    pub(crate) fn lost(&self) -> String {
        match self.next() {
            Answer::Lost(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn miss(path: &str, start: u64) -> Access {
    Access {
        kind: Kind::Miss,
        path: Path::new(path).into(),
        start,
        len: 4096,
        pid: 1,
        tid: 1,
        time: 0,
    }
}

/// Path, start and length.
pub(crate) fn plain(ios: &Ios) -> Vec<(String, u64, u64)> {
    ios.iter()
        .map(|io| (io.path.to_str().unwrap().to_owned(), io.start, io.len))
        .collect()
}
