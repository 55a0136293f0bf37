//! The pickle machine: reads a pickle as data, and can run nothing.
//!
//! A pickle is a program for a stack machine. This one knows the opcodes that build plain values;
//! a global is a word of the closed [`world`] or an error that names it; a call is written down
//! ([`heap::Call`]) for the reader to interpret, except for the few that make plain containers.
//! There is no recursion, and each opcode and each byte of memory is charged to the budget.

mod call;
mod container;
mod dtypes;
pub(crate) mod heap;
mod line;
mod memo;
mod number;
mod opcode;
mod reader;
#[cfg(test)]
mod tests;
mod torchao;
pub(crate) mod world;

use crate::error::{Error, ErrorKind, Result};
use crate::limits::Budget;
use crate::source::cursor::Cursor;

use heap::{Heap, Id, Value};
use memo::Memo;
use opcode as op;
use reader::Reader;

/// A pickle that was read.
pub(crate) struct Pickle<'b> {
    pub(crate) heap: Heap<'b>,
    /// What STOP found on the stack.
    pub(crate) root: Id,
    pub(crate) protocol: u8,
}

/// Reads one pickle from where the cursor stands, and leaves it behind its STOP.
/// `script`: whether classes of a TorchScript archive (`__torch__.…`) may be named.
pub(crate) fn read<'s>(cursor: &mut Cursor<'s>, script: bool) -> Result<Pickle<'s>> {
    let heap = Heap::new(
        cursor.budget(),
        cursor.len().map_or(0, |_| cursor.remaining()),
    );
    let mut machine = Machine {
        reader: Reader::new(cursor),
        heap,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        plain: [None; PLAIN],
        script,
        protocol: 0,
    };
    let mut fuel = 0;
    loop {
        let at = machine.reader.pos();
        let opcode = machine.reader.opcode()?;
        if fuel == 0 {
            machine
                .reader
                .budget()
                .steps(FUEL, "the pickle's opcodes")
                .map_err(|e| e.at(at))?;
            fuel = FUEL;
        }
        fuel -= 1;
        if opcode == op::STOP {
            let root = machine.pop().map_err(|e| e.at(at))?;
            machine.reader.settled();
            return Ok(Pickle {
                heap: machine.heap,
                root,
                protocol: machine.protocol,
            });
        }
        machine.step(opcode).map_err(|e| e.at(at))?;
    }
}

/// Opcodes that are charged at a time.
const FUEL: u64 = 256;
/// How many values are kept to be shared.
const PLAIN: usize = 256 + 3;

struct Machine<'c, 's> {
    reader: Reader<'c, 's>,
    heap: Heap<'s>,
    stack: Vec<Id>,
    /// Heights of the stack at each MARK.
    marks: Vec<usize>,
    memo: Memo,
    /// The values `None`, the truth values and the numbers 0 to 255, once each.
    plain: [Option<Id>; PLAIN],
    script: bool,
    protocol: u8,
}

impl Machine<'_, '_> {
    fn step(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            // the stack
            op::MARK => self.mark(),
            op::POP if self.marks.last() == Some(&self.stack.len()) => {
                self.marks.pop();
                Ok(())
            }
            op::POP => self.pop().map(drop),
            op::POP_MARK => self.pop_mark().map(|from| self.stack.truncate(from)),
            op::DUP => self.top().and_then(|id| self.push(id)),
            // the memo
            op::BINPUT => self.u8().and_then(|n| self.put(u32::from(n))),
            op::LONG_BINPUT => self.u32().and_then(|n| self.put(n)),
            op::PUT => self.line_number().and_then(|n| self.put(n)),
            op::MEMOIZE => self.put(self.memo.len()),
            op::BINGET => self.u8().and_then(|n| self.fetch(u32::from(n))),
            op::LONG_BINGET => self.u32().and_then(|n| self.fetch(n)),
            op::GET => self.line_number().and_then(|n| self.fetch(n)),
            // plain values
            op::NONE => self.plain(256, Value::None),
            op::NEWTRUE => self.plain(257, Value::Bool(true)),
            op::NEWFALSE => self.plain(258, Value::Bool(false)),
            op::BININT => self
                .array()
                .and_then(|b| self.value(Value::Int(i64::from(i32::from_le_bytes(b))))),
            op::BININT1 => self
                .u8()
                .and_then(|n| self.plain(usize::from(n), Value::Int(i64::from(n)))),
            op::BININT2 => self
                .array()
                .and_then(|b| self.value(Value::Int(i64::from(u16::from_le_bytes(b))))),
            op::BINFLOAT => self
                .array()
                .and_then(|b| self.value(Value::Float(f64::from_be_bytes(b)))),
            op::LONG1 => self.u8().and_then(|n| self.long(u64::from(n))),
            op::LONG4 => {
                let n = i32::from_le_bytes(self.array()?);
                self.long(
                    u64::try_from(n)
                        .map_err(|_| Error::malformed("a number of negative length"))?,
                )
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
                self.string(
                    u64::try_from(n)
                        .map_err(|_| Error::malformed("a string of negative length"))?,
                )
            }
            op::SHORT_BINBYTES => self.u8().and_then(|n| self.bytes(u64::from(n))),
            op::BINBYTES => self.u32().and_then(|n| self.bytes(u64::from(n))),
            op::BINBYTES8 | op::BYTEARRAY8 => self.u64().and_then(|n| self.bytes(n)),
            // containers
            op::EMPTY_TUPLE => self.tuple(self.stack.len()),
            op::TUPLE1 => self.below(1).and_then(|from| self.tuple(from)),
            op::TUPLE2 => self.below(2).and_then(|from| self.tuple(from)),
            op::TUPLE3 => self.below(3).and_then(|from| self.tuple(from)),
            op::TUPLE => self.pop_mark().and_then(|from| self.tuple(from)),
            op::EMPTY_LIST => self.container(self.stack.len(), Value::List),
            op::LIST => self
                .pop_mark()
                .and_then(|from| self.container(from, Value::List)),
            op::EMPTY_SET => self.container(self.stack.len(), Value::Set),
            op::FROZENSET => self
                .pop_mark()
                .and_then(|from| self.container(from, Value::Set)),
            op::EMPTY_DICT => self.container(self.stack.len(), |items| Value::Dict {
                items,
                class: false,
            }),
            op::DICT => self.pop_mark().and_then(|from| {
                self.pairs(from)?;
                self.container(from, |items| Value::Dict {
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
            op::GLOBAL => self.global_line().and_then(|value| self.value(value)),
            op::STACK_GLOBAL => self.stack_global(),
            op::REDUCE | op::NEWOBJ => self.reduce(),
            op::NEWOBJ_EX => self.newobj_ex(),
            op::INST => self.inst(),
            op::OBJ => self.obj(),
            op::BUILD => self.build(),
            op::EXT1 => self.u8().and_then(|n| Err(extension(u32::from(n)))),
            op::EXT2 => self
                .array()
                .and_then(|b| Err(extension(u32::from(u16::from_le_bytes(b))))),
            op::EXT4 => self.u32().and_then(|n| Err(extension(n))),
            op::BINPERSID => self.persistent(),
            op::PERSID => Err(Error::malformed(
                "a persistent id that is text; PyTorch's are tuples",
            )),
            // the frame of it
            op::PROTO => self.proto(),
            // how the writer buffered: says nothing about the values
            op::FRAME => self.u64().map(drop),
            op::NEXT_BUFFER | op::READONLY_BUFFER => {
                Err(Error::unsupported("a pickle whose buffers lie outside it"))
            }
            other => Err(Error::malformed(format!(
                "{other:#04x} is no pickle opcode"
            ))),
        }
    }

    fn proto(&mut self) -> Result<()> {
        self.protocol = self.u8()?;
        if self.protocol > 5 {
            return Err(Error::unsupported(format!(
                "pickle protocol {}; 5 is the newest known",
                self.protocol
            )));
        }
        Ok(())
    }

    // ---- the stack

    fn mark(&mut self) -> Result<()> {
        grown(&mut self.marks, self.reader.budget())?;
        self.marks.push(self.stack.len());
        Ok(())
    }

    #[inline]
    fn push(&mut self, id: Id) -> Result<()> {
        grown(&mut self.stack, self.reader.budget())?;
        self.stack.push(id);
        Ok(())
    }

    #[inline]
    fn value(&mut self, value: Value) -> Result<()> {
        let id = self.heap.add(value)?;
        self.push(id)
    }

    /// A value that is always the same one: it never changes, so it is made once.
    #[inline]
    fn plain(&mut self, place: usize, value: Value) -> Result<()> {
        match self.plain[place] {
            Some(id) => self.push(id),
            None => {
                let id = self.heap.add(value)?;
                self.plain[place] = Some(id);
                self.push(id)
            }
        }
    }

    /// Height of the stack `n` values down; not below the last MARK.
    #[inline]
    fn below(&self, n: usize) -> Result<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self
            .stack
            .len()
            .checked_sub(n)
            .filter(|&from| from >= floor);
        from.ok_or_else(|| Error::malformed("the pickle takes more from its stack than is there"))
    }

    fn top(&self) -> Result<Id> {
        self.below(1).map(|at| self.stack[at])
    }

    fn pop(&mut self) -> Result<Id> {
        let id = self.top()?;
        self.stack.pop();
        Ok(id)
    }

    /// Takes the last MARK away, and returns where it was.
    fn pop_mark(&mut self) -> Result<usize> {
        self.marks
            .pop()
            .ok_or_else(|| Error::malformed("the pickle goes back to a mark it never set"))
    }

    // ---- the memo

    fn put(&mut self, number: u32) -> Result<()> {
        let id = self.top()?;
        self.memo.put(number, id, self.reader.budget())
    }

    fn fetch(&mut self, number: u32) -> Result<()> {
        let id = self.memo.get(number);
        self.push(
            id.ok_or_else(|| {
                Error::malformed(format!("the pickle's memo has no number {number}"))
            })?,
        )
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
        let bytes = self.reader.take(len, "a string of the pickle")?;
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Error::malformed("a string that is not UTF-8"))?;
        let span = self.heap.add_text(text)?;
        self.value(Value::Text(span))
    }

    /// A Python 2 string: text if it can be, as PyTorch reads it.
    fn string(&mut self, len: u64) -> Result<()> {
        let bytes = self.reader.take(len, "a string of the pickle")?;
        let value = match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(self.heap.add_text(text)?),
            Err(_) => Value::Bytes(self.heap.add_bytes(bytes)?),
        };
        self.value(value)
    }

    fn bytes(&mut self, len: u64) -> Result<()> {
        let bytes = self.reader.take(len, "bytes of the pickle")?;
        let span = self.heap.add_bytes(bytes)?;
        self.value(Value::Bytes(span))
    }
}

/// Charges the memory of a vector that is about to grow.
#[inline]
fn grown<T>(vec: &mut Vec<T>, budget: &Budget) -> Result<()> {
    if vec.len() == vec.capacity() {
        budget.memory(
            ((vec.capacity() + 4) * size_of::<T>()) as u64,
            "the pickle's stack",
        )?;
    }
    Ok(())
}

/// Extension codes name globals by a number that only the writer's process knew.
fn extension(code: u32) -> Error {
    Error::new(ErrorKind::RefusedGlobal {
        module: "copyreg".into(),
        name: format!("extension {code}"),
    })
}
