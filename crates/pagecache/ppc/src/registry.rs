//! Which policy is registered for which directory.

#[cfg(all(test, shuttle))]
mod interleavings;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::error::{Error, Result};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::{
    FileEntry, Inode, Namespace, Policy, PolicyContext, PolicyLimits, PolicyOutput, Supervisor,
};

/// The registration that a [`PolicyOutput`] comes from.
#[derive(Clone, Debug)]
pub struct PolicyOrigin {
    /// The directory and its files.
    pub namespace: Arc<Namespace>,
    /// Serial number of the registration: another policy for the same directory has another number.
    pub number: u64,
}

/// A policy registered for a directory.
#[derive(Debug)]
pub struct Registration {
    origin: PolicyOrigin,
    supervisor: Arc<Supervisor>,
    /// The origin that outputs are attributed to. Runs ahead of `origin` during a rescan: it is replaced before the
    /// policy receives the new files, because the policy may return ranges of them in that very call.
    output_origin: Arc<RwLock<PolicyOrigin>>,
}

impl Registration {
    /// The directory and the serial number.
    pub fn origin(&self) -> &PolicyOrigin {
        &self.origin
    }

    /// The policy.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }
}

type OutputCallback = dyn Fn(&PolicyOrigin, PolicyOutput) + Send + Sync;

/// The registered policies, at most one per directory. A file belongs to the deepest registered directory above it.
///
/// A policy that failed receives no more calls; its registration stays listed, so that its status reports the failure.
pub struct PolicyRegistry {
    memory: u64,
    limits: PolicyLimits,
    on_output: Arc<OutputCallback>,
    state: RwLock<RegistryState>,
}

#[derive(Debug, Default)]
struct RegistryState {
    by_path: BTreeMap<PathBuf, Arc<Registration>>,
    /// Serial number of the last registration.
    last_number: u64,
    generation: u64,
}

impl PolicyRegistry {
    /// An empty registry. `memory` is passed to policies as [`PolicyContext::memory`]. `on_output` receives the output of
    /// all policies, on the policies' own threads; it must not register or unregister policies.
    pub fn new(
        memory: u64,
        limits: PolicyLimits,
        on_output: impl Fn(&PolicyOrigin, PolicyOutput) + Send + Sync + 'static,
    ) -> Self {
        Self {
            memory,
            limits,
            on_output: Arc::new(on_output),
            state: RwLock::default(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, RegistryState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, RegistryState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Scans a directory and registers a policy for it. A policy that is already registered for the directory stays
    /// active until the new one is initialised, and is then removed; each access is delivered to exactly one of them.
    ///
    /// # Errors
    ///
    /// The directory cannot be scanned, or the policy failed to initialise. Any previous registration stays in place.
    pub fn register(
        &self,
        path: &Path,
        policy: Box<dyn Policy>,
        config: &str,
    ) -> Result<Arc<Registration>> {
        let namespace = Arc::new(Namespace::scan(path)?);
        let number = {
            let mut state = self.write();
            state.last_number += 1;
            state.last_number
        };
        let origin = PolicyOrigin { namespace, number };
        let context = PolicyContext {
            namespace: Arc::clone(&origin.namespace),
            config: config.to_owned(),
            memory: self.memory,
        };
        let output_origin = Arc::new(RwLock::new(origin.clone()));
        let (on_output, shared) = (Arc::clone(&self.on_output), Arc::clone(&output_origin));
        let attribute = move |output| {
            let origin = shared
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            on_output(&origin, output);
        };
        // without the lock: an initialisation may take seconds, and accesses of other directories are delivered
        // meanwhile
        let supervisor = Supervisor::spawn(policy, context, self.limits, attribute)
            .map_err(|error| error.in_file(path))?;
        let registration = Arc::new(Registration {
            origin,
            supervisor: Arc::new(supervisor),
            output_origin,
        });
        let root = registration.origin.namespace.root().to_owned();
        let mut state = self.write();
        state.generation += 1;
        let replaced = state.by_path.insert(root, Arc::clone(&registration));
        // without the lock, since a shutdown may take as long as its deadlines
        drop(state);
        if let Some(replaced) = replaced
            && let Err(error) = replaced.supervisor.shut_down()
        {
            tracing::warn!(
                "{}: the replaced policy failed while it was shut down: {error}",
                path.display()
            );
        }
        Ok(registration)
    }

    /// Rescans the directory of a registration. If its files changed, the policy is
    /// [notified](Policy::files_changed) and receives accesses of the new files from then on. Files still being written
    /// are skipped. Returns whether there were any.
    ///
    /// # Errors
    ///
    /// No policy is registered for the directory, or it cannot be scanned; the registration then stays unchanged.
    pub fn rescan(&self, path: &Path) -> Result<bool> {
        let root = std::fs::canonicalize(path).map_err(|e| Error::from(e).in_file(path))?;
        let before = self.read().by_path.get(&root).cloned();
        let before = before.ok_or_else(|| not_registered(path))?;
        let (namespace, incomplete) = before.origin.namespace.rescan()?;
        let Some(namespace) = namespace else {
            return Ok(incomplete);
        };
        let origin = PolicyOrigin {
            namespace: Arc::new(namespace),
            number: before.origin.number,
        };
        // before the policy is notified: its next output may contain ranges of new files
        *before
            .output_origin
            .write()
            .unwrap_or_else(PoisonError::into_inner) = origin.clone();
        before
            .supervisor
            .update_files(Arc::clone(&origin.namespace));
        let mut state = self.write();
        // unless the registration was replaced or removed meanwhile
        if let Some(current) = state.by_path.get_mut(&root)
            && Arc::ptr_eq(current, &before)
        {
            *current = Arc::new(Registration {
                origin,
                supervisor: Arc::clone(&before.supervisor),
                output_origin: Arc::clone(&before.output_origin),
            });
            state.generation += 1;
        }
        Ok(incomplete)
    }

    /// Removes the registration of a directory, shuts its policy down, and returns the registration.
    ///
    /// # Errors
    ///
    /// No policy is registered for the directory, or the policy failed before or during its shutdown.
    pub fn unregister(&self, path: &Path) -> Result<Arc<Registration>> {
        // a directory that was deleted stays registered under the path that it had
        let root = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut state = self.write();
        let removed = state.by_path.remove(&root);
        state.generation += u64::from(removed.is_some());
        drop(state);
        let removed = removed.ok_or_else(|| not_registered(path))?;
        removed.supervisor.shut_down().map_err(|error| {
            Error::new(crate::ErrorKind::Policy(error.to_string())).in_file(path)
        })?;
        Ok(removed)
    }

    /// A counter that is incremented whenever a registration is added, replaced, removed or rescanned with changes. While
    /// it is constant, so are the registrations and their files.
    pub fn generation(&self) -> u64 {
        self.read().generation
    }

    /// All registrations in the order of their directories, failed policies included.
    pub fn registrations(&self) -> Vec<Arc<Registration>> {
        self.read().by_path.values().cloned().collect()
    }

    /// The active registration that a path belongs to.
    pub fn lookup(&self, path: &Path) -> Option<Arc<Registration>> {
        let state = self.read();
        path.ancestors()
            .filter_map(|ancestor| state.by_path.get(ancestor))
            // a policy that failed leaves its files to the one of a directory above
            .find(|registration| registration.supervisor.failure().is_none())
            .cloned()
    }

    /// Calls `deliver` with the active registration that a file belongs to and its entry there. No registration is replaced
    /// or removed during the call, so an access that `deliver` queues reaches exactly one policy, and none that was already
    /// removed. Returns `None` if the file belongs to no active registration.
    pub fn with_owner<R>(
        &self,
        inode: Inode,
        deliver: impl FnOnce(&Registration, &FileEntry) -> R,
    ) -> Option<R> {
        let state = self.read();
        let owns = |registration: &&Arc<Registration>| {
            registration.origin.namespace.find(inode).is_some()
                && registration.supervisor.failure().is_none()
        };
        let deepest = state
            .by_path
            .iter()
            .filter(|(_, registration)| owns(registration))
            // a directory and one below it may both be registered: the deeper one is the more specific
            .max_by_key(|(path, _)| path.components().count())
            .map(|(_, registration)| registration)?;
        Some(deliver(deepest, deepest.origin.namespace.find(inode)?))
    }
}

fn not_registered(path: &Path) -> Error {
    Error::invalid("no policy is registered for this directory").in_file(path)
}

impl fmt::Debug for PolicyRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyRegistry")
            .field("memory", &self.memory)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
