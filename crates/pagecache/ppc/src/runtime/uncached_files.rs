//! Files that policies do not prefetch or evict, because the page cache keeps nothing of them for the service: see
//! [`PageRetention`].

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::cache::{PageRetention, page_retention};
use crate::{Namespace, RangeList};

/// The devices of each directory, and the findings about them.
#[derive(Debug, Default)]
pub(super) struct UncachedFiles {
    directories: Mutex<HashMap<PathBuf, CheckedDirectory>>,
}

#[derive(Debug, Default)]
struct CheckedDirectory {
    /// The state of the directory in which all devices were found.
    namespace: Weak<Namespace>,
    devices: Arc<BTreeMap<u64, PageRetention>>,
}

impl UncachedFiles {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, CheckedDirectory>> {
        self.directories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The ranges without the ranges of files that the page cache keeps nothing of.
    pub(super) fn exclude(&self, namespace: &Arc<Namespace>, ranges: RangeList) -> RangeList {
        let devices = self.devices(namespace);
        if devices.values().all(|found| *found == PageRetention::Kept) {
            return ranges;
        }
        let is_kept = |path: &Path| {
            let found = namespace
                .get(path)
                .map(|entry| devices.get(&entry.inode.dev));
            matches!(found, None | Some(None | Some(PageRetention::Kept)))
        };
        let kept = ranges.iter().filter(|range| is_kept(&range.path));
        kept.cloned().collect::<Vec<_>>().into()
    }

    /// Tries the devices of a directory that were not tried before. Where the page cache keeps nothing of their files, that
    /// is stated in a warning.
    pub(super) fn devices(&self, namespace: &Arc<Namespace>) -> Arc<BTreeMap<u64, PageRetention>> {
        let (before, is_current) = match self.lock().get(namespace.root()) {
            Some(checked) => {
                let is_current = std::ptr::eq(checked.namespace.as_ptr(), Arc::as_ptr(namespace));
                (Arc::clone(&checked.devices), is_current)
            }
            None => (Arc::default(), false),
        };
        if is_current {
            return before;
        }
        // without the lock: the server of a file system may be slow
        let found = page_retention(namespace, |device| !before.contains_key(&device));
        for (device, retention) in &found {
            warn(namespace, *device, *retention);
        }
        // another thread may have tried the same devices meanwhile, with the same findings
        let mut devices = (*before).clone();
        devices.extend(found);
        let devices = Arc::new(devices);
        let checked = CheckedDirectory {
            namespace: Arc::downgrade(namespace),
            devices: Arc::clone(&devices),
        };
        self.lock().insert(namespace.root().to_owned(), checked);
        devices
    }

    /// The devices of a directory are tried again: another file system may be mounted there.
    pub(super) fn forget(&self, root: &Path) {
        self.lock().remove(root);
    }
}

fn warn(namespace: &Namespace, device: u64, retention: PageRetention) {
    let Some(why) = retention.reason() else {
        return;
    };
    let entries = namespace.entries();
    let count = entries.iter().filter(|entry| entry.inode.dev == device);
    tracing::warn!(
        "{}: {} of {} files are on a FUSE file system that {why}, so that prefetched bytes would be read twice; they are not \
         prefetched and not evicted, and the kernel alone manages them; an option of its mount, such as kernel_cache, may \
         keep pages",
        namespace.root().display(),
        count.count(),
        entries.len()
    );
}
