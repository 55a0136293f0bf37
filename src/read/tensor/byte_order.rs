//! Byte order: conversion of big-endian numbers to little endian.

use crate::read::catalog::{Encoding, Endian, TensorInfo};

/// The units whose bytes must be reversed, as `(bytes, count)`; `None` if the stored order is little endian.
pub(super) fn swap(info: &TensorInfo) -> Option<Vec<(u32, u32)>> {
    if info.endian == Endian::Little {
        return None;
    }
    let units = match &info.encoding {
        Encoding::Plain(dtype) => {
            let unit = dtype.swap_unit();
            let per_item = u32::try_from(dtype.item_bytes()?).ok()? / unit;
            vec![(unit, per_item)]
        }
        Encoding::Block(_) => return None, // blocks as stored
        Encoding::Opaque(opaque) => opaque.units.to_vec(),
    };
    units.iter().any(|&(bytes, _)| bytes > 1).then_some(units)
}

pub(super) fn item_bytes(units: &[(u32, u32)]) -> usize {
    units
        .iter()
        .map(|&(bytes, n)| bytes as usize * n as usize)
        .sum()
}

/// Reverses the bytes of each number. `piece` holds whole items of these units.
pub(super) fn reverse_numbers(piece: &mut [u8], units: &[(u32, u32)]) {
    // arrays of fixed length let the compiler use byte shuffles; the loop below serves structured types
    if let [(unit, _)] = *units {
        match unit {
            2 => {
                return piece
                    .as_chunks_mut::<2>()
                    .0
                    .iter_mut()
                    .for_each(|c| c.reverse());
            }
            4 => {
                return piece
                    .as_chunks_mut::<4>()
                    .0
                    .iter_mut()
                    .for_each(|c| c.reverse());
            }
            8 => {
                return piece
                    .as_chunks_mut::<8>()
                    .0
                    .iter_mut()
                    .for_each(|c| c.reverse());
            }
            _ => {}
        }
    }
    for item in piece.chunks_exact_mut(item_bytes(units).max(1)) {
        let mut rest = item;
        for &(bytes, n) in units {
            let (numbers, behind) = rest.split_at_mut(bytes as usize * n as usize);
            numbers
                .chunks_exact_mut((bytes as usize).max(1))
                .for_each(<[u8]>::reverse);
            rest = behind;
        }
    }
}
