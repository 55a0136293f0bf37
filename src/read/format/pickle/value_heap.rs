//! The values that a pickle builds, in one heap. Values refer to each other by number.
//!
//! A pickle can build cycles and share values. Numbers make both harmless: all values are dropped together with the heap,
//! and neither dropping nor reading them recurses. The contents of texts, byte strings and tuples are ranges of a few
//! growing pools, so that a value is small and `Copy` and a pickle of 100 000 values makes few allocations.

use hashbrown::HashMap;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;

use super::globals::Global;

/// The number of a value in its heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ValueId(pub(crate) u32);

impl ValueId {
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A range of one of the pools of a [`ValueHeap`]: of its text, its bytes or its tuple items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PoolRange {
    start: u32,
    len: u32,
}

impl PoolRange {
    #[inline]
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// One value. Its contents, if any, are in the pools of the [`ValueHeap`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PickleValue {
    None,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits, as text.
    BigInt(PoolRange),
    Float(f64),
    Text(PoolRange),
    /// The first bytes of a byte string; see [`ValueHeap::stored_bytes`].
    Bytes(PoolRange),
    Tuple(PoolRange),
    /// Index of a container.
    List(u32),
    /// Index of a container. Duplicates are kept.
    Set(u32),
    Dict {
        /// Index of a container that alternates keys and values. A key may occur several times.
        items: u32,
        /// Whether it was constructed by a class such as `OrderedDict`, whose instances may have attributes.
        class: bool,
    },
    Global(Global),
    /// A TorchScript class, by its qualified name.
    ScriptClass(PoolRange),
    /// A global that is not in the table, by its module and name; only where the caller keeps such globals.
    OpaqueGlobal(PoolRange),
    /// The result of a recorded call, by the index of the call. The call was not made.
    Call(u32),
    /// A storage, by its persistent id, which is a tuple.
    Persistent(ValueId),
}

/// Where a byte string is in the pickle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredBytes {
    /// Offset in the pickle.
    pub(crate) at: u64,
    /// Number of bytes there.
    pub(crate) len: u64,
    /// Number of bytes of the byte string.
    pub(crate) decoded: u64,
    /// Whether they are the UTF-8 of text whose characters U+0000 to U+00FF are the bytes, as protocols up to 2 have it.
    pub(crate) latin1: bool,
}

/// A call that the pickle contains. It is recorded and never made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedCall {
    /// A [`PickleValue::Global`], [`PickleValue::ScriptClass`] or [`PickleValue::OpaqueGlobal`].
    pub(crate) callee: PickleValue,
    pub(crate) args: PoolRange,
    /// The state that a later BUILD opcode set on the result.
    pub(crate) state: Option<ValueId>,
    /// The items that were added to an opaque object: a list, set or dict.
    pub(crate) items: Option<ValueId>,
}

impl RecordedCall {
    /// The name of the unknown class or function, if the call makes an opaque object.
    pub(crate) fn opaque(&self) -> Option<PoolRange> {
        match self.callee {
            PickleValue::OpaqueGlobal(name) => Some(name),
            _ => None,
        }
    }
}

/// The class of a value beyond its [`PickleValue`], for values that are not of the most frequent class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExactClass {
    ByteArray,
    FrozenSet,
    Counter,
    DefaultDict,
}

/// The classes and attributes of values, which descriptions of tensors do not depend on.
#[derive(Default)]
pub(super) struct ExactClasses {
    classes: HashMap<ValueId, ExactClass>,
    /// Attributes of instances of `OrderedDict`.
    attributes: HashMap<ValueId, ValueId>,
}

/// All values of one pickle.
pub(crate) struct ValueHeap<'b> {
    values: Vec<PickleValue>,
    items: Vec<ValueId>,
    text: String,
    bytes: Vec<u8>,
    /// The byte strings of `bytes` whose place in the pickle is known, by where they begin in `bytes`.
    stored: Vec<(u32, StoredBytes)>,
    /// The same for the texts of `text` that the pickle encodes as byte strings.
    encoded: Vec<(u32, StoredBytes)>,
    containers: Vec<Vec<ValueId>>,
    calls: Vec<RecordedCall>,
    /// `None` where the caller does not need the exact classes.
    pub(super) exact: Option<ExactClasses>,
    budget: &'b Budget,
}

const WHAT: &str = "the values of the pickle";

/// An entry of a table that doubles, while the table before it is copied.
const ENTRY: u64 = 64;

/// Bytes that are kept of a byte string whose place in the pickle is known. Names and scalars are shorter.
const KEPT: usize = 4 << 10;

impl<'b> ValueHeap<'b> {
    /// `pickle_len` is the length of the pickle in bytes, a hint for the initial capacities. The file controls it, so it
    /// is capped.
    pub(crate) fn new(budget: &'b Budget, pickle_len: u64) -> Result<Self> {
        let pickle_len = usize::try_from(pickle_len)
            .unwrap_or(usize::MAX)
            .min(64 << 10);
        let [values, items, text] = [pickle_len / 8, pickle_len / 8, pickle_len / 2];
        let nbytes = values * size_of::<PickleValue>() + items * size_of::<ValueId>() + text;
        budget.memory(nbytes as u64, WHAT)?;
        Ok(Self {
            values: Vec::with_capacity(values),
            items: Vec::with_capacity(items),
            text: String::with_capacity(text),
            bytes: Vec::new(),
            stored: Vec::new(),
            encoded: Vec::new(),
            containers: Vec::new(),
            calls: Vec::new(),
            // descriptions of tensors need no exact classes, so most callers pay nothing for them
            exact: None,
            budget,
        })
    }

    #[inline]
    pub(crate) fn budget(&self) -> &'b Budget {
        self.budget
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    #[inline]
    pub(crate) fn get(&self, id: ValueId) -> PickleValue {
        self.values[id.index()]
    }

    /// All values, in the order in which the pickle built them.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..u32::try_from(self.values.len()).expect("`add` checks that numbers fit in 32 bits"))
            .map(ValueId)
    }

    #[inline]
    pub(crate) fn text(&self, span: PoolRange) -> &str {
        &self.text[span.range()]
    }

    /// The first bytes of a byte string, of which [`stored_bytes`](Self::stored_bytes) has the length.
    pub(crate) fn bytes(&self, span: PoolRange) -> &[u8] {
        &self.bytes[span.range()]
    }

    /// Where a byte string is in the pickle; `None` if it is empty or the pickle made it of other values, and the heap holds
    /// all of it.
    pub(crate) fn stored_bytes(&self, span: PoolRange) -> Option<StoredBytes> {
        find_stored(&self.stored, span)
    }

    pub(crate) fn has_stored_bytes(&self) -> bool {
        !self.stored.is_empty()
    }

    /// Like [`stored_bytes`](Self::stored_bytes), for a text that was added by [`add_encoded`](Self::add_encoded).
    pub(crate) fn encoded_text(&self, span: PoolRange) -> Option<StoredBytes> {
        find_stored(&self.encoded, span)
    }

    /// The items of a tuple, or the arguments of a call.
    #[inline]
    pub(crate) fn items(&self, span: PoolRange) -> &[ValueId] {
        &self.items[span.range()]
    }

    /// The items of a list or set; the keys and values of a dict by turns.
    #[inline]
    pub(crate) fn container(&self, index: u32) -> &[ValueId] {
        &self.containers[index as usize]
    }

    #[inline]
    pub(crate) fn call(&self, index: u32) -> RecordedCall {
        self.calls[index as usize]
    }

    pub(crate) fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// The text of a value; also of a byte string in UTF-8, which is how Python 2 pickles text.
    #[inline]
    pub(crate) fn text_of(&self, id: ValueId) -> Option<&str> {
        match self.get(id) {
            PickleValue::Text(span) => Some(self.text(span)),
            PickleValue::Bytes(span) => {
                let kept = span.range().len() as u64;
                let stored = self.stored_bytes(span);
                // a byte string without a place was made of other values and is kept whole; the beginning of a longer
                // one is no text
                let is_whole = stored.is_none_or(|stored| stored.decoded == kept);
                is_whole
                    .then(|| std::str::from_utf8(self.bytes(span)).ok())
                    .flatten()
            }
            _ => None,
        }
    }

    /// The items of a tuple or list.
    #[inline]
    pub(crate) fn sequence(&self, id: ValueId) -> Option<&[ValueId]> {
        match self.get(id) {
            PickleValue::Tuple(span) => Some(self.items(span)),
            PickleValue::List(index) => Some(self.container(index)),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, value: PickleValue) -> Result<ValueId> {
        reserve(&mut self.values, 1, self.budget)?;
        // `reserve` has checked that the number fits
        let id = ValueId(pool_index(self.values.len()));
        self.values.push(value);
        Ok(id)
    }

    #[inline]
    pub(super) fn add_text(&mut self, text: &str) -> Result<PoolRange> {
        let (held, capacity) = (self.text.len(), self.text.capacity());
        // `reserve` for a `String`: memory is charged when it grows, not per text
        if capacity - held < text.len() {
            self.text
                .reserve_exact(growth::<u8>(held, capacity, text.len(), self.budget)?);
        }
        self.text.push_str(text);
        Ok(PoolRange {
            start: pool_index(held),
            len: pool_index(text.len()),
        })
    }

    pub(super) fn add_bytes(&mut self, bytes: &[u8]) -> Result<PoolRange> {
        reserve(&mut self.bytes, bytes.len(), self.budget)?;
        let span = PoolRange {
            start: pool_index(self.bytes.len()),
            len: pool_index(bytes.len()),
        };
        self.bytes.extend_from_slice(bytes);
        Ok(span)
    }

    /// Adds a byte string that is in the pickle. Arrays of numpy have any length, so only the first bytes are kept.
    pub(super) fn add_stored(&mut self, bytes: &[u8], stored: StoredBytes) -> Result<PoolRange> {
        let span = self.add_bytes(&bytes[..bytes.len().min(KEPT)])?;
        // rows stay in the order of `start`, by which they are searched; an empty range would repeat the start of the
        // next one
        if span.len > 0 {
            self.budget
                .push(&mut self.stored, (span.start, stored), WHAT)?;
        }
        Ok(span)
    }

    /// Like [`add_stored`](Self::add_stored), for a text that the pickle encodes as a byte string.
    pub(super) fn add_encoded(&mut self, text: &str, stored: StoredBytes) -> Result<PoolRange> {
        // the pool is UTF-8, so that a text is cut between characters
        let span = self.add_text(&text[..text.floor_char_boundary(KEPT)])?;
        if span.len > 0 {
            self.budget
                .push(&mut self.encoded, (span.start, stored), WHAT)?;
        }
        Ok(span)
    }

    #[inline]
    pub(super) fn add_items(&mut self, items: &[ValueId]) -> Result<PoolRange> {
        // charged for the items and not for the tuple: a tuple is a range and takes no memory of its own
        reserve(&mut self.items, items.len(), self.budget)?;
        let span = PoolRange {
            start: pool_index(self.items.len()),
            len: pool_index(items.len()),
        };
        self.items.extend_from_slice(items);
        Ok(span)
    }

    /// Adds a container with these items; more can be added by [`extend`](Self::extend).
    #[inline]
    pub(super) fn add_container(&mut self, items: &[ValueId]) -> Result<u32> {
        // containers can grow later, so that each has a vector of its own, unlike tuples
        self.budget.memory(size_of_val(items) as u64, WHAT)?;
        let index = checked_index(self.containers.len())?;
        self.budget
            .push(&mut self.containers, items.to_vec(), WHAT)?;
        Ok(index)
    }

    #[inline]
    pub(super) fn extend(&mut self, index: u32, items: &[ValueId]) -> Result<()> {
        let container = &mut self.containers[index as usize];
        self.budget.reserve(container, items.len(), WHAT)?;
        container.extend_from_slice(items);
        Ok(())
    }

    #[inline]
    pub(super) fn add_call(&mut self, callee: PickleValue, args: PoolRange) -> Result<PickleValue> {
        let index = checked_index(self.calls.len())?;
        let call = RecordedCall {
            callee,
            args,
            state: None,
            items: None,
        };
        self.budget.push(&mut self.calls, call, WHAT)?;
        Ok(PickleValue::Call(index))
    }

    /// The container of the items of an opaque object, made at its first use; `kind` makes the value of the container.
    /// `None` if the call makes another object.
    pub(super) fn opaque_items(
        &mut self,
        index: u32,
        kind: impl FnOnce(u32) -> PickleValue,
    ) -> Result<Option<PickleValue>> {
        let call = self.call(index);
        if call.opaque().is_none() {
            return Ok(None);
        }
        let id = match call.items {
            Some(id) => id,
            None => {
                let container = self.add_container(&[])?;
                let id = self.add(kind(container))?;
                self.calls[index as usize].items = Some(id);
                id
            }
        };
        Ok(Some(self.get(id)))
    }

    /// Notes the class of the value that was added last, where exact classes are kept.
    pub(super) fn note_class(&mut self, class: ExactClass) -> Result<()> {
        // a table, and not a field of each value: values stay at 16 bytes, and few are of such a class
        if let Some(exact) = &mut self.exact {
            self.budget.memory(ENTRY, WHAT)?;
            let last = ValueId(pool_index(self.values.len() - 1));
            exact.classes.insert(last, class);
        }
        Ok(())
    }

    /// Notes the attributes of a dict, where exact classes are kept.
    pub(super) fn note_attributes(&mut self, dict: ValueId, state: ValueId) -> Result<()> {
        if let Some(exact) = &mut self.exact {
            self.budget.memory(ENTRY, WHAT)?;
            exact.attributes.insert(dict, state);
        }
        Ok(())
    }

    pub(crate) fn exact_class(&self, id: ValueId) -> Option<ExactClass> {
        self.exact.as_ref()?.classes.get(&id).copied()
    }

    pub(crate) fn attributes(&self, id: ValueId) -> Option<ValueId> {
        self.exact.as_ref()?.attributes.get(&id).copied()
    }

    pub(super) fn set_state(&mut self, index: u32, state: ValueId) {
        self.calls[index as usize].state = Some(state);
    }
}

/// The place of what begins at the range. Rows are in the order of the pool.
fn find_stored(rows: &[(u32, StoredBytes)], span: PoolRange) -> Option<StoredBytes> {
    if span.len == 0 {
        return None; // shares its beginning with what follows
    }
    let row = rows.binary_search_by_key(&span.start, |&(start, _)| start);
    row.ok().map(|row| rows[row].1)
}

/// Reserves room for `n` more items. Memory is charged when a pool grows, not per item, so that the common case is one
/// comparison.
#[inline]
fn reserve<T>(pool: &mut Vec<T>, n: usize, budget: &Budget) -> Result<()> {
    // a difference, since the sum of the two could overflow
    if pool.capacity() - pool.len() < n {
        pool.reserve_exact(growth::<T>(pool.len(), pool.capacity(), n, budget)?);
    }
    Ok(())
}

/// The number of items by which a pool must grow that holds `held` of `capacity` items and needs `n` more. Charges them.
#[cold]
fn growth<T>(held: usize, capacity: usize, n: usize, budget: &Budget) -> Result<usize> {
    // doubling, as `Vec` does, but computed here so that it can be charged first and then reserved exactly
    let more = n.max(capacity).max(64);
    // also where memory would permit it: `pool_index` relies on this
    checked_index(held.saturating_add(more))?;
    budget.memory((more as u64).saturating_mul(size_of::<T>() as u64), WHAT)?;
    Ok(more)
}

/// Converts an index that [`growth`] has checked.
#[inline]
fn pool_index(n: usize) -> u32 {
    u32::try_from(n).expect("pools grow within 32 bits")
}

/// Checks an index: 32 bits keep a value at 16 bytes, so a pickle of more values is refused whatever the limits are.
fn checked_index(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::unsupported("the pickle builds more than 2³² values"))
}
