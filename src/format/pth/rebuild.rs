//! The calls of a pickle, read as descriptions of tensors.
//!
//! Source: `torch/_utils.py` and `torch/_tensor.py`. Each call is interpreted once, in the order the
//! pickle made them, so that the tensors inside a call are known when it is reached.

use std::rc::Rc;

use crate::Dtype;
use crate::catalog::{ByteRange, Layout, Member, TensorInfo};
use crate::error::{Error, ErrorKind, Result};
use crate::format::pickle::heap::{Call, Heap, Id, Value};
use crate::format::pickle::world::{Global, Rebuild, TorchDtype};
use crate::metadata;

use super::geometry::{Geometry, described, dims};
use super::storage::{Storage, StorageId, Storages};
use super::subclass::{self, Subclass};
use super::{lazy, numpy, quantized, sparse};

/// What a call stands for.
#[derive(Clone, Debug)]
pub(super) enum Made {
    /// Index into [`Rebuilt::tensors`].
    Tensor(usize),
    /// Another value, marked with a type.
    Same(Id),
    /// Something to show and not to load.
    Shown(metadata::Value),
    /// A TorchScript object: what it holds.
    Object(Option<Id>),
    /// A tensor that cannot be read, and why.
    Refused(Rc<str>),
    /// A tensor that is several.
    Subclass(Rc<Subclass>),
}

/// The calls of a heap, interpreted.
pub(super) struct Rebuilt {
    /// Tensors without names, each one once.
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) made: Vec<Made>,
    pub(super) members: Vec<Member>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn rebuild<'h>(heap: &'h Heap<'_>, storages: Storages<'h, '_>) -> Result<Rebuilt> {
    let mut work = Work {
        heap,
        storages,
        last: None,
        tensors: Vec::with_capacity(heap.calls().min(1024)),
        made: Vec::with_capacity(heap.calls()),
        warnings: Vec::new(),
    };
    heap.budget().memory(
        (heap.calls() * size_of::<Made>()) as u64,
        "the calls of the pickle",
    )?;
    heap.budget()
        .steps(heap.len() as u64, "what the pickle builds")?;
    for id in heap.ids() {
        match heap.get(id) {
            Value::Call(index) if index as usize == work.made.len() => {
                let made = work.call(heap.call(index))?;
                work.made.push(made);
            }
            Value::Persistent(tuple) => {
                work.storage(tuple)?;
            }
            _ => {}
        }
    }
    Ok(Rebuilt {
        tensors: work.tensors,
        made: work.made,
        members: work.storages.members,
        warnings: work.warnings,
    })
}

pub(super) struct Work<'h, 'b, 'a> {
    pub(super) heap: &'h Heap<'b>,
    storages: Storages<'h, 'a>,
    /// The storage that was found last: mostly the one of the next tensor.
    last: Option<(Id, Storage)>,
    tensors: Vec<TensorInfo>,
    made: Vec<Made>,
    warnings: Vec<String>,
}

impl<'h> Work<'h, '_, '_> {
    fn call(&mut self, call: Call) -> Result<Made> {
        let heap = self.heap;
        let args = heap.items(call.args);
        let global = match call.callee {
            Value::Global(global) => global,
            _ => return Ok(Made::Object(call.state)),
        };
        match global {
            Global::Rebuild(Rebuild::FromType) => self.typed(args),
            Global::Rebuild(how) => self.rebuild(how, args),
            Global::TensorClass => self.object(args, call.state),
            Global::Typed => match args {
                [value, ..] => Ok(self.made(*value).cloned().unwrap_or(Made::Same(*value))),
                [] => Err(wrong("a TorchScript type mark")),
            },
            Global::Size => match args {
                [sizes] => Ok(Made::Same(*sizes)),
                _ => Err(wrong("torch.Size")),
            },
            Global::Device => {
                let parts: Vec<String> = args
                    .iter()
                    .map(|&id| super::leaf::plain_text(heap, id))
                    .collect();
                Ok(shown(parts.join(":")))
            }
            Global::GetLayout => sparse::layout_name(heap, args).map(shown),
            Global::Complex => Ok(shown(match args {
                [re] => format!("({}+0j)", super::leaf::plain_text(heap, *re)),
                [re, im] => {
                    let (re, im) = (
                        super::leaf::plain_text(heap, *re),
                        super::leaf::plain_text(heap, *im),
                    );
                    let plus = if im.starts_with('-') { "" } else { "+" };
                    format!("({re}{plus}{im}j)")
                }
                _ => return Err(wrong("complex")),
            })),
            // says how to multiply by a tensor
            Global::Torchao(_) => Ok(Made::Object(None)),
            Global::Numpy(kind) => numpy::shown(heap, kind, args, call.state).map(Made::Shown),
            _ => Err(wrong("a call")),
        }
    }

    #[inline]
    fn rebuild(&mut self, how: Rebuild, args: &'h [Id]) -> Result<Made> {
        let info = match (how, args) {
            (Rebuild::Plain, &[storage, offset, size, stride]) => {
                self.strided(storage, [offset, size, stride], None)?
            }
            (Rebuild::Strided, &[storage, offset, size, stride, _, _, ref bits @ ..])
                if bits.len() <= 1 =>
            {
                let info = self.strided(storage, [offset, size, stride], None)?;
                lazy::apply(self.heap, info, bits.first())?
            }
            (Rebuild::StridedAs, &[storage, offset, size, stride, _, _, dtype, ref bits @ ..])
                if bits.len() <= 1 =>
            {
                let dtype = self.dtype(dtype)?;
                let info = self.strided(storage, [offset, size, stride], Some(dtype))?;
                lazy::apply(self.heap, info, bits.first())?
            }
            (Rebuild::Parameter, &[data, _, _] | &[data, _, _, _]) => return self.same(data),
            (Rebuild::FromCpu, &[data, dtype, _, _]) => {
                let dtype = self.dtype(dtype)?;
                let tensor = self.tensor(data)?;
                if dtype
                    .dtype()
                    .is_some_and(|dtype| tensor.encoding != crate::Encoding::Plain(dtype))
                {
                    let stored = tensor.encoding.to_string();
                    self.warn(format!(
                        "PyTorch would turn a tensor stored as {stored} into torch.{}",
                        dtype.name()
                    ));
                }
                return self.same(data);
            }
            (Rebuild::Quantized, &[storage, offset, size, stride, params, _, _]) => {
                match self.strided(storage, [offset, size, stride], None) {
                    Ok(info) => quantized::apply(self, info, params)?,
                    // of this tensor: the others can be read
                    Err(e) => match e.kind() {
                        ErrorKind::Unsupported(why) => {
                            return Ok(Made::Refused(why.as_str().into()));
                        }
                        _ => return Err(e),
                    },
                }
            }
            (Rebuild::Sparse, &[layout, data]) => sparse::rebuild(self, layout, data)?,
            (Rebuild::Meta, &[dtype, size, stride, _])
            | (Rebuild::Wrapper, &[_, dtype, size, stride, _, _, _, _]) => {
                let (dtype, shape) = (self.dtype(dtype)?, dims(self.heap, size, "size")?);
                if dims(self.heap, stride, "stride")?.len() != shape.len() {
                    return Err(Error::malformed(
                        "a tensor with more sizes than strides, or fewer",
                    ));
                }
                let mut info = described(shape, dtype)?;
                info.layout = Layout::Absent;
                info
            }
            (Rebuild::Nested, _) => return Err(Error::unsupported("nested (jagged) tensors")),
            (Rebuild::FromNumpy, _) => {
                return Err(Error::unsupported(
                    "a tensor that was saved as a numpy array inside the pickle",
                ));
            }
            _ => return Err(wrong("a tensor's description")),
        };
        self.add(info)
    }

    #[inline]
    fn add(&mut self, info: TensorInfo) -> Result<Made> {
        self.heap
            .budget()
            .memory(2 * size_of::<TensorInfo>() as u64, "the pickle's tensors")?;
        if info.encoding == crate::Encoding::Plain(Dtype::F4) {
            self.warn("torch.float4_e2m1fn_x2 counts pairs: the last dimension of F4 tensors is shown doubled".into());
        }
        self.tensors.push(info);
        Ok(Made::Tensor(self.tensors.len() - 1))
    }

    /// `_rebuild_from_type_v2(func, type, args, state)`: a tensor with a class and attributes.
    fn typed(&mut self, args: &'h [Id]) -> Result<Made> {
        let &[func, class, inner, attributes] = args else {
            return Err(wrong("a tensor's description"));
        };
        match (self.heap.get(func), self.heap.get(inner)) {
            (Value::Global(Global::Rebuild(how)), Value::Tuple(inner))
                if how != Rebuild::FromType =>
            {
                let inner = self.heap.items(inner);
                match (how, self.heap.get(class), inner) {
                    (
                        Rebuild::Wrapper,
                        Value::Global(Global::Torchao(class)),
                        &[_, _, size, ..],
                    ) if class.is_tensor() => Ok(Made::Subclass(Rc::new(subclass::rebuild(
                        self, class, size, attributes,
                    )?))),
                    _ => self.rebuild(how, inner),
                }
            }
            _ => Err(wrong("a tensor with attributes")),
        }
    }

    /// A tensor or parameter made by its class: data in the arguments, or a state from before 0.4.
    fn object(&mut self, args: &'h [Id], state: Option<Id>) -> Result<Made> {
        match (args, state.map(|state| self.heap.sequence(state))) {
            ([data] | [data, _], None) => self.same(*data),
            ([], Some(Some(&[storage, offset, size, stride]))) => {
                let info = self.strided(storage, [offset, size, stride], None)?;
                self.add(info)
            }
            ([], Some(Some(_))) => Err(Error::unsupported("variables of PyTorch before 0.4")),
            _ => Err(wrong("a tensor's class")),
        }
    }

    #[inline]
    fn strided(
        &mut self,
        storage: Id,
        [offset, size, stride]: [Id; 3],
        dtype: Option<TorchDtype>,
    ) -> Result<TensorInfo> {
        let Value::Persistent(id) = self.heap.get(storage) else {
            return Err(Error::malformed("a tensor whose storage is not a storage"));
        };
        let storage = self.storage(id)?;
        let dtype = dtype.or(storage.dtype);
        let dtype = dtype
            .ok_or_else(|| Error::malformed("a tensor of an untyped storage, without a dtype"))?;
        let geometry = Geometry::parse(self.heap, offset, size, stride)?;
        geometry.place(
            &storage,
            &self.storages.members[storage.member as usize],
            dtype,
        )
    }

    /// The storage that a persistent id means.
    fn storage(&mut self, tuple: Id) -> Result<Storage> {
        match self.last {
            Some((id, storage)) if id == tuple => Ok(storage),
            _ => {
                let storage = self.storages.find(&StorageId::parse(self.heap, tuple)?)?;
                self.last = Some((tuple, storage));
                Ok(storage)
            }
        }
    }

    fn dtype(&self, id: Id) -> Result<TorchDtype> {
        match self.heap.get(id) {
            Value::Global(Global::Dtype(dtype)) => Ok(dtype),
            _ => Err(Error::malformed(
                "a tensor whose dtype is not a torch dtype",
            )),
        }
    }

    pub(super) fn made(&self, id: Id) -> Option<&Made> {
        match self.heap.get(id) {
            Value::Call(index) => self.made.get(index as usize),
            _ => None,
        }
    }

    /// A tensor that was made before.
    pub(super) fn tensor(&self, id: Id) -> Result<&TensorInfo> {
        match self.made(id) {
            Some(&Made::Tensor(index)) => Ok(&self.tensors[index]),
            _ => Err(Error::malformed(
                "something that should be a tensor is not one",
            )),
        }
    }

    /// A tensor inside a tensor: one with bytes of its own and nothing inside it.
    pub(super) fn part(&self, id: Id, name: &str) -> Result<TensorInfo> {
        let info = self.tensor(id)?;
        if matches!(info.layout, Layout::Sparse(_) | Layout::Absent) || info.quantizer.is_some() {
            return Err(Error::unsupported(
                "a tensor whose parts are not plain tensors",
            ));
        }
        self.heap
            .budget()
            .memory(size_of::<TensorInfo>() as u64, "a tensor's parts")?;
        Ok(TensorInfo {
            name: name.into(),
            ..info.clone()
        })
    }

    fn same(&self, data: Id) -> Result<Made> {
        match self.made(data) {
            Some(made @ (Made::Tensor(_) | Made::Subclass(_) | Made::Refused(_))) => {
                Ok(made.clone())
            }
            _ => Err(wrong("a parameter")),
        }
    }

    pub(super) fn warn(&mut self, warning: String) {
        if self.warnings.len() < 16 && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

fn shown(text: impl Into<Box<str>>) -> Made {
    Made::Shown(metadata::Value::text(text))
}

/// The bytes of a tensor that has none of its own.
pub(super) fn nowhere(part: &TensorInfo) -> ByteRange {
    ByteRange {
        len: 0,
        ..part.bytes
    }
}

pub(super) fn wrong(what: &str) -> Error {
    Error::malformed(format!(
        "{what} with arguments that PyTorch does not give it"
    ))
}
