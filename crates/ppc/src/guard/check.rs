//! Whether what a policy answered can be meant: bytes of files of its namespace.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::known::Known;
use crate::{Io, Ios, Namespace};

/// Entries of lists that are remembered as checked.
const REMEMBERED: usize = 1 << 20;
/// Granularity in which the page cache holds files.
const PAGE: u64 = 4096;

/// Checks lists, each only once: the tail of a list that was checked costs nothing.
#[derive(Debug)]
pub(super) struct Checked {
    files: Known,
    entries: usize,
    /// Held, so that no other list can have the address of one of them.
    lists: VecDeque<Arc<[Io]>>,
    held: usize,
}

impl Checked {
    pub(super) fn new(namespace: Arc<Namespace>, entries: usize) -> Self {
        Self {
            files: Known::new(namespace),
            entries,
            lists: VecDeque::new(),
            held: 0,
        }
    }

    /// The directory has these files now. What was checked before could be meant then.
    pub(super) fn renew(&mut self, namespace: Arc<Namespace>) {
        self.files.renew(namespace);
    }

    /// Why the list cannot be used; the whole list counts, also where `ios` is a part of it.
    pub(super) fn check(&mut self, ios: &Ios) -> Result<(), String> {
        let all = ios.all();
        if all.is_empty() || self.lists.iter().any(|list| Arc::ptr_eq(list, all)) {
            return Ok(());
        }
        if all.len() > self.entries {
            return Err(format!(
                "a list of {} entries, allowed are {}",
                all.len(),
                self.entries
            ));
        }
        let mut sum = 0u64;
        for (index, io) in all.iter().enumerate() {
            self.io(io)
                .map_err(|what| format!("entry {index}, {}: {what}", quote(io)))?;
            sum = sum
                .checked_add(io.len)
                .ok_or("the lengths of a list add up to more than 2^64")?;
        }
        self.remember(all);
        Ok(())
    }

    fn io(&self, io: &Io) -> Result<(), String> {
        let Some((_, end)) = self.files.get(&io.path) else {
            return Err("no file of the namespace has this name".into());
        };
        if io.len == 0 {
            return Err(format!("no bytes at {}", io.start));
        }
        if io.start >= end {
            return Err(format!("begins at {}, the file ends at {end}", io.start));
        }
        let last = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        match io.start.checked_add(io.len) {
            Some(stop) if stop <= last => Ok(()),
            _ => Err(format!(
                "{} bytes from {}, the file ends at {end}",
                io.len, io.start
            )),
        }
    }

    fn remember(&mut self, all: &Arc<[Io]>) {
        self.held += all.len();
        self.lists.push_back(Arc::clone(all));
        while self.held > REMEMBERED && self.lists.len() > 1 {
            self.held -= self.lists.pop_front().map_or(0, |list| list.len());
        }
    }
}

fn quote(io: &Io) -> String {
    let text = format!("{:?}", io.path);
    if text.len() > 200 {
        format!("{}…", text.chars().take(200).collect::<String>())
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn io(path: &str, start: u64, len: u64) -> Io {
        Io {
            path: Path::new(path).into(),
            start,
            len,
            device: None,
        }
    }

    #[test]
    fn only_bytes_of_files_pass() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), vec![0; 5000]).unwrap();
        std::fs::write(dir.path().join("empty"), b"").unwrap();
        let mut checked = Checked::new(Arc::new(Namespace::scan(dir.path()).unwrap()), 3);
        let mut why = |ios: Vec<Io>| checked.check(&ios.into()).err().unwrap_or_default();
        assert_eq!(why(vec![]), "");
        assert_eq!(why(vec![io("a", 0, 8192), io("a", 4999, 1)]), "");
        assert!(why(vec![io("a", 0, 8193)]).contains("the file ends at 5000"));
        assert!(why(vec![io("a", 1, u64::MAX)]).contains("the file ends at 5000"));
        assert!(why(vec![io("a", 5000, 1)]).contains("begins at 5000"));
        assert!(why(vec![io("a", 0, 1), io("a", 0, 0)]).contains("entry 1"));
        assert!(why(vec![io("empty", 0, 1)]).contains("begins at 0"));
        for name in ["b", "/etc/passwd", "../a", "", "a/../a", "./b"] {
            assert!(
                why(vec![io(name, 0, 1)]).contains("no file of the namespace"),
                "{name}"
            );
        }
        assert!(why(vec![io("a", 0, 1); 4]).contains("allowed are 3"));
    }

    #[test]
    fn a_list_is_looked_at_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), vec![0; 5000]).unwrap();
        let mut checked = Checked::new(Arc::new(Namespace::scan(dir.path()).unwrap()), usize::MAX);
        let all: Arc<[Io]> = vec![io("a", 0, 4096); 1000].into();
        for tail in 0..1000 {
            checked.check(&Ios::of(&all, tail..1000)).unwrap();
        }
        assert_eq!((checked.lists.len(), checked.held), (1, 1000));
        // what is remembered is bounded
        for _ in 0..3 {
            checked
                .check(&vec![io("a", 0, 1); REMEMBERED / 2].into())
                .unwrap();
        }
        assert!(checked.held <= REMEMBERED + 1000, "{}", checked.held);
    }
}
