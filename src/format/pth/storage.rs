//! Storages: what a persistent id says, and where in the file its bytes lie.

use hashbrown::HashMap;

use crate::catalog::{Endian, Member, quote};
use crate::error::{Error, Result};
use crate::format::pickle::heap::{Heap, Id, Value};
use crate::format::pickle::world::{Global, TorchDtype};

/// A persistent id: `('storage', class, key, location, numel[, view])`. The location (`cuda:0`) says
/// where the tensor was, not what it is.
pub(super) struct StorageId<'h> {
    pub(super) key: &'h str,
    /// `None`: untyped bytes.
    pub(super) dtype: Option<TorchDtype>,
    /// Elements, or bytes if untyped.
    pub(super) numel: u64,
    item_bytes: u64,
    pub(super) nbytes: u64,
    /// Legacy streams: the part of the storage that is meant, as offset and size in elements.
    view: Option<(u64, u64)>,
}

impl<'h> StorageId<'h> {
    pub(super) fn parse(heap: &'h Heap<'_>, tuple: Id) -> Result<Self> {
        let wrong = |what: &str| Error::malformed(format!("a storage's persistent id {what}"));
        let (kind, rest) = match heap.sequence(tuple) {
            Some([kind, rest @ ..]) => (*kind, rest),
            _ => return Err(wrong("is not a tuple")),
        };
        if heap.text_of(kind) != Some("storage") {
            return Err(wrong("does not begin with `storage`"));
        }
        let (&[class, key, _location, numel], view) = (match rest {
            [first @ .., view] if first.len() == 4 => (first, Some(*view)),
            _ => (rest, None),
        }) else {
            return Err(wrong(&format!(
                "has {} parts where 5 or 6 belong",
                rest.len() + 1
            )));
        };
        let Value::Global(Global::Storage(dtype)) = heap.get(class) else {
            return Err(wrong("names no storage class"));
        };
        let key = heap
            .text_of(key)
            .ok_or_else(|| wrong("has a key that is not text"))?;
        let numel = count(heap, numel).ok_or_else(|| wrong("has a size that is no count"))?;
        let item_bytes = match dtype {
            None => 1,
            Some(dtype) => item_bytes(dtype)?,
        };
        let nbytes = numel
            .checked_mul(item_bytes)
            .ok_or_else(|| wrong("has a size beyond 64 bits"))?;
        let view = match view.map(|view| (heap.get(view), heap.sequence(view))) {
            None | Some((Value::None, _)) => None,
            Some((_, Some(&[_key, offset, size]))) => {
                let part = count(heap, offset).zip(count(heap, size));
                let inside = part.filter(|&(offset, size)| {
                    offset.checked_add(size).is_some_and(|end| end <= numel)
                });
                Some(inside.ok_or_else(|| wrong("has a view that leads outside of it"))?)
            }
            Some(_) => return Err(wrong("has a view that is not (key, offset, size)")),
        };
        Ok(Self {
            key,
            dtype,
            numel,
            item_bytes,
            nbytes,
            view,
        })
    }
}

/// A number that is not negative.
pub(super) fn count(heap: &Heap<'_>, id: Id) -> Option<u64> {
    match heap.get(id) {
        Value::Int(n) => u64::try_from(n).ok(),
        _ => None,
    }
}

pub(super) fn item_bytes(dtype: TorchDtype) -> Result<u64> {
    dtype
        .item_bytes()
        .ok_or_else(|| Error::unsupported(format!("tensors of torch.{}", dtype.name())))
}

/// The bytes that tensors are cut from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    /// Index into [`Catalog::members`](crate::Catalog::members).
    pub(super) member: u32,
    /// First byte, counted in the member's content.
    pub(super) start: u64,
    pub(super) nbytes: u64,
    pub(super) dtype: Option<TorchDtype>,
    pub(super) endian: Endian,
    pub(super) deflated: bool,
}

/// Finds a storage that no tensor used yet, by its key; and says whether it is deflated.
pub(super) type Locate<'a> = dyn FnMut(&str) -> Result<(Member, bool)> + 'a;

/// The storages that tensors use, in the order of their first use.
pub(super) struct Storages<'h, 'a> {
    rows: HashMap<&'h str, (u32, bool)>,
    pub(super) members: Vec<Member>,
    locate: &'a mut Locate<'a>,
    /// Byte order of numbers in typed storages, and in untyped ones.
    endian: [Endian; 2],
}

impl<'h, 'a> Storages<'h, 'a> {
    /// `likely`: how many there will be, for room made in one go.
    pub(super) fn new(endian: [Endian; 2], likely: usize, locate: &'a mut Locate<'a>) -> Self {
        let likely = likely.min(1024);
        Self {
            rows: HashMap::with_capacity(likely),
            members: Vec::with_capacity(likely),
            locate,
            endian,
        }
    }

    /// The storage that a persistent id means.
    pub(super) fn find(&mut self, id: &StorageId<'h>) -> Result<Storage> {
        let (member, deflated) = match self.rows.get(id.key) {
            Some(&known) => known,
            None => {
                let row = u32::try_from(self.members.len())
                    .map_err(|_| Error::unsupported("2³² storages"))?;
                let (member, deflated) = (self.locate)(id.key)?;
                self.members.push(member);
                self.rows.insert(id.key, (row, deflated));
                (row, deflated)
            }
        };
        let held = &self.members[member as usize];
        if id.nbytes > held.inflated {
            return Err(Error::malformed(format!(
                "storage {} should have {} bytes and has {}",
                quote(id.key),
                id.nbytes,
                held.inflated
            ))
            .at(held.bytes.start));
        }
        let (start, nbytes) = match id.view {
            None => (0, id.nbytes),
            Some((offset, size)) => (offset * id.item_bytes, size * id.item_bytes), // inside nbytes: `parse` checked
        };
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
