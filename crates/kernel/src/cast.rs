//! Casting plain elements to F32, F16 or BF16: to F32 first, then one rounding to nearest even.
//!
//! F64 to a 16-bit type is thus rounded twice, as in PyTorch.

use super::half::{from_bf16, from_f16};
use super::{Kernel, OutputElement, Simd, kernel};
use crate::dtype::Dtype;

/// The kernel that reads elements of this dtype, if there is one.
pub(super) fn kernel_from(from: Dtype) -> Option<&'static Kernel> {
    Some(match from {
        Dtype::F64 => &f64::KERNEL,
        Dtype::F32 => &f32::KERNEL,
        Dtype::F16 => &f16::KERNEL,
        Dtype::BF16 => &bf16::KERNEL,
        _ => return None,
    })
}

/// Defines a module with the kernel that reads elements of `$bytes` bytes with `$read`. The loop is scalar Rust, which the
/// compiler vectorises for each build.
macro_rules! cast_from {
    ($name:ident, $bytes:literal, $read:expr) => {
        mod $name {
            use super::*;

            kernel!(cast);

            #[inline(always)]
            fn cast<S: Simd, O: OutputElement>(_: S, bytes: &[u8], out: &mut [u8]) {
                for (item, out) in bytes.as_chunks::<$bytes>().0.iter().zip(O::as_stored(out)) {
                    *out = O::round($read(*item));
                }
            }
        }
    };
}

/// F32 from F64, rounded to nearest even by `as`.
#[allow(clippy::cast_possible_truncation)]
#[inline(always)]
fn narrow(x: [u8; 8]) -> core::primitive::f32 {
    // through F32, as PyTorch casts F64 to a 16-bit type, although rounding twice can differ in the last bit
    core::primitive::f64::from_le_bytes(x) as core::primitive::f32
}

cast_from!(f64, 8, narrow);
cast_from!(f32, 4, core::primitive::f32::from_le_bytes);
cast_from!(f16, 2, from_f16);
cast_from!(bf16, 2, from_bf16);
