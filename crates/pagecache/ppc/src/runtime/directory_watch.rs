//! Rescans registered directories after files were created or removed in them.
//!
//! inotify reports the changes. Where it is not available, or there are more directories than it may watch, the
//! modification times of the directories are polled. A rescan happens once the directories have been quiet for a second.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::Scope;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use crate::source::poll::{drain, wait_readable};
use crate::{PolicyRegistry, Waker};

/// How long the directories must be quiet before they are rescanned. The files of a model are created one after another.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// A rescan happens after this time even if changes continue.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// How often directories without inotify are polled, and how often a rescan is repeated while files are being written.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

// `CLOSE_WRITE` and not `MODIFY`, which a copy in progress would raise at every write. Files that are open for a long
// time are found by the rescans that follow a skipped file
const WATCH_FLAGS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR);

/// Starts the thread, which runs until the returned value is dropped. Calls `on_change` after each rescan that found
/// changes.
pub(super) fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    policies: &'scope PolicyRegistry,
    on_change: impl Fn() + Send + 'scope,
) -> io::Result<StopWatching> {
    let (stop, stopped) = Waker::new()?;
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
        .map_err(|error| {
            tracing::info!(
                "inotify is not available, directories are polled every {POLL_INTERVAL:?}: {error}"
            );
        })
        .ok();
    let thread = std::thread::Builder::new().name("ppc-files".into());
    thread.spawn_scoped(scope, move || run(policies, inotify, &stopped, on_change))?;
    Ok(StopWatching(stop))
}

/// Ends the thread when it is dropped.
pub(super) struct StopWatching(Waker);

impl Drop for StopWatching {
    fn drop(&mut self) {
        self.0.wake();
    }
}

fn run(
    policies: &PolicyRegistry,
    inotify: Option<OwnedFd>,
    stopped: &OwnedFd,
    on_change: impl Fn(),
) {
    let mut watch = DirectoryWatch {
        policies,
        inotify,
        watch_ids: HashSet::new(),
        modified: Vec::new(),
        changed: None,
        incomplete: false,
        last_poll: Instant::now(),
    };
    let mut generation = None;
    loop {
        let current = Some(policies.generation());
        if current != generation {
            generation = current;
            watch.update_directories();
        }
        if watch.wait(stopped) {
            return;
        }
        if watch.is_due() && watch.rescan() {
            on_change();
        }
    }
}

struct DirectoryWatch<'a> {
    policies: &'a PolicyRegistry,
    /// `None`: directories are polled.
    inotify: Option<OwnedFd>,
    /// inotify's watch descriptors of the directories.
    watch_ids: HashSet<i32>,
    /// Polled directories, with their modification times.
    modified: Vec<(Option<SystemTime>, PathBuf)>,
    /// Times of the first and the last change since the last rescan.
    changed: Option<(Instant, Instant)>,
    /// The last rescan skipped files because they were being written.
    incomplete: bool,
    last_poll: Instant,
}

impl DirectoryWatch<'_> {
    /// Watches the directories of the current registrations.
    fn update_directories(&mut self) {
        let registrations = self.policies.registrations();
        let dirs: Vec<_> = registrations
            .iter()
            .flat_map(|registration| registration.origin().namespace.dirs())
            .collect();
        if let Some(inotify) = &self.inotify {
            match add_watches(inotify, &dirs) {
                Ok(watch_ids) => {
                    for &removed in self.watch_ids.difference(&watch_ids) {
                        // fails if the directory was deleted, which removes the watch
                        let _ = inotify::remove_watch(inotify, removed);
                    }
                    let any_new = !watch_ids.is_subset(&self.watch_ids);
                    self.watch_ids = watch_ids;
                    if any_new {
                        // changes between the scan of a new directory and its watch were not reported
                        self.note_change();
                    }
                    return;
                }
                Err(error) => {
                    tracing::info!(
                        "too many directories for inotify, they are polled every {POLL_INTERVAL:?}: {error}"
                    );
                    self.inotify = None;
                }
            }
        }
        self.modified = dirs
            .into_iter()
            .map(|dir| (modification_time(&dir), dir))
            .collect();
        self.note_change();
    }

    fn note_change(&mut self) {
        let now = Instant::now();
        self.changed = Some((self.changed.map_or(now, |(first, _)| first), now));
    }

    /// Waits until there is a change, or until the rescan for earlier changes is due. Returns whether to stop.
    fn wait(&mut self, stopped: &OwnedFd) -> bool {
        // once there was a change, further ones are only read when the rescan is due
        let inotify = self.inotify.as_ref().filter(|_| self.changed.is_none());
        let fds: Vec<_> = std::iter::once(stopped).chain(inotify).collect();
        let timeout = self.rescan_due().map_or(QUIET_TIME, |due| {
            due.saturating_duration_since(Instant::now())
        });
        if let Err(error) = wait_readable(&fds, timeout) {
            tracing::warn!("directories are not watched for new files any more: {error}");
            return true;
        }
        if drain(stopped) {
            return true;
        }
        // which file changed is not decoded: the rescan compares all of them
        let any_events = |inotify: &OwnedFd| rustix::io::read(inotify, &mut [0; 1 << 16]).is_ok();
        if self.inotify.as_ref().is_some_and(any_events) || self.poll() {
            self.note_change();
        }
        false
    }

    /// Polls the directories if the interval has passed. Returns whether one changed or files were being written.
    fn poll(&mut self) -> bool {
        if (self.inotify.is_some() && !self.incomplete) || self.last_poll.elapsed() < POLL_INTERVAL
        {
            return false;
        }
        self.last_poll = Instant::now();
        let mut changed = self.incomplete;
        // a directory's modification time changes when a file is created, removed or renamed in it, not when one is
        // written
        for (before, dir) in &mut self.modified {
            let now = modification_time(dir);
            changed |= now != *before;
            *before = now;
        }
        changed
    }

    fn rescan_due(&self) -> Option<Instant> {
        self.changed
            .map(|(first, last)| (last + QUIET_TIME).min(first + MAX_DELAY))
    }

    fn is_due(&self) -> bool {
        self.rescan_due().is_some_and(|due| due <= Instant::now())
    }

    /// Rescans all directories. Returns whether any files changed.
    fn rescan(&mut self) -> bool {
        let now = Instant::now();
        // after MAX_DELAY without a quiet time there may be more changes: the next rescan stays due
        self.changed = self
            .changed
            .filter(|(_, last)| now < *last + QUIET_TIME)
            .map(|(_, last)| (now, last));
        (self.incomplete, self.last_poll) = (false, now);
        let generation = self.policies.generation();
        for registration in self
            .policies
            .registrations()
            .iter()
            .filter(|registration| registration.supervisor().failure().is_none())
        {
            match self.policies.rescan(registration.origin().namespace.root()) {
                Ok(incomplete) => self.incomplete |= incomplete,
                Err(error) => {
                    tracing::warn!("cannot rescan the directory, its file list stays: {error}");
                }
            }
        }
        generation != self.policies.generation()
    }
}

/// Adds inotify watches for all directories and returns their watch descriptors.
fn add_watches(inotify: &OwnedFd, dirs: &[PathBuf]) -> Result<HashSet<i32>, Errno> {
    let mut watch_ids = HashSet::new();
    for dir in dirs {
        match inotify::add_watch(inotify, dir, WATCH_FLAGS) {
            Ok(id) => {
                watch_ids.insert(id);
            }
            // the user's limit of watches: polling covers all directories, watches on a part would not
            Err(error @ (Errno::NOSPC | Errno::NOMEM)) => return Err(error),
            Err(_) => {} // removed meanwhile, or not permitted
        }
    }
    Ok(watch_ids)
}

fn modification_time(dir: &Path) -> Option<SystemTime> {
    std::fs::metadata(dir).and_then(|meta| meta.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoopPolicy, PolicyLimits};

    #[test]
    fn without_inotify_directories_are_polled() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("subdirectory")).unwrap();
        let policies = PolicyRegistry::new(1 << 30, PolicyLimits::default(), |_, _| ());
        policies
            .register(dir.path(), Box::new(NoopPolicy), "")
            .unwrap();
        let (stop, stopped) = Waker::new().unwrap();
        let (sender, changes) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| run(&policies, None, &stopped, move || sender.send(()).unwrap()));
            // after the rescan that follows the registration
            std::thread::sleep(3 * QUIET_TIME);
            std::fs::write(dir.path().join("subdirectory/model"), [0; 10]).unwrap();
            let change = changes.recv_timeout(12 * POLL_INTERVAL);
            stop.wake();
            change.unwrap();
        });
        let files: Vec<_> = policies.registrations()[0]
            .origin()
            .namespace
            .entries()
            .iter()
            .map(|entry| entry.path.clone())
            .collect();
        assert_eq!(files, [Path::new("subdirectory/model").into()]);
    }
}
