//! Files that a policy may name.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::Namespace;

/// Files that are remembered after they went.
const FORMER: usize = 1 << 20;

/// The files of a directory and those that it had: a policy may not have heard yet that they went or became shorter.
#[derive(Debug)]
pub(crate) struct Known {
    namespace: Arc<Namespace>,
    former: HashMap<Arc<Path>, u64>,
}

impl Known {
    pub(crate) fn new(namespace: Arc<Namespace>) -> Self {
        Self {
            namespace,
            former: HashMap::new(),
        }
    }

    /// The directory has these files now.
    pub(crate) fn renew(&mut self, namespace: Arc<Namespace>) {
        for (name, entry) in self.namespace.names() {
            let now = namespace.get(name).map_or(0, |entry| entry.len);
            if now < entry.len && self.former.len() < FORMER {
                let len = self.former.entry(Arc::clone(name)).or_insert(0);
                *len = entry.len.max(*len);
            }
        }
        self.namespace = namespace;
    }

    /// The path of the file of a name, and how long it is or was at the most.
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
    fn what_went_is_known_and_what_never_was_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, len| std::fs::write(dir.path().join(name), vec![0; len]).unwrap();
        let scan = || Arc::new(Namespace::scan(dir.path()).unwrap());
        for name in ["stays", "goes", "shrinks"] {
            write(name, 5000);
        }
        let mut known = Known::new(scan());
        std::fs::remove_file(dir.path().join("goes")).unwrap();
        write("shrinks", 10);
        write("comes", 20);
        known.renew(scan());
        let len = |known: &Known, name: &str| known.get(Path::new(name)).map(|(_, len)| len);
        let all = ["stays", "goes", "shrinks", "comes", "never"];
        assert_eq!(
            all.map(|name| len(&known, name)),
            [Some(5000), Some(5000), Some(5000), Some(20), None]
        );
        write("goes", 7000);
        known.renew(scan());
        assert_eq!(len(&known, "goes"), Some(7000));
    }
}
