//! The closed world: every global that a pickle may name, and what it stands for.
//!
//! Source: `torch/_weights_only_unpickler.py` (`_get_allowed_globals`), widened by the classes of
//! plain data that real checkpoints carry (numpy scalars and arrays, `defaultdict`), by torchao's classes and by
//! what TorchScript archives name. Naming one of these runs nothing: they are words with a fixed
//! meaning. Everything else is refused.

pub(crate) use super::dtypes::TorchDtype;
pub(crate) use super::torchao::Torchao;

/// A global with a known meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Global {
    /// Calls that the machine itself answers with a plain value.
    Builtin(Builtin),
    /// A class that is only ever named, such as `dict` in `defaultdict(dict)`.
    Class,
    /// A call that describes a tensor.
    Rebuild(Rebuild),
    /// A storage class and the dtype of its elements; `None` for untyped bytes.
    Storage(Option<TorchDtype>),
    Dtype(TorchDtype),
    /// A quantisation scheme.
    Scheme(Scheme),
    GetLayout,
    Size,
    Device,
    Complex,
    /// `Parameter`, `Buffer`, `Tensor` and the tensor classes of early versions.
    TensorClass,
    Numpy(Numpy),
    /// TorchScript's marks on a value: the value is the first argument.
    Typed,
    /// A class of tensors, or of what describes them.
    Torchao(Torchao),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    OrderedDict,
    Counter,
    DefaultDict,
    Set,
    ByteArray,
    Encode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rebuild {
    /// `_rebuild_tensor`, before 0.4.
    Plain,
    /// `_rebuild_tensor_v2`.
    Strided,
    /// `_v3`: the dtype is an argument.
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
pub(crate) enum Scheme {
    PerTensor,
    PerChannel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numpy {
    Scalar,
    Reconstruct,
    Dtype,
    Array,
    /// `numpy.float64`, `numpy.dtypes.Float64DType`: named, never called.
    Class,
}

/// What a global means, if it is one of the world's.
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
            (name == "_rebuild_from_type_v2").then_some(Global::Rebuild(Rebuild::FromType))
        }
        "torch.storage" => match name {
            "UntypedStorage" | "_UntypedStorage" | "TypedStorage" | "_TypedStorage" => {
                Some(Global::Storage(None))
            }
            _ => None,
        },
        "torch.cuda" => storage(name).or_else(|| tensor_class(name)),
        "torch.sparse" | "torch.cuda.sparse" => tensor_class(name),
        "torch.serialization" => (name == "_get_layout").then_some(Global::GetLayout),
        "torch.jit._pickle" => match name {
            "build_intlist"
            | "build_doublelist"
            | "build_boollist"
            | "build_tensorlist"
            | "build_tensor_from_id"
            | "restore_type_tag" => Some(Global::Typed),
            _ => None,
        },
        "_codecs" => (name == "encode").then_some(Global::Builtin(Builtin::Encode)),
        "builtins" | "__builtin__" => builtin(name),
        "numpy.core.multiarray" | "numpy._core.multiarray" => match name {
            "scalar" => Some(Global::Numpy(Numpy::Scalar)),
            "_reconstruct" => Some(Global::Numpy(Numpy::Reconstruct)),
            _ => None,
        },
        "numpy" => match name {
            "dtype" => Some(Global::Numpy(Numpy::Dtype)),
            "ndarray" => Some(Global::Numpy(Numpy::Array)),
            _ => NUMPY_CLASSES
                .contains(&name)
                .then_some(Global::Numpy(Numpy::Class)),
        },
        "numpy.dtypes" => NUMPY_DTYPES
            .contains(&name)
            .then_some(Global::Numpy(Numpy::Class)),
        _ if module.starts_with("torchao.") => Torchao::named(name).map(Global::Torchao),
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

fn rebuild(name: &str) -> Option<Rebuild> {
    Some(match name {
        "_rebuild_tensor" => Rebuild::Plain,
        "_rebuild_tensor_v2" => Rebuild::Strided,
        "_rebuild_tensor_v3" => Rebuild::StridedAs,
        "_rebuild_parameter" | "_rebuild_parameter_with_state" => Rebuild::Parameter,
        "_rebuild_qtensor" => Rebuild::Quantized,
        "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor" => Rebuild::Sparse,
        "_rebuild_meta_tensor_no_storage" => Rebuild::Meta,
        "_rebuild_nested_tensor" => Rebuild::Nested,
        "_rebuild_wrapper_subclass" => Rebuild::Wrapper,
        "_rebuild_device_tensor_from_cpu_tensor" => Rebuild::FromCpu,
        "_rebuild_device_tensor_from_numpy" | "_rebuild_xla_tensor" => Rebuild::FromNumpy,
        _ => return None,
    })
}

fn torch(name: &str) -> Option<Global> {
    match name {
        "Size" => Some(Global::Size),
        "device" => Some(Global::Device),
        "Tensor" => Some(Global::TensorClass),
        "UntypedStorage" | "_UntypedStorage" => Some(Global::Storage(None)),
        "per_tensor_affine" | "per_tensor_symmetric" => Some(Global::Scheme(Scheme::PerTensor)),
        "per_channel_affine" | "per_channel_symmetric" | "per_channel_affine_float_qparams" => {
            Some(Global::Scheme(Scheme::PerChannel))
        }
        _ => storage(name)
            .or_else(|| TorchDtype::named(name).map(Global::Dtype))
            .or_else(|| tensor_class(name)),
    }
}

fn storage(name: &str) -> Option<Global> {
    if !name.ends_with("Storage") {
        return None;
    }
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
        "set" | "frozenset" => Global::Builtin(Builtin::Set),
        "bytearray" => Global::Builtin(Builtin::ByteArray),
        "complex" => Global::Complex,
        "dict" | "list" | "tuple" | "int" | "float" | "str" | "bool" => Global::Class,
        _ => return None,
    })
}
