//! Plain elements cast to F32, F16 or BF16: to F32 first, then one rounding to nearest even.
//!
//! F64 becomes F32 before it becomes anything narrower, as in PyTorch.

use super::half::{from_bf16, from_f16};
use super::{Element, Kernel, Lanes, kernel};
use crate::dtype::Dtype;

/// The kernel for elements of this dtype.
pub(super) fn kernel_from(from: Dtype) -> Option<&'static Kernel> {
    Some(match from {
        Dtype::F64 => &f64::KERNEL,
        Dtype::F32 => &f32::KERNEL,
        Dtype::F16 => &f16::KERNEL,
        Dtype::BF16 => &bf16::KERNEL,
        _ => return None,
    })
}

macro_rules! from {
    ($name:ident, $bytes:literal, $read:expr) => {
        mod $name {
            use super::*;

            kernel!(cast);

            #[inline(always)]
            fn cast<S: Lanes, O: Element>(_: S, bytes: &[u8], out: &mut [u8]) {
                for (item, out) in bytes.as_chunks::<$bytes>().0.iter().zip(O::cells(out)) {
                    *out = O::cell($read(*item));
                }
            }
        }
    };
}

#[allow(clippy::cast_possible_truncation)] // F32 is what F64 is cast to
#[inline(always)]
fn narrow(x: [u8; 8]) -> core::primitive::f32 {
    core::primitive::f64::from_le_bytes(x) as core::primitive::f32
}

from!(f64, 8, narrow);
from!(f32, 4, core::primitive::f32::from_le_bytes);
from!(f16, 2, from_f16);
from!(bf16, 2, from_bf16);
