//! The table of PyTorch's dtypes and storage classes, by name.
//!
//! Source: `torch/storage.py` (`_dtype_to_storage_type_map`, `_new_dtypes`).

use crate::base::kernel::Dtype;

/// A dtype of PyTorch: the index of a row of [`DTYPES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TorchDtype(u8);

struct DtypeRow {
    name: &'static str,
    /// The name of its storage class; empty for dtypes without one, which are saved in untyped storages.
    storage: &'static str,
    /// `None` for dtypes that this library cannot read: most exist in PyTorch by name only (`uint3`, `bits8`).
    dtype: Option<Dtype>,
}

macro_rules! rows {
    ($($name:literal $storage:literal $dtype:expr),* $(,)?) => {
        &[$(DtypeRow { name: $name, storage: $storage, dtype: $dtype }),*]
    };
}

// Frequent dtypes come first: lookup is linear.
static DTYPES: &[DtypeRow] = rows![
    "float32" "FloatStorage" Some(Dtype::F32), "int64" "LongStorage" Some(Dtype::I64),
    "bfloat16" "BFloat16Storage" Some(Dtype::BF16), "float16" "HalfStorage" Some(Dtype::F16),
    "float64" "DoubleStorage" Some(Dtype::F64), "int32" "IntStorage" Some(Dtype::I32),
    "int16" "ShortStorage" Some(Dtype::I16), "int8" "CharStorage" Some(Dtype::I8),
    "uint8" "ByteStorage" Some(Dtype::U8), "bool" "BoolStorage" Some(Dtype::BOOL),
    "complex64" "ComplexFloatStorage" Some(Dtype::C64), "complex128" "ComplexDoubleStorage" Some(Dtype::C128),
    "qint8" "QInt8Storage" Some(Dtype::QINT8), "quint8" "QUInt8Storage" Some(Dtype::QUINT8),
    "qint32" "QInt32Storage" Some(Dtype::QINT32),
    "quint4x2" "QUInt4x2Storage" Some(Dtype::QUINT4X2), "quint2x4" "QUInt2x4Storage" Some(Dtype::QUINT2X4),
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
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::find(|row| row.name == name)
    }

    /// The dtype of a storage class, such as `FloatStorage`.
    pub(super) fn of_storage(class: &str) -> Option<Self> {
        Self::find(|row| row.storage == class)
    }

    /// The dtype of PyTorch for a dtype of this library.
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        Self::find(|row| row.dtype == Some(dtype))
    }

    fn find(matches: impl Fn(&DtypeRow) -> bool) -> Option<Self> {
        DTYPES
            .iter()
            .position(matches)
            // a dtype is an index of the table, so that a value of the heap stays small
            .and_then(|i| u8::try_from(i).ok())
            .map(Self)
    }

    fn row(self) -> &'static DtypeRow {
        &DTYPES[usize::from(self.0)]
    }

    /// PyTorch's name, without `torch.`.
    pub(crate) fn name(self) -> &'static str {
        self.row().name
    }

    pub(crate) fn dtype(self) -> Option<Dtype> {
        self.row().dtype
    }

    /// Bytes per stored item. An item of `float4_e2m1fn_x2`, `quint4x2` and `quint2x4` is a byte that holds several
    /// elements.
    pub(crate) fn item_bytes(self) -> Option<u64> {
        match self.dtype()? {
            // storages count such items, while the library's own sizes count elements
            Dtype::F4 | Dtype::QUINT4X2 | Dtype::QUINT2X4 => Some(1),
            dtype => dtype.item_bytes(),
        }
    }

    /// Number of elements per item in PyTorch's shapes. 1 for `float4_e2m1fn_x2`, whose shapes count bytes.
    pub(crate) fn elements_per_item(self) -> u64 {
        match self.dtype() {
            Some(Dtype::QUINT4X2) => 2,
            Some(Dtype::QUINT2X4) => 4,
            _ => 1,
        }
    }
}
