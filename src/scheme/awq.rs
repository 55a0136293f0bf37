//! AWQ: words of codes along the rows of `[in, out]` (`gemm`), or along those of `[out, in]` (`gemv`).
//!
//! `w = (q - zero) * scale`, zero points as they are. In `gemm` a word holds eight outputs of 4 bits in the order
//! 0 2 4 6 1 3 5 7; other widths are a stream of codes in their natural order. In `gemv` codes, scales and zero
//! points of an output lie in a row each; the latter two are padded. In `gemv_fast`, which is what llm-awq writes, codes
//! are interleaved as its kernels want them, and zero points were multiplied: `w = q * scale + scaled_zero`.
//!
//! Sources: AutoAWQ 0.2.9, `modules/linear/{gemv,gemv_fast}.py`, `utils/packing_utils.py`; GPTQModel 7.7,
//! `quantization/awq/utils/packing_utils.py` (other widths than 4).

use std::sync::Arc;

use crate::Dtype;
use crate::catalog::TensorInfo;
use crate::decode::{
    Codes, Derived, Factors, Grouped, Place, Scales, Transposed, View, Woven, Zeros,
};
use crate::decode::{ColumnZeros, Columns, Gemv, GroupOf, LessOne, ZeroOrder};
use crate::error::Result;
use crate::kernel::{ColumnCodes, Form, Packing, Value, Width};

use super::Weight;
use super::context::{Context, malformed, plain, stem, unsupported};
use super::plain::missing;
use super::qweight::{Kind, Packed};

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let Some(packed) = Packed::find(cx, tensor)? else {
        return interleaved(cx, tensor);
    };
    match packed.kind(cx)? {
        Kind::Down => Ok(None),
        Kind::Rows => gemv(cx, &packed).map(Some),
        Kind::Across => {
            if packed.index.is_some() {
                return Err(malformed(
                    packed.codes,
                    "packed as AWQ has it, with a group index as GPTQ has it",
                ));
            }
            gemm(cx, "awq", &packed, false).map(Some)
        }
    }
}

/// The weight. `eights`: whether widths other than 4 are in AWQ's order too.
pub(super) fn gemm(
    cx: &Context<'_>,
    scheme: &'static str,
    packed: &Packed<'_>,
    eights: bool,
) -> Result<Weight> {
    let [depth, words] = packed.words();
    let [groups, out] = packed.scale_shape;
    let bits = words.checked_mul(32).map_or(0, |bits| bits / out);
    let (codes, order) = match (u32::try_from(bits).unwrap_or(0), eights) {
        (4, _) => (ColumnCodes::Awq4, ZeroOrder::Awq(Width::Stream(4))),
        (bits @ 2..=8, false) => (
            ColumnCodes::Across(Width::Stream(bits)),
            ZeroOrder::Natural(Width::Stream(bits)),
        ),
        (bits @ 5..=7, true) => (
            ColumnCodes::AwqStream(Width::Stream(bits)),
            ZeroOrder::Awq(Width::Stream(bits)),
        ),
        (bits, true) => {
            let what = format!(
                "AWQ with codes of {bits} bits, which AutoRound does not write: its packing has 4 bits, since 0.16 also 5 \
                 to 7, and fails for others, so that nothing says how these lie; export it as `auto_round:auto_gptq`"
            );
            return Err(unsupported(packed.codes, what));
        }
        (bits, false) => {
            return Err(unsupported(
                packed.codes,
                format!("AWQ with codes of {bits} bits"),
            ));
        }
    };
    if groups > depth {
        return Err(malformed(
            cx.info(packed.scales),
            format!("{groups} groups of {depth} inputs"),
        ));
    }
    let zeros = packed
        .zeros
        .ok_or_else(|| missing(packed.codes, "qzeros"))?;
    if cx.info(zeros).shape[..] != [groups, words] {
        let what = format!(
            "{:?} zero points for {groups} groups of {words} words",
            &cx.info(zeros).shape[..]
        );
        return Err(malformed(cx.info(zeros), what));
    }
    let decoder = Columns {
        rows: out,
        cols: depth,
        codes,
        stored: (depth, words * 4),
        groups,
        group_of: GroupOf::Every(packed.group_size(cx, depth, groups)?),
        scales: (1, packed.scale_dtype),
        zeros: ColumnZeros::Packed {
            part: 2,
            words,
            order,
            less: LessOne::No,
        },
    };
    Ok(cx.weight(
        scheme,
        packed.name(),
        &[out, depth],
        &packed.parts(),
        decoder,
    ))
}

/// Rows of codes of 4 bits, in their natural order; a word of zero points for each eight groups.
fn gemv(cx: &Context<'_>, packed: &Packed<'_>) -> Result<Weight> {
    let [out, words] = packed.words();
    let room = packed.scale_shape[1];
    let depth = words
        .checked_mul(8)
        .ok_or_else(|| malformed(packed.codes, "its rows are too long"))?;
    let group = configured_group(cx, depth);
    // AutoAWQ pads by the group's size; more room than that is not read
    if group == 0 || depth.div_ceil(group) > room {
        let what =
            format!("{room} scales in a row do not go with groups of {group} of {depth} inputs");
        return Err(malformed(cx.info(packed.scales), what));
    }
    let decoder = Gemv {
        rows: out,
        cols: depth,
        group,
        room,
        scales: packed.scale_dtype,
    };
    Ok(cx.weight(
        "awq",
        packed.name(),
        &[out, depth],
        &packed.parts(),
        decoder,
    ))
}

/// `gemv_fast` and llm-awq's own files: I16 `[out / 4, in]`, four outputs interleaved, and scales and zero points that
/// were multiplied by them `[room, out]`.
fn interleaved(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info: &TensorInfo = cx.info(tensor);
    let Some(stem) = stem(info, ".qweight").filter(|_| plain(info) == Some(Dtype::I16)) else {
        return Ok(None);
    };
    let Some((zeros, _)) = cx.first_beside(stem, &[".scaled_zeros", ".qzeros"]) else {
        return Ok(None);
    };
    let scales = cx
        .beside(stem, ".scales")
        .ok_or_else(|| missing(info, "scales"))?;
    let shape = match info.shape[..] {
        [fours, cols] if fours > 0 && cols > 0 && cols.is_multiple_of(64) => {
            fours.checked_mul(4).map(|rows| [rows, cols])
        }
        _ => None,
    };
    let [rows, cols] = shape.ok_or_else(|| {
        malformed(
            info,
            format!(
                "I16 {:?} is not four rows of 4 bits in one",
                info.shape.as_slice()
            ),
        )
    })?;
    let group = configured_group(cx, cols);
    let mut made = Vec::new();
    let mut factors = |part: usize, tensor: usize| -> Result<Factors> {
        let found = cx.info(tensor);
        let dtype = plain(found).filter(|d| matches!(d, Dtype::F16 | Dtype::BF16 | Dtype::F32));
        let (Some(dtype), Some(&[room, _])) = (
            dtype,
            found.shape[..].as_array().filter(|shape| shape[1] == rows),
        ) else {
            let what = format!(
                "{} {:?} where factors of {rows} rows belong",
                found.encoding,
                found.shape.as_slice()
            );
            return Err(malformed(found, what));
        };
        // more room than there are groups is not read
        if group == 0 || cols.div_ceil(group) > room {
            let what = format!("{room} of them do not go with groups of {group} of {cols} inputs");
            return Err(malformed(found, what));
        }
        let (groups, entry) = (cols.div_ceil(group), dtype.bits() / 8);
        let place = Place::whole(part);
        let view = Transposed {
            place,
            rows,
            matrix_rows: rows,
            room: rows,
            groups,
            lines: room,
            entry,
            factor: 0..entry,
        };
        made.push((part, Arc::new(view) as Arc<dyn View>));
        Ok(Factors::per_group(part, dtype, group))
    };
    let inner = Grouped {
        rows,
        cols,
        matrix_rows: rows,
        codes: Codes::new(Packing::LowNibbles, Value::Unsigned, cols / 2),
        form: Form::ScaleOffset,
        scales: Scales::Stored(factors(1, scales)?),
        zeros: Zeros::Stored(factors(2, zeros)?),
    };
    made.push((
        0,
        Arc::new(Woven {
            place: Place::whole(0),
            rows,
            cols,
        }),
    ));
    let parts = [("codes", tensor), ("scale", scales), ("zero_point", zeros)];
    let decoder = Derived::new(inner, parts.len(), made);
    Ok(Some(cx.weight(
        "awq",
        [stem, ".weight"].concat(),
        &[rows, cols],
        &parts,
        decoder,
    )))
}

/// The configured size of a group in rows of so many inputs; without one 128, as AWQ has it.
fn configured_group(cx: &Context<'_>, depth: u64) -> u64 {
    let configured = ["group_size", "q_group_size"]
        .iter()
        .find_map(|key| cx.config.integer(key));
    match configured {
        Some(-1) => depth,
        Some(size) => u64::try_from(size).unwrap_or(0),
        None => {
            cx.note("AWQ in rows without a configured group size: 128");
            128
        }
    }
}
