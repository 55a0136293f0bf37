//! Storages: the byte arrays that tensors are views of.
//!
//! A pickle names a storage by a persistent id, `('storage', class, key, location, numel)`. The container (zip archive or
//! legacy stream) locates the bytes by the key. Several tensors may be views of one storage. Source:
//! `torch/serialization.py`, `persistent_id` and `persistent_load`.

use hashbrown::HashMap;

use crate::base::error::{Error, Result};
use crate::read::catalog::{Endian, Member, quote};
use crate::read::format::pickle::globals::{Global, TorchDtype};
use crate::read::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};

/// Longest key of a storage. PyTorch numbers storages: keys are decimal numbers.
const KEY_MAX: usize = 256;

/// A persistent id: `('storage', class, key, location, numel[, view])`. The location (`cuda:0`) is the device that the
/// tensor was on when it was saved; tensors are described and read without it.
pub(super) struct PersistentId<'h> {
    pub(super) key: &'h str,
    /// Empty if it is no text.
    pub(super) location: &'h str,
    /// `None` for an untyped storage, whose dtype the tensors give.
    pub(super) dtype: Option<TorchDtype>,
    /// Number of elements; number of bytes if untyped.
    pub(super) numel: u64,
    item_bytes: u64,
    pub(super) nbytes: u64,
    /// Offset and size in elements, if the id names a part of the storage. Only legacy streams have this.
    pub(super) view: Option<(u64, u64)>,
}

impl<'h> PersistentId<'h> {
    pub(super) fn parse(heap: &'h ValueHeap<'_>, tuple: ValueId) -> Result<Self> {
        let invalid = |what: &str| Error::malformed(format!("a storage's persistent id {what}"));
        let (kind, rest) = match heap.sequence(tuple) {
            Some([kind, rest @ ..]) => (*kind, rest),
            _ => return Err(invalid("is not a tuple")),
        };
        // PyTorch also writes `module`, with the source of a class, where a whole module was saved: such a file holds
        // code
        if heap.text_of(kind) != Some("storage") {
            return Err(invalid("does not begin with `storage`"));
        }
        // the view is a sixth item, which only legacy streams have
        let (&[class, key, location, numel], view) = (match rest {
            [first @ .., view] if first.len() == 4 => (first, Some(*view)),
            _ => (rest, None),
        }) else {
            return Err(invalid(&format!(
                "has {} items, expected 5 or 6",
                rest.len() + 1
            )));
        };
        let PickleValue::Global(Global::Storage(dtype)) = heap.get(class) else {
            return Err(invalid("has no storage class"));
        };
        let key = heap
            .text_of(key)
            .ok_or_else(|| invalid("has a key that is not text"))?;
        // many ids can name one storage, and each looks it up by its key
        if key.len() > KEY_MAX {
            return Err(invalid("has a key that is longer than 256 bytes"));
        }
        let numel = non_negative(heap, numel)
            .ok_or_else(|| invalid("has a size that is not a non-negative integer"))?;
        let item_bytes = match dtype {
            None => 1,
            Some(dtype) => item_bytes(dtype)?,
        };
        let nbytes = numel
            .checked_mul(item_bytes)
            .ok_or_else(|| invalid("has a size that exceeds 64 bits"))?;
        let view = match view.map(|view| (heap.get(view), heap.sequence(view))) {
            None | Some((PickleValue::None, _)) => None,
            Some((_, Some(&[_key, offset, size]))) => {
                let part = non_negative(heap, offset).zip(non_negative(heap, size));
                let inside = part.filter(|&(offset, size)| {
                    offset.checked_add(size).is_some_and(|end| end <= numel)
                });
                Some(inside.ok_or_else(|| invalid("has a view that exceeds the storage"))?)
            }
            Some(_) => return Err(invalid("has a view that is not (key, offset, size)")),
        };
        Ok(Self {
            key,
            location: heap.text_of(location).unwrap_or_default(),
            dtype,
            numel,
            item_bytes,
            nbytes,
            view,
        })
    }
}

/// The value as a count; `None` if it is not an integer or is negative.
pub(super) fn non_negative(heap: &ValueHeap<'_>, id: ValueId) -> Option<u64> {
    match heap.get(id) {
        PickleValue::Int(n) => u64::try_from(n).ok(),
        _ => None,
    }
}

/// Bytes per stored item, or the error for a dtype that exists in PyTorch by name only.
pub(super) fn item_bytes(dtype: TorchDtype) -> Result<u64> {
    dtype.item_bytes().ok_or_else(|| {
        Error::unsupported(format!("tensors of torch.{} cannot be read", dtype.name()))
    })
}

/// Memory of one storage: its row in the catalog and its entry in the table of keys, both of which double as they grow.
pub(super) const STORAGE: u64 = 2 * size_of::<Member>() as u64 + 128;

/// A located storage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    /// Index into [`Catalog::members`](crate::Catalog::members).
    pub(super) member: u32,
    /// Offset of the first byte in the member's content.
    pub(super) start: u64,
    pub(super) nbytes: u64,
    pub(super) dtype: Option<TorchDtype>,
    pub(super) endian: Endian,
    pub(super) deflated: bool,
}

/// Locates a storage by its key, and returns whether it is deflated. Called once per storage, at its first use.
pub(super) type Locate<'a> = dyn FnMut(&str) -> Result<(Member, bool)> + 'a;

/// The storages that tensors use, numbered in the order of their first use.
pub(super) struct Storages<'h, 'a> {
    by_key: HashMap<&'h str, (u32, bool)>,
    pub(super) members: Vec<Member>,
    /// Per member, the persistent id that was located.
    pub(super) ids: Vec<ValueId>,
    locate: &'a mut Locate<'a>,
    /// Byte order of typed storages, then of untyped storages.
    endian: [Endian; 2],
}

impl<'h, 'a> Storages<'h, 'a> {
    /// `expected` is a hint at the number of storages, for the initial capacity. The file controls it, so it is capped.
    pub(super) fn new(endian: [Endian; 2], expected: usize, locate: &'a mut Locate<'a>) -> Self {
        let expected = expected.min(1024);
        Self {
            by_key: HashMap::with_capacity(expected),
            members: Vec::with_capacity(expected),
            ids: Vec::with_capacity(expected),
            locate,
            endian,
        }
    }

    /// The storage that a persistent id names, a tuple. Refuses an id that claims more bytes than the container stores.
    pub(super) fn find(&mut self, tuple: ValueId, id: &PersistentId<'h>) -> Result<Storage> {
        let (member, deflated) = match self.by_key.get(id.key) {
            Some(&known) => known,
            None => {
                let row = u32::try_from(self.members.len())
                    .map_err(|_| Error::unsupported("the file has more than 2³² storages"))?;
                // at the first use only: locating reads a header where the directory does not determine the offset
                let (member, deflated) = (self.locate)(id.key)?;
                self.members.push(member);
                self.ids.push(tuple);
                self.by_key.insert(id.key, (row, deflated));
                (row, deflated)
            }
        };
        let held = &self.members[member as usize];
        // fewer bytes than stored are accepted: `torch.load` reads the number in the id
        if id.nbytes > held.inflated {
            return Err(Error::malformed(format!(
                "storage {} has {} bytes by its persistent id, but only {} are stored",
                quote(id.key),
                id.nbytes,
                held.inflated
            ))
            .at(held.bytes.start));
        }
        let (start, nbytes) = match id.view {
            None => (0, id.nbytes),
            Some((offset, size)) => (offset * id.item_bytes, size * id.item_bytes), // fits: `PersistentId::parse` checked that the view is inside the storage
        };
        // both are the same in an archive; `legacy.rs` says how they differ in a stream
        let endian = self.endian[usize::from(id.dtype.is_none())];
        Ok(Storage {
            member,
            start,
            nbytes,
            dtype: id.dtype,
            endian,
            deflated,
        })
    }
}
