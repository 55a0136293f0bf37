//! The checksums of archives: every member of NPZ and PyTorch files, also those that no tensor is in.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::progress::{RunControl, RunProgress};
use crate::base::sync::PoisonMutex;
use crate::base::threads::{for_each_of, thread_count_for};
use crate::read::catalog::{IntegrityCheck, Member, quote};
use crate::read::checkpoint::Checkpoint;
use crate::read::format::{Archive, is_archive, local_payload};
use crate::read::source::Source;
use crate::read::source::cursor::Cursor;
use crate::read::source::range_reader::{Content, RangeReader};

use super::check_rules;
use super::report::Finding;

/// A member whose content is not what the directory says.
#[derive(Debug)]
pub(super) struct DamagedMember {
    /// Number of the file.
    pub(super) file: usize,
    pub(super) name: Arc<str>,
    pub(super) offset: u64,
    /// Why it cannot be read; `None` if its checksum differs.
    pub(super) error: Option<Error>,
}

/// Where a member is: the number of the file, and the offset of its local header.
type MemberPlace = (usize, u64);

fn place_of(member: &Member) -> Option<MemberPlace> {
    match member.check {
        IntegrityCheck::ZipLocal { at, .. } => Some((member.bytes.file as usize, at)),
        IntegrityCheck::Count { .. } => None,
    }
}

/// The tensors that damaged members concern. Looked up by place and by name: an archive may have as many members as its
/// bytes allow.
pub(super) struct DamageIndex<'m> {
    /// By member of the catalog, whether it is damaged.
    rows: Vec<bool>,
    /// The first tensor in a member.
    tensors: HashMap<MemberPlace, usize>,
    /// Names of the arrays of an NPZ that are in damaged members.
    arrays: HashSet<&'m str>,
}

impl<'m> DamageIndex<'m> {
    pub(super) fn new(
        checkpoint: &Checkpoint,
        damaged: &'m [DamagedMember],
        budget: &Budget,
    ) -> Result<Self> {
        let catalog = checkpoint.catalog();
        // three tables: places, tensors and names
        let entries = 3 * damaged.len() as u64 * ENTRY + catalog.members().len() as u64;
        budget.memory(entries, "the damaged members")?;
        let places: HashSet<MemberPlace> = damaged.iter().map(DamagedMember::place).collect();
        let is_damaged = |place| places.contains(&place);
        let known = catalog.members().iter();
        let rows = known.map(|member| place_of(member).is_some_and(is_damaged));
        let rows: Vec<bool> = rows.collect();
        let mut tensors = HashMap::new();
        for (number, info) in catalog.tensors().iter().enumerate() {
            let row = info.member.map(|row| row as usize);
            if let Some(row) = row.filter(|row| rows[*row])
                && let Some(place) = place_of(&catalog.members()[row])
            {
                // several tensors may share a storage, and one name is enough for a finding
                tensors.entry(place).or_insert(number);
            }
        }
        let arrays = damaged.iter();
        let arrays = arrays.filter_map(|member| member.name.strip_suffix(".npy"));
        Ok(Self {
            rows,
            tensors,
            arrays: arrays.collect(),
        })
    }

    /// Whether a member of the catalog is damaged.
    pub(super) fn contains(&self, row: u32) -> bool {
        self.rows[row as usize]
    }

    /// The first tensor in a member.
    pub(super) fn tensor_in(&self, member: &DamagedMember) -> Option<usize> {
        self.tensors.get(&member.place()).copied()
    }

    /// Whether an array of an NPZ is in a damaged member.
    pub(super) fn has_array(&self, name: &str) -> bool {
        self.arrays.contains(name)
    }
}

/// Bytes of an entry of a table: a place or a name, a number, and the room that tables leave.
const ENTRY: u64 = 64;

impl DamagedMember {
    fn place(&self) -> MemberPlace {
        (self.file, self.offset)
    }

    pub(super) fn finding(&self, file: Option<String>) -> Finding {
        let name = quote(&self.name);
        let text = match &self.error {
            None => format!("member {name} does not match its checksum"),
            Some(error) => format!("member {name} cannot be read: {}", error.kind()),
        };
        let mut found = Finding::new(&check_rules::CRC, text);
        found.file = file;
        found.offset = Some(self.offset);
        found.member = Some(self.name.to_string());
        found
    }
}

struct MemberToRead<'s> {
    file: usize,
    source: &'s dyn Source,
    name: Arc<str>,
    at: u64,
    packed: u64,
    inflated: u64,
    deflated: bool,
    crc32: u32,
}

/// Reads all members of the archives among the files, side by side. Returns the damaged ones, and the number of all.
///
/// # Errors
/// Cancellation, and directories over the limit on memory.
pub(super) fn damaged_members(
    checkpoint: &Checkpoint,
    budget: &Budget,
    threads: usize,
    control: &RunControl<'_>,
) -> Result<(Vec<DamagedMember>, u64)> {
    let mut members: Vec<MemberToRead<'_>> = Vec::new();
    // other formats have no archives, or parts of archives as the items of a distributed checkpoint
    if !matches!(checkpoint.catalog().format(), "npz" | "pth") {
        return Ok((Vec::new(), 0));
    }
    for (file, source) in checkpoint.sources().iter().enumerate() {
        let mut cursor = Cursor::new(&**source, budget);
        let mut first = [0; 4];
        let n = cursor.peek_into(&mut first)?;
        // a stream has passed by already, and PyTorch's older form is no archive
        if source.len().is_none() || !is_archive(&first[..n]) {
            continue;
        }
        for entry in Archive::read(&mut cursor)?.entries {
            let member = MemberToRead {
                file,
                source: &**source,
                at: entry.header_at,
                packed: entry.packed,
                inflated: entry.inflated,
                deflated: entry.deflated(),
                crc32: entry.crc32,
                name: entry.name,
            };
            budget.push(&mut members, member, "the members of the archive")?;
        }
    }
    let total = members.iter().map(|member| member.inflated);
    let total = total.fold(0, u64::saturating_add);
    let progress = RunProgress::new(total, control);
    let damaged = PoisonMutex::new(Vec::new());
    let threads = thread_count_for(threads, total);
    for_each_of(
        "check",
        &members,
        threads,
        &progress,
        || (),
        |_, member, ()| {
            let error = match member.is_sound(*checkpoint.limits(), &progress) {
                Ok(true) => return Ok(()),
                Ok(false) => None,
                Err(error) => {
                    // a cancellation is no damage
                    control.check()?;
                    Some(error)
                }
            };
            let found = DamagedMember {
                file: member.file,
                name: Arc::clone(&member.name),
                offset: member.at,
                error,
            };
            let mut damaged = damaged.lock().expect("no thread panics with the lock");
            damaged.push(found);
            Ok(())
        },
    )?;
    let mut damaged = damaged.into_inner().expect("no thread panicked");
    // threads finish in any order, and the report has one
    damaged.sort_by_key(|member: &DamagedMember| (member.file, member.offset));
    Ok((damaged, members.len() as u64))
}

impl MemberToRead<'_> {
    /// Whether the content has the checksum of the directory.
    fn is_sound(
        &self,
        limits: crate::base::limits::Limits,
        progress: &RunProgress<'_>,
    ) -> Result<bool> {
        // a budget for each member: several are read at once, and a budget is not shared by threads
        let budget = Budget::new(limits);
        let mut cursor = Cursor::new(self.source, &budget);
        // the payload begins behind the local header, whose length only that header knows
        let start = local_payload(&mut cursor, self.at, &self.name)?;
        let range = RangeReader::new(self.source, start, self.packed);
        let mut content = Content::new(range, self.deflated);
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; 64 << 10];
        let mut left = self.inflated;
        loop {
            let n = content.read(&mut buffer)?;
            hasher.update(&buffer[..n]);
            progress.add(n as u64)?;
            // a member that inflates to more than it says is read no further
            let Some(rest) = left.checked_sub(n as u64) else {
                return Ok(false);
            };
            left = rest;
            if n == 0 {
                return Ok(left == 0 && hasher.finalize() == self.crc32);
            }
        }
    }
}
