//! torchao's `Int4PreshuffledTensor`: 4 bits in the order of Hopper's matrix instructions (`decode/shuffled.rs`).
//!
//! | inputs | codes | factors | formula |
//! |---|---|---|---|
//! | BF16 | `[…, out, in / 2]`, two's complement | `group_scale`, `group_zero` `[…, groups, out]` | `q * scale + zero` |
//! | FP8 | a sign and the number of its product | `group_scale` E4M3 `[…, groups, 8, out]`, `row_scale` `[…, out]` | `product * row_scale` |
//!
//! For FP8 inputs the scale of a group was multiplied by each of -8 to -1 and rounded; these eight lie together, whatever
//! the shape says. Only `torch.save` keeps such tensors. On ROCm the order for BF16 is another one, and nothing in a file
//! tells: they are read as CUDA has them.
//!
//! Sources: torchao 0.18 `int4_preshuffled_tensor.py`; FBGEMM's and MSLK's `preshuffle_i4`; CUTLASS 4.2
//! `util/mixed_dtype_utils.hpp`, whose layouts were computed with it for the reference outputs.

use std::sync::Arc;

use crate::Dtype;
use crate::decode::{
    Codes, Derived, Factors, Grouped, Nibbles, Place, Scales, Shuffled, View, Zeros,
};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};
use crate::scheme::context::{Context, malformed, plain};
use crate::scheme::grain::stack;
use crate::scheme::modelopt::SIGNED_NIBBLES;

use super::Made;
use super::int4::{FLOATS, Said, transposed};

pub(super) fn claim(cx: &Context<'_>, said: &Said<'_>) -> Result<Made> {
    let (shape, group) = (said.sizes(2)?, said.group()?);
    let (rows, cols, matrix_rows) = stack(&shape);
    let by_rows = cx.beside(said.flat, "_row_scale");
    let scale = said.part(cx, "group_scale")?;
    let made = match by_rows {
        Some(_) => Nibbles::LookedUp {
            products: Place::whole(1),
            group,
        },
        None => Nibbles::Kept,
    };
    let wide = Shuffled::wide(&made);
    let tiled = rows > 0 && matrix_rows.is_multiple_of(16) && cols > 0 && cols.is_multiple_of(wide);
    if !matches!(plain(said.info), Some(Dtype::I8 | Dtype::U8)) || !tiled {
        return Err(said.wrong());
    }
    if !cols.is_multiple_of(group) {
        return Err(malformed(
            said.info,
            format!("groups of {group} do not divide {cols} columns"),
        ));
    }
    cx.note("torchao's shuffled 4 bits are read as CUDA's kernels have them: ROCm's look the same from outside");
    let view = Arc::new(Shuffled {
        place: Place::whole(0),
        rows,
        matrix_rows,
        cols,
        made,
    });
    let parts = vec![
        ("codes", said.tensor),
        ("scale", scale),
        match by_rows {
            Some(by_rows) => ("row_scale", by_rows),
            None => ("zero_point", said.part(cx, "group_zero")?),
        },
    ];
    let decoder = if by_rows.is_some() {
        products(cx, scale, &shape, group)?;
        looked_up(cx, parts[2].1, &shape, view)?
    } else {
        let (scales, first) = transposed(cx, scale, 1, &shape, group, FLOATS)?;
        let (zeros, second) = transposed(cx, parts[2].1, 2, &shape, group, FLOATS)?;
        let codes = Codes::new(
            Packing::LowNibbles,
            Value::Table(Box::new(SIGNED_NIBBLES)),
            cols / 2,
        );
        let (scales, zeros) = (Scales::Stored(scales), Zeros::Stored(zeros));
        let inner = Grouped {
            rows,
            cols,
            matrix_rows,
            codes,
            form: Form::ScaleOffset,
            scales,
            zeros,
        };
        Derived::new(
            inner,
            parts.len(),
            vec![(0, view as Arc<dyn View>), (1, first), (2, second)],
        )
    };
    Ok(Made {
        shape,
        parts,
        decoder: Box::new(decoder),
    })
}

/// Whether there are eight products for each group of each row.
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
            "{} {:?} where E4M3 {expected:?} belongs",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(malformed(info, what));
    }
    Ok(())
}

/// Products that were looked up, with a scale for each row.
fn looked_up(
    cx: &Context<'_>,
    tensor: usize,
    shape: &[u64],
    view: Arc<Shuffled>,
) -> Result<Derived> {
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
        return Err(malformed(info, what));
    };
    let codes = Codes::new(Packing::Bytes, Value::E4m3, cols);
    let scales = Scales::Stored(Factors::per_group(2, dtype, cols));
    let inner = Grouped {
        rows,
        cols,
        matrix_rows,
        codes,
        form: Form::Scale,
        scales,
        zeros: Zeros::None,
    };
    Ok(Derived::new(inner, 3, vec![(0, view as Arc<dyn View>)]))
}
