//! Rules about opening: files that cannot be read, and an index that contradicts its files.

use std::path::{Path, PathBuf};

use crate::base::error::{Error, ErrorKind, Remedy, Result};
use crate::base::limits::Budget;
use crate::read::catalog::quote;
use crate::read::checkpoint::edit_journal::{INTERRUPTED, has_journal};
use crate::read::checkpoint::{Checkpoint, OpenFault, OpenFaultKind};
use crate::read::format::is_lfs_pointer;
use crate::read::source::file_system::{MapMode, NamedPath};
use crate::read::source::files::Files;

use super::check_rules::{self, CheckRule};
use super::level::FindingLevel;
use super::places::below;
use super::report::Finding;

/// Bytes that are looked at to find out what a file is instead.
const HEAD: usize = 4 << 10;

/// The finding for a file that cannot be opened; `None` if the system, a limit or the caller ended it.
pub(super) fn unreadable(
    error: &Error,
    file: Option<&Path>,
    root: &Path,
    files: &Files,
) -> Option<Finding> {
    let file = error.path().or(file);
    // looked at only after a failure, so that sound files cost nothing
    let head = file.and_then(|path| head(NamedPath::below(root, path), files));
    let (rule, message) = match error.kind() {
        ErrorKind::Cancelled | ErrorKind::InvalidArgument(_) => return None,
        ErrorKind::RefusedGlobal { module, name } => {
            let global = format!("{module}.{name}");
            let text = format!(
                "names {}, which is not plain data; nothing was run",
                quote(&global)
            );
            let mut found = Finding::new(&check_rules::PICKLE_GLOBAL, text);
            found.name = Some(global);
            return Some(placed(found, error, file, root, files));
        }
        _ if head
            .as_ref()
            .is_some_and(|head| is_lfs_pointer(&head.bytes)) =>
        {
            (&check_rules::LFS_POINTER, error.kind().to_string())
        }
        _ if head.as_ref().is_some_and(FileHead::is_zero) => (
            &check_rules::ZERO_HEADER,
            "the first bytes are zero, as an interrupted download leaves them".to_owned(),
        ),
        // before the general rule: a truncated file is malformed as well, and the remedy is to copy it again
        _ if error.is_truncated() => (&check_rules::TRUNCATED, error.kind().to_string()),
        ErrorKind::Malformed(_) => (&check_rules::MALFORMED, error.kind().to_string()),
        ErrorKind::Unexplained(_) => (&check_rules::UNEXPLAINED, error.kind().to_string()),
        ErrorKind::UnknownFormat { .. } | ErrorKind::Unsupported(_) | ErrorKind::Io(_) => {
            (&check_rules::UNREADABLE, error.kind().to_string())
        }
        ErrorKind::MissingPart(_) => (&check_rules::INDEX_MISSING_FILE, error.kind().to_string()),
        // a limit is the caller's choice and no fault of the file, and where one was replaced, the check begins again
        ErrorKind::Limit { .. } | ErrorKind::NotFound { .. } | ErrorKind::Replaced(_) => {
            return None;
        }
    };
    let found = Finding::new(rule, message);
    Some(placed(found, error, file, root, files))
}

fn placed(
    mut found: Finding,
    error: &Error,
    file: Option<&Path>,
    root: &Path,
    files: &Files,
) -> Finding {
    found.file = file.map(|path| below(root, path));
    found.offset = error.offset();
    hinted(found, file, root, files)
}

/// The remedy for an edit that was interrupted.
pub(super) const RECOVER: &str = "complete it with `anamnesis edit PATH --recover`";

/// Adds to a finding about damage that an edit was interrupted, if a journal says so.
fn hinted(mut found: Finding, file: Option<&Path>, root: &Path, files: &Files) -> Finding {
    if files.is_local() && has_journal(file.unwrap_or(root), root) {
        found.message.push_str("; ");
        found.message.push_str(INTERRUPTED);
        found.remedy = Some(RECOVER);
    }
    found
}

/// The first bytes of a file, and its length.
struct FileHead {
    bytes: Vec<u8>,
    len: u64,
}

impl FileHead {
    fn is_zero(&self) -> bool {
        // a file of a few zeros may be an empty tensor; 4 KiB of zeros begin no format
        self.len > 8 && self.bytes.len() >= 8 && self.bytes.iter().all(|&byte| byte == 0)
    }
}

fn head(path: NamedPath<'_>, files: &Files) -> Option<FileHead> {
    let budget = Budget::new(crate::base::limits::Limits::default());
    let mapping = MapMode {
        mmap: false,
        private: false,
    };
    let source = files.open_named(path, mapping, &budget).ok()?;
    let len = source.len()?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(HEAD).min(HEAD)];
    crate::read::source::read_exact_at(&*source, 0, &mut bytes).ok()?;
    Some(FileHead { bytes, len })
}

/// The rule of a fault.
fn rule(kind: OpenFaultKind) -> Option<&'static CheckRule> {
    Some(match kind {
        OpenFaultKind::MissingFile => &check_rules::INDEX_MISSING_FILE,
        OpenFaultKind::MissingTensor => &check_rules::INDEX_MISSING_TENSOR,
        OpenFaultKind::WrongShard => &check_rules::INDEX_WRONG_SHARD,
        OpenFaultKind::UnlistedTensor => &check_rules::INDEX_UNLISTED,
        OpenFaultKind::TotalSize => &check_rules::INDEX_TOTAL_SIZE,
        OpenFaultKind::DuplicateName => &check_rules::DUPLICATE_NAME,
        OpenFaultKind::SplitMetadata => &check_rules::INDEX_SPLIT,
        // the error of a file decides about it, and one of several checkpoints is no fault
        OpenFaultKind::UnreadableFile | OpenFaultKind::OneOfSeveral | OpenFaultKind::Selected => {
            return None;
        }
    })
}

/// The findings of faults that were collected: faults of one rule about tensors of one file are one finding.
pub(super) fn of_faults(
    faults: &[OpenFault],
    root: &Path,
    files: &Files,
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<()> {
    let mut rest = faults;
    while let Some(first) = rest.first() {
        let alike = |fault: &OpenFault| {
            (fault.kind, &fault.file) == (first.kind, &first.file) && fault.tensor.is_some()
        };
        let count = rest.iter().take_while(|fault| alike(fault)).count().max(1);
        // faults of one kind and file follow each other: a wrong index would give a finding for each of 100,000 tensors
        let (group, others) = rest.split_at(count);
        rest = others;
        match rule(first.kind) {
            Some(rule) => {
                let found = grouped(rule, group, root);
                add(hinted(found, first.file.as_deref(), root, files))?;
            }
            None if first.kind != OpenFaultKind::UnreadableFile => {}
            None => {
                let found = unreadable(&first.error, first.file.as_deref(), root, files);
                found.map_or(Ok(()), &mut *add)?;
            }
        }
    }
    Ok(())
}

/// The warnings of opening that the file is a part of a model, or half edited. Other rules report the causes of the others.
pub(super) fn of_parts(
    checkpoint: &Checkpoint,
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<()> {
    let mut warnings = checkpoint.catalog().warnings().iter();
    warnings.try_for_each(|warning| {
        match warning.remedy() {
            Some(Remedy::OpenWhole) => add(Finding::new(&check_rules::PART_ALONE, warning.text())),
            // some names of tensors may be the old ones, and others the new ones
            Some(Remedy::RecoverEdit) => {
                let mut found = Finding::new(&check_rules::UNFINISHED, warning.text());
                found.remedy = Some(RECOVER);
                add(found.level(FindingLevel::Error))
            }
            _ => Ok(()),
        }
    })
}

fn grouped(rule: &'static CheckRule, group: &[OpenFault], root: &Path) -> Finding {
    let first = &group[0];
    let file = first.file.as_deref().map(|path: &Path| below(root, path));
    let place = file.as_deref().unwrap_or("the index");
    let message = match (first.kind, group.len()) {
        (OpenFaultKind::MissingFile, _) if file.is_some() => "is not there".to_owned(),
        (OpenFaultKind::MissingTensor, 1) => format!("the index places it in {}", quote(place)),
        (OpenFaultKind::MissingTensor, n) => {
            format!(
                "and {} more: the index places them in {}",
                n - 1,
                quote(place)
            )
        }
        (OpenFaultKind::WrongShard, 1) => {
            format!("is not in {}, where the index places it", quote(place))
        }
        (OpenFaultKind::WrongShard, n) => format!(
            "and {} more are not in {}, where the index places them",
            n - 1,
            quote(place)
        ),
        (OpenFaultKind::UnlistedTensor, 1) => {
            format!("is in {}, and not in the index", quote(place))
        }
        (OpenFaultKind::UnlistedTensor, n) => {
            format!(
                "and {} more are in {}, and not in the index",
                n - 1,
                quote(place)
            )
        }
        (OpenFaultKind::DuplicateName, 1) => {
            format!("{} and another file both contain it", quote(place))
        }
        (OpenFaultKind::DuplicateName, n) => format!(
            "and {} more of {} have names that another file has",
            n - 1,
            quote(place)
        ),
        _ => first.error.kind().to_string(),
    };
    let mut found = Finding::new(rule, message);
    found.file = file;
    if let Some(tensor) = &first.tensor {
        found.tensor = Some(tensor.to_string());
        found.count = Some(group.len() as u64);
    }
    found
}

/// The directory of a model, below which its files are named.
pub(super) fn root_of(path: &Path, files: &Files) -> PathBuf {
    files.folder_of(path).to_owned()
}
