//! Copies strided and column-major tensors into C order.

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::read::catalog::{Encoding, Layout, TensorInfo, ViewFlags, quote, span_of};

/// Strides in elements; `None` for layouts without strides.
fn strides(info: &TensorInfo) -> Option<Vec<u64>> {
    match &info.layout {
        Layout::Strided(strides) => Some(strides.to_vec()),
        Layout::ColumnMajor => {
            let mut next = 1u64;
            Some(
                info.shape
                    .iter()
                    .map(|&d| {
                        let stride = next;
                        next = next.saturating_mul(d);
                        stride
                    })
                    .collect(),
            )
        }
        _ => None,
    }
}

/// Bytes from the first element to the end of the last, by the strides.
pub(super) fn span(info: &TensorInfo) -> Option<u64> {
    let strides = strides(info)?;
    let item = info.encoding.item_bytes()?;
    span_of(&info.shape, &strides)?.checked_mul(item)
}

/// Calls `emit` with the elements of `stored` in C order, in pieces of about `chunk` bytes.
pub(super) fn in_order(
    info: &TensorInfo,
    stored: &[u8],
    chunk: usize,
    emit: impl FnMut(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let wrong = |what: &str| {
        Error::malformed(format!("tensor {}: {what}", quote(&info.name))).at(info.bytes.start)
    };
    let item = info
        .encoding
        .item_bytes()
        .and_then(|n| usize::try_from(n).ok());
    let item = item
        .filter(|&n| n > 0)
        .ok_or_else(|| wrong("elements that share bytes cannot be strided"))?;
    let strides = strides(info).ok_or_else(|| wrong("no strides"))?;
    let fits = span(info).is_some_and(|n| n <= stored.len() as u64);
    if strides.len() != info.shape.len() || !fits {
        return Err(wrong("the strides reach beyond the stored bytes"));
    }
    if info.elements() == 0 {
        return Ok(());
    }
    match item {
        1 => gather::<1>(info, &strides, stored, item, chunk, emit),
        2 => gather::<2>(info, &strides, stored, item, chunk, emit),
        4 => gather::<4>(info, &strides, stored, item, chunk, emit),
        8 => gather::<8>(info, &strides, stored, item, chunk, emit),
        16 => gather::<16>(info, &strides, stored, item, chunk, emit),
        _ => gather::<0>(info, &strides, stored, item, chunk, emit),
    }
}

/// Gathers the elements. `N` is the size of an element if it is known at compile time, so that each copy is a load and
/// a store; 0 otherwise.
fn gather<const N: usize>(
    info: &TensorInfo,
    strides: &[u64],
    stored: &[u8],
    item: usize,
    chunk: usize,
    mut emit: impl FnMut(&mut [u8]) -> Result<()>,
) -> Result<()> {
    // `in_order` checked the span: every offset is below `stored.len()`, so the casts and sums below cannot wrap
    let as_len = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let step: Vec<usize> = strides
        .iter()
        .map(|&s| as_len(s).saturating_mul(item))
        .collect();
    let (inner, inner_step) = match info.shape.last() {
        Some(&n) => (n, step[step.len() - 1]),
        None => (1, item),
    };
    let outer = &info.shape[..info.shape.len().saturating_sub(1)];
    let mut index = vec![0u64; outer.len()];
    let mut piece: Vec<u8> = Vec::with_capacity(chunk + item);
    let mut base = 0usize;
    loop {
        let mut done = 0u64;
        while done < inner {
            // at least one element, so that elements longer than a piece make progress
            let room = ((chunk.saturating_sub(piece.len())) / item).max(1) as u64;
            let n = as_len(room.min(inner - done));
            let from = base + as_len(done).wrapping_mul(inner_step);
            // rows without gaps are copied at once
            if inner_step == item {
                piece.extend_from_slice(&stored[from..from + n * item]);
            } else {
                for k in 0..n {
                    let at = from + k * inner_step;
                    if N > 0 {
                        piece.extend_from_slice(&stored[at..at + N]);
                    } else {
                        piece.extend_from_slice(&stored[at..at + item]);
                    }
                }
            }
            done += n as u64;
            if piece.len() >= chunk {
                emit(&mut piece)?;
                piece.clear();
            }
        }
        // the next row: the last outer index is incremented, and at its end the one before it
        let mut dim = outer.len();
        loop {
            if dim == 0 {
                return if piece.is_empty() {
                    Ok(())
                } else {
                    emit(&mut piece)
                };
            }
            dim -= 1;
            index[dim] += 1;
            if index[dim] < outer[dim] {
                base += step[dim];
                break;
            }
            // back to index 0 of this dimension: `base` never leaves the span, so the subtraction cannot wrap
            base -= step[dim] * as_len(outer[dim] - 1);
            index[dim] = 0;
        }
    }
}

/// Applies PyTorch's lazy conjugation and negation to little-endian numbers.
pub(super) fn flip_signs(piece: &mut [u8], info: &TensorInfo) {
    let ViewFlags { conj, neg } = info.view_flags();
    if !conj && !neg {
        return;
    }
    let Encoding::Plain(dtype) = info.encoding else {
        return;
    };
    let unit = dtype.swap_unit() as usize;
    let complex = matches!(dtype, Dtype::C32 | Dtype::C64 | Dtype::C128);
    for (i, number) in piece.chunks_exact_mut(unit).enumerate() {
        let imaginary = complex && i % 2 == 1;
        if neg != (conj && imaginary) {
            // the sign is the top bit of the last byte in little endian; -0 and NaN flip as in PyTorch's `neg`
            number[unit - 1] ^= 0x80;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::catalog::ByteRange;

    fn gathered(shape: &[u64], strides: &[u64], stored: &[u8], chunk: usize) -> Vec<u8> {
        let encoding = Encoding::Plain(Dtype::U8);
        let mut info = TensorInfo::new("t", shape.into(), encoding, ByteRange::default());
        info.layout = Layout::Strided(strides.into());
        let mut out = Vec::new();
        in_order(&info, stored, chunk, |piece| {
            out.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
        out
    }

    /// One element at a time, by the definition of a stride.
    fn naive(shape: &[u64], strides: &[u64], stored: &[u8]) -> Vec<u8> {
        let count: u64 = shape.iter().product();
        (0..count)
            .map(|mut i| {
                let mut at = 0;
                for (d, s) in shape.iter().zip(strides).rev() {
                    at += (i % d) * s;
                    i /= d;
                }
                stored[usize::try_from(at).unwrap()]
            })
            .collect()
    }

    #[test]
    fn gathers_by_the_definition_of_strides() {
        let stored: Vec<u8> = (0..=255).collect();
        let cases: &[(&[u64], &[u64])] = &[
            (&[], &[]),
            (&[7], &[3]),
            (&[3, 4], &[1, 3]),
            (&[3, 4], &[4, 1]),
            (&[2, 3, 4], &[1, 8, 2]),
            (&[5, 2], &[0, 1]),
            (&[1, 6, 1], &[99, 1, 77]),
            (&[4, 3, 2, 2], &[1, 4, 12, 24]),
        ];
        for (shape, strides) in cases {
            for chunk in [1, 2, 5, 1000] {
                assert_eq!(
                    gathered(shape, strides, &stored, chunk),
                    naive(shape, strides, &stored),
                    "{shape:?}"
                );
            }
        }
    }

    #[test]
    fn an_empty_shape_touches_nothing_and_a_scalar_one_element() {
        assert_eq!(span_of(&[0, u64::MAX], &[1, u64::MAX]), Some(0));
        assert_eq!(span_of(&[], &[]), Some(1));
        assert_eq!(span_of(&[2, 3], &[u64::MAX, 1]), None);
        assert_eq!(span_of(&[3], &[0]), Some(1));
    }
}
