//! The closed table of globals: each global that a pickle may name, and its meaning. This table is the security boundary
//! of the pickle interpreter.
//!
//! Source: `torch/_weights_only_unpickler.py` (`_get_allowed_globals`), widened by the classes of
//! plain data that real checkpoints contain (numpy scalars and arrays, `defaultdict`), by the classes of torchao and by
//! the functions that TorchScript archives name. A name in the table becomes a [`Global`], a tag without behaviour. Every
//! other name is refused with an error that states it. To accept a new global, add it here. If it may be called,
//! add it to the list in `calls.rs` too, and interpret the call in `pth/rebuild.rs`.

use super::distributed::DistributedClass;
pub(crate) use super::dtypes::TorchDtype;
pub(crate) use super::torchao::TorchaoClass;

/// A global with a known meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Global {
    /// A class or function whose call the machine carries out, because its result is plain data.
    Builtin(Builtin),
    /// A class that is only named and never called, such as `dict` in `defaultdict(dict)`.
    Class,
    /// A function whose call describes a tensor.
    Rebuild(RebuildFunction),
    /// A storage class and the dtype of its elements; `None` for untyped bytes.
    Storage(Option<TorchDtype>),
    Dtype(TorchDtype),
    /// A quantisation scheme.
    Scheme(QuantScheme),
    GetLayout,
    Size,
    Device,
    Complex,
    /// `Parameter`, `Buffer`, `Tensor` and the tensor classes of early versions.
    TensorClass,
    Numpy(NumpyGlobal),
    /// A function of TorchScript that marks its first argument with a type and returns it.
    TypeMark,
    /// A class of torchao: of tensors or of their attributes.
    Torchao(TorchaoClass),
    /// A class of torch.distributed.checkpoint, which only its `.metadata` may name.
    Distributed(DistributedClass),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    OrderedDict,
    Counter,
    DefaultDict,
    Set,
    FrozenSet,
    ByteArray,
    /// `bytes`, which protocols up to 2 call without arguments for an empty byte string.
    Bytes,
    Encode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebuildFunction {
    /// `_rebuild_tensor`, of PyTorch before 0.4.
    Plain,
    /// `_rebuild_tensor_v2`.
    Strided,
    /// `_rebuild_tensor_v3`, which has the dtype as an argument.
    StridedAs,
    Parameter,
    Quantized,
    Sparse,
    Meta,
    Wrapper,
    FromType,
    FromCpu,
    FromNumpy,
    Nested,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantScheme {
    PerTensor,
    PerChannel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumpyGlobal {
    Scalar,
    Reconstruct,
    /// `_frombuffer`, which protocol 5 calls for arrays.
    FromBuffer,
    Dtype,
    Array,
    /// A class such as `numpy.float64` or `numpy.dtypes.Float64DType`, which is named and never called.
    Class,
}

/// The meaning of a global; `None` if it is not in the table.
pub(super) fn resolve(module: &str, name: &str) -> Option<Global> {
    match module {
        "torch._utils" => rebuild(name).map(Global::Rebuild),
        "torch" => torch(name),
        "collections" => match name {
            "OrderedDict" => Some(Global::Builtin(Builtin::OrderedDict)),
            "Counter" => Some(Global::Builtin(Builtin::Counter)),
            "defaultdict" => Some(Global::Builtin(Builtin::DefaultDict)),
            _ => None,
        },
        "torch.nn.parameter" => {
            matches!(name, "Parameter" | "Buffer").then_some(Global::TensorClass)
        }
        "torch._tensor" => {
            (name == "_rebuild_from_type_v2").then_some(Global::Rebuild(RebuildFunction::FromType))
        }
        "torch.storage" => match name {
            "UntypedStorage" | "_UntypedStorage" | "TypedStorage" | "_TypedStorage" => {
                Some(Global::Storage(None))
            }
            _ => None,
        },
        // files of early versions name the device in the storage class
        "torch.cuda" => storage(name).or_else(|| tensor_class(name)),
        "torch.sparse" | "torch.cuda.sparse" => tensor_class(name),
        "torch.serialization" => (name == "_get_layout").then_some(Global::GetLayout),
        // TorchScript marks lists and tensors by functions that return their argument
        "torch.jit._pickle" => match name {
            "build_intlist"
            | "build_doublelist"
            | "build_boollist"
            | "build_tensorlist"
            | "build_tensor_from_id"
            | "restore_type_tag" => Some(Global::TypeMark),
            _ => None,
        },
        // by which Python 3 writes bytes in protocols up to 2
        "_codecs" => (name == "encode").then_some(Global::Builtin(Builtin::Encode)),
        // Python 3 writes the older name in protocols up to 2 (`fix_imports`)
        "builtins" | "__builtin__" => builtin(name),
        // numpy 2 renamed the module
        "numpy.core.multiarray" | "numpy._core.multiarray" => match name {
            "scalar" => Some(Global::Numpy(NumpyGlobal::Scalar)),
            "_reconstruct" => Some(Global::Numpy(NumpyGlobal::Reconstruct)),
            _ => None,
        },
        "numpy.core.numeric" | "numpy._core.numeric" => {
            (name == "_frombuffer").then_some(Global::Numpy(NumpyGlobal::FromBuffer))
        }
        "numpy" => match name {
            "dtype" => Some(Global::Numpy(NumpyGlobal::Dtype)),
            "ndarray" => Some(Global::Numpy(NumpyGlobal::Array)),
            _ => NUMPY_CLASSES
                .contains(&name)
                .then_some(Global::Numpy(NumpyGlobal::Class)),
        },
        "numpy.dtypes" => NUMPY_DTYPES
            .contains(&name)
            .then_some(Global::Numpy(NumpyGlobal::Class)),
        // torchao moves its classes between modules, so the class name alone decides; the name still has to be in the
        // table
        _ if module.starts_with("torchao.") => TorchaoClass::named(name).map(Global::Torchao),
        _ => None,
    }
}

static NUMPY_CLASSES: &[&str] = &[
    "bool",
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "longdouble",
    "complex64",
    "complex128",
    "str_",
    "bytes_",
    "datetime64",
    "timedelta64",
    "void",
];

static NUMPY_DTYPES: &[&str] = &[
    "BoolDType",
    "Int8DType",
    "Int16DType",
    "Int32DType",
    "Int64DType",
    "UInt8DType",
    "UInt16DType",
    "UInt32DType",
    "UInt64DType",
    "Float16DType",
    "Float32DType",
    "Float64DType",
    "LongDoubleDType",
    "Complex64DType",
    "Complex128DType",
    "StrDType",
    "BytesDType",
    "DateTime64DType",
    "TimeDelta64DType",
    "VoidDType",
];

fn rebuild(name: &str) -> Option<RebuildFunction> {
    Some(match name {
        "_rebuild_tensor" => RebuildFunction::Plain,
        "_rebuild_tensor_v2" => RebuildFunction::Strided,
        "_rebuild_tensor_v3" => RebuildFunction::StridedAs,
        "_rebuild_parameter" | "_rebuild_parameter_with_state" => RebuildFunction::Parameter,
        "_rebuild_qtensor" => RebuildFunction::Quantized,
        "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor" => RebuildFunction::Sparse,
        "_rebuild_meta_tensor_no_storage" => RebuildFunction::Meta,
        "_rebuild_nested_tensor" => RebuildFunction::Nested,
        "_rebuild_wrapper_subclass" => RebuildFunction::Wrapper,
        "_rebuild_device_tensor_from_cpu_tensor" => RebuildFunction::FromCpu,
        "_rebuild_device_tensor_from_numpy" | "_rebuild_xla_tensor" => RebuildFunction::FromNumpy,
        _ => return None,
    })
}

fn torch(name: &str) -> Option<Global> {
    match name {
        "Size" => Some(Global::Size),
        "device" => Some(Global::Device),
        "Tensor" => Some(Global::TensorClass),
        "UntypedStorage" | "_UntypedStorage" => Some(Global::Storage(None)),
        "per_tensor_affine" | "per_tensor_symmetric" => {
            Some(Global::Scheme(QuantScheme::PerTensor))
        }
        "per_channel_affine" | "per_channel_symmetric" | "per_channel_affine_float_qparams" => {
            Some(Global::Scheme(QuantScheme::PerChannel))
        }
        // dtypes such as `torch.float32` are pickled as globals
        _ => storage(name)
            .or_else(|| TorchDtype::named(name).map(Global::Dtype))
            .or_else(|| tensor_class(name)),
    }
}

fn storage(name: &str) -> Option<Global> {
    if !name.ends_with("Storage") {
        return None;
    }
    // an empty storage name stands for dtypes without a class, which `ends_with` above excludes
    TorchDtype::of_storage(name).map(|dtype| Global::Storage(Some(dtype)))
}

fn tensor_class(name: &str) -> Option<Global> {
    let element = name.strip_suffix("Tensor")?;
    let known = [
        "Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool",
    ];
    known.contains(&element).then_some(Global::TensorClass)
}

fn builtin(name: &str) -> Option<Global> {
    Some(match name {
        "set" => Global::Builtin(Builtin::Set),
        "frozenset" => Global::Builtin(Builtin::FrozenSet),
        "bytearray" => Global::Builtin(Builtin::ByteArray),
        "bytes" => Global::Builtin(Builtin::Bytes),
        "complex" => Global::Complex,
        "dict" | "list" | "tuple" | "int" | "float" | "str" | "bool" => Global::Class,
        _ => return None,
    })
}
