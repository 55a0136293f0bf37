//! Interprets the recorded calls of a pickle as descriptions of tensors.
//!
//! Source: `torch/_utils.py` and `torch/_tensor.py` define each function and its arguments. Nothing is called here:
//! `_rebuild_tensor_v2(storage, offset, size, stride, …)` becomes a `TensorInfo` that names a byte range.
//!
//! Each call is interpreted once, in the order in which the pickle recorded the calls. An argument exists before the
//! call that uses it, so the tensors inside a call are already interpreted when the call is reached, and no recursion
//! is needed.

mod arguments;
pub(super) mod numpy;
pub(super) mod opaque;
mod quantized;
pub(super) mod sparse;
pub(super) mod subclass;

use std::rc::Rc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::read::catalog::metadata;
use crate::read::catalog::{ByteRange, Encoding, Layout, Member, TensorInfo};
use crate::read::format::pickle::globals::{Global, RebuildFunction, TorchDtype};
use crate::read::format::pickle::value_heap::{
    PickleValue, PoolRange, RecordedCall, ValueHeap, ValueId,
};

use super::geometry::{StridedView, dims, unplaced_tensor};
use super::storage::{Storage, Storages};
use super::view_flags;

use numpy::PickleBytes;
use opaque::{OpaqueCounts, unknown_class};
use subclass::TensorSubclass;

/// The value that a call would have returned, as a description.
#[derive(Clone, Debug)]
pub(super) enum CallResult {
    /// Index into [`RebuiltTensors::tensors`].
    Tensor(usize),
    /// The value with this id: the call marks it with a type or wraps it.
    PassThrough(ValueId),
    /// A value for the metadata of the catalog; it cannot be loaded.
    Metadata(metadata::Value),
    /// A value that can neither be loaded nor shown: what it is, in the plural, and a description for the metadata.
    NotShown(&'static str, metadata::Value),
    /// A TorchScript object, with its state if it has one.
    Object(Option<ValueId>),
    /// An object of an unknown class, or what an unknown function would have returned.
    Opaque,
    /// A tensor that cannot be read, with the reason.
    Refused(Rc<str>),
    /// A tensor of a subclass, which is stored as several tensors.
    Subclass(Rc<TensorSubclass>),
}

/// The interpreted calls of one pickle.
pub(super) struct RebuiltTensors {
    /// The tensors, each once. Their names are still empty: `flatten.rs` assigns them.
    pub(super) tensors: Vec<TensorInfo>,
    /// One result per recorded call, in the same order.
    pub(super) results: Vec<CallResult>,
    pub(super) members: Vec<Member>,
    /// Per member, the persistent id that was located: the id of its first use, which need not be the first in the pickle.
    pub(super) storage_ids: Vec<ValueId>,
    /// The names of the unknown globals, in the order in which they occur, and the number of objects of each.
    pub(super) opaque: Vec<(PoolRange, u64)>,
    pub(super) warnings: Vec<String>,
}

/// Interprets all calls of the heap and locates the storages that they use.
pub(super) fn rebuild<'h>(
    heap: &'h ValueHeap<'_>,
    storages: Storages<'h, '_>,
    pickle: PickleBytes,
) -> Result<RebuiltTensors> {
    heap.budget().memory(
        (heap.call_count() * size_of::<CallResult>()) as u64,
        "the calls of the pickle",
    )?;
    let mut interpreter = CallInterpreter {
        heap,
        pickle,
        storages,
        last_storage: None,
        tensors: Vec::new(),
        results: Vec::with_capacity(heap.call_count()),
        warnings: Vec::new(),
    };
    let mut opaque = OpaqueCounts::default();
    heap.budget()
        .steps(heap.len() as u64, "the values of the pickle")?;
    for id in heap.ids() {
        match heap.get(id) {
            PickleValue::Call(index) if index as usize == interpreter.results.len() => {
                let call = heap.call(index);
                if let Some(name) = call.opaque() {
                    opaque.count(heap, name, 1)?;
                }
                let result = interpreter.interpret_or_refuse(call)?;
                if let CallResult::Metadata(value) | CallResult::NotShown(_, value) = &result {
                    heap.budget().memory(value.memory(), "the metadata")?;
                }
                if let CallResult::Refused(why) = &result {
                    heap.budget().text(why.len(), "the refused tensors")?;
                }
                interpreter.results.push(result);
            }
            // a storage that no tensor uses is located too, so that a missing one is an error
            PickleValue::Persistent(tuple) => {
                interpreter.storage(tuple)?;
            }
            PickleValue::OpaqueGlobal(name) => opaque.count(heap, name, 0)?,
            _ => {}
        }
    }
    Ok(RebuiltTensors {
        tensors: interpreter.tensors,
        results: interpreter.results,
        members: interpreter.storages.members,
        storage_ids: interpreter.storages.ids,
        opaque: opaque.counts,
        warnings: interpreter.warnings,
    })
}

/// The tensors and call results found so far.
pub(super) struct CallInterpreter<'h, 'b, 'a> {
    pub(super) heap: &'h ValueHeap<'b>,
    pub(super) pickle: PickleBytes,
    storages: Storages<'h, 'a>,
    /// The storage that was located last. Consecutive tensors often share one, so this saves a parse and a lookup.
    last_storage: Option<(ValueId, Storage)>,
    tensors: Vec<TensorInfo>,
    results: Vec<CallResult>,
    warnings: Vec<String>,
}

impl<'h> CallInterpreter<'h, '_, '_> {
    /// Interprets one call. A tensor whose description depends on an opaque object is refused, not its file.
    fn interpret_or_refuse(&mut self, call: RecordedCall) -> Result<CallResult> {
        let result = self.interpret(call);
        let Err(error) = result else { return result };
        if !matches!(
            error.kind(),
            ErrorKind::Malformed(_) | ErrorKind::Unsupported(_)
        ) {
            return Err(error);
        }
        let args = self.heap.items(call.args).iter();
        match self.depends_on_opaque(args.chain(&call.state).copied())? {
            Some(why) => Ok(CallResult::Refused(why.into())),
            None => Err(error),
        }
    }

    /// Interprets one call with the results of the calls before it.
    fn interpret(&mut self, call: RecordedCall) -> Result<CallResult> {
        let heap = self.heap;
        let args = heap.items(call.args);
        let global = match call.callee {
            PickleValue::Global(global) => global,
            PickleValue::OpaqueGlobal(_) => return Ok(CallResult::Opaque),
            _ => return Ok(CallResult::Object(call.state)),
        };
        match global {
            Global::Rebuild(RebuildFunction::FromType) => self.with_attributes(args),
            Global::Rebuild(how) => self.rebuild(how, args),
            Global::TensorClass => self.class_instance(args, call.state),
            Global::TypeMark => match args {
                [value, ..] => Ok(match self.result_of(*value) {
                    None | Some(CallResult::Opaque) => CallResult::PassThrough(*value),
                    Some(made) => made.clone(),
                }),
                [] => Err(unexpected_arguments("a TorchScript type mark")),
            },
            Global::Size => match args {
                [sizes] => Ok(CallResult::PassThrough(*sizes)),
                _ => Err(unexpected_arguments("torch.Size")),
            },
            Global::Device if args.len() <= 2 => {
                let parts: Vec<String> = args
                    .iter()
                    .map(|&id| super::plain_values::plain_text(heap, id))
                    .collect();
                Ok(metadata_text(parts.join(":")))
            }
            Global::GetLayout => {
                let name = sparse::layout_name(heap, args)?;
                // longer than the name of any layout
                Ok(metadata_text(&name[..name.floor_char_boundary(64)]))
            }
            Global::Complex => Ok(metadata_text(match args {
                [re] => format!("({}+0j)", super::plain_values::plain_text(heap, *re)),
                [re, im] => {
                    let (re, im) = (
                        super::plain_values::plain_text(heap, *re),
                        super::plain_values::plain_text(heap, *im),
                    );
                    let plus = if im.starts_with('-') { "" } else { "+" };
                    format!("({re}{plus}{im}j)")
                }
                _ => return Err(unexpected_arguments("complex")),
            })),
            // an option of the matrix multiplication, such as a tile size: it does not affect the stored values
            Global::Torchao(_) => Ok(CallResult::Object(None)),
            Global::Numpy(kind) => numpy::value(self, kind, args, call.state),
            _ => Err(unexpected_arguments("a call")),
        }
    }

    #[inline]
    fn rebuild(&mut self, how: RebuildFunction, args: &'h [ValueId]) -> Result<CallResult> {
        let info = match (how, args) {
            (RebuildFunction::Plain, &[storage, offset, size, stride]) => {
                self.strided(storage, [offset, size, stride], None)?
            }
            // `requires_grad` and `backward_hooks` say nothing about the bytes
            (RebuildFunction::Strided, &[storage, offset, size, stride, _, _, ref bits @ ..])
                // more arguments are of a newer PyTorch, whose meaning is unknown here: refused below
                if bits.len() <= 1 =>
            {
                let info = self.strided(storage, [offset, size, stride], None)?;
                view_flags::apply(self.heap, info, bits.first())?
            }
            (
                RebuildFunction::StridedAs,
                &[storage, offset, size, stride, _, _, dtype, ref bits @ ..],
            ) if bits.len() <= 1 => {
                let dtype = self.dtype_argument(dtype)?;
                let info = self.strided(storage, [offset, size, stride], Some(dtype))?;
                view_flags::apply(self.heap, info, bits.first())?
            }
            (RebuildFunction::Parameter, &[data, _, _] | &[data, _, _, _]) => {
                // a parameter is its data; state and hooks are not bytes
                return self.pass_through(data);
            }
            // tensors of devices without host storage (XLA, MAIA, MTIA) are pickled as a CPU tensor or an array of numpy, and
            // a dtype
            (RebuildFunction::FromCpu | RebuildFunction::FromNumpy, &[data, dtype, _, _]) => {
                let dtype = self.dtype_argument(dtype)?;
                let tensor = self.tensor_argument(data)?;
                if dtype
                    .dtype()
                    .is_some_and(|dtype| tensor.encoding != crate::read::catalog::Encoding::Plain(dtype))
                {
                    let stored = tensor.encoding.to_string();
                    self.warn(format!(
                        "a tensor is stored as {stored}, which PyTorch converts to torch.{} on loading",
                        dtype.name()
                    ));
                }
                return self.pass_through(data);
            }
            (RebuildFunction::Quantized, &[storage, offset, size, stride, params, _, _]) => {
                match self.strided(storage, [offset, size, stride], None) {
                    Ok(info) => quantized::apply(self, info, params)?,
                    // only this tensor cannot be read: it is listed as refused, and the file stays readable
                    Err(e) => match e.kind() {
                        ErrorKind::Unsupported(why) => {
                            return Ok(CallResult::Refused(why.as_str().into()));
                        }
                        _ => return Err(e),
                    },
                }
            }
            (RebuildFunction::Sparse, &[layout, data]) => sparse::rebuild(self, layout, data)?,
            (RebuildFunction::Meta, &[dtype, size, stride, _])
            | (RebuildFunction::Wrapper, &[_, dtype, size, stride, _, _, _, _]) => {
                let (dtype, shape) = (self.dtype_argument(dtype)?, dims(self.heap, size, "size")?);
                if dims(self.heap, stride, "stride")?.len() != shape.len() {
                    return Err(Error::malformed(
                        "a tensor without data has different numbers of sizes and strides",
                    ));
                }
                let mut info = unplaced_tensor(shape, dtype)?;
                info.layout = Layout::Absent;
                info
            }
            // the components have sizes of their own, so that no one shape describes the bytes
            (RebuildFunction::Nested, _) => {
                return Err(Error::unsupported("nested (jagged) tensors cannot be read"));
            }
            _ => return Err(unexpected_arguments("a tensor's description")),
        };
        self.add_tensor(info)
    }

    #[inline]
    pub(super) fn add_tensor(&mut self, info: TensorInfo) -> Result<CallResult> {
        self.heap
            .budget()
            // torch counts bytes here, ggml and safetensors count elements; the catalog has one convention for all
            // formats
            .memory(info.boxed_memory(), "the pickle's tensors")?;
        self.heap
            .budget()
            .reserve(&mut self.tensors, 1, "the pickle's tensors")?;
        if info.encoding == crate::read::catalog::Encoding::Plain(Dtype::F4) {
            self.warn("torch.float4_e2m1fn_x2 counts pairs of elements; F4 tensors are listed in elements, with twice the last dimension".into());
        }
        self.tensors.push(info);
        Ok(CallResult::Tensor(self.tensors.len() - 1))
    }

    /// `_rebuild_from_type_v2(func, type, args, state)`: a tensor with a class and attributes. The nested
    /// function is interpreted on its own arguments; it must not be `_rebuild_from_type_v2` again, which
    /// bounds the recursion at one level.
    fn with_attributes(&mut self, args: &'h [ValueId]) -> Result<CallResult> {
        let &[func, class, inner, attributes] = args else {
            return Err(unexpected_arguments("a tensor's description"));
        };
        if let PickleValue::OpaqueGlobal(name) = self.heap.get(class) {
            if let (
                PickleValue::Global(Global::Rebuild(how @ RebuildFunction::Strided)),
                PickleValue::Tuple(inner),
            ) = (self.heap.get(func), self.heap.get(inner))
                && let CallResult::Tensor(index) = self.rebuild(how, self.heap.items(inner))?
                && is_float(&self.tensors[index])
            {
                return Ok(CallResult::Tensor(index));
            }
            // the class may give other values to the bytes, as classes of quantised tensors do; a class of floats labels
            // them, as images with their origin
            return Ok(CallResult::Refused(unknown_class(self.heap, name).into()));
        }
        match (self.heap.get(func), self.heap.get(inner)) {
            (PickleValue::Global(Global::Rebuild(how)), PickleValue::Tuple(inner))
                if how != RebuildFunction::FromType =>
            {
                let inner = self.heap.items(inner);
                match (how, self.heap.get(class), inner) {
                    (
                        RebuildFunction::Wrapper,
                        PickleValue::Global(Global::Torchao(class)),
                        &[_, _, size, ..],
                    ) if class.is_tensor() => {
                        // an attribute may say how the codes are to be read
                        let values = match self.heap.get(attributes) {
                            PickleValue::Dict { items, .. } => self.heap.container(items),
                            _ => &[],
                        };
                        let values = values.iter().copied();
                        if let Some(why) = self.depends_on_opaque(values)? {
                            return Ok(CallResult::Refused(why.into()));
                        }
                        let tensor = subclass::rebuild(self, class, size, attributes)?;
                        Ok(CallResult::Subclass(Rc::new(tensor)))
                    }
                    _ => self.rebuild(how, inner),
                }
            }
            _ => Err(unexpected_arguments("a tensor with attributes")),
        }
    }

    /// A tensor or parameter constructed by its class: the data is an argument, or, before PyTorch 0.4, the state.
    fn class_instance(
        &mut self,
        args: &'h [ValueId],
        state: Option<ValueId>,
    ) -> Result<CallResult> {
        match (args, state.map(|state| self.heap.sequence(state))) {
            ([data] | [data, _], None) => self.pass_through(*data),
            ([], Some(Some(&[storage, offset, size, stride]))) => {
                let info = self.strided(storage, [offset, size, stride], None)?;
                self.add_tensor(info)
            }
            ([], Some(Some(_))) => Err(Error::unsupported(
                "variables of PyTorch before 0.4 cannot be read",
            )),
            _ => Err(unexpected_arguments("a tensor's class")),
        }
    }

    #[inline]
    fn strided(
        &mut self,
        storage: ValueId,
        [offset, size, stride]: [ValueId; 3],
        dtype: Option<TorchDtype>,
    ) -> Result<TensorInfo> {
        let PickleValue::Persistent(id) = self.heap.get(storage) else {
            return Err(Error::malformed(
                "the first argument of a tensor is not a storage",
            ));
        };
        let storage = self.storage(id)?;
        let dtype = dtype.or(storage.dtype);
        let dtype =
            dtype.ok_or_else(|| Error::malformed("a tensor in an untyped storage has no dtype"))?;
        let view = StridedView::parse(self.heap, offset, size, stride)?;
        view.locate(
            &storage,
            &self.storages.members[storage.member as usize],
            dtype,
        )
    }

    pub(super) fn warn(&mut self, warning: String) {
        // each text once, and a few of them: a file may have any number of such tensors
        if self.warnings.len() < 16 && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

fn metadata_text(text: impl Into<Box<str>>) -> CallResult {
    CallResult::Metadata(metadata::Value::text(text))
}

/// The byte range of a tensor whose data is in its parts: empty, at the place of one of them.
pub(super) fn no_bytes(part: &TensorInfo) -> ByteRange {
    ByteRange {
        len: 0,
        ..part.bytes
    }
}

/// The error for a call whose arguments do not have the number or types that its function takes.
pub(super) fn unexpected_arguments(what: &str) -> Error {
    Error::malformed(format!(
        "{what} has arguments of an unexpected number or type"
    ))
}

/// Whether the elements of a tensor are floats of 16 bits or more, which are no codes.
fn is_float(info: &TensorInfo) -> bool {
    matches!(
        info.encoding,
        Encoding::Plain(Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16)
    )
}
