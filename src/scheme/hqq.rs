//! HQQ: `w = (code - zero) * scale`, reshaped.
//!
//! The weight is seen as a matrix whose rows (axis 1) or columns (axis 0) are its groups. Its rows are packed
//! in planes: the first half of the rows in the high nibbles, the second in the low ones, and likewise with
//! 2 bits and 1; 3 bits go ten to a word of 32, from bit 27 down, and rows are added to make that even.
//! 5 and 6 bits have a byte each, 1.58 bits are 2. What it takes to know this stands beside `W_q`, in tensors
//! of a number or a text each (safetensors) or in the pickle (PyTorch), there maybe in a dict `meta`.
//! Scales and zero points may be quantised themselves, in the same way: see `nested.rs`.
//! Source: hqq `core/bitpack.py`, `core/quantize.py` (`Quantizer`, `HQQLinear.state_dict`), `core/utils.py`.

mod nested;

use std::sync::Arc;

use crate::Dtype;
use crate::catalog::{TensorInfo, elements};
use crate::decode::{
    Codes, Derived, Factors, Flat, Grouped, PerGroup, Place, Planes, Scales, Source, Zeros,
};
use crate::error::Result;
use crate::kernel::{Form, Packing, Value};
use crate::plan::Decoder;

use super::Weight;
use super::context::{Context, malformed, plain, stem};
use super::facts::Facts;
use super::grain::flat;
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
    Layout {
        name: "8bit_u8",
        bits: 8,
        word: 1,
        planes: 1,
        sizes: &[8.0, 6.0, 5.0],
    },
    Layout {
        name: "4bit_u8",
        bits: 4,
        word: 1,
        planes: 2,
        sizes: &[4.0],
    },
    Layout {
        name: "3bit_32",
        bits: 3,
        word: 4,
        planes: 10,
        sizes: &[3.0],
    },
    Layout {
        name: "2bit_u8",
        bits: 2,
        word: 1,
        planes: 4,
        sizes: &[2.0, 1.58],
    },
    Layout {
        name: "1bit_u8",
        bits: 1,
        word: 1,
        planes: 8,
        sizes: &[1.0],
    },
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

/// What scales or zero points are beside a module, one of which there is: numbers, codes, or both kinds in one tensor.
static SCALES: &[&str] = &[".scale", ".scale_q", ".zero_scale"];

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(module) = stem(info, ".W_q") else {
        return Ok(None);
    };
    let meta = [module, ".meta"].concat();
    let beside = [module, &meta]
        .into_iter()
        .find(|at| cx.first_beside(at, SCALES).is_some());
    let Some(at) = beside else {
        // SINQ has codes of the same name
        return if cx.position(&meta).is_some() {
            Ok(None)
        } else {
            Err(missing(info, "scale"))
        };
    };
    weight(cx, tensor, module, &Facts { cx, at }).map(Some)
}

fn weight(cx: &Context<'_>, tensor: usize, module: &str, facts: &Facts<'_, '_>) -> Result<Weight> {
    let info = cx.info(tensor);
    let configured = || cx.config.integer("quant_config.weight_quant_params.axis");
    let matrix = Matrix::read(info, facts, facts.integer("axis")?.or_else(configured))?;
    let whole_numbers = matches!(
        plain(info),
        Some(Dtype::U8 | Dtype::I8 | Dtype::I32 | Dtype::U32)
    );
    if !whole_numbers && facts.integer("view_as_float")?.is_none_or(|on| on == 0) {
        return Err(malformed(
            info,
            format!("{} where packed codes belong", info.encoding),
        ));
    }
    matrix.hold(info, info.nbytes())?;
    let mut parts = vec![("codes", tensor)];
    let scale = nested::numbers(cx, info, facts, nested::SCALE, matrix.factors(), &mut parts)?;
    let zero = nested::numbers(cx, info, facts, nested::ZERO, matrix.factors(), &mut parts)?;
    let inner = matrix.decoder(
        form(cx, facts, scale.native, zero.native)?,
        scale.dtype,
        zero.dtype,
    );
    let descriptors = DESCRIPTORS
        .iter()
        .flat_map(|&key| facts.tensors(key, module).map(move |t| (key, t)));
    parts.extend(descriptors);
    for role in [nested::SCALE, nested::ZERO] {
        let at = role.at(facts);
        let own = Facts { cx, at: &at };
        parts.extend(
            DESCRIPTORS
                .iter()
                .filter_map(|&key| Some((key, own.tensor(key)?))),
        );
    }
    let name = [module, ".weight"].concat();
    let decoder = match (&scale.source, &zero.source) {
        (
            Source::Stored(Place { part: 1, start: 0 }),
            Source::Stored(Place { part: 2, start: 0 }),
        ) => inner,
        _ => {
            let parts = vec![Source::Stored(Place::whole(0)), scale.source, zero.source];
            Arc::new(Derived { inner, parts })
        }
    };
    Ok(cx.weight_by("hqq", name, &matrix.shape, &parts, decoder))
}

/// A matrix of codes as it is packed, and how its scales and zero points lie.
struct Matrix {
    layout: &'static Layout,
    shape: Vec<u64>,
    count: u64,
    rows: u64,
    cols: u64,
    /// Rows that are stored: those of the first plane.
    stored: u64,
    factors: PerMatrix,
}

/// How scales and zero points lie over a [`Matrix`].
#[derive(Clone, Copy, PartialEq)]
enum PerMatrix {
    One,
    Row,
    Column,
}

impl Matrix {
    /// What the facts say.
    fn read(info: &TensorInfo, facts: &Facts<'_, '_>, axis: Option<i64>) -> Result<Self> {
        let wrong = |what: String| malformed(info, what);
        let layout = layout(info, facts)?;
        let shape = facts
            .sizes("shape")?
            .ok_or_else(|| missing(info, "shape"))?;
        let count = elements(&shape)
            .filter(|&n| n > 0)
            .ok_or_else(|| wrong(format!("a weight of {shape:?}")))?;
        let axis = match axis {
            Some(axis @ (0 | 1)) => axis,
            Some(axis) => return Err(wrong(format!("axis {axis}"))),
            None => return Err(missing(info, "axis")),
        };
        let group = match facts.integer("group_size")? {
            Some(n) => u64::try_from(n)
                .ok()
                .filter(|n| *n > 0 && count.is_multiple_of(*n)),
            // no groups: a whole row, or a whole column
            None => Some(if axis == 1 {
                count / shape[0]
            } else {
                shape[0]
            }),
        };
        let group =
            group.ok_or_else(|| wrong(format!("its group_size does not divide {shape:?}")))?;
        let groups = count / group;
        // `channel_wise` is said of weights alone; a scale without dimensions says it too
        let one = facts.integer("channel_wise")? == Some(0)
            || facts
                .tensor("scale")
                .is_some_and(|scale| facts.cx.info(scale).shape.is_empty());
        let (rows, cols, factors) = match (one, axis) {
            (true, _) => (shape[0], count / shape[0], PerMatrix::One),
            (false, 1) => (groups, group, PerMatrix::Row),
            (false, _) => (group, groups, PerMatrix::Column),
        };
        Ok(Self {
            layout,
            shape,
            count,
            rows,
            cols,
            stored: rows.div_ceil(layout.planes.into()),
            factors,
        })
    }

    /// Whether so many bytes are its codes.
    fn hold(&self, info: &TensorInfo, nbytes: u64) -> Result<()> {
        let Self {
            layout,
            rows,
            cols,
            stored,
            ..
        } = self;
        let fits = layout.bits == 3 || rows.is_multiple_of(layout.planes.into());
        if !fits
            || stored
                .checked_mul(*cols)
                .and_then(|n| n.checked_mul(layout.word as u64))
                != Some(nbytes)
        {
            let what = format!(
                "{nbytes} bytes do not hold {rows} rows of {cols} as {}",
                layout.name
            );
            return Err(malformed(info, what));
        }
        Ok(())
    }

    /// The shapes that its scales may have, the first as the reference writes it.
    fn factors(&self) -> [Vec<u64>; 2] {
        match self.factors {
            PerMatrix::One => [vec![], vec![1]],
            PerMatrix::Row => [vec![self.rows, 1], vec![self.rows]],
            PerMatrix::Column => [vec![1, self.cols], vec![self.cols]],
        }
    }

    /// Codes are part 0, scales part 1, zero points part 2.
    fn decoder(&self, form: Form, scale: Dtype, zero: Dtype) -> Arc<dyn Decoder> {
        let Self {
            layout,
            count,
            stored,
            ..
        } = *self;
        let by_rows = self.factors == PerMatrix::Row;
        // rows of it are elements where groups lie in rows, and rows where they do not
        let planes = (layout.planes > 1).then(|| Planes {
            stored: if by_rows { stored * self.cols } else { stored },
            word: layout.word,
            bits: layout.bits,
            shifts: (0..layout.planes)
                .rev()
                .map(|plane| plane * layout.bits)
                .collect(),
        });
        // without planes, and with one scale, any rows will do: none is too short to be worth it
        let (rows, cols, _) = match (self.factors, &planes) {
            (PerMatrix::One, None) => flat(count),
            _ => (self.rows, self.cols, 0),
        };
        let codes = Codes {
            planes,
            ..Codes::new(Packing::Bytes, Value::Unsigned, cols * layout.word as u64)
        };
        if by_rows {
            let (scales, zeros) = (
                PerGroup::Stored {
                    part: 1,
                    dtype: scale,
                },
                PerGroup::Stored {
                    part: 2,
                    dtype: zero,
                },
            );
            return Arc::new(Flat {
                elements: count,
                group: cols,
                codes,
                table: None,
                form,
                scales,
                zeros: Some(zeros),
            });
        }
        let factors = |part, dtype| match self.factors {
            PerMatrix::One => Factors::one(part, dtype),
            _ => Factors::per_block(part, dtype, u64::MAX, 1),
        };
        let (scales, zeros) = (
            Scales::Stored(factors(1, scale)),
            Zeros::Stored(factors(2, zero)),
        );
        Arc::new(Grouped {
            rows,
            cols,
            matrix_rows: rows,
            codes,
            form,
            scales,
            zeros,
        })
    }
}

/// How the codes are packed: by name, or by their size.
fn layout(info: &TensorInfo, facts: &Facts<'_, '_>) -> Result<&'static Layout> {
    let size = facts.number("nbits")?;
    let suits = |layout: &&Layout| {
        size.is_none_or(|size| layout.sizes.iter().any(|s| (s - size).abs() < 1e-3))
    };
    match (facts.text("packing")?, size) {
        (Some(name), _) => LAYOUTS
            .iter()
            .find(|layout| layout.name == name)
            .filter(suits)
            .ok_or_else(|| {
                malformed(
                    info,
                    format!(
                        "its packing is {name:?}, its nbits {}",
                        size.unwrap_or_default()
                    ),
                )
            }),
        (None, Some(size)) => LAYOUTS
            .iter()
            .find(suits)
            .ok_or_else(|| malformed(info, format!("its nbits are {size}"))),
        (None, None) => Err(missing(info, "nbits")),
    }
}

/// What is done with a code: in F32, or rounded as the reference rounds.
fn form(cx: &Context<'_>, facts: &Facts<'_, '_>, scale: Dtype, zero: Dtype) -> Result<Form> {
    if cx.native {
        native(facts, scale, zero)
    } else {
        Ok(Form::ZeroScale)
    }
}

/// The reference's rounding: PyTorch's promotion of the codes' dtype, which is `compute_dtype`, and those of
/// zero points and scales.
fn native(facts: &Facts<'_, '_>, scale: Dtype, zero: Dtype) -> Result<Form> {
    let compute = facts.text("compute_dtype")?;
    let compute = match compute
        .as_deref()
        .map_or("float16", |name| name.trim_start_matches("torch."))
    {
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
