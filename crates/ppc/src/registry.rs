//! Which policy decides for which directory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::{Error, Result};
use crate::{Access, Answer, Context, Entry, Event, Guarded, Inode, Limits, Namespace, Policy};

/// Whose an answer is.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The directory, with all its files.
    pub namespace: Arc<Namespace>,
    /// Counts registrations: another policy for the same directory has another number.
    pub number: u64,
}

/// A registration.
#[derive(Debug)]
pub struct Registered {
    origin: Origin,
    policy: Arc<Guarded>,
    /// Whose its answers are: these files, or those it is about to be told of.
    whose: Arc<RwLock<Origin>>,
}

impl Registered {
    /// Directory and number.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The policy.
    pub fn policy(&self) -> &Guarded {
        &self.policy
    }

    /// An event of a file of the directory, as the policy is told it.
    pub fn access(&self, event: &Event, entry: &Entry) -> Access {
        let Event {
            kind,
            start,
            len,
            pid,
            tid,
            time,
            ..
        } = *event;
        Access {
            kind,
            path: Arc::clone(&entry.path),
            start,
            len,
            pid,
            tid,
            time,
        }
    }
}

type Sink = dyn Fn(&Origin, Answer) + Send + Sync;

/// The registered policies: one for each directory, and for what lies below another directory's the deeper one decides.
/// A policy that lost its registration decides for nothing; its entry stays, so that its status says why.
pub struct Policies {
    memory: u64,
    limits: Limits,
    sink: Arc<Sink>,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    by_path: BTreeMap<PathBuf, Arc<Registered>>,
    count: u64,
    changes: u64,
}

impl Policies {
    /// None yet. `memory` is what the page cache may take. All answers go to `sink`, from the policies' own threads; it
    /// must not register or remove.
    pub fn new(
        memory: u64,
        limits: Limits,
        sink: impl Fn(&Origin, Answer) + Send + Sync + 'static,
    ) -> Self {
        Self {
            memory,
            limits,
            sink: Arc::new(sink),
            state: RwLock::default(),
        }
    }

    /// Registers a policy for a directory, which is scanned. One that is registered for it already is replaced: it
    /// decides until the new one has begun, no access is told to both, and it is removed when the new one decides.
    ///
    /// # Errors
    ///
    /// The directory cannot be scanned, or the policy did not begin; then what was registered stays.
    pub fn reg_policy(
        &self,
        path: &Path,
        policy: Box<dyn Policy>,
        config: &str,
    ) -> Result<Arc<Registered>> {
        let namespace = Arc::new(Namespace::scan(path)?);
        let number = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            state.count += 1;
            state.count
        };
        let origin = Origin { namespace, number };
        let context = Context {
            namespace: Arc::clone(&origin.namespace),
            config: config.to_owned(),
            memory: self.memory,
        };
        let whose = Arc::new(RwLock::new(origin.clone()));
        let (sink, of) = (Arc::clone(&self.sink), Arc::clone(&whose));
        let answered = move |answer| {
            let origin = of.read().unwrap_or_else(PoisonError::into_inner).clone();
            sink(&origin, answer);
        };
        let policy = Guarded::register(policy, context, self.limits, answered)
            .map_err(|error| error.in_file(path))?;
        let registered = Arc::new(Registered {
            origin,
            policy: Arc::new(policy),
            whose,
        });
        let root = registered.origin.namespace.root().to_owned();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.changes += 1;
        let replaced = state.by_path.insert(root, Arc::clone(&registered));
        drop(state);
        if let Some(replaced) = replaced
            && let Err(error) = replaced.policy.remove()
        {
            tracing::warn!(
                "{}: the replaced policy did not end well: {error}",
                path.display()
            );
        }
        Ok(registered)
    }

    /// Scans the directory of a registration again. If it has other files the policy is [told](Policy::renew), and decides
    /// for these from then on. Files that are being written are not yet any: whether there are such.
    ///
    /// # Errors
    ///
    /// There is none, or the directory cannot be scanned any more; then it stays as it was.
    pub fn renew(&self, path: &Path) -> Result<bool> {
        let root = std::fs::canonicalize(path).map_err(|e| Error::from(e).in_file(path))?;
        let before = self
            .state
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .by_path
            .get(&root)
            .cloned();
        let before = before.ok_or_else(|| nobody(path))?;
        let (namespace, young) = before.origin.namespace.again()?;
        let Some(namespace) = namespace else {
            return Ok(young);
        };
        let origin = Origin {
            namespace: Arc::new(namespace),
            number: before.origin.number,
        };
        // before the policy hears of it: what it answers then may name files that came
        *before.whose.write().unwrap_or_else(PoisonError::into_inner) = origin.clone();
        before.policy.renew(Arc::clone(&origin.namespace));
        let (policy, whose) = (Arc::clone(&before.policy), Arc::clone(&before.whose));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = state.by_path.get_mut(&root)
            && Arc::ptr_eq(at, &before)
        {
            *at = Arc::new(Registered {
                origin,
                policy,
                whose,
            });
            state.changes += 1;
        }
        Ok(young)
    }

    /// Ends the registration of a directory's policy, and gives what it was.
    ///
    /// # Errors
    ///
    /// There is none, or it was lost: why.
    pub fn rm_policy(&self, path: &Path) -> Result<Arc<Registered>> {
        // a directory that is gone is still registered
        let root = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let removed = state.by_path.remove(&root);
        state.changes += u64::from(removed.is_some());
        drop(state);
        let removed = removed.ok_or_else(|| nobody(path))?;
        let ended = removed.policy.remove();
        ended.map_err(|error| {
            Error::new(crate::ErrorKind::Policy(error.to_string())).in_file(path)
        })?;
        Ok(removed)
    }

    /// How often registrations or their files came or went: as long as it is the same, so are they and their files.
    pub fn changes(&self) -> u64 {
        self.state
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .changes
    }

    /// All registrations by directory, lost ones too.
    pub fn all(&self) -> Vec<Arc<Registered>> {
        self.state
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .by_path
            .values()
            .cloned()
            .collect()
    }

    /// Who decides for a path: the deepest directory above it, or it itself.
    pub fn at(&self, path: &Path) -> Option<Arc<Registered>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        path.ancestors()
            .filter_map(|at| state.by_path.get(at))
            .find(|at| at.policy.lost().is_none())
            .cloned()
    }

    /// Who decides for a file, and which file of the directory it is; given to `with`, during which no registration is
    /// replaced or removed. So what `with` tells the policy is told to no other, and to none that was removed.
    pub fn find<R>(&self, inode: Inode, with: impl FnOnce(&Registered, &Entry) -> R) -> Option<R> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let knows = |at: &&Arc<Registered>| {
            at.origin.namespace.find(inode).is_some() && at.policy.lost().is_none()
        };
        let deepest = state
            .by_path
            .iter()
            .filter(|(_, at)| knows(at))
            .max_by_key(|(path, _)| path.components().count())
            .map(|(_, at)| at)?;
        Some(with(deepest, deepest.origin.namespace.find(inode)?))
    }
}

fn nobody(path: &Path) -> Error {
    Error::invalid("no policy is registered here").in_file(path)
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies")
            .field("memory", &self.memory)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
