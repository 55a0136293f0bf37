//! The stream of PyTorch 0.1.10 to 1.5: five pickles, then the storages one after the other.
//!
//! Source: `torch/serialization.py` (`_legacy_load`) and `torch/csrc/serialization.cpp`. The stream
//! is read forward only, so that a pipe will do.

use hashbrown::HashMap;

use crate::catalog::{ByteRange, Catalog, Endian, Guard, Member, quote};
use crate::error::{Error, Result};
use crate::format::pickle::{self, Pickle, heap::Value};
use crate::source::cursor::Cursor;

use super::storage::{StorageId, Storages};
use super::{details, flatten, rebuild};

/// 0x1950a86a20f9469cfc6c, as the machine keeps numbers beyond 64 bits.
const MAGIC: &str = "119547037146038801333356";
const PROTOCOL: i64 = 1001;
/// How many element counts are checked at open, from either end. The others are when they are read.
const CHECKED: usize = 16;

/// Whether a file begins as a pickle of protocol 2 to 5.
pub(super) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

/// Whether a file begins as PyTorch's tar archives do.
pub(super) fn is_tar(bytes: &[u8]) -> bool {
    let name = bytes.strip_prefix(b"./").unwrap_or(bytes);
    let members: [&[u8]; 4] = [b"storages\0", b"tensors\0", b"pickle\0", b"sys_info\0"];
    bytes.get(257..262) == Some(b"ustar") || members.iter().any(|member| name.starts_with(member))
}

pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Catalog> {
    let magic = pickle::read(cursor, false)?;
    if !matches!(magic.heap.get(magic.root), Value::Big(number) if magic.heap.text(number) == MAGIC)
    {
        return Err(Error::malformed(
            "a pickle, but not a PyTorch checkpoint: it does not begin with the magic number",
        )
        .at(0));
    }
    let protocol = pickle::read(cursor, false)?;
    if protocol.heap.get(protocol.root) != Value::Int(PROTOCOL) {
        return Err(cursor.malformed("a PyTorch stream whose protocol version is not 1001"));
    }
    let system = pickle::read(cursor, false)?;
    let system_endian = system_endian(&system)?;
    let object = pickle::read(cursor, false)?;
    let keys = pickle::read(cursor, false)?;
    let mut members = place(cursor, &object, &keys)?;

    let count = members.len();
    let mut locate = |key: &str| {
        let member = members.remove(key);
        member
            .map(|member| (member, false))
            .ok_or_else(|| unlisted(key))
    };
    // Typed storages are written little-endian on every machine (`THPStorage_writeFileRaw`), untyped
    // ones as they lie in memory.
    let storages = Storages::new([Endian::Little, system_endian], count, &mut locate);
    let rebuilt = rebuild::rebuild(&object.heap, storages)?;
    let mut catalog = Catalog::new(super::FORMAT.name);
    flatten::flatten(&object.heap, object.root, rebuilt, &mut catalog)?;
    details(&mut catalog, "legacy", system_endian, &object);
    if system_endian == Endian::Big {
        catalog.warnings.push(
            "written on a big-endian machine: PyTorch writes typed storages little-endian there too, and so they are read"
                .into(),
        );
    }
    if let Some(left) = cursor
        .len()
        .map(|len| len.saturating_sub(cursor.pos()))
        .filter(|&left| left > 0)
    {
        catalog
            .warnings
            .push(format!("{left} bytes follow the last storage"));
    }
    Ok(catalog)
}

fn system_endian(system: &Pickle<'_>) -> Result<Endian> {
    let heap = &system.heap;
    let Value::Dict { items, .. } = heap.get(system.root) else {
        return Err(Error::malformed(
            "a PyTorch stream whose system facts are not a dict",
        ));
    };
    let entry = heap
        .open(items)
        .chunks_exact(2)
        .find(|pair| heap.text_of(pair[0]) == Some("little_endian"));
    match entry.map(|pair| heap.get(pair[1])) {
        None | Some(Value::Bool(true)) => Ok(Endian::Little),
        Some(Value::Bool(false)) => Ok(Endian::Big),
        Some(_) => Err(Error::malformed(
            "a PyTorch stream whose byte order is neither true nor false",
        )),
    }
}

fn unlisted(key: &str) -> Error {
    Error::malformed(format!(
        "storage {} is used and not in the list of storages",
        quote(key)
    ))
}

/// Where each storage lies, by its key: behind one another in the order of the list, each behind a
/// count of its elements. Leaves the cursor behind the last one.
fn place(
    cursor: &mut Cursor<'_>,
    object: &Pickle<'_>,
    keys: &Pickle<'_>,
) -> Result<HashMap<String, Member>> {
    let heap = &object.heap;
    let mut used: HashMap<&str, StorageId<'_>> = HashMap::new();
    heap.budget()
        .steps(heap.len() as u64, "what the pickle builds")?;
    for id in heap.ids() {
        if let Value::Persistent(tuple) = heap.get(id) {
            let storage = StorageId::parse(heap, tuple)?;
            heap.budget().memory(
                size_of::<StorageId<'_>>() as u64 * 2,
                "the list of storages",
            )?;
            let (key, nbytes) = (storage.key, storage.nbytes);
            if used.entry(key).or_insert(storage).nbytes != nbytes {
                return Err(Error::malformed(format!(
                    "storage {} has two sizes",
                    quote(key)
                )));
            }
        }
    }
    let Value::List(list) = keys.heap.get(keys.root) else {
        return Err(cursor.malformed("the list of storages is not a list"));
    };
    let list = keys.heap.open(list);
    let mut members = HashMap::with_capacity(list.len().min(used.len()));
    for (i, &key) in list.iter().enumerate() {
        let key = keys
            .heap
            .text_of(key)
            .ok_or_else(|| cursor.malformed("a storage key that is not text"))?;
        let storage = used.get(key).ok_or_else(|| {
            cursor.malformed(format!(
                "storage {} is in the list of storages and not used",
                quote(key)
            ))
        })?;
        let elements = storage.numel;
        if i < CHECKED || i + CHECKED >= list.len() {
            let at = cursor.pos();
            let found = i64::from_le_bytes(cursor.array("a storage's element count")?);
            if u64::try_from(found) != Ok(elements) {
                return Err(Error::malformed(format!(
                    "storage {} should have {elements} elements and says {found}",
                    quote(key)
                ))
                .at(at));
            }
        } else {
            cursor.skip(8, "a storage's element count")?;
        }
        heap.budget()
            .memory(key.len() as u64 + 128, "the list of storages")?;
        let member = Member {
            bytes: ByteRange::new(cursor.pos(), storage.nbytes),
            inflated: storage.nbytes,
            guard: Guard::Count { elements },
        };
        if storage.nbytes > cursor.remaining() {
            return Err(cursor.ended(storage.nbytes, "a storage"));
        }
        cursor.seek(cursor.pos() + storage.nbytes);
        if members.insert(key.to_owned(), member).is_some() {
            return Err(Error::malformed(format!(
                "storage {} is twice in the list of storages",
                quote(key)
            )));
        }
    }
    match used.keys().find(|key| !members.contains_key(**key)) {
        Some(key) => Err(unlisted(key)),
        None => Ok(members),
    }
}
