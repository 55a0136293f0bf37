//! The form of an NPY file, and of the arrays in an NPZ archive: a header that describes one array, and its elements in C order.
//!
//! Source: `numpy/lib/_format_impl.py`. NumPy has no dtype for BF16 and the floats of 8 bits; `numpy.save` writes arrays
//! of ml_dtypes as items without a type (`V2`, `V1`), which say nothing about what they are.

use crate::base::error::{Error, Remedy, Result};
use crate::base::kernel::Dtype;
use crate::plan::TensorSpec;
use crate::read::catalog::quote;

use super::{FileContent, FileForm, FormOptions, no_dtype};

/// Headers are padded so that the elements begin at a multiple of this.
pub(super) const ALIGNMENT: usize = 64;

/// The most axes of an array, by `NPY_MAXDIMS` of NumPy 2.
const MOST_AXES: usize = 64;

/// Whether NumPy has arrays of this shape. It multiplies sizes other than 0, also of an array without elements.
fn has_numpy_shape(output: &TensorSpec) -> bool {
    let item = output.dtype.bits().div_ceil(8);
    let mut sizes = output.shape.iter().filter(|&&size| size != 0).copied();
    let bytes = sizes.try_fold(item, u64::checked_mul);
    output.shape.len() <= MOST_AXES && bytes.is_some_and(|bytes| i64::try_from(bytes).is_ok())
}

pub(super) fn check(output: &TensorSpec, options: &FormOptions) -> Result<()> {
    if !has_numpy_shape(output) {
        let what = format!(
            "tensor {} has a shape that NumPy does not have: more than {MOST_AXES} axes, or sizes of more than 2⁶³ bytes in all",
            quote(&output.name)
        );
        return Err(Error::unsupported(what).with_remedy(Remedy::LeaveOut));
    }
    if output.block.is_none() && descr(output.dtype).is_some() {
        return Ok(());
    }
    match void(output.dtype) {
        Some(_) if output.block.is_some() => {}
        Some(_) if options.void => return Ok(()),
        Some(item) => {
            let what = format!(
                "NumPy has no dtype {}, which {} has; it could be written as items without a type, `{item}`",
                output.dtype,
                quote(&output.name)
            );
            return Err(Error::unsupported(what).with_remedy(Remedy::CastOrWriteVoid));
        }
        None => {}
    }
    Err(no_dtype("NumPy", output))
}

/// Lays out a file of one array.
pub(super) fn lay_out(content: &FileContent<'_>) -> Result<FileForm> {
    let mut all = content.each();
    let (Some((number, output, nbytes)), None) = (all.next(), all.next()) else {
        let what = match content.outputs {
            [first, second, ..] => format!(
                "an NPY file has one array, and the output {}: {}, {} and others",
                content.outputs.len(),
                quote(&first.name),
                quote(&second.name)
            ),
            _ => "an NPY file has one array, and the output none".to_owned(),
        };
        return Err(Error::invalid_argument(what));
    };
    let head = header(output, 0);
    let start = head.len() as u64;
    Ok(FileForm {
        outputs: vec![(number, start)],
        tensor_bytes: content.tensor_bytes,
        gaps: Vec::new(),
        nbytes: start.saturating_add(nbytes),
        head,
    })
}

/// The header of an array that begins at `at` of a file: its elements begin at a multiple of [`ALIGNMENT`].
pub(super) fn header(output: &TensorSpec, at: usize) -> Vec<u8> {
    /// Magic number, version and length.
    const PREFIX: usize = 10;
    let sizes: Vec<String> = output.shape.iter().map(u64::to_string).collect();
    let shape = match &sizes[..] {
        [one] => format!("({one},)"),
        several => format!("({})", several.join(", ")),
    };
    let descr = descr(output.dtype)
        .or_else(|| void(output.dtype))
        .expect("checked before");
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let end = (at + PREFIX + text.len() + 1).next_multiple_of(ALIGNMENT);
    while at + PREFIX + text.len() + 1 < end {
        text.push(' ');
    }
    text.push('\n');
    // a shape of thousands of sizes is refused by every reader, so that version 1 suffices
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(length.to_le_bytes());
    header.extend(text.as_bytes());
    header
}

/// NumPy's type string.
fn descr(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::BOOL => "|b1",
        Dtype::I8 => "|i1",
        Dtype::U8 => "|u1",
        Dtype::I16 => "<i2",
        Dtype::U16 => "<u2",
        Dtype::I32 => "<i4",
        Dtype::U32 => "<u4",
        Dtype::I64 => "<i8",
        Dtype::U64 => "<u8",
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
        Dtype::F64 => "<f8",
        Dtype::C64 => "<c8",
        Dtype::C128 => "<c16",
        _ => return None,
    })
}

/// The type string of items without a type, for floats that ml_dtypes has.
fn void(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::BF16 => "|V2",
        Dtype::F8_E4M3
        | Dtype::F8_E5M2
        | Dtype::F8_E4M3FNUZ
        | Dtype::F8_E5M2FNUZ
        | Dtype::F8_E8M0 => "|V1",
        _ => return None,
    })
}
