//! HQQ: `w = (code - zero) * scale`, reshaped.
//!
//! The weight is seen as a matrix whose rows (axis 1) or columns (axis 0) are its groups. Its rows are packed
//! in planes: the first half of the rows in the high nibbles, the second in the low ones, and likewise with
//! 2 bits and 1; 3 bits go ten to a word of 32, from bit 27 down, and rows are added to make that even.
//! 5 and 6 bits have a byte each, 1.58 bits are 2. What it takes to know this stands beside `W_q`, in tensors
//! of a number or a text each (safetensors) or in the pickle (PyTorch), there maybe in a dict `meta`.
//! Source: hqq `core/bitpack.py`, `core/quantize.py` (`Quantizer`, `HQQLinear.state_dict`), `core/utils.py`.

use crate::Dtype;
use crate::catalog::{TensorInfo, elements};
use crate::decode::{Codes, Factors, Flat, Grouped, PerGroup, Planes, Scales, Zeros};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};

use super::Weight;
use super::context::{Context, malformed, plain, stem, unsupported};
use super::facts::Facts;
use super::plain::missing;

/// A way to pack: its name, the bits of a code as they lie, bytes of a word, planes, and the code sizes that use it.
struct Layout {
    name: &'static str,
    bits: u32,
    word: usize,
    planes: u32,
    sizes: &'static [f64],
}

static LAYOUTS: &[Layout] = &[
    Layout { name: "8bit_u8", bits: 8, word: 1, planes: 1, sizes: &[8.0, 6.0, 5.0] },
    Layout { name: "4bit_u8", bits: 4, word: 1, planes: 2, sizes: &[4.0] },
    Layout { name: "3bit_32", bits: 3, word: 4, planes: 10, sizes: &[3.0] },
    Layout { name: "2bit_u8", bits: 2, word: 1, planes: 4, sizes: &[2.0, 1.58] },
    Layout { name: "1bit_u8", bits: 1, word: 1, planes: 8, sizes: &[1.0] },
];

/// What stands beside the codes and only describes.
static DESCRIPTORS: &[&str] = &[
    "nbits",
    "group_size",
    "shape",
    "axis",
    "packing",
    "unpack_view_dtype",
    "view_as_float",
    "quant_scale",
    "quant_zero",
    "compute_dtype",
    "offload_meta",
    "encoded_state_dict",
    "stores_quant_config",
    "channel_wise",
    "optimize",
    "round_zero",
];

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(module) = stem(info, ".W_q") else { return Ok(None) };
    let meta = [module, ".meta"].concat();
    let beside = [module, &meta].into_iter().find(|at| cx.beside(at, ".scale").is_some());
    let Some(at) = beside else {
        for part in [".scale_q", ".zero_q", ".zero_scale"] {
            if cx.beside(module, part).is_some() || cx.beside(&meta, part).is_some() {
                return Err(unsupported(info, format!("its scales are quantised or stacked ({part})")));
            }
        }
        // SINQ has codes of the same name
        return if cx.position(&meta).is_some() { Ok(None) } else { Err(missing(info, "scale")) };
    };
    weight(cx, tensor, module, &Facts { cx, at }).map(Some)
}

fn weight(cx: &Context<'_>, tensor: usize, module: &str, facts: &Facts<'_, '_>) -> Result<Weight> {
    let info = cx.info(tensor);
    let wrong = |what: String| malformed(info, what);
    for flag in ["quant_scale", "quant_zero"] {
        if facts.integer(flag)?.is_some_and(|on| on != 0) {
            return Err(unsupported(info, format!("its scales or zero points are quantised ({flag})")));
        }
    }
    if facts.integer("channel_wise")? == Some(0) {
        return Err(unsupported(info, "one scale for the whole weight (channel_wise is off)"));
    }
    let layout = layout(info, facts)?;
    let shape = facts.sizes("shape")?.ok_or_else(|| missing(info, "shape"))?;
    let count = elements(&shape).filter(|&n| n > 0).ok_or_else(|| wrong(format!("a weight of {shape:?}")))?;
    let configured = || cx.config.integer("quant_config.weight_quant_params.axis");
    let (scale, zero) = (factor(cx, info, facts, "scale")?, factor(cx, info, facts, "zero")?);
    let axis = match facts.integer("axis")?.or_else(configured) {
        Some(axis @ (0 | 1)) => axis,
        Some(axis) => return Err(wrong(format!("axis {axis}"))),
        None => return Err(missing(info, "axis")),
    };
    // no groups: a whole row, or a whole column
    let whole = if axis == 1 { count / shape[0] } else { shape[0] };
    let group = match facts.integer("group_size")? {
        Some(n) => u64::try_from(n).ok().filter(|n| *n > 0 && count.is_multiple_of(*n)),
        None => Some(whole),
    };
    let group = group.ok_or_else(|| wrong(format!("its group_size does not divide {shape:?}")))?;
    let groups = count / group;
    let (rows, cols) = if axis == 1 { (groups, group) } else { (group, groups) };
    for (_, part, _) in [&scale, &zero] {
        let found = &cx.info(*part).shape[..];
        let fits = if axis == 1 { [groups, 1] } else { [1, groups] };
        if found != fits && found != [groups] {
            return Err(malformed(cx.info(*part), format!("{found:?} where {fits:?} belongs")));
        }
    }
    let (planes, word) = (u64::from(layout.planes), layout.word as u64);
    let stored = rows.div_ceil(planes);
    let fits = layout.bits == 3 || rows.is_multiple_of(planes);
    if !fits || stored.checked_mul(cols).and_then(|n| n.checked_mul(word)) != Some(info.nbytes()) {
        let what = format!("{} bytes do not hold {rows} rows of {cols} as {}", info.nbytes(), layout.name);
        return Err(wrong(what));
    }
    let whole_numbers = matches!(plain(info), Some(Dtype::U8 | Dtype::I8 | Dtype::I32 | Dtype::U32));
    if !whole_numbers && facts.integer("view_as_float")?.is_none_or(|on| on == 0) {
        return Err(wrong(format!("{} where packed codes belong", info.encoding)));
    }
    let form = if cx.native { native(facts, scale.2, zero.2)? } else { Form::ZeroScale };
    let mut parts = vec![("codes", tensor), ("scale", scale.1), ("zero", zero.1)];
    let descriptors = DESCRIPTORS.iter().flat_map(|&key| facts.tensors(key, module).map(move |t| (key, t)));
    parts.extend(descriptors);
    // rows of it are elements where groups lie in rows, and rows where they do not
    let planes = (layout.planes > 1).then(|| Planes {
        stored: if axis == 1 { stored * cols } else { stored },
        word: layout.word,
        bits: layout.bits,
        shifts: (0..layout.planes).rev().map(|plane| plane * layout.bits).collect(),
    });
    let codes = Codes { planes, ..Codes::new(Packing::Bytes, Value::Unsigned, cols * word) };
    let name = [module, ".weight"].concat();
    if axis == 1 {
        let decoder = Flat {
            elements: count,
            group,
            codes,
            table: None,
            form,
            scales: PerGroup::Stored { part: 1, dtype: scale.2 },
            zeros: Some(PerGroup::Stored { part: 2, dtype: zero.2 }),
        };
        return Ok(cx.weight("hqq", name, &shape, &parts, decoder));
    }
    let per_column = |part, dtype| Factors::per_block(part, dtype, u64::MAX, 1);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: rows,
        codes,
        form,
        scales: Scales::Stored(per_column(1, scale.2)),
        zeros: Zeros::Stored(per_column(2, zero.2)),
    };
    Ok(cx.weight("hqq", name, &shape, &parts, decoder))
}

/// How the codes are packed: by name, or by their size.
fn layout(info: &TensorInfo, facts: &Facts<'_, '_>) -> Result<&'static Layout> {
    let size = facts.number("nbits")?;
    let suits = |layout: &&Layout| size.is_none_or(|size| layout.sizes.iter().any(|s| (s - size).abs() < 1e-3));
    match (facts.text("packing")?, size) {
        (Some(name), _) => {
            LAYOUTS.iter().find(|layout| layout.name == name).filter(suits).ok_or_else(|| {
                malformed(info, format!("its packing is {name:?}, its nbits {}", size.unwrap_or_default()))
            })
        }
        (None, Some(size)) => {
            LAYOUTS.iter().find(suits).ok_or_else(|| malformed(info, format!("its nbits are {size}")))
        }
        (None, None) => Err(missing(info, "nbits")),
    }
}

/// Scales or zero points: their role, tensor and dtype.
fn factor<'r>(
    cx: &Context<'_>,
    info: &TensorInfo,
    facts: &Facts<'_, '_>,
    role: &'r str,
) -> Result<(&'r str, usize, Dtype)> {
    let part = facts.tensor(role).ok_or_else(|| missing(info, role))?;
    match cx.dtype(part) {
        Some(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16)) => Ok((role, part, dtype)),
        _ => Err(malformed(cx.info(part), format!("{} where floats belong", cx.info(part).encoding))),
    }
}

/// The reference's rounding: PyTorch's promotion of the codes' dtype, which is `compute_dtype`, and those of
/// zero points and scales.
fn native(facts: &Facts<'_, '_>, scale: Dtype, zero: Dtype) -> Result<Form> {
    let compute = facts.text("compute_dtype")?;
    let compute = match compute.as_deref().map_or("float16", |name| name.trim_start_matches("torch.")) {
        "float16" | "half" => Dtype::F16,
        "bfloat16" => Dtype::BF16,
        _ => Dtype::F32,
    };
    Ok(match [compute, scale, zero] {
        [Dtype::F16, Dtype::F16, Dtype::F16] => Form::ZeroScaleF16,
        [Dtype::BF16, Dtype::BF16, Dtype::BF16] => Form::ZeroScaleBf16,
        _ => Form::ZeroScale,
    })
}
