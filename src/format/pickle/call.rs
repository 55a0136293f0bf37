//! Globals and calls: named, written down, never run.

use crate::error::{Error, ErrorKind, Result};

use super::heap::{Id, Span, Value};
use super::world::{self, Builtin, Global, Numpy};
use super::{Machine, line};

impl Machine<'_, '_> {
    /// The value of a global, or the error that refuses it by name.
    fn global(&mut self, module: &str, name: &str) -> Result<Value> {
        if let Some(global) = world::resolve(module, name) {
            return Ok(Value::Global(global));
        }
        if self.script && (module == "__torch__" || module.starts_with("__torch__.")) {
            let full = format!("{module}.{name}");
            return Ok(Value::Script(self.heap.add_text(&full)?));
        }
        Err(Error::new(ErrorKind::RefusedGlobal {
            module: module.into(),
            name: name.into(),
        }))
    }

    pub(super) fn global_line(&mut self) -> Result<Value> {
        let module = line::take(&mut self.reader)?;
        let name = line::take(&mut self.reader)?;
        self.global(&module, &name)
    }

    pub(super) fn stack_global(&mut self) -> Result<()> {
        let (name, module) = (self.pop()?, self.pop()?);
        let (Some(module), Some(name)) = (self.heap.text_of(module), self.heap.text_of(name))
        else {
            return Err(Error::malformed("a global whose name is not text"));
        };
        let (module, name) = (module.to_owned(), name.to_owned());
        let value = self.global(&module, &name)?;
        self.value(value)
    }

    /// A callable and the tuple of its arguments lie on the stack.
    pub(super) fn reduce(&mut self) -> Result<()> {
        let (args, callee) = (self.pop()?, self.pop()?);
        let Value::Tuple(args) = self.heap.get(args) else {
            return Err(Error::malformed("a call whose arguments are not a tuple"));
        };
        self.call(callee, args)
    }

    pub(super) fn newobj_ex(&mut self) -> Result<()> {
        let named = self.pop()?;
        match self.heap.get(named) {
            Value::Dict { items, .. } if self.heap.open(items).is_empty() => self.reduce(),
            _ => Err(Error::unsupported(
                "a pickle that makes an object with named arguments",
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
            return Err(Error::malformed("an object without a class"));
        };
        let args = self.heap.add_items(args)?;
        self.stack.truncate(from);
        self.call(class, args)
    }

    /// Builtins become plain values here; all else is written down.
    fn call(&mut self, callee: Id, args: Span) -> Result<()> {
        let callee = self.heap.get(callee);
        let value = match callee {
            Value::Global(Global::Builtin(builtin)) => self.builtin(builtin, args)?,
            Value::Global(
                Global::Rebuild(_)
                | Global::GetLayout
                | Global::Size
                | Global::Device
                | Global::Complex
                | Global::TensorClass
                | Global::Typed
                | Global::Torchao(_)
                | Global::Numpy(Numpy::Scalar | Numpy::Reconstruct | Numpy::Dtype),
            )
            | Value::Script(_) => self.heap.add_call(callee, args)?,
            _ => {
                return Err(Error::malformed(
                    "the pickle calls something that cannot be called",
                ));
            }
        };
        self.value(value)
    }

    fn builtin(&mut self, builtin: Builtin, args: Span) -> Result<Value> {
        let args = self.heap.items(args).to_vec();
        let wrong = || {
            Error::malformed(format!(
                "{builtin:?} with arguments that no pickle of data gives it"
            ))
        };
        match (builtin, &args[..]) {
            (Builtin::OrderedDict | Builtin::Counter, []) | (Builtin::DefaultDict, [] | [_]) => {
                self.dict(&[])
            }
            (Builtin::OrderedDict | Builtin::Counter, &[from])
            | (Builtin::DefaultDict, &[_, from]) => {
                let items = self.items_of(from).ok_or_else(wrong)?;
                self.dict(&items)
            }
            (Builtin::Set, []) => self.heap.add_open(&[]).map(Value::Set),
            (Builtin::Set, &[from]) => {
                let items = self.heap.sequence(from).ok_or_else(wrong)?.to_vec();
                self.heap.add_open(&items).map(Value::Set)
            }
            (Builtin::ByteArray, []) => self.heap.add_bytes(&[]).map(Value::Bytes),
            (Builtin::ByteArray, &[from]) => match self.heap.get(from) {
                Value::Bytes(_) => Ok(self.heap.get(from)),
                // not a number: that would be a length to allocate
                _ => Err(wrong()),
            },
            (Builtin::Encode | Builtin::ByteArray, &[text, encoding]) => {
                let Value::Text(text) = self.heap.get(text) else {
                    return Err(wrong());
                };
                let encoding = self.heap.text_of(encoding).ok_or_else(wrong)?;
                let text = self.heap.text(text);
                let bytes = match encoding {
                    "latin1" | "latin-1" | "iso-8859-1" | "ascii" => {
                        latin1(text).ok_or_else(wrong)?
                    }
                    "utf-8" | "utf8" => text.as_bytes().to_vec(),
                    _ => return Err(wrong()),
                };
                self.heap.add_bytes(&bytes).map(Value::Bytes)
            }
            _ => Err(wrong()),
        }
    }

    fn dict(&mut self, items: &[Id]) -> Result<Value> {
        self.heap
            .add_open(items)
            .map(|items| Value::Dict { items, class: true })
    }

    /// Keys and values of a dict or of a sequence of pairs.
    fn items_of(&self, from: Id) -> Option<Vec<Id>> {
        if let Value::Dict { items, .. } = self.heap.get(from) {
            return Some(self.heap.open(items).to_vec());
        }
        let pairs = self.heap.sequence(from)?;
        let mut items = Vec::with_capacity(pairs.len() * 2);
        for &pair in pairs {
            let &[key, value] = self.heap.sequence(pair)? else {
                return None;
            };
            items.extend([key, value]);
        }
        Some(items)
    }

    /// Gives an object its state.
    pub(super) fn build(&mut self) -> Result<()> {
        let state = self.pop()?;
        let object = self.top()?;
        match self.heap.get(object) {
            // attributes of a state dict, such as `_metadata`: versions of modules, not data
            Value::Dict { class: true, .. } => Ok(()),
            Value::Call(index) => {
                let call = self.heap.call(index);
                let takes = matches!(
                    call.callee,
                    Value::Script(_)
                        | Value::Global(
                            Global::TensorClass
                                | Global::Torchao(_)
                                | Global::Numpy(Numpy::Reconstruct | Numpy::Dtype)
                        )
                );
                if !takes || call.state.is_some() {
                    return Err(Error::malformed(
                        "the pickle gives a state to something that takes none",
                    ));
                }
                self.heap.set_state(index, state);
                Ok(())
            }
            _ => Err(Error::malformed(
                "the pickle gives a state to something that takes none",
            )),
        }
    }

    pub(super) fn persistent(&mut self) -> Result<()> {
        let id = self.pop()?;
        match self.heap.get(id) {
            Value::Tuple(_) => self.value(Value::Persistent(id)),
            _ => Err(Error::malformed("a persistent id that is not a tuple")),
        }
    }
}

fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars()
        .map(|c| u8::try_from(u32::from(c)).ok())
        .collect()
}
