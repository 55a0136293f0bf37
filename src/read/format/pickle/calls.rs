//! The opcodes for globals and calls. A global is looked up in a fixed table; a call is recorded, not made.
//!
//! This is where the machine is closed. [`globals::resolve`] is the only source of callables, and [`Machine::call`] lists
//! which of them may be called. The builtins that construct containers and byte strings are carried out here, because
//! their results are plain values; every other call becomes a [`RecordedCall`](super::value_heap::RecordedCall) with its
//! arguments, to be interpreted by the PyTorch reader.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, TemporaryCharge};

use super::distributed::DistributedClass;
use super::globals::{self, Builtin, Global, NumpyGlobal};
use super::value_heap::{ExactClass, PickleValue, PoolRange, StoredBytes, ValueId};
use super::{Machine, Vocabulary, text_arguments};

const COPY: &str = "the arguments of a call";

impl<'s> Machine<'_, 's> {
    /// The value of a global, or the error that names it as refused.
    fn global(&mut self, module: &str, name: &str) -> Result<PickleValue> {
        if let Some(global) = globals::resolve(module, name) {
            return Ok(PickleValue::Global(global));
        }
        // TorchScript pickles name classes of their own code, which is never read; outside of such an archive the
        // same name could be a Python module
        if self.vocabulary == Vocabulary::TorchScript
            && (module == "__torch__" || module.starts_with("__torch__."))
        {
            let full = [module, ".", name].concat();
            return Ok(PickleValue::ScriptClass(self.heap.add_text(&full)?));
        }
        if self.vocabulary == Vocabulary::Distributed
            && let Some(class) = DistributedClass::named(module, name)
        {
            return Ok(PickleValue::Global(Global::Distributed(class)));
        }
        if self.opaque {
            let full = [module, ".", name].concat();
            return Ok(PickleValue::OpaqueGlobal(self.heap.add_text(&full)?));
        }
        Err(Error::new(ErrorKind::RefusedGlobal {
            module: module.into(),
            name: name.into(),
        }))
    }

    /// An extension code: a number that stands for a global in a registry (`copyreg`) of the writing process, which no other
    /// process can resolve.
    pub(super) fn extension(&mut self, code: u32) -> Result<()> {
        let value = self.global("copyreg", &format!("extension {code}"))?;
        self.push_value(value)
    }

    pub(super) fn global_line(&mut self) -> Result<PickleValue> {
        let module = text_arguments::take_line(&mut self.reader)?;
        let name = text_arguments::take_line(&mut self.reader)?;
        self.global(&module, &name)
    }

    pub(super) fn stack_global(&mut self) -> Result<()> {
        let (name, module) = (self.pop()?, self.pop()?);
        let (Some(module), Some(name)) = (self.heap.text_of(module), self.heap.text_of(name))
        else {
            return Err(Error::malformed("the name of a global is not text"));
        };
        // each is copied, and then both as one name
        let copies = 2 * (module.len() + name.len()) as u64;
        let _copies = self.reader.budget().temporary(copies, COPY)?;
        let (module, name) = (module.to_owned(), name.to_owned());
        let value = self.global(&module, &name)?;
        self.push_value(value)
    }

    /// REDUCE and NEWOBJ: calls the callable below the top of the stack with the tuple on top.
    pub(super) fn reduce(&mut self) -> Result<()> {
        let (args, callee) = (self.pop()?, self.pop()?);
        let PickleValue::Tuple(args) = self.heap.get(args) else {
            return Err(Error::malformed("the arguments of a call are not a tuple"));
        };
        self.call(callee, args)
    }

    pub(super) fn newobj_ex(&mut self) -> Result<()> {
        let named = self.pop()?;
        match self.heap.get(named) {
            PickleValue::Dict { items, .. } if self.heap.container(items).is_empty() => {
                self.reduce()
            }
            // the arguments of an opaque object are kept, not interpreted
            _ if self.opaque => {
                let (args, callee) = (self.pop()?, self.pop()?);
                let PickleValue::Tuple(args) = self.heap.get(args) else {
                    return Err(Error::malformed("the arguments of a call are not a tuple"));
                };
                let budget = self.reader.budget();
                let (mut args, _copy) = copied(budget, self.heap.items(args), 1)?;
                args.push(named);
                let args = self.heap.add_items(&args)?;
                match self.heap.get(callee) {
                    PickleValue::OpaqueGlobal(_) => self.call(callee, args),
                    _ => Err(Error::unsupported(
                        "the pickle constructs an object with keyword arguments",
                    )),
                }
            }
            _ => Err(Error::unsupported(
                "the pickle constructs an object with keyword arguments",
            )),
        }
    }

    pub(super) fn inst(&mut self) -> Result<()> {
        let class = self.global_line()?;
        let from = self.pop_mark()?;
        let args = self.heap.add_items(&self.stack[from..])?;
        self.stack.truncate(from);
        let class = self.heap.add(class)?;
        self.call(class, args)
    }

    pub(super) fn obj(&mut self) -> Result<()> {
        let from = self.pop_mark()?;
        let Some((&class, args)) = self.stack[from..].split_first() else {
            return Err(Error::malformed(
                "the pickle constructs an object without a class",
            ));
        };
        let args = self.heap.add_items(args)?;
        self.stack.truncate(from);
        self.call(class, args)
    }

    /// Carries out a builtin, records any other call that is allowed, and refuses the rest.
    fn call(&mut self, callee: ValueId, args: PoolRange) -> Result<()> {
        let mut callee = self.heap.get(callee);
        // the result of an unknown function, a method for instance
        if let PickleValue::Call(index) = callee
            && let Some(name) = self.heap.call(index).opaque()
        {
            callee = PickleValue::OpaqueGlobal(name);
        }
        let value = match callee {
            PickleValue::Global(Global::Builtin(builtin)) => self.builtin(builtin, args)?,
            PickleValue::Global(
                Global::Rebuild(_)
                | Global::GetLayout
                | Global::Size
                | Global::Device
                | Global::Complex
                | Global::TensorClass
                | Global::TypeMark
                | Global::Torchao(_)
                | Global::Distributed(_)
                | Global::Numpy(
                    NumpyGlobal::Scalar
                    | NumpyGlobal::Reconstruct
                    | NumpyGlobal::FromBuffer
                    | NumpyGlobal::Dtype,
                ),
            )
            | PickleValue::ScriptClass(_)
            | PickleValue::OpaqueGlobal(_) => self.heap.add_call(callee, args)?,
            _ => {
                return Err(Error::malformed(
                    "the pickle calls a value that cannot be called",
                ));
            }
        };
        self.push_value(value)?;
        if let PickleValue::Global(Global::Builtin(builtin)) = callee
            && let Some(class) = exact_class(builtin)
        {
            self.heap.note_class(class)?;
        }
        Ok(())
    }

    fn builtin(&mut self, builtin: Builtin, args: PoolRange) -> Result<PickleValue> {
        let (args, _copy) = copied(self.reader.budget(), self.heap.items(args), 0)?;
        let wrong = || {
            Error::malformed(format!(
                "{builtin:?} has arguments of an unexpected number or type"
            ))
        };
        // `defaultdict(factory)` keeps its factory as an argument that is never called
        match (builtin, &args[..]) {
            (Builtin::OrderedDict | Builtin::Counter, []) | (Builtin::DefaultDict, [] | [_]) => {
                self.dict(&[])
            }
            (Builtin::OrderedDict | Builtin::Counter, &[from])
            | (Builtin::DefaultDict, &[_, from]) => {
                let (items, _copy) = self.items_of(from)?.ok_or_else(wrong)?;
                self.dict(&items)
            }
            (Builtin::Set | Builtin::FrozenSet, []) => {
                self.heap.add_container(&[]).map(PickleValue::Set)
            }
            // protocols before 4 have no opcode for sets and call `set` with a list
            (Builtin::Set | Builtin::FrozenSet, &[from]) => {
                let items = self.heap.sequence(from).ok_or_else(wrong)?;
                let (items, _copy) = copied(self.reader.budget(), items, 0)?;
                self.heap.add_container(&items).map(PickleValue::Set)
            }
            (Builtin::ByteArray | Builtin::Bytes, []) => {
                self.heap.add_bytes(&[]).map(PickleValue::Bytes)
            }
            (Builtin::ByteArray, &[from]) => match self.heap.get(from) {
                PickleValue::Bytes(_) => Ok(self.heap.get(from)),
                // `bytearray(n)` would allocate n bytes: only a copy of a byte string is accepted
                _ => Err(wrong()),
            },
            // protocols 0 to 2 have no opcode for bytes: Python 3 writes `_codecs.encode(text, 'latin1')` and
            // `bytearray(text, 'latin-1')` instead
            (Builtin::Encode | Builtin::ByteArray, &[text, encoding]) => {
                let PickleValue::Text(span) = self.heap.get(text) else {
                    return Err(wrong());
                };
                let encoding = self.heap.text_of(encoding).ok_or_else(wrong)?;
                let text = self.heap.text(span);
                let stored = self.heap.encoded_text(span);
                let copy = text.len() as u64;
                let _copy = self.reader.budget().temporary(copy, COPY)?;
                let (bytes, stored) = match encoding {
                    "latin1" | "latin-1" | "iso-8859-1" | "ascii" => {
                        (latin1(text).ok_or_else(wrong)?, stored)
                    }
                    "utf-8" | "utf8" => {
                        let as_utf8 = |stored: StoredBytes| StoredBytes {
                            decoded: stored.len,
                            latin1: false,
                            ..stored
                        };
                        (text.as_bytes().to_vec(), stored.map(as_utf8))
                    }
                    _ => return Err(wrong()),
                };
                let span = match stored {
                    Some(stored) => self.heap.add_stored(&bytes, stored),
                    None => self.heap.add_bytes(&bytes),
                };
                span.map(PickleValue::Bytes)
            }
            _ => Err(wrong()),
        }
    }

    fn dict(&mut self, items: &[ValueId]) -> Result<PickleValue> {
        self.heap
            .add_container(items)
            .map(|items| PickleValue::Dict { items, class: true })
    }

    /// The keys and values, by turns, of a dict or of a sequence of pairs.
    fn items_of(&self, from: ValueId) -> Result<Option<(Vec<ValueId>, TemporaryCharge<'s>)>> {
        let budget = self.reader.budget();
        if let PickleValue::Dict { items, .. } = self.heap.get(from) {
            return copied(budget, self.heap.container(items), 0).map(Some);
        }
        let Some(pairs) = self.heap.sequence(from) else {
            return Ok(None);
        };
        let copy = budget.temporary(2 * size_of_val(pairs) as u64, COPY)?;
        let mut items = Vec::with_capacity(pairs.len() * 2);
        for &pair in pairs {
            let Some(&[key, value]) = self.heap.sequence(pair) else {
                return Ok(None);
            };
            items.extend([key, value]);
        }
        Ok(Some((items, copy)))
    }

    /// BUILD: sets the state of the object below the top of the stack. Only recorded calls that keep a state accept one.
    pub(super) fn build(&mut self) -> Result<()> {
        let state = self.pop()?;
        let object = self.top()?;
        match self.heap.get(object) {
            // attributes of a state dict, such as `_metadata` (versions of modules), are no tensors
            PickleValue::Dict { class: true, .. } => self.heap.note_attributes(object, state),
            PickleValue::Call(index) => {
                let call = self.heap.call(index);
                let takes = matches!(
                    call.callee,
                    PickleValue::ScriptClass(_)
                        | PickleValue::OpaqueGlobal(_)
                        | PickleValue::Global(
                            Global::TensorClass
                                | Global::Torchao(_)
                                | Global::Distributed(_)
                                | Global::Numpy(NumpyGlobal::Reconstruct | NumpyGlobal::Dtype)
                        )
                );
                // a second state could replace the data of a tensor that was already described
                if !takes || call.state.is_some() {
                    return Err(Error::malformed(
                        "the pickle sets the state of a value that has none",
                    ));
                }
                self.heap.set_state(index, state);
                Ok(())
            }
            _ => Err(Error::malformed(
                "the pickle sets the state of a value that has none",
            )),
        }
    }

    pub(super) fn persistent(&mut self) -> Result<()> {
        let id = self.pop()?;
        match self.heap.get(id) {
            // `('module', class, source file, source)`, where a whole module was saved; `torch.load` returns the class too
            PickleValue::Tuple(span)
                if self.opaque
                    && let &[kind, class, _, _] = self.heap.items(span)
                    && self.heap.text_of(kind) == Some("module") =>
            {
                self.push(class)
            }
            PickleValue::Tuple(_) => self.push_value(PickleValue::Persistent(id)),
            _ => Err(Error::malformed("the persistent id is not a tuple")),
        }
    }
}

/// The class of what a builtin constructs, where it is not the most frequent one.
fn exact_class(builtin: Builtin) -> Option<ExactClass> {
    match builtin {
        Builtin::ByteArray => Some(ExactClass::ByteArray),
        Builtin::FrozenSet => Some(ExactClass::FrozenSet),
        Builtin::Counter => Some(ExactClass::Counter),
        Builtin::DefaultDict => Some(ExactClass::DefaultDict),
        Builtin::OrderedDict | Builtin::Set | Builtin::Bytes | Builtin::Encode => None,
    }
}

/// A copy of a list with room for `more` items, which is charged while the second value lives.
fn copied<'b>(
    budget: &'b Budget,
    items: &[ValueId],
    more: usize,
) -> Result<(Vec<ValueId>, TemporaryCharge<'b>)> {
    let room = items.len() + more;
    let charge = budget.temporary((room * size_of::<ValueId>()) as u64, COPY)?;
    let mut copy = Vec::with_capacity(room);
    copy.extend_from_slice(items);
    Ok((copy, charge))
}

/// Encodes text in Latin-1; `None` if a character does not fit.
fn latin1(text: &str) -> Option<Vec<u8>> {
    // as long as it was charged: a list that is collected from options doubles as it grows
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        bytes.push(u8::try_from(u32::from(c)).ok()?);
    }
    Some(bytes)
}
