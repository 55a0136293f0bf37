//! What a pickle builds: plain values that refer to each other by number.
//!
//! Cycles and shared references are ordinary here: nothing is dropped before the whole heap is, and
//! nothing is walked by recursion.

use crate::error::{Error, Result};
use crate::limits::Budget;

use super::world::Global;

/// Number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(pub(crate) u32);

impl Id {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A run of one of the heap's pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// One value. Small and `Copy`: contents live in the pools of the [`Heap`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A whole number beyond 64 bits, as text.
    Big(Span),
    Float(f64),
    Text(Span),
    Bytes(Span),
    Tuple(Span),
    /// Index into the mutable containers.
    List(u32),
    Set(u32),
    Dict {
        /// Index into the mutable containers: key, value, key, value, …
        items: u32,
        /// Made by calling `OrderedDict` or its like: may carry attributes.
        class: bool,
    },
    Global(Global),
    /// A TorchScript class, by its name.
    Script(Span),
    /// What a call would have made: index into the calls. Nothing was called.
    Call(u32),
    /// A storage by its persistent id, which is a tuple.
    Persistent(Id),
}

/// A call that the pickle asks for and that is only written down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// A [`Value::Global`] or [`Value::Script`].
    pub(crate) callee: Value,
    pub(crate) args: Span,
    /// What BUILD then gave to it.
    pub(crate) state: Option<Id>,
}

/// All values of one pickle.
pub(crate) struct Heap<'b> {
    values: Vec<Value>,
    items: Vec<Id>,
    text: String,
    bytes: Vec<u8>,
    open: Vec<Vec<Id>>,
    calls: Vec<Call>,
    budget: &'b Budget,
}

const WHAT: &str = "what the pickle builds";

impl<'b> Heap<'b> {
    /// `likely`: bytes of the pickle, for room made in one go.
    pub(crate) fn new(budget: &'b Budget, likely: u64) -> Self {
        let likely = usize::try_from(likely).unwrap_or(usize::MAX).min(64 << 10);
        Self {
            values: Vec::with_capacity(likely / 8),
            items: Vec::with_capacity(likely / 8),
            text: String::with_capacity(likely / 2),
            bytes: Vec::new(),
            open: Vec::new(),
            calls: Vec::new(),
            budget,
        }
    }

    pub(crate) fn budget(&self) -> &'b Budget {
        self.budget
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    #[inline]
    pub(crate) fn get(&self, id: Id) -> Value {
        self.values[id.index()]
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        (0..u32::try_from(self.values.len()).expect("`add` numbers with 32 bits")).map(Id)
    }

    pub(crate) fn text(&self, span: Span) -> &str {
        &self.text[span.range()]
    }

    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        &self.bytes[span.range()]
    }

    pub(crate) fn items(&self, span: Span) -> &[Id] {
        &self.items[span.range()]
    }

    pub(crate) fn open(&self, index: u32) -> &[Id] {
        &self.open[index as usize]
    }

    pub(crate) fn call(&self, index: u32) -> Call {
        self.calls[index as usize]
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Text, also where Python 2 wrote it as bytes.
    pub(crate) fn text_of(&self, id: Id) -> Option<&str> {
        match self.get(id) {
            Value::Text(span) => Some(self.text(span)),
            Value::Bytes(span) => std::str::from_utf8(self.bytes(span)).ok(),
            _ => None,
        }
    }

    /// Items of a tuple or list.
    pub(crate) fn sequence(&self, id: Id) -> Option<&[Id]> {
        match self.get(id) {
            Value::Tuple(span) => Some(self.items(span)),
            Value::List(index) => Some(self.open(index)),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, value: Value) -> Result<Id> {
        room(&mut self.values, 1, self.budget)?;
        let id = Id(numbered(self.values.len()));
        self.values.push(value);
        Ok(id)
    }

    #[inline]
    pub(super) fn add_text(&mut self, text: &str) -> Result<Span> {
        let (held, room) = (self.text.len(), self.text.capacity());
        if room - held < text.len() {
            self.text
                .reserve_exact(more::<u8>(held, room, text.len(), self.budget)?);
        }
        self.text.push_str(text);
        Ok(Span {
            start: numbered(held),
            len: numbered(text.len()),
        })
    }

    pub(super) fn add_bytes(&mut self, bytes: &[u8]) -> Result<Span> {
        room(&mut self.bytes, bytes.len(), self.budget)?;
        let span = Span {
            start: numbered(self.bytes.len()),
            len: numbered(bytes.len()),
        };
        self.bytes.extend_from_slice(bytes);
        Ok(span)
    }

    #[inline]
    pub(super) fn add_items(&mut self, items: &[Id]) -> Result<Span> {
        room(&mut self.items, items.len(), self.budget)?;
        let span = Span {
            start: numbered(self.items.len()),
            len: numbered(items.len()),
        };
        self.items.extend_from_slice(items);
        Ok(span)
    }

    /// A mutable container with these first items.
    pub(super) fn add_open(&mut self, items: &[Id]) -> Result<u32> {
        self.budget
            .memory((size_of::<Vec<Id>>() + size_of_val(items)) as u64, WHAT)?;
        let index = number(self.open.len())?;
        self.open.push(items.to_vec());
        Ok(index)
    }

    pub(super) fn extend(&mut self, index: u32, items: &[Id]) -> Result<()> {
        // twice: a growing vector keeps room to spare
        self.budget.memory(2 * size_of_val(items) as u64, WHAT)?;
        self.open[index as usize].extend_from_slice(items);
        Ok(())
    }

    pub(super) fn add_call(&mut self, callee: Value, args: Span) -> Result<Value> {
        self.budget.memory(size_of::<Call>() as u64, WHAT)?;
        let index = number(self.calls.len())?;
        self.calls.push(Call {
            callee,
            args,
            state: None,
        });
        Ok(Value::Call(index))
    }

    pub(super) fn set_state(&mut self, index: u32, state: Id) {
        self.calls[index as usize].state = Some(state);
    }
}

/// Makes room for `n` more. Memory is charged where it is taken, which is when a pool grows.
#[inline]
fn room<T>(pool: &mut Vec<T>, n: usize, budget: &Budget) -> Result<()> {
    if pool.capacity() - pool.len() < n {
        pool.reserve_exact(more::<T>(pool.len(), pool.capacity(), n, budget)?);
    }
    Ok(())
}

/// By how much a pool grows that holds `held` of `room` and needs `n` more.
#[cold]
fn more<T>(held: usize, room: usize, n: usize, budget: &Budget) -> Result<usize> {
    let more = n.max(room).max(64);
    number(held.saturating_add(more))?;
    budget.memory((more as u64).saturating_mul(size_of::<T>() as u64), WHAT)?;
    Ok(more)
}

/// A number below what [`more`] allows.
#[inline]
fn numbered(n: usize) -> u32 {
    u32::try_from(n).expect("pools grow within 32 bits")
}

/// Pools are numbered with 32 bits, whatever the limits allow.
fn number(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::unsupported("a pickle that builds more than 2³² values"))
}
