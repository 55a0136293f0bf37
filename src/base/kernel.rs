//! The dequantisation kernels of the crate `anamnesis-kernel`: which are public, and their errors as this crate's.

pub(crate) use anamnesis_kernel::{
    AWQ_ORDER, CodePacking, CodeValue, CodeWidth, ColumnCodes, ColumnGeometry, ColumnGroups,
    E2M1_VALUES, FloatBits, Formula, NumberCounts, NumberSums, RowGeometry, can_cast_from, cast,
    code_values, column_code, copy_non_temporal, count_and_sum_f32, count_floats, count_integers,
    dequantize_columns, dequantize_rows, e8m0, fill_non_temporal, from_bf16, from_f16, quantize,
    row_code, sum_f32, unpack_8_nibbles,
};
pub(crate) use anamnesis_kernel::{BlockFormat, Dtype};
pub use anamnesis_kernel::{builds, dequantize, dequantize_with};

use crate::base::error::{Error, ErrorKind};

impl From<anamnesis_kernel::Error> for Error {
    fn from(error: anamnesis_kernel::Error) -> Self {
        match error {
            anamnesis_kernel::Error::Unsupported(what) => Self::new(ErrorKind::Unsupported(what)),
            anamnesis_kernel::Error::Mismatch(what) => Self::invalid_argument(what),
            // values of a file, not an argument
            anamnesis_kernel::Error::Unencodable(what) => Self::unsupported(what),
        }
    }
}
