//! The saved object as a graph ([`ObjectTree`]): each value of the pickle that can be reached becomes one node.
//!
//! A node is numbered when it is first referred to, and filled in the order of the numbers. So nothing recurses, a value that
//! is shared is one node, and a cycle is a reference to a number that exists. The calls are those that `rebuild.rs` has
//! interpreted and checked; only what it leaves out is read here: exact strides, `requires_grad`, ties.

mod calls;
mod numpy;
mod storages;

use crate::base::error::{Error, Result};
use crate::base::limits::text_cost;
use crate::read::catalog::{Catalog, Endian};
use crate::read::format::pickle::globals::Global;
use crate::read::format::pickle::value_heap::{
    ExactClass, PickleValue, PoolRange, StoredBytes, ValueHeap, ValueId,
};
use crate::read::objects::{DictClass, ObjectId, ObjectNode, ObjectTree};
use crate::read::source::{Source, read_exact_at};

use super::flatten::first_rows;
use super::rebuild::RebuiltTensors;
use storages::ObjectStorages;

const WHAT: &str = "the tree of objects";

/// The parts of the container that the graph needs.
pub(super) struct ObjectSource<'a> {
    /// The source that the offsets of byte strings count in.
    pub(super) pickle: &'a dyn Source,
    /// Byte order of typed storages, then of untyped storages.
    pub(super) endian: [Endian; 2],
    /// Whether the storage with a key is deflated.
    pub(super) deflated: &'a dyn Fn(&str) -> bool,
    /// Whether tensors refer to rows of the catalog.
    pub(super) named: bool,
}

/// The graph under `root`, and a catalog of the storages.
pub(super) fn build(
    heap: &ValueHeap<'_>,
    root: ValueId,
    rebuilt: RebuiltTensors,
    source: &ObjectSource<'_>,
) -> Result<(ObjectTree, Catalog)> {
    let rows = if source.named {
        first_rows(heap, root, &rebuilt)?
    } else {
        Vec::new()
    };
    let storages = ObjectStorages::find(heap, &rebuilt, source)?;
    heap.budget()
        .memory((heap.len() * size_of::<Option<ObjectId>>()) as u64, WHAT)?;
    let mut builder = TreeBuilder {
        heap,
        rebuilt: &rebuilt,
        source,
        storages: &storages,
        rows: &rows,
        numbers: vec![None; heap.len()],
        pending: Vec::new(),
    };
    builder.refer(root)?;
    let mut nodes = Vec::new();
    // nodes are made in the order of their numbers, so the next one is at their count; `node` may append more
    while let Some(&id) = builder.pending.get(nodes.len()) {
        heap.budget().steps(1, WHAT)?;
        let node = builder.node(id)?;
        heap.budget().push(&mut nodes, node, WHAT)?;
    }
    let count = u32::try_from(rebuilt.members.len())
        .map_err(|_| Error::unsupported("the file has more than 2³² storages"))?;
    let tree = ObjectTree {
        nodes,
        storages: count,
        locations: storages.locations(heap)?,
    };
    Ok((tree, storages.catalog(heap, rebuilt.members)?))
}

struct TreeBuilder<'h, 'b, 'c> {
    heap: &'h ValueHeap<'b>,
    rebuilt: &'c RebuiltTensors,
    source: &'c ObjectSource<'c>,
    storages: &'c ObjectStorages<'h>,
    rows: &'c [Option<u32>],
    /// Per value, the number of its node.
    numbers: Vec<Option<ObjectId>>,
    /// Per number, the value.
    pending: Vec<ValueId>,
}

impl<'h> TreeBuilder<'h, '_, '_> {
    /// The number of the node of a value, which is made later if it is new.
    fn refer(&mut self, id: ValueId) -> Result<ObjectId> {
        if let Some(number) = self.numbers[id.index()] {
            return Ok(number);
        }
        // a pickle has fewer than 2³² values
        let number = u32::try_from(self.pending.len()).expect("at most one number per value");
        self.heap.budget().push(&mut self.pending, id, WHAT)?;
        self.numbers[id.index()] = Some(number);
        Ok(number)
    }

    fn refer_all(&mut self, ids: &[ValueId]) -> Result<Box<[ObjectId]>> {
        self.heap.budget().steps(ids.len() as u64, WHAT)?;
        self.heap
            .budget()
            .memory(std::mem::size_of_val(ids) as u64 + 16, WHAT)?;
        // as long as it was charged: a list that is collected from results doubles as it grows
        let mut numbers = Vec::with_capacity(ids.len());
        for &id in ids {
            numbers.push(self.refer(id)?);
        }
        Ok(numbers.into())
    }

    fn text(&self, text: &str) -> Result<Box<str>> {
        self.heap.budget().memory(text_cost(text.len()), WHAT)?;
        Ok(text.into())
    }

    fn sizes(&self, sizes: &[u64]) -> Result<Box<[u64]>> {
        let nbytes = std::mem::size_of_val(sizes) as u64;
        self.heap.budget().memory(nbytes + 16, WHAT)?;
        Ok(sizes.into())
    }

    fn refused(&self, why: &str) -> Result<ObjectNode> {
        self.text(why).map(ObjectNode::Refused)
    }

    fn node(&mut self, id: ValueId) -> Result<ObjectNode> {
        let heap = self.heap;
        Ok(match heap.get(id) {
            PickleValue::None => ObjectNode::None,
            PickleValue::Bool(b) => ObjectNode::Bool(b),
            PickleValue::Int(n) => ObjectNode::Int(n),
            PickleValue::BigInt(span) => {
                // with a sign
                heap.budget()
                    .memory(text_cost(span.range().len() + 1), WHAT)?;
                ObjectNode::BigInt(signed(heap.text(span)))
            }
            PickleValue::Float(x) => ObjectNode::Float(x),
            PickleValue::Text(span) => match heap.encoded_text(span) {
                // the heap keeps the beginning of a text that is encoded as a byte string
                Some(stored) if stored.len > span.range().len() as u64 => {
                    let bytes = self.stored(stored)?;
                    let text = String::from_utf8(bytes)
                        .map_err(|_| Error::malformed("a string of the pickle is not UTF-8"))?;
                    ObjectNode::Text(text.into())
                }
                _ => ObjectNode::Text(self.text(heap.text(span))?),
            },
            PickleValue::Bytes(span) => {
                let mutable = heap.exact_class(id) == Some(ExactClass::ByteArray);
                ObjectNode::Bytes(self.bytes(span)?.into(), mutable)
            }
            PickleValue::Tuple(span) => ObjectNode::Tuple(self.refer_all(heap.items(span))?),
            PickleValue::List(index) => ObjectNode::List(self.refer_all(heap.container(index))?),
            PickleValue::Set(index) => {
                let frozen = heap.exact_class(id) == Some(ExactClass::FrozenSet);
                ObjectNode::Set(self.refer_all(heap.container(index))?, frozen)
            }
            PickleValue::Dict { items, class } => {
                let items = heap.container(items);
                heap.budget().steps(items.len() as u64, WHAT)?;
                heap.budget()
                    .memory(std::mem::size_of_val(items) as u64 + 16, WHAT)?;
                let mut entries = Vec::with_capacity(items.len() / 2);
                for pair in items.chunks_exact(2) {
                    entries.push((self.refer(pair[0])?, self.refer(pair[1])?));
                }
                let attributes = heap.attributes(id).map(|id| self.refer(id)).transpose()?;
                let class = match heap.exact_class(id) {
                    Some(ExactClass::Counter) => DictClass::Counter,
                    Some(ExactClass::DefaultDict) => DictClass::Default,
                    _ if class => DictClass::Ordered,
                    _ => DictClass::Plain,
                };
                ObjectNode::Dict {
                    class,
                    entries: entries.into(),
                    attributes,
                }
            }
            PickleValue::Global(Global::Dtype(dtype)) => ObjectNode::Dtype(dtype.name()),
            PickleValue::Global(Global::Torchao(class)) => {
                ObjectNode::Named(self.text(class.name())?)
            }
            PickleValue::Global(other) => ObjectNode::Named(self.text(&format!("{other:?}"))?),
            PickleValue::ScriptClass(span) | PickleValue::OpaqueGlobal(span) => {
                ObjectNode::Named(self.text(heap.text(span))?)
            }
            PickleValue::Persistent(tuple) => {
                let (number, dtype) = self.storages.number(heap, tuple)?;
                ObjectNode::Storage(number, dtype.map(|dtype| dtype.name()))
            }
            PickleValue::Call(index) => self.call(index)?,
        })
    }

    /// The whole of a byte string, of which the heap keeps the beginning.
    fn bytes(&self, span: PoolRange) -> Result<Vec<u8>> {
        let kept = self.heap.bytes(span);
        let Some(stored) = self
            .heap
            .stored_bytes(span)
            .filter(|stored| stored.decoded > kept.len() as u64)
        else {
            self.heap.budget().memory(kept.len() as u64 + 16, WHAT)?;
            return Ok(kept.to_vec());
        };
        let bytes = self.stored(stored)?;
        if !stored.latin1 {
            return Ok(bytes);
        }
        // UTF-8 has at least one byte per character, so this is enough for the decoded bytes
        self.heap.budget().memory(stored.len, WHAT)?;
        let invalid = || Error::malformed("a byte string of the pickle is not Latin-1");
        let text = std::str::from_utf8(&bytes).map_err(|_| invalid())?;
        let mut decoded = Vec::with_capacity(text.len());
        for c in text.chars() {
            decoded.push(u8::try_from(u32::from(c)).map_err(|_| invalid())?);
        }
        Ok(decoded)
    }

    fn stored(&self, stored: StoredBytes) -> Result<Vec<u8>> {
        self.heap.budget().memory(stored.len, WHAT)?;
        let len = usize::try_from(stored.len)
            .map_err(|_| Error::unsupported("a byte string of the pickle exceeds the memory"))?;
        let mut bytes = vec![0; len];
        read_exact_at(self.source.pickle, stored.at, &mut bytes)?;
        Ok(bytes)
    }
}

/// An integer with its sign. The heap has long ones as the hexadecimal digits of two's complement, two per byte.
fn signed(text: &str) -> Box<str> {
    let Some(digits) = text.strip_prefix("0x") else {
        return text.into();
    };
    // the highest bit of two's complement is the sign
    let is_negative = digits.starts_with(|c: char| c.to_digit(16).is_some_and(|digit| digit >= 8));
    if !is_negative {
        return text.into();
    }
    let mut negated = String::with_capacity(1 + text.len());
    negated.push('-');
    negated.push_str(text);
    let mut negated = negated.into_bytes();
    // from the last digit on: zeros stay, the first other digit is subtracted from 16, those before it from 15
    let mut carry = 16;
    for digit in negated[3..].iter_mut().rev() {
        let value = char::from(*digit).to_digit(16);
        let value = (carry - value.expect("the heap writes hexadecimal digits")) % 16;
        if value != 0 {
            carry = 15;
        }
        *digit = b"0123456789abcdef"[value as usize];
    }
    String::from_utf8(negated).expect("digits are ASCII").into()
}
