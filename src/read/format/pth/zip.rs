//! The zip archive of PyTorch 1.6 and later: `<root>/data.pkl`, and `<root>/data/<key>` per storage.
//!
//! Source: `torch/serialization.py` (`_load`) and `caffe2/serialize/inline_container.cc`. The writer chooses the name of
//! the root. TorchScript archives add `code/` and `constants.pkl`, which are not read.

use hashbrown::HashMap;

use crate::base::error::{Error, Result};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{Catalog, Endian, quote};
use crate::read::format::pickle::{self, Pickle, Vocabulary};
use crate::read::format::{Archive, Head};
use crate::read::objects::ObjectTree;
use crate::read::source::cursor::Cursor;
use crate::read::source::{MemorySource, Source};

use super::objects::{self, ObjectSource};
use super::rebuild::RebuiltTensors;
use super::rebuild::numpy::PickleBytes;
use super::storage::{STORAGE, Storages};
use super::{details, flatten, in_pickle, rebuild};

/// The root, with its slash, if this member is a `data.pkl`: `archive/` for `archive/data.pkl`.
pub(super) fn root_of(member: &str) -> Option<&str> {
    member
        .strip_suffix("data.pkl")
        .filter(|root| root.is_empty() || root.ends_with('/'))
}

pub(super) fn read(cursor: &mut Cursor<'_>, archive: &Archive, head: &Head<'_>) -> Result<Catalog> {
    interpret(cursor, archive, head.opaque, false, |cursor, parts| {
        let ArchivePickle {
            read,
            rebuilt,
            rows,
            ..
        } = parts;
        let mut catalog = Catalog::new(super::FORMAT.name);
        flatten::flatten(&read.heap, read.root, rebuilt, &mut catalog)?;
        let storages = rows.keys().filter(|name| name.starts_with("data/"));
        // `data/` itself may be a member
        let storages = storages.filter(|name| name.len() > "data/".len()).count();
        let unused = storages.saturating_sub(catalog.members.len());
        if unused > 0 {
            let warning = format!("storages of the archive that nothing in it uses: {unused}");
            catalog.warnings.push(warning.into());
        }
        if head.gaps {
            let gaps = archive.gaps(cursor)?;
            if gaps > 0 {
                let warning = format!("{gaps} bytes of the archive belong to no member");
                catalog.warnings.push(warning.into());
            }
        }
        let container = if parts.script { "torchscript" } else { "zip" };
        details(&mut catalog, container, parts.endian, read);
        catalog.detail("root", Value::text(parts.root.trim_end_matches('/')));
        Ok(catalog)
    })
}

/// The saved object, and the storages as tensors.
pub(super) fn objects(
    cursor: &mut Cursor<'_>,
    archive: &Archive,
    opaque: bool,
    named: bool,
) -> Result<(ObjectTree, Catalog)> {
    interpret(cursor, archive, opaque, true, |_, parts| {
        let deflated = |key: &str| {
            let row = parts.rows.get(&*format!("data/{key}"));
            row.is_some_and(|&row| archive.entries[row].deflated())
        };
        objects::build(
            &parts.read.heap,
            parts.read.root,
            parts.rebuilt,
            &ObjectSource {
                pickle: parts.memory,
                // an archive has one byte order for typed and untyped storages
                endian: [parts.endian; 2],
                deflated: &deflated,
                named,
            },
        )
    })
}

/// The pickle of an archive, and what its interpretation needs of the rest.
struct ArchivePickle<'a> {
    read: &'a Pickle<'a>,
    rebuilt: RebuiltTensors,
    rows: &'a HashMap<&'a str, usize>,
    memory: &'a dyn Source,
    root: &'a str,
    script: bool,
    endian: Endian,
}

/// Reads the pickle and interprets its calls; `exact` is as in [`pickle::read_exact`].
fn interpret<T>(
    cursor: &mut Cursor<'_>,
    archive: &Archive,
    opaque: bool,
    exact: bool,
    consume: impl FnOnce(&mut Cursor<'_>, ArchivePickle<'_>) -> Result<T>,
) -> Result<T> {
    let root = find_root(archive)?;
    let rows = index(cursor, archive, root)?;
    let row = |name: &str| rows.get(name).copied();
    // members that are read whole; the pickle is the first, the byte order one of the last
    let whole = ["data.pkl", "byteorder"].into_iter().filter_map(row);
    cursor
        .source()
        .scattered(&mut whole.map(|row| archive.extent(row)));
    // TorchScript adds these members; its pickle may name classes of the model's own code
    let script =
        rows.contains_key("constants.pkl") || rows.keys().any(|name| name.starts_with("code/"));
    let endian = match row("byteorder") {
        Some(row) => byte_order(&archive.content(cursor, row)?)?,
        // PyTorch before 2.1 did not write the member; `torch.load` reads such files as little endian unless told
        // otherwise (`set_default_load_endianness`)
        None => Endian::Little,
    };
    let pickle_row = row("data.pkl").expect("a root is found by its data.pkl");
    // the pickle is read whole, because the interpreter goes through all of it and its checksum covers all of it
    let memory = MemorySource::new(archive.content(cursor, pickle_row)?);
    let mut inside = Cursor::new(&memory, cursor.budget());
    let vocabulary = if script {
        Vocabulary::TorchScript
    } else {
        Vocabulary::Checkpoint
    };
    let read = if exact {
        pickle::read_exact
    } else {
        pickle::read
    };
    let read = read(&mut inside, vocabulary, opaque).map_err(|e| {
        let stored = !archive.entries[pickle_row].deflated();
        let member = stored
            .then(|| archive.verified_member(cursor, pickle_row).ok())
            .flatten();
        in_pickle(e, "data.pkl", member.map(|member| member.bytes.start))
    })?;

    let mut place = PickleBytes::Stored(0);
    if read.heap.has_stored_bytes() {
        let member = archive.verified_member(cursor, pickle_row)?;
        place = if archive.entries[pickle_row].deflated() {
            PickleBytes::Deflated(member.bytes, member.inflated)
        } else {
            PickleBytes::Stored(member.bytes.start)
        };
    }
    let mut name = String::from("data/");
    let mut locate = |key: &str| {
        // one buffer for the names of all storages
        name.truncate("data/".len());
        name.push_str(key);
        let missing = || {
            Error::malformed(format!(
                "the archive has no member for storage {}",
                quote(key)
            ))
        };
        let row = rows.get(&*name).copied().ok_or_else(missing)?;
        cursor.budget().memory(STORAGE, "the list of storages")?;
        Ok((
            // located from the directory: 300 storages of a cold file cost 86 KiB instead of 1.3 MiB (experiment 5)
            archive.member(cursor, row)?,
            archive.entries[row].deflated(),
        ))
    };
    let storages = Storages::new([endian; 2], rows.len(), &mut locate);
    let rebuilt = rebuild::rebuild(&read.heap, storages, place)?;
    consume(
        cursor,
        ArchivePickle {
            read: &read,
            rebuilt,
            rows: &rows,
            memory: &memory,
            root,
            script,
            endian,
        },
    )
}

/// The outermost root. A deeper `data.pkl` is an extra file; two at the same depth are two checkpoints in one archive,
/// which is refused as ambiguous.
fn find_root(archive: &Archive) -> Result<&str> {
    let depth = |root: &str| root.bytes().filter(|&b| b == b'/').count();
    let roots = || {
        archive
            .entries
            .iter()
            .filter_map(|entry| root_of(&entry.name))
    };
    let least = roots()
        .map(depth)
        .min()
        .ok_or_else(|| Error::malformed("the zip archive has no data.pkl"))?;
    let mut outermost = roots().filter(|root| depth(root) == least);
    match (outermost.next(), outermost.next()) {
        (Some(root), None) => Ok(root),
        _ => Err(Error::malformed(
            "the zip archive has more than one data.pkl at its outermost level",
        )),
    }
}

/// The members under the root: row in the directory by the name without the root.
fn index<'a>(
    cursor: &Cursor<'_>,
    archive: &'a Archive,
    root: &str,
) -> Result<HashMap<&'a str, usize>> {
    cursor
        .budget()
        .memory(archive.entries.len() as u64 * 64, "the zip directory")?;
    let mut rows = HashMap::with_capacity(archive.entries.len());
    for (row, entry) in archive.entries.iter().enumerate() {
        let Some(name) = entry.name.strip_prefix(root) else {
            continue;
        };
        // the directory refuses two members of one name, but not a file and a directory of one name
        if rows.insert(name, row).is_some() {
            return Err(Error::malformed(format!(
                "two members are named {}",
                quote(&entry.name)
            )));
        }
    }
    Ok(rows)
}

fn byte_order(content: &[u8]) -> Result<Endian> {
    match content {
        b"little" => Ok(Endian::Little),
        b"big" => Ok(Endian::Big),
        other => {
            let shown = other[..other.len().min(16)].escape_ascii();
            Err(Error::malformed(format!(
                "the member `byteorder` is \"{shown}\", expected little or big"
            )))
        }
    }
}
