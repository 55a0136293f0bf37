//! A pickle interpreter that builds data and cannot run code.
//!
//! Specification: `Lib/pickle.py` and `Lib/pickletools.py` of CPython, protocols 0 to 5.
//!
//! A pickle is a program for a stack machine. In Python, it can import any function and call it, so loading an untrusted
//! pickle runs its author's code. This interpreter is closed instead: a global must be in the fixed table of
//! [`globals`], where it becomes a tag, or the file is refused with an error that names it. Where the caller allows it, a
//! global outside the table becomes a name without meaning, and what it would make an opaque object: class name, arguments,
//! state and items. A call is recorded
//! ([`value_heap::RecordedCall`]) and later interpreted as the description of a tensor; only calls that construct plain containers are
//! carried out here. No opcode can reach a function of this library that is not in this module.
//!
//! Opcodes are charged to the budget in batches of 256 before they run, so a long program ends in a limit. Memory is
//! charged where a pool, the stack or the memo grows, before it is allocated: an opcode of a few bytes can otherwise ask
//! for gigabytes. Values refer to each other by number, so that cycles are harmless and nothing recurses.

mod calls;
mod container;
pub(crate) mod distributed;
mod dtypes;
pub(crate) mod globals;
mod memo;
mod number;
mod opcode;
mod reader;
#[cfg(test)]
mod tests;
mod text_arguments;
mod torchao;
pub(crate) mod value_heap;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::source::cursor::Cursor;

use globals::{Builtin, Global};
use memo::Memo;
use opcode as op;
use reader::OpcodeReader;
use value_heap::{ExactClass, ExactClasses, PickleValue, StoredBytes, ValueHeap, ValueId};

/// The globals that a pickle may name in addition to PyTorch's plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vocabulary {
    /// None: a checkpoint.
    Checkpoint,
    /// The classes of a TorchScript archive (`__torch__.…`).
    TorchScript,
    /// The classes of the `.metadata` of torch.distributed.checkpoint.
    Distributed,
}

/// The result of reading one pickle.
pub(crate) struct Pickle<'b> {
    pub(crate) heap: ValueHeap<'b>,
    /// The value that was on top of the stack at STOP: the pickled object.
    pub(crate) root: ValueId,
    pub(crate) protocol: u8,
}

/// Reads one pickle at the cursor, and leaves the cursor after its STOP opcode.
///
/// With `opaque`, globals outside the table are kept by name instead of refused.
pub(crate) fn read<'s>(
    cursor: &mut Cursor<'s>,
    vocabulary: Vocabulary,
    opaque: bool,
) -> Result<Pickle<'s>> {
    read_with(cursor, vocabulary, opaque, None)
}

/// Like [`read`], but keeps the exact classes of values, and attributes of dicts.
pub(crate) fn read_exact<'s>(
    cursor: &mut Cursor<'s>,
    vocabulary: Vocabulary,
    opaque: bool,
) -> Result<Pickle<'s>> {
    read_with(cursor, vocabulary, opaque, Some(ExactClasses::default()))
}

fn read_with<'s>(
    cursor: &mut Cursor<'s>,
    vocabulary: Vocabulary,
    opaque: bool,
    exact: Option<ExactClasses>,
) -> Result<Pickle<'s>> {
    // the length of a stream is not known, so it gives no hint
    let mut heap = ValueHeap::new(
        cursor.budget(),
        cursor.len().map_or(0, |_| cursor.remaining()),
    )?;
    heap.exact = exact;
    let mut machine = Machine {
        reader: OpcodeReader::new(cursor),
        heap,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        shared_values: [None; SHARED_VALUES],
        vocabulary,
        opaque,
        protocol: 0,
    };
    let mut steps_left = 0;
    loop {
        let at = machine.reader.pos();
        let opcode = machine.reader.opcode()?;
        if steps_left == 0 {
            machine
                .reader
                .budget()
                .steps(STEP_BATCH, "the pickle's opcodes")
                .map_err(|e| e.at(at))?;
            steps_left = STEP_BATCH;
        }
        steps_left -= 1;
        if opcode == op::STOP {
            let root = machine.pop().map_err(|e| e.at(at))?;
            machine.reader.sync_cursor();
            return Ok(Pickle {
                heap: machine.heap,
                root,
                protocol: machine.protocol,
            });
        }
        machine.step(opcode).map_err(|e| e.at(at))?;
    }
}

/// Opcodes are charged to the budget in batches of this size, which keeps the check out of the common path.
const STEP_BATCH: u64 = 256;
/// Number of values that are made once and shared: the integers 0 to 255, `None`, `True` and `False`.
const SHARED_VALUES: usize = 256 + 3;

/// The stack machine that a pickle is a program for.
struct Machine<'c, 's> {
    reader: OpcodeReader<'c, 's>,
    heap: ValueHeap<'s>,
    stack: Vec<ValueId>,
    /// The height of the stack at each MARK that is open.
    marks: Vec<usize>,
    memo: Memo,
    /// The shared values, by index: 0 to 255 the integers, then `None`, `True` and `False`. Made at first use.
    shared_values: [Option<ValueId>; SHARED_VALUES],
    vocabulary: Vocabulary,
    /// Whether globals outside the table are kept by name.
    opaque: bool,
    protocol: u8,
}

impl Machine<'_, '_> {
    fn step(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            // the stack
            op::MARK => self.mark(),
            // POP directly above a MARK removes the MARK, as in CPython: protocol 0 writes this for tuples that
            // contain themselves
            op::POP if self.marks.last() == Some(&self.stack.len()) => {
                self.marks.pop();
                Ok(())
            }
            op::POP => self.pop().map(drop),
            op::POP_MARK => self.pop_mark().map(|from| self.stack.truncate(from)),
            op::DUP => self.top().and_then(|id| self.push(id)),
            // the memo
            op::BINPUT => self.u8().and_then(|n| self.put_memo(u32::from(n))),
            op::LONG_BINPUT => self.u32().and_then(|n| self.put_memo(n)),
            op::PUT => self.line_number().and_then(|n| self.put_memo(n)),
            op::MEMOIZE => self.put_memo(self.memo.len()),
            op::BINGET => self.u8().and_then(|n| self.get_memo(u32::from(n))),
            op::LONG_BINGET => self.u32().and_then(|n| self.get_memo(n)),
            op::GET => self.line_number().and_then(|n| self.get_memo(n)),
            // plain values
            op::NONE => self.shared(256, PickleValue::None),
            op::NEWTRUE => self.shared(257, PickleValue::Bool(true)),
            op::NEWFALSE => self.shared(258, PickleValue::Bool(false)),
            op::BININT => self
                .array()
                .and_then(|b| self.push_value(PickleValue::Int(i64::from(i32::from_le_bytes(b))))),
            op::BININT1 => self
                .u8()
                .and_then(|n| self.shared(usize::from(n), PickleValue::Int(i64::from(n)))),
            op::BININT2 => self
                .array()
                .and_then(|b| self.push_value(PickleValue::Int(i64::from(u16::from_le_bytes(b))))),
            // the only big-endian number of the format
            op::BINFLOAT => self
                .array()
                .and_then(|b| self.push_value(PickleValue::Float(f64::from_be_bytes(b)))),
            op::LONG1 => self.u8().and_then(|n| self.long(u64::from(n))),
            op::LONG4 => {
                let n = i32::from_le_bytes(self.array()?);
                self.long(u64::try_from(n).map_err(|_| {
                    Error::malformed("an integer of the pickle has a negative length")
                })?)
            }
            op::INT | op::LONG => self.int_line(),
            op::FLOAT => self.float_line(),
            op::SHORT_BINUNICODE => self.u8().and_then(|n| self.unicode(u64::from(n))),
            op::BINUNICODE => self.u32().and_then(|n| self.unicode(u64::from(n))),
            op::BINUNICODE8 => self.u64().and_then(|n| self.unicode(n)),
            op::UNICODE => self.unicode_line(),
            op::STRING => self.string_line(),
            op::SHORT_BINSTRING => self.u8().and_then(|n| self.string(u64::from(n))),
            op::BINSTRING => {
                let n = i32::from_le_bytes(self.array()?);
                self.string(u64::try_from(n).map_err(|_| {
                    Error::malformed("a string of the pickle has a negative length")
                })?)
            }
            op::SHORT_BINBYTES => self.u8().and_then(|n| self.bytes(u64::from(n))),
            op::BINBYTES => self.u32().and_then(|n| self.bytes(u64::from(n))),
            op::BINBYTES8 => self.u64().and_then(|n| self.bytes(n)),
            op::BYTEARRAY8 => {
                let n = self.u64()?;
                self.bytes(n)?;
                self.heap.note_class(ExactClass::ByteArray)
            }
            // containers
            op::EMPTY_TUPLE => self.tuple(self.stack.len()),
            op::TUPLE1 => self.below(1).and_then(|from| self.tuple(from)),
            op::TUPLE2 => self.below(2).and_then(|from| self.tuple(from)),
            op::TUPLE3 => self.below(3).and_then(|from| self.tuple(from)),
            op::TUPLE => self.pop_mark().and_then(|from| self.tuple(from)),
            op::EMPTY_LIST => self.container(self.stack.len(), PickleValue::List),
            op::LIST => self
                .pop_mark()
                .and_then(|from| self.container(from, PickleValue::List)),
            op::EMPTY_SET => self.container(self.stack.len(), PickleValue::Set),
            op::FROZENSET => {
                let from = self.pop_mark()?;
                self.container(from, PickleValue::Set)?;
                self.heap.note_class(ExactClass::FrozenSet)
            }
            op::EMPTY_DICT => self.container(self.stack.len(), |items| PickleValue::Dict {
                items,
                class: false,
            }),
            op::DICT => self.pop_mark().and_then(|from| {
                self.pairs(from)?;
                self.container(from, |items| PickleValue::Dict {
                    items,
                    class: false,
                })
            }),
            op::APPEND => self.below(1).and_then(|from| self.append(from, "APPEND")),
            op::APPENDS => self
                .pop_mark()
                .and_then(|from| self.append(from, "APPENDS")),
            op::ADDITEMS => self.pop_mark().and_then(|from| self.add_items(from)),
            op::SETITEM => self.below(2).and_then(|from| self.set_items(from)),
            op::SETITEMS => self.pop_mark().and_then(|from| self.set_items(from)),
            // globals and calls
            op::GLOBAL => self.global_line().and_then(|value| self.push_value(value)),
            op::STACK_GLOBAL => self.stack_global(),
            // a class is called as a function is: both are recorded and not made
            op::REDUCE | op::NEWOBJ => self.reduce(),
            op::NEWOBJ_EX => self.newobj_ex(),
            op::INST => self.inst(),
            op::OBJ => self.obj(),
            op::BUILD => self.build(),
            op::EXT1 => self.u8().and_then(|n| self.extension(u32::from(n))),
            op::EXT2 => self
                .array()
                .and_then(|b| self.extension(u32::from(u16::from_le_bytes(b)))),
            op::EXT4 => self.u32().and_then(|n| self.extension(n)),
            op::BINPERSID => self.persistent(),
            op::PERSID => Err(Error::malformed(
                "a persistent id of the pickle is text, expected a tuple",
            )),
            // the framing of the program
            op::PROTO => self.proto(),
            // a FRAME only tells how many bytes to buffer; the argument is ignored
            op::FRAME => self.u64().map(drop),
            op::NEXT_BUFFER | op::READONLY_BUFFER => Err(Error::unsupported(
                "the pickle refers to out-of-band buffers, which are not part of the file",
            )),
            other => Err(Error::malformed(format!(
                "unknown pickle opcode {other:#04x}"
            ))),
        }
    }

    fn proto(&mut self) -> Result<()> {
        self.protocol = self.u8()?;
        if self.protocol > 5 {
            // a later protocol may have opcodes that are unknown here
            return Err(Error::unsupported(format!(
                "the pickle has protocol {}; protocols up to 5 can be read",
                self.protocol
            )));
        }
        Ok(())
    }

    // ---- the stack

    fn mark(&mut self) -> Result<()> {
        charge_growth(&mut self.marks, self.reader.budget())?;
        self.marks.push(self.stack.len());
        Ok(())
    }

    #[inline]
    fn push(&mut self, id: ValueId) -> Result<()> {
        charge_growth(&mut self.stack, self.reader.budget())?;
        self.stack.push(id);
        Ok(())
    }

    #[inline]
    fn push_value(&mut self, value: PickleValue) -> Result<()> {
        let id = self.heap.add(value)?;
        self.push(id)
    }

    /// Pushes a shared value. Scalars are immutable, so one value serves all uses.
    #[inline]
    fn shared(&mut self, index: usize, value: PickleValue) -> Result<()> {
        match self.shared_values[index] {
            Some(id) => self.push(id),
            None => {
                let id = self.heap.add(value)?;
                self.shared_values[index] = Some(id);
                self.push(id)
            }
        }
    }

    /// The height of the stack without its top `n` values. An opcode may not reach below the last MARK: CPython's C
    /// implementation refuses that too.
    #[inline]
    fn below(&self, n: usize) -> Result<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self
            .stack
            .len()
            .checked_sub(n)
            .filter(|&from| from >= floor);
        from.ok_or_else(|| Error::malformed("pickle stack underflow"))
    }

    fn top(&self) -> Result<ValueId> {
        self.below(1).map(|at| self.stack[at])
    }

    fn pop(&mut self) -> Result<ValueId> {
        let id = self.top()?;
        self.stack.pop();
        Ok(id)
    }

    /// Removes the last MARK, and returns the height of the stack at it.
    fn pop_mark(&mut self) -> Result<usize> {
        self.marks.pop().ok_or_else(|| {
            Error::malformed("the pickle needs a MARK on the stack, but there is none")
        })
    }

    // ---- the memo

    fn put_memo(&mut self, number: u32) -> Result<()> {
        let id = self.top()?;
        self.memo.put(number, id, self.reader.budget())
    }

    fn get_memo(&mut self, number: u32) -> Result<()> {
        let id = self.memo.get(number);
        self.push(id.ok_or_else(|| {
            Error::malformed(format!(
                "the pickle reads memo index {number}, which was not stored"
            ))
        })?)
    }

    // ---- arguments and plain values

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.reader.array()
    }

    fn u8(&mut self) -> Result<u8> {
        self.reader.u8()
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn unicode(&mut self, len: u64) -> Result<()> {
        let is_encoded = self.encodes_text();
        let at = self.reader.pos();
        let bytes = self.reader.take(len, "a string of the pickle")?;
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Error::malformed("a string of the pickle is not valid UTF-8"))?;
        // U+0100 is the first character whose UTF-8 begins with 0xC4
        let span = if is_encoded && bytes.iter().all(|&byte| byte < 0xc4) {
            let decoded = text.chars().count() as u64;
            let stored = StoredBytes {
                at,
                len,
                decoded,
                latin1: true,
            };
            self.heap.add_encoded(text, stored)?
        } else {
            self.heap.add_text(text)?
        };
        self.push_value(PickleValue::Text(span))
    }

    /// Whether the function that encodes text is on top of the stack, below its arguments: protocols up to 2 have no opcode
    /// for bytes. The text is then a byte string of any length.
    fn encodes_text(&self) -> bool {
        self.stack.last().is_some_and(|&id| {
            matches!(
                self.heap.get(id),
                PickleValue::Global(Global::Builtin(Builtin::Encode | Builtin::ByteArray))
            )
        })
    }

    /// A byte string of Python 2: text if it is valid UTF-8, as PyTorch decodes it.
    fn string(&mut self, len: u64) -> Result<()> {
        let bytes = self.reader.take(len, "a string of the pickle")?;
        let value = match std::str::from_utf8(bytes) {
            Ok(text) => PickleValue::Text(self.heap.add_text(text)?),
            Err(_) => PickleValue::Bytes(self.heap.add_bytes(bytes)?),
        };
        self.push_value(value)
    }

    fn bytes(&mut self, len: u64) -> Result<()> {
        let at = self.reader.pos();
        let bytes = self.reader.take(len, "bytes of the pickle")?;
        let stored = StoredBytes {
            at,
            len,
            decoded: len,
            latin1: false,
        };
        let span = self.heap.add_stored(bytes, stored)?;
        self.push_value(PickleValue::Bytes(span))
    }
}

/// Charges the memory of a vector if the next push makes it grow.
#[inline]
fn charge_growth<T>(vec: &mut Vec<T>, budget: &Budget) -> Result<()> {
    if vec.len() == vec.capacity() {
        budget.memory(
            // a vector begins with room for four, and doubles
            ((vec.capacity() + 4) * size_of::<T>()) as u64,
            "the pickle's stack",
        )?;
    }
    Ok(())
}
