//! The closed world: every global that a pickle may name, and what it stands for.
//!
//! Source: `torch/_weights_only_unpickler.py` (`_get_allowed_globals`), widened by the classes of
//! plain data that real checkpoints carry (numpy scalars and arrays, `defaultdict`) and by what
//! TorchScript archives name. Naming one of these runs nothing: they are words with a fixed
//! meaning. Everything else is refused.

use crate::dtype::Dtype;

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

/// An element type by PyTorch's name: a row of [`DTYPES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TorchDtype(u8);

struct Row {
    name: &'static str,
    /// Its storage class, for those that have one.
    storage: &'static str,
    /// `None` for types that only exist as names (`uint3`, `bits8`) or whose elements share bytes.
    dtype: Option<Dtype>,
}

macro_rules! rows {
    ($($name:literal $storage:literal $dtype:expr),* $(,)?) => {
        &[$(Row { name: $name, storage: $storage, dtype: $dtype }),*]
    };
}

static DTYPES: &[Row] = rows![
    "float32" "FloatStorage" Some(Dtype::F32), "int64" "LongStorage" Some(Dtype::I64),
    "bfloat16" "BFloat16Storage" Some(Dtype::BF16), "float16" "HalfStorage" Some(Dtype::F16),
    "float64" "DoubleStorage" Some(Dtype::F64), "int32" "IntStorage" Some(Dtype::I32),
    "int16" "ShortStorage" Some(Dtype::I16), "int8" "CharStorage" Some(Dtype::I8),
    "uint8" "ByteStorage" Some(Dtype::U8), "bool" "BoolStorage" Some(Dtype::BOOL),
    "complex64" "ComplexFloatStorage" Some(Dtype::C64), "complex128" "ComplexDoubleStorage" Some(Dtype::C128),
    "qint8" "QInt8Storage" Some(Dtype::QINT8), "quint8" "QUInt8Storage" Some(Dtype::QUINT8),
    "qint32" "QInt32Storage" Some(Dtype::QINT32),
    "quint4x2" "QUInt4x2Storage" None, "quint2x4" "QUInt2x4Storage" None,
    "complex32" "" Some(Dtype::C32), "uint16" "" Some(Dtype::U16), "uint32" "" Some(Dtype::U32),
    "uint64" "" Some(Dtype::U64), "float8_e4m3fn" "" Some(Dtype::F8_E4M3), "float8_e5m2" "" Some(Dtype::F8_E5M2),
    "float8_e4m3fnuz" "" Some(Dtype::F8_E4M3FNUZ), "float8_e5m2fnuz" "" Some(Dtype::F8_E5M2FNUZ),
    "float8_e8m0fnu" "" Some(Dtype::F8_E8M0), "float4_e2m1fn_x2" "" Some(Dtype::F4),
    "bcomplex32" "" None, "bits8" "" None, "bits16" "" None, "bits1x8" "" None, "bits2x4" "" None, "bits4x2" "" None,
    "uint1" "" None, "uint2" "" None, "uint3" "" None, "uint4" "" None, "uint5" "" None, "uint6" "" None,
    "uint7" "" None, "int1" "" None, "int2" "" None, "int3" "" None, "int4" "" None, "int5" "" None,
    "int6" "" None, "int7" "" None,
];

impl TorchDtype {
    fn find(matches: impl Fn(&Row) -> bool) -> Option<Self> {
        DTYPES.iter().position(matches).and_then(|i| u8::try_from(i).ok()).map(Self)
    }

    fn row(self) -> &'static Row {
        &DTYPES[usize::from(self.0)]
    }

    /// PyTorch's name, without `torch.`.
    pub(crate) fn name(self) -> &'static str {
        self.row().name
    }

    pub(crate) fn dtype(self) -> Option<Dtype> {
        self.row().dtype
    }

    /// Bytes per stored item. Two `F4` share one.
    pub(crate) fn item_bytes(self) -> Option<u64> {
        match self.dtype()? {
            Dtype::F4 => Some(1),
            dtype => dtype.item_bytes(),
        }
    }
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
        "torch.nn.parameter" => matches!(name, "Parameter" | "Buffer").then_some(Global::TensorClass),
        "torch._tensor" => (name == "_rebuild_from_type_v2").then_some(Global::Rebuild(Rebuild::FromType)),
        "torch.storage" => match name {
            "UntypedStorage" | "_UntypedStorage" | "TypedStorage" | "_TypedStorage" => Some(Global::Storage(None)),
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
            _ => NUMPY_CLASSES.contains(&name).then_some(Global::Numpy(Numpy::Class)),
        },
        "numpy.dtypes" => NUMPY_DTYPES.contains(&name).then_some(Global::Numpy(Numpy::Class)),
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
            .or_else(|| TorchDtype::find(|row| row.name == name).map(Global::Dtype))
            .or_else(|| tensor_class(name)),
    }
}

fn storage(name: &str) -> Option<Global> {
    if !name.ends_with("Storage") {
        return None;
    }
    TorchDtype::find(|row| row.storage == name).map(|dtype| Global::Storage(Some(dtype)))
}

fn tensor_class(name: &str) -> Option<Global> {
    let element = name.strip_suffix("Tensor")?;
    let known = ["Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"];
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
