//! Validation of the lists that a policy returns: every range must lie within a file of its namespace.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::file_history::FileHistory;
use crate::{FileRange, Namespace, RangeList};

/// Total number of entries of the lists that are remembered as valid.
const MAX_REMEMBERED: usize = 1 << 20;
/// Number of lists that are remembered as valid. Each answer is compared with all of them, so that it bounds the time of a
/// policy that returns a new list each time. It is four times the lists of one `start`.
const MAX_LISTS: usize = 4096;
/// Ranges may extend to the end of the last page, because the page cache holds whole pages.
const PAGE: u64 = 4096;

/// Validates each backing list once. Further slices of a valid list are accepted without looking at their entries.
#[derive(Debug)]
pub(super) struct RangeValidator {
    files: FileHistory,
    max_entries: usize,
    /// Valid lists, recognised by their address. Each is kept alive so that its address cannot be reused by another list.
    valid: VecDeque<Arc<[FileRange]>>,
    /// Total number of entries of `valid`.
    remembered: usize,
}

impl RangeValidator {
    pub(super) fn new(namespace: Arc<Namespace>, max_entries: usize) -> Self {
        Self {
            files: FileHistory::new(namespace),
            max_entries,
            valid: VecDeque::new(),
            remembered: 0,
        }
    }

    /// Replaces the files. Lists that were valid stay so: ranges of former files are accepted, too.
    pub(super) fn update(&mut self, namespace: Arc<Namespace>) {
        self.files.update(namespace);
    }

    /// Checks the whole backing list of `ranges`. An error names the first invalid entry.
    pub(super) fn check(&mut self, ranges: &RangeList) -> Result<(), String> {
        // the whole list and not the slice: policies return many slices of one list, which is then checked once
        let list = ranges.backing();
        if list.is_empty() || self.valid.iter().any(|valid| Arc::ptr_eq(valid, list)) {
            return Ok(());
        }
        if list.len() > self.max_entries {
            return Err(format!(
                "the list has {} entries, and at most {} are allowed",
                list.len(),
                self.max_entries
            ));
        }
        let mut total = 0u64;
        for (index, range) in list.iter().enumerate() {
            self.check_range(range)
                .map_err(|what| format!("entry {index}, {}: {what}", quote(range)))?;
            total = total
                .checked_add(range.len)
                .ok_or("the lengths of the entries add up to more than 2^64 bytes")?;
        }
        self.remember(list);
        Ok(())
    }

    fn check_range(&self, range: &FileRange) -> Result<(), String> {
        let &FileRange { start, len, .. } = range;
        let Some((_, end)) = self.files.get(&range.path) else {
            return Err("the namespace has no file of this name".into());
        };
        if len == 0 {
            return Err(format!("the range at {start} is empty"));
        }
        if start >= end {
            return Err(format!(
                "the range begins at {start}, and the file ends at {end}"
            ));
        }
        let page_end = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        match start.checked_add(len) {
            Some(stop) if stop <= page_end => Ok(()),
            _ => Err(format!(
                "the range has {len} bytes from {start}, and the file ends at {end}"
            )),
        }
    }

    fn remember(&mut self, list: &Arc<[FileRange]>) {
        self.remembered += list.len();
        self.valid.push_back(Arc::clone(list));
        // the newest list is kept whatever its length, as the next answer is most likely a slice of it
        while self.valid.len() > 1
            && (self.remembered > MAX_REMEMBERED || self.valid.len() > MAX_LISTS)
        {
            self.remembered -= self.valid.pop_front().map_or(0, |list| list.len());
        }
    }
}

/// The path of a range for a message: escaped, and shortened to 200 characters.
fn quote(range: &FileRange) -> String {
    let text = format!("{:?}", range.path);
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

    fn range(path: &str, start: u64, len: u64) -> FileRange {
        FileRange {
            path: Path::new(path).into(),
            start,
            len,
            device: None,
        }
    }

    fn validator(dir: &tempfile::TempDir, max_entries: usize) -> RangeValidator {
        std::fs::write(dir.path().join("a"), vec![0; 5000]).unwrap();
        std::fs::write(dir.path().join("empty"), b"").unwrap();
        RangeValidator::new(Arc::new(Namespace::scan(dir.path()).unwrap()), max_entries)
    }

    #[test]
    fn only_ranges_within_files_are_valid() {
        let dir = tempfile::tempdir().unwrap();
        let mut validator = validator(&dir, 3);
        let mut error =
            |ranges: Vec<FileRange>| validator.check(&ranges.into()).err().unwrap_or_default();
        assert_eq!(error(vec![]), "");
        assert_eq!(error(vec![range("a", 0, 8192), range("a", 4999, 1)]), "");
        assert!(error(vec![range("a", 0, 8193)]).contains("the file ends at 5000"));
        assert!(error(vec![range("a", 1, u64::MAX)]).contains("the file ends at 5000"));
        assert!(error(vec![range("a", 5000, 1)]).contains("begins at 5000"));
        assert!(error(vec![range("a", 0, 1), range("a", 0, 0)]).contains("entry 1"));
        assert!(error(vec![range("empty", 0, 1)]).contains("begins at 0"));
        for name in ["b", "/etc/passwd", "../a", "", "a/../a", "./b"] {
            assert!(
                error(vec![range(name, 0, 1)]).contains("the namespace has no file"),
                "{name}"
            );
        }
        assert!(error(vec![range("a", 0, 1); 4]).contains("at most 3 are allowed"));
    }

    #[test]
    fn the_list_behind_several_ranges_is_validated_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut validator = validator(&dir, usize::MAX);
        let list: Arc<[FileRange]> = vec![range("a", 0, 4096); 1000].into();
        for start in 0..1000 {
            validator
                .check(&RangeList::slice(&list, start..1000))
                .unwrap();
        }
        assert_eq!((validator.valid.len(), validator.remembered), (1, 1000));
        // the memory of valid lists is bounded
        for _ in 0..3 {
            validator
                .check(&vec![range("a", 0, 1); MAX_REMEMBERED / 2].into())
                .unwrap();
        }
        assert!(
            validator.remembered <= MAX_REMEMBERED + 1000,
            "{}",
            validator.remembered
        );
        // and so is their number
        for _ in 0..2 * MAX_LISTS {
            validator.check(&vec![range("a", 0, 1)].into()).unwrap();
        }
        assert_eq!(
            (validator.valid.len(), validator.remembered),
            (MAX_LISTS, MAX_LISTS)
        );
    }
}
