//! The description of a torch.distributed.checkpoint directory: `.metadata`, a pickle, and the `.distcp` files that it names.
//!
//! Source: `torch/distributed/checkpoint/metadata.py` and `filesystem.py`, PyTorch 2.0 to 2.15.
//!
//! | in `.metadata` | is |
//! |---|---|
//! | `state_dict_metadata` | by name: a tensor (dtype, size, chunks) or an object |
//! | `storage_data` | by name and offset of a chunk: file, offset and length of an item |
//!
//! A `.distcp` file consists of items, one after the other. An item of a tensor is what `torch.save` makes of one chunk: a
//! whole zip archive, which the reader of PyTorch files reads. Its dtype and sizes must equal the entry in `.metadata`,
//! items must not overlap, and the chunks of a tensor must contain each element once.

mod items;
mod tiling;

use std::cell::Cell;

use hashbrown::HashMap;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::{Refused, Shape, TensorInfo, quote};
use crate::read::source::cursor::Cursor;

use super::pickle::distributed::DistributedClass;
use super::pickle::globals::Global;
use super::pickle::value_heap::{PickleValue, RecordedCall, ValueHeap, ValueId};
use super::pickle::{self, Vocabulary};
use super::pth::geometry::{dims, unplaced_tensor};

pub(crate) use items::catalog;

/// The name of the format in catalogs and errors.
pub(crate) const NAME: &str = "dcp";

/// The content of `.metadata`.
#[derive(Default)]
pub(crate) struct Manifest {
    /// The names of the `.distcp` files, as `.metadata` states them.
    pub(crate) files: Vec<Box<str>>,
    tensors: Vec<ChunkedTensor>,
    objects: Vec<StoredObject>,
    refused: Vec<Refused>,
    /// All items, items of chunks without elements included.
    items: Vec<StoredItem>,
    /// The number of items that nothing refers to, and the name in the first of them.
    unused: Option<(usize, Box<str>)>,
}

/// A tensor and the chunks that it is stored in.
struct ChunkedTensor {
    /// Name, dtype and shape; without bytes.
    info: TensorInfo,
    chunks: Vec<StoredChunk>,
}

struct StoredChunk {
    offsets: Shape,
    sizes: Shape,
    item: StoredItem,
}

/// A value that is not a tensor.
struct StoredObject {
    name: Box<str>,
    item: StoredItem,
}

/// A byte range of a `.distcp` file.
#[derive(Clone, Copy)]
struct StoredItem {
    /// Index into [`Manifest::files`].
    file: usize,
    start: u64,
    len: u64,
    /// Whether the bytes were transformed (compressed, for instance) when they were written.
    transformed: bool,
}

const WHAT: &str = "the metadata of the checkpoint";

/// Reads `.metadata`.
pub(crate) fn read(cursor: &mut Cursor<'_>, opaque: bool) -> Result<Manifest> {
    let read = pickle::read(cursor, Vocabulary::Distributed, opaque)?;
    if cursor.remaining() > 0 {
        return Err(cursor.malformed("bytes follow the pickle"));
    }
    let heap = &read.heap;
    let metadata = Fields::of(heap, read.root, DistributedClass::Metadata)?;
    let mut manifest = Manifest::default();
    let items = manifest.read_items(heap, metadata.required("storage_data")?)?;
    let entries = dict(heap, metadata.required("state_dict_metadata")?)?;
    for pair in entries.chunks_exact(2) {
        let name = text(heap, pair[0], "the name of a tensor")?;
        manifest.read_entry(heap, name, pair[1], &items)?;
    }
    let unused = items.iter().filter(|(_, (_, used))| !used.get());
    // the first by name, since a hash table has no order and a warning should be the same in each run
    let names = unused.clone().map(|(&(name, _), _)| name);
    manifest.unused = names.min().map(|first| (unused.count(), first.into()));
    Ok(manifest)
}

/// The items by the name of their tensor and the offset of their chunk (objects have no offset), and whether a tensor or an
/// object refers to it.
type Items<'h> = HashMap<(&'h str, Option<Shape>), (StoredItem, Cell<bool>)>;

impl Manifest {
    fn read_items<'h>(&mut self, heap: &'h ValueHeap<'_>, id: ValueId) -> Result<Items<'h>> {
        let mut items = Items::new();
        let mut files: HashMap<&str, usize> = HashMap::new();
        let budget = heap.budget();
        // an entry of a table that doubles, while the table before it is copied
        const ENTRY: u64 =
            4 * size_of::<((&str, Option<Shape>), (StoredItem, Cell<bool>))>() as u64;
        for pair in dict(heap, id)?.chunks_exact(2) {
            budget.memory(ENTRY, WHAT)?;
            let index = Fields::of(heap, pair[0], DistributedClass::MetadataIndex)?;
            let name = text(heap, index.required("fqn")?, "the name of an item")?;
            let offset = match index.get("offset")? {
                Some(id) if heap.get(id) != PickleValue::None => Some(dims(heap, id, "offset")?),
                _ => None,
            };
            let info = Fields::of(heap, pair[1], DistributedClass::StorageInfo)?;
            let path = text(heap, info.required("relative_path")?, "the file of an item")?;
            // items of one file share its row, so that it is opened once
            let file = match files.get(path) {
                Some(&file) => file,
                None => {
                    budget.memory(ENTRY + text_cost(path.len()), WHAT)?;
                    budget.push(&mut self.files, path.into(), WHAT)?;
                    files.insert(path, self.files.len() - 1);
                    self.files.len() - 1
                }
            };
            let number = |field: &str| match heap.get(info.required(field)?) {
                PickleValue::Int(n) if n >= 0 => Ok(n.cast_unsigned()),
                _ => Err(Error::malformed(format!(
                    "the {field} of an item is not a non-negative integer"
                ))),
            };
            // older versions do not write this field
            let transforms = info.get("transform_descriptors")?.map(|id| heap.get(id));
            let item = StoredItem {
                file,
                start: number("offset")?,
                len: number("length")?,
                transformed: !matches!(transforms, None | Some(PickleValue::None)),
            };
            budget.push(&mut self.items, item, WHAT)?;
            let unused = Cell::new(false);
            // a dict of Python would keep the last one; which of them the writer meant is unknown
            if items.insert((name, offset), (item, unused)).is_some() {
                return Err(Error::malformed(format!(
                    "two items of {} have one offset",
                    quote(name)
                )));
            }
        }
        Ok(items)
    }

    fn read_entry(
        &mut self,
        heap: &ValueHeap<'_>,
        name: &str,
        id: ValueId,
        items: &Items<'_>,
    ) -> Result<()> {
        let budget = heap.budget();
        let stored = |offsets: Option<Shape>| {
            let found = items.get(&(name, offsets));
            let (item, used) = found.ok_or_else(|| {
                Error::malformed(format!("no item is stored for {}", quote(name)))
            })?;
            used.set(true);
            Ok::<_, Error>(*item)
        };
        budget.text(name.len(), WHAT)?;
        if instance(heap, id, DistributedClass::BytesStorage).is_some() {
            let object = StoredObject {
                name: name.into(),
                item: stored(None)?,
            };
            return budget.push(&mut self.objects, object, WHAT);
        }
        let fields = Fields::of(heap, id, DistributedClass::TensorStorage)?;
        let shape = dims(heap, fields.required("size")?, "size")?;
        let info = match template(heap, fields.required("properties")?, shape) {
            // a dtype that is unknown here is of this tensor alone
            Ok(info) => info,
            Err(e) => return self.refuse(name, e, budget),
        };
        budget.tensors(1)?;
        let chunks = heap
            .sequence(fields.required("chunks")?)
            .ok_or_else(|| Error::malformed("the chunks of a tensor are not a list"))?;
        let mut tensor = ChunkedTensor {
            info: TensorInfo {
                name: name.into(),
                ..info
            },
            chunks: Vec::new(),
        };
        for &chunk in chunks {
            // many tensors may refer to one list of chunks, so each use is charged
            budget.steps(1, WHAT)?;
            let chunk = Fields::of(heap, chunk, DistributedClass::ChunkStorage)?;
            let offsets = dims(heap, chunk.required("offsets")?, "offset")?;
            let chunk = StoredChunk {
                sizes: dims(heap, chunk.required("sizes")?, "size")?,
                item: stored(Some(offsets.clone()))?,
                offsets,
            };
            budget.push(&mut tensor.chunks, chunk, WHAT)?;
        }
        // before the refusals: chunks that overlap or leave gaps make the file malformed, and not one tensor unreadable
        tiling::check(&mut tensor, budget)?;
        if tensor.chunks.iter().any(|chunk| chunk.item.transformed) {
            let why = "its bytes were transformed when they were written";
            return self.refuse(name, Error::unsupported(why), budget);
        }
        // offsets and sizes count items of two elements
        if tensor.chunks.len() > 1 && tensor.info.encoding.item_bytes().is_none() {
            let why = "it is stored in several chunks of elements that share bytes";
            return self.refuse(name, Error::unsupported(why), budget);
        }
        budget.push(&mut self.tensors, tensor, WHAT)
    }

    /// Lists an entry as refused if the error is about it alone.
    fn refuse(&mut self, name: &str, error: Error, budget: &Budget) -> Result<()> {
        let ErrorKind::Unsupported(why) = error.kind() else {
            return Err(error);
        };
        budget.memory(text_cost(name.len()) + text_cost(why.len()), WHAT)?;
        let row = Refused {
            name: name.into(),
            reason: why.as_str().into(),
        };
        budget.push(&mut self.refused, row, WHAT)
    }
}

/// A tensor of this shape and of the dtype of its properties, without name and bytes.
fn template(heap: &ValueHeap<'_>, properties: ValueId, shape: Shape) -> Result<TensorInfo> {
    let invalid = || Error::malformed("the properties of a tensor have no dtype");
    let state = state(heap, properties, DistributedClass::TensorProperties).ok_or_else(invalid)?;
    // a tuple: `TensorProperties.__getstate__`
    let first = heap.sequence(state).and_then(<[ValueId]>::first);
    match first.map(|&id| heap.get(id)) {
        Some(PickleValue::Global(Global::Dtype(dtype))) => unplaced_tensor(shape, dtype),
        _ => Err(invalid()),
    }
}

/// An instance of a class.
fn instance(heap: &ValueHeap<'_>, id: ValueId, class: DistributedClass) -> Option<RecordedCall> {
    match heap.get(id) {
        PickleValue::Call(index) => Some(heap.call(index))
            .filter(|call| call.callee == PickleValue::Global(Global::Distributed(class))),
        _ => None,
    }
}

/// The state of an instance of a class.
fn state(heap: &ValueHeap<'_>, id: ValueId, class: DistributedClass) -> Option<ValueId> {
    instance(heap, id, class)?.state
}

/// The fields of an instance of a data class.
struct Fields<'h, 'b> {
    heap: &'h ValueHeap<'b>,
    class: DistributedClass,
    items: &'h [ValueId],
}

impl<'h, 'b> Fields<'h, 'b> {
    fn of(heap: &'h ValueHeap<'b>, id: ValueId, class: DistributedClass) -> Result<Self> {
        let items = state(heap, id, class).and_then(|state| dict(heap, state).ok());
        let items = items
            .ok_or_else(|| Error::malformed(format!("a value of the metadata is not {class:?}")))?;
        Ok(Self { heap, class, items })
    }

    fn get(&self, name: &str) -> Result<Option<ValueId>> {
        // many instances may share one dict of fields, so each search is charged
        let budget = self.heap.budget();
        budget.steps(self.items.len() as u64 / 2, WHAT)?;
        // from the end: in Python a later pair replaces an earlier one
        let mut pairs = self.items.chunks_exact(2).rev();
        let found = pairs.find(|pair| self.heap.text_of(pair[0]) == Some(name));
        Ok(found.map(|pair| pair[1]))
    }

    fn required(&self, name: &str) -> Result<ValueId> {
        self.get(name)?
            .ok_or_else(|| Error::malformed(format!("{:?} has no field `{name}`", self.class)))
    }
}

fn dict<'h>(heap: &'h ValueHeap<'_>, id: ValueId) -> Result<&'h [ValueId]> {
    match heap.get(id) {
        PickleValue::Dict { items, .. } => Ok(heap.container(items)),
        _ => Err(Error::malformed("a field of the metadata is not a dict")),
    }
}

fn text<'h>(heap: &'h ValueHeap<'_>, id: ValueId, what: &str) -> Result<&'h str> {
    heap.text_of(id)
        .ok_or_else(|| Error::malformed(format!("{what} is not text")))
}
