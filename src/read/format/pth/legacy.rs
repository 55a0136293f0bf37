//! The stream format of PyTorch 0.1.10 to 1.5: five pickles, then the storages one after the other.
//!
//! Source: `torch/serialization.py` (`_legacy_load`) and `torch/csrc/serialization.cpp`.
//!
//! | item | content |
//! |---|---|
//! | pickle 1 | the magic number |
//! | pickle 2 | the protocol version, 1001 |
//! | pickle 3 | a dict with `little_endian` and the sizes of C types |
//! | pickle 4 | the saved object |
//! | pickle 5 | the list of storage keys |
//! | per key | number of elements (`i64`, little endian), then the elements |
//!
//! The stream is read forward only, so it can be a pipe.

use hashbrown::HashMap;

use crate::base::error::{Error, Result};
use crate::base::limits::text_cost;
use crate::read::catalog::{ByteRange, Catalog, Endian, IntegrityCheck, Member, quote};
use crate::read::format::pickle::{self, Pickle, Vocabulary, value_heap::PickleValue};
use crate::read::objects::ObjectTree;
use crate::read::source::cursor::Cursor;

use super::objects::{self, ObjectSource};
use super::rebuild::RebuiltTensors;
use super::rebuild::numpy::PickleBytes;
use super::storage::{PersistentId, STORAGE, Storages};
use super::{details, flatten, rebuild};

/// `0x1950a86a20f9469cfc6c` in decimal: the pickle interpreter keeps integers beyond 64 bits as decimal text.
const MAGIC: &str = "119547037146038801333356";
const PROTOCOL: i64 = 1001;
/// Number of element counts that are compared when the file is opened, at each end of the list. Each comparison reads a
/// page of a cold file. The other counts are compared when their storage is read (`Guard::Count`).
const COUNTS_CHECKED: usize = 16;

/// Whether a file begins with the PROTO opcode of a pickle of protocol 2 to 5.
pub(super) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

/// Whether a file begins like a tar archive of PyTorch before 0.1.10.
pub(super) fn is_tar(bytes: &[u8]) -> bool {
    let name = bytes.strip_prefix(b"./").unwrap_or(bytes);
    let members: [&[u8]; 4] = [b"storages\0", b"tensors\0", b"pickle\0", b"sys_info\0"];
    bytes.get(257..262) == Some(b"ustar") || members.iter().any(|member| name.starts_with(member))
}

pub(super) fn read(cursor: &mut Cursor<'_>, opaque: bool) -> Result<Catalog> {
    interpret(cursor, opaque, false, |cursor, object, rebuilt, endian| {
        let mut catalog = Catalog::new(super::FORMAT.name);
        flatten::flatten(&object.heap, object.root, rebuilt, &mut catalog)?;
        details(&mut catalog, "legacy", endian, object);
        if endian == Endian::Big {
            catalog.warnings.push(
                "the file was written on a big-endian machine; typed storages are read as little endian, as PyTorch writes them there too"
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
                .push(format!("{left} bytes follow the last storage").into());
        }
        Ok(catalog)
    })
}

/// The saved object, and the storages as tensors.
pub(super) fn objects(
    cursor: &mut Cursor<'_>,
    opaque: bool,
    named: bool,
) -> Result<(ObjectTree, Catalog)> {
    interpret(cursor, opaque, true, |cursor, object, rebuilt, endian| {
        objects::build(
            &object.heap,
            object.root,
            rebuilt,
            &ObjectSource {
                pickle: cursor.source(),
                endian: [Endian::Little, endian],
                deflated: &|_| false,
                named,
            },
        )
    })
}

/// Reads the pickles and interprets the calls of the object; `exact` is as in [`pickle::read_exact`].
fn interpret<T>(
    cursor: &mut Cursor<'_>,
    opaque: bool,
    exact: bool,
    consume: impl FnOnce(&mut Cursor<'_>, &Pickle<'_>, RebuiltTensors, Endian) -> Result<T>,
) -> Result<T> {
    let magic = pickle::read(cursor, Vocabulary::Checkpoint, false)?;
    if !matches!(magic.heap.get(magic.root), PickleValue::BigInt(number) if magic.heap.text(number) == MAGIC)
    {
        return Err(Error::unsupported(
            "a bare pickle, which torch.save has not written (Detectron2 and Paddle write such files): it does not begin with \
             PyTorch's magic number; load it with the library that wrote it, and save its tensors as safetensors",
        )
        .at(0));
    }
    let protocol = pickle::read(cursor, Vocabulary::Checkpoint, false)?;
    if protocol.heap.get(protocol.root) != PickleValue::Int(PROTOCOL) {
        return Err(cursor.malformed("the protocol version of the PyTorch stream is not 1001"));
    }
    let system = pickle::read(cursor, Vocabulary::Checkpoint, false)?;
    let system_endian = system_endian(&system)?;
    let read = if exact {
        pickle::read_exact
    } else {
        pickle::read
    };
    let object = read(cursor, Vocabulary::Checkpoint, opaque)?;
    // the keys follow the object, and the dtypes of the storages are in the object only: both are read before any
    // storage can be located
    let keys = pickle::read(cursor, Vocabulary::Checkpoint, false)?;
    let mut members = locate_storages(cursor, &object, &keys)?;

    let count = members.len();
    let mut locate = |key: &str| {
        let member = members.remove(key);
        member
            .map(|member| (member, false))
            .ok_or_else(|| unlisted_storage(key))
    };
    // PyTorch writes typed storages little endian on every machine (`THPStorage_writeFileRaw`), and untyped
    // storages in the byte order of the machine.
    let storages = Storages::new([Endian::Little, system_endian], count, &mut locate);
    let rebuilt = rebuild::rebuild(&object.heap, storages, PickleBytes::Stored(0))?;
    consume(cursor, &object, rebuilt, system_endian)
}

/// The byte order of the writing machine, from the third pickle.
fn system_endian(system: &Pickle<'_>) -> Result<Endian> {
    let heap = &system.heap;
    let PickleValue::Dict { items, .. } = heap.get(system.root) else {
        return Err(Error::malformed(
            "the third pickle of a PyTorch stream, the system information, is not a dict",
        ));
    };
    let entry = heap
        .container(items)
        .chunks_exact(2)
        .find(|pair| heap.text_of(pair[0]) == Some("little_endian"));
    match entry.map(|pair| heap.get(pair[1])) {
        None | Some(PickleValue::Bool(true)) => Ok(Endian::Little),
        Some(PickleValue::Bool(false)) => Ok(Endian::Big),
        Some(_) => Err(Error::malformed(
            "`little_endian` in the system information of a PyTorch stream is neither True nor False",
        )),
    }
}

fn unlisted_storage(key: &str) -> Error {
    Error::malformed(format!(
        "storage {} is used by a tensor but missing from the list of storages",
        quote(key)
    ))
}

/// Locates each storage, by its key. The storages follow one another in the order of the list, each after the number of
/// its elements. The sizes come from the persistent ids of the object, because the stream does not repeat the dtypes.
/// Leaves the cursor after the last storage.
fn locate_storages(
    cursor: &mut Cursor<'_>,
    object: &Pickle<'_>,
    keys: &Pickle<'_>,
) -> Result<HashMap<String, Member>> {
    let heap = &object.heap;
    let mut used: HashMap<&str, PersistentId<'_>> = HashMap::new();
    heap.budget()
        .steps(heap.len() as u64, "the values of the pickle")?;
    for id in heap.ids() {
        if let PickleValue::Persistent(tuple) = heap.get(id) {
            let storage = PersistentId::parse(heap, tuple)?;
            // an entry of a table that doubles, while the table before it is copied
            let entry = 4 * size_of::<(&str, PersistentId<'_>)>() as u64;
            heap.budget().memory(entry, "the list of storages")?;
            let (key, nbytes) = (storage.key, storage.nbytes);
            // the size places all storages behind this one, so two sizes would be two layouts of the file
            if used.entry(key).or_insert(storage).nbytes != nbytes {
                return Err(Error::malformed(format!(
                    "storage {} has two different sizes",
                    quote(key)
                )));
            }
        }
    }
    let PickleValue::List(list) = keys.heap.get(keys.root) else {
        return Err(cursor.malformed("the list of storage keys is not a list"));
    };
    let list = keys.heap.container(list);
    let mut members = HashMap::with_capacity(list.len().min(used.len()));
    for (i, &key) in list.iter().enumerate() {
        let key = keys
            .heap
            .text_of(key)
            .ok_or_else(|| cursor.malformed("a storage key is not text"))?;
        let storage = used.get(key).ok_or_else(|| {
            cursor.malformed(format!(
                "storage {} is in the list of storages but no tensor uses it",
                quote(key)
            ))
        })?;
        let elements = storage.numel;
        // a wrong size moves every later storage, so the last counts show it although those between are not read
        if i < COUNTS_CHECKED || i + COUNTS_CHECKED >= list.len() {
            let at = cursor.pos();
            let found = i64::from_le_bytes(cursor.array("a storage's element count")?);
            if u64::try_from(found) != Ok(elements) {
                return Err(Error::malformed(format!(
                    "storage {} has {elements} elements by its persistent id, but its header says {found}",
                    quote(key)
                ))
                .at(at));
            }
        } else {
            cursor.skip(8, "a storage's element count")?;
        }
        heap.budget()
            .memory(text_cost(key.len()) + 2 * STORAGE, "the list of storages")?;
        let member = Member {
            bytes: ByteRange::new(cursor.pos(), storage.nbytes),
            inflated: storage.nbytes,
            check: IntegrityCheck::Count { elements },
        };
        // compared here: a seek beyond the end fails at the next read only
        if storage.nbytes > cursor.remaining() {
            return Err(cursor.truncated(storage.nbytes, "a storage"));
        }
        // the payload is passed without being read, except on a stream, which reads and drops it
        cursor.seek(cursor.pos() + storage.nbytes);
        if members.insert(key.to_owned(), member).is_some() {
            return Err(Error::malformed(format!(
                "storage {} occurs twice in the list of storages",
                quote(key)
            )));
        }
    }
    match used.keys().find(|key| !members.contains_key(**key)) {
        Some(key) => Err(unlisted_storage(key)),
        None => Ok(members),
    }
}
