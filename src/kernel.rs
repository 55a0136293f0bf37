//! Kernels: blocks and codes, turned into elements. They are a crate of their own, so that what changes around
//! them compiles without them.

pub(crate) use anamnesis_kernel::{
    AWQ, ColumnCodes, Columns, E2M1, Form, Groups, Packing, Rows, Value, Width, cast, cast_from,
    code, columns, e8m0, eight_codes, from_bf16, from_f16, packed_code, rows, stream, stream_made,
    values,
};
pub use anamnesis_kernel::{builds, dequantize, dequantize_with};

use crate::error::{Error, ErrorKind};

impl From<anamnesis_kernel::Error> for Error {
    fn from(error: anamnesis_kernel::Error) -> Self {
        match error {
            anamnesis_kernel::Error::Unsupported(what) => Self::new(ErrorKind::Unsupported(what)),
            anamnesis_kernel::Error::Misfit(what) => Self::misuse(what),
        }
    }
}
