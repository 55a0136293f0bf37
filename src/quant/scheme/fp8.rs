//! FP8 codes with scales per tensor, channel, group or block, and FP8 without scales.
//!
//! Written by DeepSeek, transformers (`fp8`, `fbgemm_fp8`), compressed-tensors, ModelOpt and others. Recognised by dtype
//! (E4M3, E5M2 and their FNUZ variants) of a tensor that is not itself named as a scale.
//!
//! `w = q * scale`, F32, whatever the scale's name is: `weight_scale_inv` (DeepSeek) multiplies too. Scales are F32, F16,
//! BF16, F64 or E8M0 (also as U8: MXFP8); granularity follows from their shape (`granularity.rs`). Without a
//! scale `w = q`. Without a configuration, E8M0 in other grids than groups of 32 and blocks is refused (`statements.rs`).
//!
//! | further names | written by |
//! |---|---|
//! | `scale_weight`, one or `[out, blocks, 1]` | ComfyUI before its markers, musubi-tuner |
//! | `qscale_weight` | Mistral's own files |
//! | `weights_scaling_factor` | TensorRT-LLM |
//! | `weight_quantizer._scale` | ModelOpt before its export |
//! | `weight_scale` `[down, 1, across, 1]` of blocks | ModelOpt (`FP8_PB_WO`) |
//! | `weight_scale` of two to four, one for each of as many equal parts of the rows | vLLM, for modules that are known to be fused projections |
//!
//! Refused: a weight without a scale where the configuration says that weights are scaled; different scales of parts whose rows neither
//! the module nor the configured heads tell.
//!
//! Sources: transformers `integrations/finegrained_fp8.py` and `fbgemm_fp8.py`, compressed-tensors
//! `naive_quantized`, ModelOpt `export/quant_utils.py`.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::models::names::{FusedRows, fused_module};
use crate::plan::decode::{Codes, Factors, Grouped, Scales, Zeros};
use crate::quant::settings::KnownValues::{Any, Counts, Texts};
use crate::quant::settings::SchemeSettings;
use crate::read::catalog::TensorInfo;

use super::Weight;
use super::config_groups::block_sizes;
use super::context::{Context, missing, not_known};
use super::granularity::{factors, filled, flat, scale_dtype, stack};
use super::stated::{Alternatives, ScaleNumbers, StatedGranularity, StatedNumbers};

/// ComfyUI's older mark of a file, or of a model of several in one, whose matrices in FP8 all have scales.
pub(crate) const SCALED: &str = "scaled_fp8";

/// Names of packed codes, which FP8 is not.
static PACKED: &[&str] = &[".weight_packed", ".qweight", ".q_weight", ".W_q"];

/// Suffixes of the scales of a tensor.
static SCALES: &[&str] = &["_scale_inv", "_scale", ".scale_weight", "_weight_scale"];

/// The settings of configurations of FP8 that are known. Scales are recognised by their shapes.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    // the empty method: `params.json` of Mistral
    methods: &["fp8", "fbgemm_fp8", "mxfp8", "finegrained_fp8", ""],
    keys: &[
        ("weight_block_size", Counts),
        (
            "fmt",
            Texts(&["e4m3", "e5m2", "float8_e4m3fn", "float8_e5m2"]),
        ),
        ("scale_fmt", Texts(&["ue8m0", "float", "float32"])),
        ("expert_dtype", Texts(&["fp4", "fp8", "bf16"])),
        ("activation_scale_ub", Any),
        ("qformat_weight", Texts(&["fp8_e4m3"])),
        ("qscheme_act", Any),
    ],
};

/// Suffixes of the scales of a module.
static OF_MODULE: &[&str] = &[
    ".scale",
    ".scale_weight",
    ".weight_scales",
    // Mistral's own files
    ".qscale_weight",
    // TensorRT-LLM
    ".weights_scaling_factor",
    // ModelOpt's state before its export
    ".weight_quantizer._scale",
];

/// The numbers that a configuration states: FP8 in blocks of a configured size, or Mistral's.
pub(super) fn stated(cx: &Context<'_>, _: &str) -> Alternatives {
    let config = cx.config;
    if config.method().is_none() {
        let format = config.text("qformat_weight");
        let is_float8 = format.is_some_and(|format| format.starts_with("fp8"));
        return is_float8
            .then(|| {
                let numbers = StatedNumbers::float8("E4M3").scaled_by(ScaleNumbers::Floats);
                // `qscale_weight` is a number
                vec![numbers.with_scales(Some(StatedGranularity::Tensor))]
            })
            .into_iter()
            .collect();
    }
    let scales = match config.method() {
        Some("fbgemm_fp8") => Some(StatedGranularity::Channel),
        Some("mxfp8") => Some(StatedGranularity::Group(32)),
        _ => {
            let block = config.get("weight_block_size").and_then(block_sizes);
            block.map(|(high, wide)| StatedGranularity::Block(high, wide))
        }
    };
    let numbers = match (config.text("fmt"), config.method()) {
        (Some(fmt), _) if fmt.contains("e5m2") => StatedNumbers::float8("E5M2"),
        (Some(_), _) | (_, Some("fbgemm_fp8")) => StatedNumbers::float8("E4M3"),
        _ => StatedNumbers::floats(Some(8)),
    };
    let numbers = numbers.scaled_by(match config.method() {
        Some("fbgemm_fp8") => ScaleNumbers::Floats,
        Some("mxfp8") => ScaleNumbers::Exponents,
        _ => ScaleNumbers::FloatsOrExponents,
    });
    // DeepSeek-V4's experts are FP4 under the same method
    vec![
        vec![numbers.with_scales(scales)],
        vec![StatedNumbers::floats(Some(4)).scaled_by(ScaleNumbers::Exponents)],
    ]
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(dtype @ (Dtype::F8_E4M3 | Dtype::F8_E5M2 | Dtype::F8_E4M3FNUZ | Dtype::F8_E5M2FNUZ)) =
        cx.dtype(tensor)
    else {
        return Ok(None);
    };
    // scales may be FP8 themselves
    if info.name.ends_with("_scale")
        || info.name.ends_with("_scale_inv")
        || info.name.ends_with(".scale")
        || is_mark(info)
        || PACKED.iter().any(|end| info.name.ends_with(end))
    {
        return Ok(None);
    }
    let stem = info.name.strip_suffix(".weight");
    let scale = cx
        .first_sibling(&info.name, SCALES)
        .or_else(|| cx.first_sibling(stem?, OF_MODULE))
        // a parameter of a module of a file that was cast as a whole; no writer has scales of that name in E4M3
        .filter(|(scale, end)| *end != ".scale" || !is_float8(cx, *scale));
    let value = CodeValue::of(dtype).expect("one of the four");
    let (scales, parts) = match scale {
        Some((scale, _)) => {
            filled(info, &info.shape)?;
            let scales = match fused(cx, info, scale)? {
                Some(scales) => scales,
                None => factors(cx, 1, scale, &info.shape, block(cx))?,
            };
            (
                Scales::Stored(scales),
                vec![("codes", tensor), ("scale", scale)],
            )
        }
        // configured as scaled: the file is damaged. Otherwise unscaled FP8 is a valid weight
        None if cx.config.claims_scales()
            && (stem.is_some() || info.shape.len() > 2)
            && !cx.skipped(&info.name) =>
        {
            // blocks are configured where the scale has DeepSeek's name
            let name = if cx.config.get("weight_block_size").is_some() {
                "weight_scale_inv"
            } else if cx.config.get("qformat_weight").is_some() {
                "qscale_weight"
            } else {
                "weight_scale"
            };
            return Err(missing(info, name));
        }
        // ModelOpt's quantiser, whose range is there without its scale
        None if stem.is_some_and(|stem| cx.sibling(stem, ".weight_quantizer._amax").is_some()) => {
            return Err(missing(info, "weight_quantizer._scale"));
        }
        None => (Scales::None, vec![("codes", tensor)]),
    };
    // rows without scales of their own may be cut at any length, so that none is too long for a tile
    let one = match &scales {
        Scales::Stored(factors) => factors.is_one(),
        _ => true,
    };
    let (rows, cols, matrix_rows) = if one {
        flat(info.elements())
    } else {
        stack(&info.shape)
    };
    let codes = Codes::new(CodePacking::Bytes, value, cols);
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: matrix_rows.max(1),
        codes,
        formula: Formula::Scale,
        scales,
        zeros: Zeros::None,
    };
    Ok(Some(cx.weight(
        "fp8",
        &*info.name,
        &info.shape,
        &parts,
        decoder,
    )))
}

fn is_float8(cx: &Context<'_>, tensor: usize) -> bool {
    matches!(cx.dtype(tensor), Some(Dtype::F8_E4M3 | Dtype::F8_E5M2))
}

/// Whether a tensor is ComfyUI's older mark, of no or two elements.
fn is_mark(info: &TensorInfo) -> bool {
    let front = info.name.strip_suffix(SCALED);
    front.is_some_and(|front| front.is_empty() || front.ends_with('.')) && info.elements() <= 2
}

/// The scales of a projection that several were fused into, one for each of them.
fn fused(cx: &Context<'_>, info: &TensorInfo, scale: usize) -> Result<Option<Factors>> {
    let found = cx.info(scale);
    let (&[rows, cols], &[parts @ 2..=4]) = (&info.shape[..], &found.shape[..]) else {
        return Ok(None);
    };
    if rows <= parts {
        return Ok(None);
    }
    let refused = |why: &str| {
        let what = format!("{parts} scales for {rows} rows: {why}");
        Err(not_known(info, what))
    };
    let module = fused_module(&info.name).filter(|module| module.parts == parts);
    let Some(module) = module else {
        return refused("it is not known to be that many projections that were fused into one");
    };
    let dtype = scale_dtype(found)?;
    // equal scales are one, however the rows are divided
    let bytes = cx.peek(scale)?;
    let width = bytes.len() / usize::try_from(parts).expect("up to four");
    let mut scales = bytes.chunks_exact(width.max(1));
    let first = scales.next();
    if first.is_some() && scales.all(|scale| Some(scale) == first) {
        return Ok(Some(Factors::one(1, dtype)));
    }
    let model = cx.config.model();
    let is_equal = match module.rows {
        FusedRows::Equal => true,
        // query, key and value, which grouped heads make unequal
        FusedRows::OfHeads => model.heads().is_some_and(|heads| {
            model.kv_heads().unwrap_or(heads) == heads && rows.is_multiple_of(3 * heads.max(1))
        }),
        FusedRows::Other => false,
    };
    if !is_equal || !rows.is_multiple_of(parts) {
        return refused(
            "the weight_scale of each part of a fused projection, whose rows are not known",
        );
    }
    Ok(Some(Factors::per_block(1, dtype, rows / parts, cols)))
}

/// The configured block `(rows, cols)`: `weight_block_size`, or the block of compressed-tensors' first group.
fn block(cx: &Context<'_>) -> Option<(u64, u64)> {
    match cx.config.get("weight_block_size") {
        Some(sizes) => block_sizes(sizes),
        None => cx.configured_groups().block,
    }
}
