//! torchao's `Int4PreshuffledTensor`: 4-bit codes in the order of Hopper's matrix instructions (`preshuffled_codes.rs`).
//!
//! | inputs | codes | factors | formula |
//! |---|---|---|---|
//! | BF16 | `[…, out, in / 2]`, two's complement | `group_scale`, `group_zero` `[…, groups, out]` | `q * scale + zero` |
//! | FP8 | sign and index of a product | `group_scale` E4M3 `[…, groups, 8, out]`, `row_scale` `[…, out]` | `product * row_scale` |
//!
//! For FP8 inputs the scale of a group was multiplied by each of -8 to -1 and rounded; these eight products are contiguous,
//! whatever the shape says. Only `torch.save` keeps such tensors. On ROCm the order for BF16 is another one, which nothing in
//! a file says; it is read in CUDA's, with a note in the plan.
//!
//! Refused: rows that do not fill tiles of 16; groups that do not divide the columns.
//!
//! Sources: torchao 0.18 `int4_preshuffled_tensor.py`; FBGEMM's and MSLK's `preshuffle_i4`; CUTLASS 4.2
//! `util/mixed_dtype_utils.hpp`, whose layouts were computed with it for the reference outputs.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{
    Codes, Composite, Factors, Grouped, PartOffset, PartView, Scales, Zeros,
};
use crate::quant::scheme::context::{Context, not_known, plain};
use crate::quant::scheme::granularity::stack;
use crate::quant::scheme::modelopt::SIGNED_NIBBLES;

use super::TorchaoWeight;
use super::flat_tensor::{FLOATS, TorchaoTensor, transposed_factors};
use super::preshuffled_codes::{PreshuffledCodes, PreshuffledOutput};

pub(super) fn claim(cx: &Context<'_>, stored: &TorchaoTensor<'_>) -> Result<TorchaoWeight> {
    let (shape, group) = (stored.sizes(2)?, stored.group()?);
    let (rows, cols, matrix_rows) = stack(&shape);
    // only the variant for FP8 inputs has it
    let by_rows = cx.sibling(stored.flat, "_row_scale");
    let scale = stored.part(cx, "group_scale")?;
    let output = match by_rows {
        Some(_) => PreshuffledOutput::Products {
            products: PartOffset::whole(1),
            group,
        },
        None => PreshuffledOutput::Codes,
    };
    // the instruction for FP8 reads twice the columns of the one for BF16
    let wide = PreshuffledCodes::wide(&output);
    let tiled = rows > 0 && matrix_rows.is_multiple_of(16) && cols > 0 && cols.is_multiple_of(wide);
    if !matches!(plain(stored.info), Some(Dtype::I8 | Dtype::U8)) || !tiled {
        return Err(stored.wrong());
    }
    stored.check_groups(group, cols)?;
    cx.note(
        "torchao's preshuffled 4-bit codes are read in CUDA's order; ROCm's has the same shape",
    );
    let view = Arc::new(PreshuffledCodes {
        place: PartOffset::whole(0),
        rows,
        matrix_rows,
        cols,
        output,
    });
    let parts = vec![
        ("codes", stored.tensor),
        ("scale", scale),
        match by_rows {
            Some(by_rows) => ("row_scale", by_rows),
            None => ("zero_point", stored.part(cx, "group_zero")?),
        },
    ];
    let decoder = if by_rows.is_some() {
        products(cx, scale, &shape, group)?;
        product_rows(cx, parts[2].1, &shape, view)?
    } else {
        let (scales, first) = transposed_factors(cx, scale, 1, &shape, group, FLOATS)?;
        let (zeros, second) = transposed_factors(cx, parts[2].1, 2, &shape, group, FLOATS)?;
        let codes = Codes::new(
            CodePacking::LowNibbles,
            CodeValue::Table(Box::new(SIGNED_NIBBLES)),
            cols / 2,
        );
        let (scales, zeros) = (Scales::Stored(scales), Zeros::Stored(zeros));
        let inner = Grouped {
            rows,
            cols,
            matrix_rows,
            codes,
            formula: Formula::ScaleOffset,
            scales,
            zeros,
        };
        Composite::new(
            inner,
            parts.len(),
            vec![(0, view as Arc<dyn PartView>), (1, first), (2, second)],
        )
    };
    Ok(TorchaoWeight {
        shape,
        parts,
        decoder: Box::new(decoder),
    })
}

/// Verifies that there are eight products for each group of each row.
fn products(cx: &Context<'_>, tensor: usize, shape: &[u64], group: u64) -> Result<()> {
    let info = cx.info(tensor);
    let (outer, last) = shape.split_at(shape.len() - 2);
    let expected: Vec<u64> = outer
        .iter()
        .copied()
        .chain([last[1] / group, 8, last[0]])
        .collect();
    if plain(info) != Some(Dtype::F8_E4M3) || info.shape[..] != expected[..] {
        let what = format!(
            "{} {:?} instead of E4M3 {expected:?}",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(not_known(info, what));
    }
    Ok(())
}

/// The decoder of products, with a scale for each row.
fn product_rows(
    cx: &Context<'_>,
    tensor: usize,
    shape: &[u64],
    view: Arc<PreshuffledCodes>,
) -> Result<Composite> {
    let (rows, cols, matrix_rows) = stack(shape);
    let info = cx.info(tensor);
    let Some(dtype) =
        plain(info).filter(|d| FLOATS.contains(d) && info.shape[..] == shape[..shape.len() - 1])
    else {
        let what = format!(
            "{} {:?} does not scale the rows of {shape:?}",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(not_known(info, what));
    };
    // the view returns products, which are E4M3 numbers, one per byte
    let codes = Codes::new(CodePacking::Bytes, CodeValue::E4m3, cols);
    let scales = Scales::Stored(Factors::per_group(2, dtype, cols));
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        formula: Formula::Scale,
        scales,
        zeros: Zeros::None,
    };
    Ok(Composite::new(
        inner,
        3,
        vec![(0, view as Arc<dyn PartView>)],
    ))
}
