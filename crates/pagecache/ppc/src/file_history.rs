//! The current and former files of a directory, against which the ranges of a policy are validated.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::Namespace;

/// How many removed or truncated files are remembered at most.
const MAX_FORMER: usize = 1 << 20;

/// The files of a directory, and those that were removed or truncated since the policy was registered.
///
/// A policy is notified of changes later than the runtime. Until then it may return ranges of former files, which must
/// not cost it its registration.
#[derive(Debug)]
pub(crate) struct FileHistory {
    namespace: Arc<Namespace>,
    /// Greatest former length of each file that is now shorter or missing.
    former: HashMap<Arc<Path>, u64>,
}

impl FileHistory {
    pub(crate) fn new(namespace: Arc<Namespace>) -> Self {
        Self {
            namespace,
            former: HashMap::new(),
        }
    }

    /// Replaces the current files and remembers those that are now shorter or missing.
    pub(crate) fn update(&mut self, namespace: Arc<Namespace>) {
        for (name, entry) in self.namespace.names() {
            let now = namespace.get(name).map_or(0, |entry| entry.len);
            // beyond the limit a policy may be deregistered for a range of a file that was removed; memory stays
            // bounded
            if now < entry.len && self.former.len() < MAX_FORMER {
                let len = self.former.entry(Arc::clone(name)).or_insert(0);
                *len = entry.len.max(*len);
            }
        }
        self.namespace = namespace;
    }

    /// The path of the file called `name`, and the greatest length that it has had.
    pub(crate) fn get(&self, name: &Path) -> Option<(&Arc<Path>, u64)> {
        let now = self
            .namespace
            .get(name)
            .map(|entry| (&entry.path, entry.len));
        let former = self
            .former
            .get_key_value(name)
            .map(|(path, &len)| (path, len));
        match (now, former) {
            (Some((path, len)), former) => {
                Some((path, former.map_or(len, |(_, former)| former.max(len))))
            }
            (None, former) => former,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_and_truncated_files_keep_their_greatest_length() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, len| std::fs::write(dir.path().join(name), vec![0; len]).unwrap();
        let scan = || Arc::new(Namespace::scan(dir.path()).unwrap());
        for name in ["unchanged", "removed", "truncated"] {
            write(name, 5000);
        }
        let mut history = FileHistory::new(scan());
        std::fs::remove_file(dir.path().join("removed")).unwrap();
        write("truncated", 10);
        write("created", 20);
        history.update(scan());
        let len =
            |history: &FileHistory, name: &str| history.get(Path::new(name)).map(|(_, len)| len);
        let all = ["unchanged", "removed", "truncated", "created", "missing"];
        assert_eq!(
            all.map(|name| len(&history, name)),
            [Some(5000), Some(5000), Some(5000), Some(20), None]
        );
        write("removed", 7000);
        history.update(scan());
        assert_eq!(len(&history, "removed"), Some(7000));
    }
}
