//! Files that come or go below the registered directories.
//!
//! The kernel tells of them (inotify). Where it cannot, as there are too many directories for it, these are looked at from
//! time to time. They are scanned again once nothing has come or gone for a moment.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::Scope;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use crate::source::{drained, readable};
use crate::{Policies, Waker};

/// Files of a model come one after another.
const QUIET: Duration = Duration::from_secs(1);
/// Where it is never quiet, this is waited for at the most.
const LONGEST: Duration = Duration::from_secs(30);
/// How often directories are looked at that the kernel does not tell of, or with files that are being written.
const LOOK: Duration = Duration::from_secs(5);

const ALL: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR);

/// Renews registrations, on a thread of its own, until what is returned is dropped. `renewed` is called when there are
/// other files.
pub(super) fn follow<'scope>(
    scope: &'scope Scope<'scope, '_>,
    policies: &'scope Policies,
    renewed: impl Fn() + Send + 'scope,
) -> io::Result<Follows> {
    let (over, ended) = Waker::new()?;
    let opened = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
    let teller = opened
        .map_err(|error| {
            tracing::info!("directories are looked at every {LOOK:?}: inotify: {error}")
        })
        .ok();
    let thread = std::thread::Builder::new().name("ppc-files".into());
    thread.spawn_scoped(scope, move || work(policies, teller, &ended, renewed))?;
    Ok(Follows(over))
}

/// Ends it.
pub(super) struct Follows(Waker);

impl Drop for Follows {
    fn drop(&mut self) {
        self.0.wake();
    }
}

fn work(policies: &Policies, teller: Option<OwnedFd>, over: &OwnedFd, renewed: impl Fn()) {
    let mut arrivals = Arrivals {
        policies,
        teller,
        watched: HashSet::new(),
        seen: Vec::new(),
        happened: None,
        young: false,
        looked: Instant::now(),
    };
    let mut changes = None;
    loop {
        let now = Some(policies.changes());
        if now != changes {
            changes = now;
            arrivals.listen();
        }
        if arrivals.wait(over) {
            return;
        }
        if arrivals.is_due() && arrivals.renew() {
            renewed();
        }
    }
}

struct Arrivals<'a> {
    policies: &'a Policies,
    /// `None`: directories are looked at.
    teller: Option<OwnedFd>,
    /// Directories that it tells of, by its numbers.
    watched: HashSet<i32>,
    /// When something last came or went in the directories that are looked at.
    seen: Vec<(Option<SystemTime>, PathBuf)>,
    /// When the first and the last of it happened.
    happened: Option<(Instant, Instant)>,
    /// There are files that are being written.
    young: bool,
    looked: Instant,
}

impl Arrivals<'_> {
    /// Listens to the directories that there are now.
    fn listen(&mut self) {
        let all = self.policies.all();
        let dirs: Vec<_> = all
            .iter()
            .flat_map(|at| at.origin().namespace.dirs())
            .collect();
        if let Some(teller) = &self.teller {
            match watch(teller, &dirs) {
                Ok(watched) => {
                    for &gone in self.watched.difference(&watched) {
                        let _ = inotify::remove_watch(teller, gone); // it may have gone by itself
                    }
                    let old = watched.is_subset(&self.watched);
                    self.watched = watched;
                    if !old {
                        self.happens(); // what came after the scan was not told
                    }
                    return;
                }
                Err(error) => {
                    tracing::info!(
                        "directories are looked at every {LOOK:?}, too many for inotify: {error}"
                    );
                    self.teller = None;
                }
            }
        }
        self.seen = dirs.into_iter().map(|dir| (written(&dir), dir)).collect();
        self.happens();
    }

    fn happens(&mut self) {
        let now = Instant::now();
        self.happened = Some((self.happened.map_or(now, |(first, _)| first), now));
    }

    /// Waits until something happens, or until what happened is due. `true`: it is over.
    fn wait(&mut self, over: &OwnedFd) -> bool {
        // what happens until then is heard of then
        let teller = self.teller.as_ref().filter(|_| self.happened.is_none());
        let fds: Vec<_> = std::iter::once(over).chain(teller).collect();
        let nap = self
            .due()
            .map_or(QUIET, |due| due.saturating_duration_since(Instant::now()));
        if let Err(error) = readable(&fds, nap) {
            tracing::warn!("files that come and go are not heard of any more: {error}");
            return true;
        }
        if drained(over) {
            return true;
        }
        let heard = |teller: &OwnedFd| rustix::io::read(teller, &mut [0; 1 << 16]).is_ok();
        if self.teller.as_ref().is_some_and(heard) || self.look() {
            self.happens();
        }
        false
    }

    /// Looks, if it is time to, whether something came or went.
    fn look(&mut self) -> bool {
        if (self.teller.is_some() && !self.young) || self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        let mut other = self.young;
        for (at, dir) in &mut self.seen {
            let now = written(dir);
            other |= now != *at;
            *at = now;
        }
        other
    }

    fn due(&self) -> Option<Instant> {
        self.happened
            .map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }

    fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    /// Scans all directories again; whether there are other files.
    fn renew(&mut self) -> bool {
        let now = Instant::now();
        // where it was not quiet, there may be more
        self.happened = self
            .happened
            .filter(|(_, last)| now < *last + QUIET)
            .map(|(_, last)| (now, last));
        (self.young, self.looked) = (false, now);
        let changes = self.policies.changes();
        for at in self
            .policies
            .all()
            .iter()
            .filter(|at| at.policy().lost().is_none())
        {
            match self.policies.renew(at.origin().namespace.root()) {
                Ok(young) => self.young |= young,
                Err(error) => tracing::warn!("the files stay as they were: {error}"),
            }
        }
        changes != self.policies.changes()
    }
}

/// Lets an inotify tell of directories; their numbers.
fn watch(teller: &OwnedFd, dirs: &[PathBuf]) -> Result<HashSet<i32>, Errno> {
    let mut watched = HashSet::new();
    for dir in dirs {
        match inotify::add_watch(teller, dir, ALL) {
            Ok(number) => {
                watched.insert(number);
            }
            Err(error @ (Errno::NOSPC | Errno::NOMEM)) => return Err(error),
            Err(_) => {} // gone meanwhile, or closed to us
        }
    }
    Ok(watched)
}

fn written(dir: &Path) -> Option<SystemTime> {
    std::fs::metadata(dir).and_then(|meta| meta.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Nothing};

    #[test]
    fn directories_that_nobody_tells_of_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("deep")).unwrap();
        let policies = Policies::new(1 << 30, Limits::default(), |_, _| ());
        policies
            .reg_policy(dir.path(), Box::new(Nothing), "")
            .unwrap();
        let (over, ended) = Waker::new().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| work(&policies, None, &ended, move || tell.send(()).unwrap()));
            // behind the scan that follows the first look
            std::thread::sleep(3 * QUIET);
            std::fs::write(dir.path().join("deep/model"), [0; 10]).unwrap();
            let came = told.recv_timeout(12 * LOOK);
            over.wake();
            came.unwrap();
        });
        let files: Vec<_> = policies.all()[0]
            .origin()
            .namespace
            .entries()
            .iter()
            .map(|e| e.path.clone())
            .collect();
        assert_eq!(files, [Path::new("deep/model").into()]);
    }
}
