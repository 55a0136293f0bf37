//! AWQ: 4-bit codes along the rows of `[in, out]` (`gemm`), or along the rows of `[out, in]` (`gemv`, `gemv_fast`).
//!
//! Written by AutoAWQ, llm-awq, GPTQModel and AutoRound (`autoround.rs`). Recognised by the tensors and shapes of
//! `qweight.rs`; `gemv_fast` by `qweight` in I16.
//!
//! | layout | `qweight` | `scales` | zero points | formula |
//! |---|---|---|---|---|
//! | `gemm` | I32 `[in, out / 8]`, order 0 2 4 6 1 3 5 7 in a word | `[groups, out]` | `qzeros` I32 `[groups, out / 8]`, same order | `(q - zero) * scale` |
//! | `gemv` | I32 `[out, in / 8]` | `[out, padded groups]` | `qzeros` I32 `[out, padded groups / 8]` | `(q - zero) * scale` |
//! | `gemv_fast`, llm-awq | I16 `[out / 4, in]`, four rows interleaved | `[padded groups, out]` | `scaled_zeros` or `qzeros` `[padded groups, out]` | `q * scale + scaled_zero` |
//!
//! Scales are F16, BF16 or F32. In `gemm`, codes of 2, 3 and 5 to 8 bits are a bit stream in their natural order.
//!
//! Refused: a group index (`g_idx`), which AWQ does not have; missing zero points; padding that does not cover all groups, or has scales;
//! groups that do not divide the inputs (`assert` of AutoAWQ `modules/linear/gemm.py`).
//!
//! Sources: AutoAWQ 0.2.9, `modules/linear/{gemv,gemv_fast}.py`, `utils/packing_utils.py`; GPTQModel 7.7,
//! `quantization/awq/utils/packing_utils.py` (widths other than 4).

mod gemv;
mod interleaved_rows;

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, CodeWidth, ColumnCodes, Formula};
use crate::plan::decode::{
    Codes, Composite, Factors, Grouped, PartOffset, PartView, Scales, TransposedFactors, Zeros,
};
use crate::plan::decode::{ColumnZeros, Columns, GroupOf, ZeroPointBias, ZeroPointOrder};
use crate::quant::settings::KnownValues::{Any, Count, Flag, GroupSize, Texts, Unrotated};
use crate::quant::settings::{KnownValues, SchemeSettings};
use crate::read::catalog::TensorInfo;

use super::Weight;
use super::context::{Context, missing, not_known, plain, stem, unsupported};
use super::qweight::{Qweight, QweightLayout};
use gemv::GemvRows;
use interleaved_rows::InterleavedRows;

/// The settings of configurations of AWQ that are known.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["awq", ""],
    keys: &[
        ("bits", Count),
        ("w_bit", Count),
        ("group_size", GroupSize),
        ("q_group_size", GroupSize),
        ("zero_point", Flag),
        // GPTQModel's name for `quant_method`, beside it
        ("method", Texts(&["awq"])),
        ("version", LAYOUTS),
        ("format", LAYOUTS),
        ("checkpoint_format", LAYOUTS),
        ("backend", Any),
        ("sym", Any),
        ("desc_act", Any),
        ("pack_dtype", Texts(&["int32", "int16"])),
        // kernels that run it
        ("do_fuse", Any),
        ("exllama_config", Any),
        ("fuse_max_seq_len", Any),
        ("meta", Unrotated),
        ("modules_to_fuse", Any),
        ("dynamic.*.bits", Any),
        ("dynamic.*.group_size", Any),
    ],
};

const LAYOUTS: KnownValues = Texts(&["gemm", "gemv", "gemv_fast", "llm-awq"]);

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    // I16 codes are not `Qweight`'s: they have another layout and other zero points
    let Some(packed) = Qweight::find(cx, tensor)? else {
        return interleaved(cx, tensor);
    };
    match packed.layout(cx)? {
        QweightLayout::Gptq => Ok(None),
        QweightLayout::AwqGemv => gemv(cx, &packed).map(Some),
        QweightLayout::AwqGemm => {
            // a permutation that is ignored would exchange columns silently
            if packed.index.is_some() {
                return Err(not_known(
                    packed.codes,
                    "AWQ's layout with a group index (g_idx), which only GPTQ has",
                ));
            }
            gemm(cx, "awq", &packed, false).map(Some)
        }
    }
}

/// A weight in the `gemm` layout. `awq_order`: whether widths other than 4 are in AWQ's order too, as AutoRound packs them.
pub(super) fn gemm(
    cx: &Context<'_>,
    scheme: &'static str,
    packed: &Qweight<'_>,
    awq_order: bool,
) -> Result<Weight> {
    let [depth, words] = packed.words();
    let [groups, out] = packed.scale_shape;
    // the scales give the number of outputs, so that the words of a row give the width
    let bits = words.checked_mul(32).map_or(0, |bits| bits / out);
    let (codes, order) = match (u32::try_from(bits).unwrap_or(0), awq_order) {
        // even codes in the lower half of a word and odd ones in the upper half: the GPU kernels of AWQ extract a
        // pair with one mask and one shift
        (4, _) => (ColumnCodes::Awq4, ZeroPointOrder::Awq(CodeWidth::Stream(4))),
        // GPTQModel has these widths in their natural order, AutoRound in AWQ's
        (2 | 3 | 5..=8, false) if cx.config.is_empty() => {
            let what = format!("AWQ with codes of {bits} bits, whose order no configuration says");
            return Err(not_known(packed.codes, what));
        }
        (bits @ 2..=8, false) => (
            ColumnCodes::Across(CodeWidth::Stream(bits)),
            ZeroPointOrder::Natural(CodeWidth::Stream(bits)),
        ),
        (bits @ 5..=7, true) => (
            ColumnCodes::AwqStream(CodeWidth::Stream(bits)),
            ZeroPointOrder::Awq(CodeWidth::Stream(bits)),
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
    if cx.config.flag("zero_point") == Some(false) && packed.zeros.is_some() {
        cx.note("AWQ's stored zero points are subtracted, though the configuration says zero_point: false");
    }
    if let Some(said) = packed.bits.filter(|said| *said != bits) {
        cx.note(format!(
            "codes of {bits} bits, by the shapes; the configuration says {said}"
        ));
    }
    if groups > depth {
        return Err(not_known(
            cx.info(packed.scales),
            format!("{groups} groups of {depth} inputs"),
        ));
    }
    let zeros = packed
        .zeros
        .ok_or_else(|| missing(packed.codes, "qzeros"))?;
    // zero points are packed along the outputs like the codes, hence the same number of words
    if cx.info(zeros).shape[..] != [groups, words] {
        let what = format!(
            "{:?} zero points for {groups} groups of {words} words",
            &cx.info(zeros).shape[..]
        );
        return Err(not_known(cx.info(zeros), what));
    }
    let decoder = Columns {
        rows: out,
        cols: depth,
        codes,
        stored: (depth, words * 4),
        groups,
        group_of: GroupOf::Every(packed.whole_group_size(cx, depth, groups)?),
        scales: (1, packed.scale_dtype),
        zeros: ColumnZeros::Packed {
            part: 2,
            words,
            order,
            bias: ZeroPointBias::None,
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

/// A weight in the `gemv` layout.
fn gemv(cx: &Context<'_>, packed: &Qweight<'_>) -> Result<Weight> {
    let [out, words] = packed.words();
    let room = packed.scale_shape[1];
    let depth = words
        .checked_mul(8)
        .ok_or_else(|| not_known(packed.codes, "number of columns overflows"))?;
    let group = configured_group(cx, packed.codes, depth)?;
    // AutoAWQ pads to a multiple that depends on the group size; padding is not read
    if group == 0 || depth.div_ceil(group) > room {
        let what =
            format!("{room} scales in a row do not go with groups of {group} of {depth} inputs");
        return Err(not_known(cx.info(packed.scales), what));
    }
    note_padding(cx, depth, group, room);
    has_zero_padding(cx, packed.scales, depth.div_ceil(group), |at| at % room)?;
    let decoder = GemvRows {
        rows: out,
        cols: depth,
        group,
        padded_groups: room,
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

/// A weight in the layout of `gemv_fast` and of llm-awq's own files.
fn interleaved(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info: &TensorInfo = cx.info(tensor);
    let Some(stem) = stem(info, ".qweight").filter(|_| plain(info) == Some(Dtype::I16)) else {
        return Ok(None);
    };
    let Some((zeros, _)) = cx.first_sibling(stem, &[".scaled_zeros", ".qzeros"]) else {
        return Ok(None);
    };
    let scales = cx
        .sibling(stem, ".scales")
        .ok_or_else(|| missing(info, "scales"))?;
    let shape = match info.shape[..] {
        // the interleaving covers 4 rows and 64 columns
        [fours, cols] if fours > 0 && cols > 0 && cols.is_multiple_of(64) => {
            fours.checked_mul(4).map(|rows| [rows, cols])
        }
        _ => None,
    };
    let [rows, cols] = shape.ok_or_else(|| {
        not_known(
            info,
            format!(
                "shape {:?} of I16 codes: two dimensions and a multiple of 64 columns are expected",
                info.shape.as_slice()
            ),
        )
    })?;
    let group = configured_group(cx, info, cols)?;
    let mut made = Vec::new();
    let mut factors = |part: usize, tensor: usize| -> Result<Factors> {
        let found = cx.info(tensor);
        let dtype = plain(found).filter(|d| matches!(d, Dtype::F16 | Dtype::BF16 | Dtype::F32));
        let (Some(dtype), Some(&[room, _])) = (
            dtype,
            found.shape[..].as_array().filter(|shape| shape[1] == rows),
        ) else {
            let what = format!(
                "{} {:?} instead of factors of {rows} rows",
                found.encoding,
                found.shape.as_slice()
            );
            return Err(not_known(found, what));
        };
        // padding is not read
        if group == 0 || cols.div_ceil(group) > room {
            let what = format!("{room} of them do not go with groups of {group} of {cols} inputs");
            return Err(not_known(found, what));
        }
        note_padding(cx, cols, group, room);
        let groups = cols.div_ceil(group);
        if part == 1 {
            has_zero_padding(cx, tensor, groups, |at| at / rows)?;
        }
        let view = TransposedFactors::alone(part, dtype, [rows, rows], groups, room);
        made.push((part, Arc::new(view) as Arc<dyn PartView>));
        Ok(Factors::per_group(part, dtype, group))
    };
    let inner = Grouped {
        rows,
        cols,
        matrix_rows: rows,
        codes: Codes::new(CodePacking::LowNibbles, CodeValue::Unsigned, cols / 2),
        // `scaled_zeros` is `-zero * scale`, which the kernel adds
        formula: Formula::ScaleOffset,
        scales: Scales::Stored(factors(1, scales)?),
        zeros: Zeros::Stored(factors(2, zeros)?),
    };
    made.push((
        0,
        Arc::new(InterleavedRows {
            place: PartOffset::whole(0),
            rows,
            cols,
        }),
    ));
    let parts = [("codes", tensor), ("scale", scales), ("zero_point", zeros)];
    let decoder = Composite::new(inner, parts.len(), made);
    Ok(Some(cx.weight(
        "awq",
        [stem, ".weight"].concat(),
        &[rows, cols],
        &parts,
        decoder,
    )))
}

/// Notes factors whose padding is of another group size. Padding hides the number of groups, so that the configured size is used.
///
/// Source: `calculate_zeros_width` of llm-awq `quantize/qmodule.py` and of AutoAWQ `modules/linear/gemv_fast.py`.
fn note_padding(cx: &Context<'_>, depth: u64, group: u64, room: u64) {
    let groups = depth / group;
    let multiple = match group {
        128.. => 1,
        64 => 2,
        32 => 4,
        _ => return,
    };
    let padded = 8 * groups.div_ceil(8).div_ceil(multiple) * multiple;
    if room != padded && room != groups {
        cx.note(format!(
            "AWQ in rows: groups of {group} inputs by the configuration, and {room} scales are the padding of another size"
        ));
    }
}

/// Refuses scales that are not zero where the configured size has no groups: larger groups than were stored have the same padding.
/// The scales of the first weight are compared, since a configuration states one size. `group_of`: the group of an element.
///
/// Source: writers copy the scales into a tensor of zeros (`from_linear` of AutoAWQ `modules/linear/{gemv,gemv_fast}.py`, of llm-awq
/// `quantize/qmodule.py`).
fn has_zero_padding(
    cx: &Context<'_>,
    scales: usize,
    groups: u64,
    group_of: impl Fn(u64) -> u64,
) -> Result<()> {
    // as many as a layer of the largest models has
    const MAX_BYTES: u64 = 16 << 20;
    let info = cx.info(scales);
    if cx.caches.has_padding.replace(true) || info.nbytes() > MAX_BYTES {
        return Ok(());
    }
    let bytes = cx.peek_inside(info, info)?;
    let width = bytes.len() / usize::try_from(info.elements()).unwrap_or(1).max(1);
    let elements = (0..).zip(bytes.chunks_exact(width.max(1)));
    let mut padding = elements.filter(|(at, _)| group_of(*at) >= groups);
    if padding.any(|(_, scale)| scale.iter().any(|byte| *byte != 0)) {
        let what = format!(
            "there are more scales than for the {groups} groups of a row that the configured size makes"
        );
        return Err(not_known(info, what));
    }
    Ok(())
}

/// The configured group size, where -1 is a whole row; 128, AWQ's default, if none is configured. Padded shapes do not
/// determine it. Writers have groups of whole words that divide the row (`assert` of AutoAWQ `modules/linear/gemv_fast.py`).
fn configured_group(cx: &Context<'_>, codes: &TensorInfo, depth: u64) -> Result<u64> {
    let configured = ["group_size", "q_group_size"]
        .iter()
        .find_map(|key| cx.config.integer(key));
    let group = match configured {
        Some(-1) => depth,
        Some(size) => u64::try_from(size).unwrap_or(0),
        None => {
            cx.note("AWQ in rows (gemv): no group size is configured; 128 is assumed");
            128
        }
    };
    let divides = group >= depth || (group.is_multiple_of(8) && depth.is_multiple_of(group.max(1)));
    if group > 0 && !divides {
        let what = format!("groups of {group}, as configured, are none of {depth} inputs");
        return Err(not_known(codes, what));
    }
    Ok(group)
}
