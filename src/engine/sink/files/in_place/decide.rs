//! Which way a file gets its new header, and everything that can be done before the first byte of it changes.

use std::path::Path;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::progress::RunProgress;
use crate::engine::sink::container::{ROOM, ROOM_UNIT};
use crate::engine::sink::files::copied::{CopiedRun, CopyTools};
use crate::engine::sink::files::directory_of;
use crate::engine::sink::files::file::Shard;
use crate::engine::sink::files::names::PartNames;
use crate::engine::sink::files::operations::FileOperations;
#[cfg(target_os = "linux")]
use crate::read::checkpoint::edit_journal::journal_of;

#[cfg(target_os = "linux")]
use super::NewHeader;
use super::{EditOptions, EditTarget, EditWay, FileChange};

#[cfg(target_os = "linux")]
use anamnesis_os::lease::WriteLease;
#[cfg(target_os = "linux")]
use anamnesis_os::ranges::FileSystemKind;

/// A file, and what is left to be done with it.
pub(super) struct Decided {
    pub(super) target: EditTarget,
    /// The header that the file has; empty for a file that is replaced whole.
    pub(super) old: Vec<u8>,
    /// The new header, or all bytes.
    pub(super) new: Vec<u8>,
    pub(super) format: Option<&'static str>,
    pub(super) way: EditWay,
    /// The file that takes the place of this one.
    pub(super) shard: Option<Shard>,
    /// Bytes of room to be inserted.
    pub(super) inserted: u64,
    /// Held until the header is written.
    #[cfg(target_os = "linux")]
    pub(super) lease: Option<WriteLease>,
}

impl Decided {
    pub(super) fn new(target: EditTarget, old: Vec<u8>, new: Vec<u8>, way: EditWay) -> Self {
        Self {
            target,
            old,
            new,
            format: None,
            way,
            shard: None,
            inserted: 0,
            #[cfg(target_os = "linux")]
            lease: None,
        }
    }

    /// Bytes of the data behind the header.
    pub(super) fn data(&self) -> u64 {
        self.target.len - self.old.len() as u64
    }

    /// The length of the file when it is changed.
    pub(super) fn new_len(&self) -> u64 {
        match self.format {
            Some(_) => self.new.len() as u64 + self.data(),
            None => self.new.len() as u64,
        }
    }

    /// Bytes that are to be copied to another file.
    pub(super) fn copied(&self) -> u64 {
        match (self.way, self.format) {
            (EditWay::Copy, Some(_)) => self.new_len(),
            _ => 0,
        }
    }
}

/// Chooses the way of a file.
#[cfg_attr(
    not(target_os = "linux"),
    expect(unused_variables, reason = "only Linux has ways besides room and copy")
)]
pub(super) fn decide(
    system: &Arc<dyn FileOperations>,
    change: FileChange,
    options: EditOptions,
) -> Result<Decided> {
    let (target, old, header, format) = match change {
        FileChange::Whole { target, bytes } => {
            return Ok(Decided::new(target, Vec::new(), bytes, EditWay::Copy));
        }
        FileChange::Header {
            target,
            old,
            new,
            format,
        } => (target, old, new, format),
    };
    let path = target.path.clone();
    let too_long = || Error::unsupported("the header would be longer than readers accept");
    let made = |nbytes| {
        let made = header.of_length(nbytes);
        made.ok_or_else(|| too_long().in_file(&path))
    };
    let mut decided = Decided::new(target, old, Vec::new(), EditWay::Copy);
    decided.format = Some(format);
    let has = decided.old.len() as u64;
    if options.compact {
        decided.new = made(header.least())?;
        if decided.new == decided.old {
            decided.way = EditWay::Unchanged;
        }
        return Ok(decided);
    }
    if let Some(new) = header.of_length(has) {
        let is_same = new == decided.old;
        if is_same || !options.copy {
            decided.way = match is_same {
                true => EditWay::Unchanged,
                false => EditWay::Room,
            };
            decided.new = new;
            return Ok(decided);
        }
    }
    #[cfg(target_os = "linux")]
    if !options.copy && without_copy(system, &mut decided, &*header, options)? {
        return Ok(decided);
    }
    let unit = (ROOM_UNIT as u64).max(header.alignment());
    decided.new = made((header.least() + ROOM as u64).next_multiple_of(unit))?;
    Ok(decided)
}

/// Prepares a way that leaves the data where they are, or shares them; false if there is none.
#[cfg(target_os = "linux")]
fn without_copy(
    system: &Arc<dyn FileOperations>,
    decided: &mut Decided,
    header: &dyn NewHeader,
    options: EditOptions,
) -> Result<bool> {
    let Ok((kind, block)) = anamnesis_os::ranges::file_system(&decided.target.file) else {
        return Ok(false);
    };
    let has = decided.old.len() as u64;
    let unit = (ROOM_UNIT as u64).max(block).max(header.alignment());
    if !unit.is_power_of_two() {
        return Ok(false);
    }
    // data keep their offset within a block
    let more = (header.least() + ROOM as u64)
        .saturating_sub(has)
        .next_multiple_of(unit);
    let Some(new) = header.of_length(has + more) else {
        return Ok(false);
    };
    decided.new = new;
    let ways: &[EditWay] = match kind {
        FileSystemKind::Ext4 => &[EditWay::Insert],
        FileSystemKind::Xfs => &[EditWay::Clone, EditWay::Insert],
        _ => &[EditWay::Clone],
    };
    for way in ways {
        let is_ready = match way {
            EditWay::Insert => can_insert(system, decided, options)?,
            _ => cloned(system, decided, block)?,
        };
        if is_ready {
            if *way == EditWay::Insert {
                decided.inserted = more;
            }
            decided.way = *way;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether room can be inserted: no other process reads the file, and none can open it until it is changed.
#[cfg(target_os = "linux")]
fn can_insert(
    system: &Arc<dyn FileOperations>,
    decided: &mut Decided,
    options: EditOptions,
) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let target = &decided.target;
    let is_large = decided.data() >= options.insert_from.max(1);
    if !is_large || journal_of(&target.path).is_none() {
        return Ok(false);
    }
    // another name of the file may be given to a reader; `--copy` is for those
    if target.file.metadata()?.nlink() > 1 {
        return Ok(false);
    }
    // without the lease: inserting writes dirty pages, for which others would wait
    system
        .sync(&target.file)
        .map_err(|e| Error::from(e).in_file(&target.path))?;
    decided.lease = WriteLease::take(&decided.target.file);
    Ok(decided.lease.is_some())
}

/// Makes a file that shares the data of this one.
#[cfg(target_os = "linux")]
fn cloned(system: &Arc<dyn FileOperations>, decided: &mut Decided, block: u64) -> Result<bool> {
    let target = &decided.target;
    let (has, gets) = (decided.old.len() as u64, decided.new.len() as u64);
    // the first block has a part of the header, and the last one an end
    let start = has.next_multiple_of(block);
    if start >= target.len {
        return Ok(false);
    }
    let shard = new_file(system, &target.path, &decided.new, gets)?;
    if shard
        .share(&target.file, start, gets + (start - has))
        .is_err()
    {
        return Ok(false);
    }
    let mut rest = vec![0; usize::try_from(start - has).expect("less than a block")];
    target.read(has, &mut rest)?;
    shard.write(gets, &rest)?;
    finish(&shard, target)?;
    decided.shard = Some(shard);
    Ok(true)
}

/// Makes the file that takes the place of this one, where its way is a copy.
pub(super) fn write_copy(
    system: &Arc<dyn FileOperations>,
    decided: &mut Decided,
    progress: &RunProgress<'_>,
) -> Result<()> {
    let target = &decided.target;
    let shard = new_file(system, &target.path, &decided.new, decided.new_len())?;
    if decided.format.is_some() {
        let (from, to) = (decided.old.len() as u64, decided.new.len() as u64);
        progress.add(to)?;
        let data = CopiedRun {
            source: target,
            path: Some(&target.path),
            start: from,
            at: to,
            len: decided.data(),
        };
        data.copy_to(&shard, &mut CopyTools::default(), None, &|len| {
            progress.add(len)
        })?;
    }
    finish(&shard, target)?;
    decided.shard = Some(shard);
    Ok(())
}

fn new_file(
    system: &Arc<dyn FileOperations>,
    path: &Path,
    front: &[u8],
    nbytes: u64,
) -> Result<Shard> {
    let name = path.file_name().unwrap_or_default();
    let parts = PartNames::new(directory_of(path), name);
    Shard::create(system, &parts, path, front, nbytes)
}

/// Gives the file what the old one has besides bytes, and syncs it.
fn finish(shard: &Shard, target: &EditTarget) -> Result<()> {
    shard.carry_permissions()?;
    shard.carry_attributes(&target.file)?;
    shard.sync()
}
