//! Checks that hold for the catalog of every format: unique names, and byte ranges inside the file.

use std::fmt;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::read::catalog::metadata::{StoredArray, Value};

use super::{Catalog, IntegrityCheck, Layout, Quantizer, TensorInfo};

/// Finds a tensor by name without a copy of the names: a hash table of row numbers.
#[derive(Clone, Default)]
pub(crate) struct NameIndex {
    rows: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl NameIndex {
    /// Indexes the names; `None` if one occurs twice.
    fn build(tensors: &[TensorInfo]) -> Option<Self> {
        let mut index = Self {
            // row numbers instead of names: the names of two million tensors are stored once
            rows: HashTable::with_capacity(tensors.len()),
            ..Self::default()
        };
        for (row, tensor) in tensors.iter().enumerate() {
            let row = u32::try_from(row).expect("limited in number");
            let hash = index.hasher.hash_one(&*tensor.name);
            // names are hashed with a random seed (hashbrown's default), so that a file cannot contain names that
            // were chosen to collide
            let entry = index.rows.entry(
                hash,
                |&other| tensors[other as usize].name == tensor.name,
                |&other| index.hasher.hash_one(&*tensors[other as usize].name),
            );
            match entry {
                hashbrown::hash_table::Entry::Occupied(_) => return None,
                hashbrown::hash_table::Entry::Vacant(free) => free.insert(row),
            };
        }
        Some(index)
    }

    pub(crate) fn find(&self, tensors: &[TensorInfo], name: &str) -> Option<usize> {
        let hash = self.hasher.hash_one(name);
        self.rows
            .find(hash, |&row| *tensors[row as usize].name == *name)
            .map(|&row| row as usize)
    }
}

impl fmt::Debug for NameIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameIndex({} names)", self.rows.len())
    }
}

/// Always equal: the index is derived from the tensors, which are compared themselves.
impl PartialEq for NameIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Catalog {
    /// Indexes the names. Two tensors of one name are malformed in every format: two readers could
    /// see two different files.
    pub(crate) fn index_names(&mut self, budget: &Budget) -> Result<()> {
        // rows are only added after the names of a file were indexed
        if self.names.rows.len() == self.tensors.len() || self.index_unique_names(budget)? {
            return Ok(());
        }
        let name = repeated(self.tensors.iter().map(|tensor| &*tensor.name));
        Err(Error::malformed(format!(
            "two tensors are named {}",
            quote(name.unwrap_or_default())
        )))
    }

    /// Indexes the names if no two tensors have the same. Returns whether that is so.
    pub(crate) fn index_unique_names(&mut self, budget: &Budget) -> Result<bool> {
        // a table of row numbers and a byte of hash each, of which at least 7/16 are used
        let bytes = 12 * self.tensors.len() as u64 + 64;
        budget.memory(bytes, "the index of names")?;
        let index = NameIndex::build(&self.tensors);
        let are_unique = index.is_some();
        self.names = index.unwrap_or_default();
        Ok(are_unique)
    }

    /// Checks that all byte ranges lie inside a file of `len` bytes, and that nothing follows the last
    /// tensor where the format allows nothing. `self` describes one file.
    pub(crate) fn check_extent(&self, len: u64) -> Result<()> {
        for tensor in &self.tensors {
            check_tensor(tensor, len)?;
        }
        if let Some(end) = self.exact_end
            && end != len
        {
            if end > len {
                let what = format!("the tensors end at byte {end} and the file at {len}");
                return Err(Error::malformed(what).at(len).of_truncated_file());
            }
            let what = format!(
                "{} bytes follow the last tensor, and the format allows none",
                len - end
            );
            return Err(Error::malformed(what).at(end));
        }
        Ok(())
    }

    /// Renumbers all byte ranges from file 0 to `file`, and members from 0 to `first_member`.
    pub(crate) fn move_to_file(&mut self, file: u32, first_member: u32) {
        self.move_to_range(file, 0, first_member);
    }

    /// Renumbers byte ranges and members of a catalog of several files, which are put behind another one's.
    pub(crate) fn move_behind(&mut self, files: u32, members: u32) {
        for tensor in &mut self.tensors {
            shift(tensor, files, members);
        }
        for member in &mut self.members {
            member.bytes.file += files;
        }
        for value in self.metadata.iter_mut() {
            if let Value::Array(StoredArray { bytes, .. }) = value {
                bytes.file += files;
            }
        }
    }

    /// Like [`move_to_file`](Self::move_to_file), for a catalog of bytes that begin at offset `start` of that file.
    pub(crate) fn move_to_range(&mut self, file: u32, start: u64, first_member: u32) {
        for tensor in &mut self.tensors {
            renumber(tensor, file, start, first_member);
        }
        for member in &mut self.members {
            member.bytes.file = file;
            member.bytes.start = member.bytes.start.saturating_add(start);
            if let IntegrityCheck::ZipLocal { at, .. } = &mut member.check {
                *at = at.saturating_add(start);
            }
        }
        for value in self.metadata.iter_mut() {
            if let Value::Array(StoredArray { bytes, .. }) = value {
                bytes.file = file;
                bytes.start = bytes.start.saturating_add(start);
            }
        }
    }
}

fn check_tensor(tensor: &TensorInfo, len: u64) -> Result<()> {
    if tensor.bytes.end() > len {
        return Err(Error::malformed(format!(
            "tensor {} ends at byte {} and the file at {len}",
            quote(&tensor.name),
            tensor.bytes.end()
        ))
        .at(tensor.bytes.start)
        .of_truncated_file());
    }
    // one level deep: parts have no parts (`part_argument` in `pth/rebuild.rs`)
    parts(tensor).try_for_each(|part| check_tensor(part, len))
}

fn renumber(tensor: &mut TensorInfo, file: u32, start: u64, first_member: u32) {
    tensor.bytes.file = file;
    tensor.bytes.start = tensor.bytes.start.saturating_add(start);
    if let Some(member) = &mut tensor.member {
        // the members of all files are in one list
        *member += first_member;
    }
    if let Layout::Sparse(sparse) = &mut tensor.layout {
        sparse
            .parts
            .iter_mut()
            .for_each(|part| renumber(part, file, start, first_member));
    }
    if let Some(pytorch) = &mut tensor.pytorch
        && let Some(Quantizer::PerChannel {
            scales,
            zero_points,
            ..
        }) = &mut pytorch.quantizer
    {
        renumber(scales, file, start, first_member);
        renumber(zero_points, file, start, first_member);
    }
}

/// Adds to the numbers of files and members of a tensor, and of those inside it.
fn shift(tensor: &mut TensorInfo, files: u32, members: u32) {
    tensor.bytes.file += files;
    if let Some(member) = &mut tensor.member {
        *member += members;
    }
    match &mut tensor.layout {
        Layout::Sparse(sparse) => {
            let parts = sparse.parts.iter_mut();
            parts.for_each(|part| shift(part, files, members));
        }
        Layout::Chunked(chunks) => {
            let chunks = chunks.iter_mut();
            chunks.for_each(|chunk| shift(&mut chunk.part, files, members));
        }
        _ => {}
    }
    if let Some(pytorch) = &mut tensor.pytorch
        && let Some(Quantizer::PerChannel {
            scales,
            zero_points,
            ..
        }) = &mut pytorch.quantizer
    {
        shift(scales, files, members);
        shift(zero_points, files, members);
    }
}

/// Tensors inside a tensor. They do not nest further: formats build them one deep.
fn parts(tensor: &TensorInfo) -> impl Iterator<Item = &TensorInfo> {
    let sparse = match &tensor.layout {
        Layout::Sparse(sparse) => sparse.parts.as_slice(),
        _ => &[],
    };
    let channels = match tensor.quantizer() {
        Some(Quantizer::PerChannel {
            scales,
            zero_points,
            ..
        }) => [Some(&**scales), Some(&**zero_points)],
        _ => [None, None],
    };
    let chunks = match &tensor.layout {
        Layout::Chunked(chunks) => &**chunks,
        _ => &[],
    };
    let chunks = chunks.iter().map(|chunk| &chunk.part);
    sparse
        .iter()
        .chain(chunks)
        .chain(channels.into_iter().flatten())
}

/// A name that occurs more than once.
pub(crate) fn repeated<'n>(names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let mut names: Vec<&str> = names.collect();
    // sorting needs no table of hashes and no copy of the names
    names.sort_unstable();
    names
        .windows(2)
        .find(|pair| pair[0] == pair[1])
        .map(|pair| pair[0])
}
