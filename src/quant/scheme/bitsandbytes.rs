//! bitsandbytes: blocks of NF4 or FP4 codes, and INT8 rows.
//!
//! Written by bitsandbytes and transformers. 4 bits are recognised by a sibling `quant_state.bitsandbytes__nf4` or `__fp4`,
//! INT8 by I8 codes with a sibling `SCB`.
//!
//! 4 bits: `w = map[code] * absmax`, F32. Blocks are counted along the flattened weight, the high nibble first. `quant_map`
//! (F32 `[16]`) has the values of the codes. `absmax` is F32 `[blocks]`, or U8 and quantised itself (nested):
//! `nested_quant_map[code] * nested_absmax + nested_offset`, where the product, the offset and the sum are rounded to
//! `nested_dtype`. Shape, block sizes and offset are in the JSON text of `quant_state`. Codes may be stored under a 16- or
//! 32-bit float dtype; their bytes are codes all the same. INT8: `w = code * SCB * (1/127)`, one F32 `SCB` per row.
//!
//! Refused: INT8 whose `weight_format` is not row by row (a GPU's order); a `nested_dtype` that is not a float.
//!
//! Sources: bitsandbytes `functional.py` (`QuantState`), `backends/default/ops.py`, `_ops.py`
//! (`int8_vectorwise_dequant`), `nn/modules.py`.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, Formula};
use crate::plan::decode::{Codes, Factors, GroupFactors, Grouped, Linear, Scales, Zeros};
use crate::quant::settings::KnownValues::{Any, Flag, Texts};
use crate::quant::settings::SchemeSettings;
use crate::read::catalog::{TensorInfo, elements, quote};

use super::Weight;
use super::context::{Context, missing, not_known, plain, stem, unsupported};
use super::granularity::stack;

const STATES: &[&str] = &[
    ".quant_state.bitsandbytes__nf4",
    ".quant_state.bitsandbytes__fp4",
];

/// Maximum elements of a block. bitsandbytes makes blocks of 32 to 4096; a block is decoded as a whole.
const MAX_BLOCK: u64 = 1 << 20;

/// The settings of configurations of bitsandbytes that are known: each weight describes itself.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: &["bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit"],
    keys: &[
        ("load_in_4bit", Flag),
        ("load_in_8bit", Flag),
        ("_load_in_4bit", Flag),
        ("_load_in_8bit", Flag),
        ("bnb_4bit_compute_dtype", Any),
        ("bnb_4bit_quant_storage", Any),
        ("bnb_4bit_quant_type", Texts(&["nf4", "fp4"])),
        ("bnb_4bit_use_double_quant", Flag),
        ("llm_int8_enable_fp32_cpu_offload", Any),
        ("llm_int8_has_fp16_weight", Any),
        ("llm_int8_threshold", Any),
    ],
};

/// Compares the width of a weight's codes with the one that the configuration states for all.
fn compare_width(cx: &Context<'_>, info: &TensorInfo, bits: u32) -> Result<()> {
    if !cx.config.is_of(SETTINGS.methods) {
        return Ok(());
    }
    let is_on = |keys: [&str; 2]| keys.iter().any(|key| cx.config.flag(key) == Some(true));
    let four = is_on(["load_in_4bit", "_load_in_4bit"]);
    let eight = is_on(["load_in_8bit", "_load_in_8bit"]);
    let said = match (four, eight) {
        (true, false) => 4,
        (false, true) => 8,
        _ => return Ok(()),
    };
    if said == bits {
        return Ok(());
    }
    let place = cx.config.place();
    let what = format!("{place} states codes of {said} bits, and the tensors are of {bits}");
    Err(not_known(info, what))
}

/// Names settings of the configuration that the state of a weight contradicts, which decides: it has the values of the codes.
fn compare_settings(cx: &Context<'_>, quant_type: &str, nested: bool) {
    if !cx.config.is_of(SETTINGS.methods) {
        return;
    }
    let said = cx.config.text("bnb_4bit_quant_type");
    if let Some(said) = said.filter(|said| !said.eq_ignore_ascii_case(quant_type)) {
        cx.assume(format!(
            "codes of {quant_type}, as the state of each weight says; `bnb_4bit_quant_type` is {}",
            quote(said)
        ));
    }
    let said = cx.config.flag("bnb_4bit_use_double_quant");
    if let Some(said) = said.filter(|said| *said != nested) {
        let are = if nested { "" } else { "not " };
        cx.assume(format!(
            "scales that are {are}quantised themselves, as they are stored; `bnb_4bit_use_double_quant` is {said}"
        ));
    }
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    if let Some((state, _)) = cx.first_sibling(&info.name, STATES) {
        return four_bit(cx, tensor, state).map(Some);
    }
    // the state without its codes: copying it as a plain tensor would hide that the weight is missing
    if let Some(weight) = STATES.iter().find_map(|suffix| stem(info, suffix)) {
        let there = cx.catalog.position(weight).is_some();
        return if there {
            Ok(None)
        } else {
            Err(missing(info, weight))
        };
    }
    if info.name.ends_with("weight") && cx.sibling(&info.name, ".absmax").is_some() {
        return match other_state(cx, info)? {
            Some(kind) => Err(not_known(
                info,
                format!("its quant_state is of {}", quote(kind)),
            )),
            None => Err(missing(info, "quant_state")),
        };
    }
    match stem(info, ".weight").and_then(|stem| cx.sibling(stem, ".SCB")) {
        Some(scales) if cx.dtype(tensor) == Some(Dtype::I8) => int8(cx, tensor, scales).map(Some),
        _ => Ok(None),
    }
}

/// The kind of codes in the name of another `quant_state` of this weight.
fn other_state<'c>(cx: &Context<'c>, info: &TensorInfo) -> Result<Option<&'c str>> {
    for other in cx.catalog.tensors() {
        cx.budget.steps(
            1 + info.name.len() as u64 / 16,
            "the quant_state of a weight",
        )?;
        let rest = other.name.strip_prefix(&*info.name);
        if let Some(kind) = rest.and_then(|rest| rest.strip_prefix(".quant_state.")) {
            return Ok(Some(kind.strip_prefix("bitsandbytes__").unwrap_or(kind)));
        }
    }
    Ok(None)
}

/// The keys of a `quant_state`.
static STATE: SchemeSettings = SchemeSettings {
    methods: &[],
    keys: &[
        ("quant_type", Any),
        ("blocksize", Any),
        ("shape", Any),
        // the dtype before quantisation
        ("dtype", Any),
        ("nested_blocksize", Any),
        ("nested_offset", Any),
        ("nested_dtype", Any),
    ],
};

/// The JSON text of a 4-bit weight's `quant_state`.
#[derive(Deserialize)]
struct QuantState {
    quant_type: String,
    blocksize: u64,
    shape: Vec<u64>,
    nested_blocksize: Option<u64>,
    nested_offset: Option<f64>,
    nested_dtype: Option<String>,
    #[serde(flatten)]
    further: Map<String, Json>,
}

fn four_bit(cx: &Context<'_>, tensor: usize, state: usize) -> Result<Weight> {
    let info = cx.info(tensor);
    let QuantState {
        quant_type,
        blocksize,
        shape,
        nested_blocksize,
        nested_offset,
        nested_dtype,
        further,
    } = serde_json::from_slice(&cx.peek(state)?)
        .map_err(|e| not_known(cx.info(state), format!("invalid quant_state: {e}")))?;
    cx.know_descriptor(info, "its quant_state", &further, &STATE)?;
    let wrong = |what: String| not_known(info, what);
    // the name and the text both give the type; NF4 read as FP4 would be wrong numbers, so a contradiction is refused
    if !cx.info(state).name.ends_with(&*quant_type) {
        return Err(not_known(
            cx.info(state),
            format!("its quant_type is {quant_type:?}"),
        ));
    }
    if !matches!(
        cx.dtype(tensor),
        Some(Dtype::U8 | Dtype::I8 | Dtype::BF16 | Dtype::F16 | Dtype::F32)
    ) {
        return Err(wrong(format!(
            "dtype {} instead of codes of 4 bits",
            info.encoding
        )));
    }
    // tiles are multiples of a block; a block of odd length would end inside a byte
    if !blocksize.is_power_of_two() || !(2..=MAX_BLOCK).contains(&blocksize) {
        return Err(wrong(format!(
            "block size {blocksize} is not a power of two from 2 to {MAX_BLOCK}"
        )));
    }
    // codes that are stored under a wider dtype (`bnb_4bit_quant_storage`) are padded to whole items
    let item = info.encoding.item_bytes().unwrap_or(1);
    // two codes share a byte, and an odd number leaves the last nibble unused
    let count = elements(&shape)
        .filter(|n| n.div_ceil(2).checked_next_multiple_of(item) == Some(info.nbytes()));
    let Some(count) = count else {
        return Err(wrong(format!(
            "{} bytes of codes do not fit shape {shape:?} at 2 codes per byte",
            info.nbytes()
        )));
    };
    let mut parts = vec![("codes", tensor), ("quant_state", state)];
    let mut part = |role: &'static str, suffix: &str, count: u64, dtype: Dtype| {
        let found = cx
            .sibling(&info.name, suffix)
            .ok_or_else(|| missing(info, suffix))?;
        let there = cx.info(found);
        if plain(there) != Some(dtype) || there.elements() != count {
            return Err(not_known(
                there,
                format!("{} instead of {count} values of {dtype}", described(there)),
            ));
        }
        parts.push((role, found));
        Ok(parts.len() - 1)
    };
    let table = Some(part("quant_map", ".quant_map", 16, Dtype::F32)?);
    let blocks = count.div_ceil(blocksize);
    // either shows that `absmax` is quantised: a damaged file may lack one, which is then reported by name
    let nested = cx.sibling(&info.name, ".nested_absmax").is_some() || nested_blocksize.is_some();
    compare_width(cx, info, 4)?;
    compare_settings(cx, &quant_type, nested);
    let scales = if nested {
        let block = nested_blocksize.filter(|&n| n > 0);
        let block = block.ok_or_else(|| wrong("quant_state has no nested_blocksize".to_owned()))?;
        let offset =
            nested_offset.ok_or_else(|| wrong("quant_state has no nested_offset".to_owned()))?;
        let dtype = match nested_dtype.as_deref() {
            // bitsandbytes reads no state without it
            None => return Err(wrong("quant_state has no nested_dtype".to_owned())),
            Some("float32") => Dtype::F32,
            Some("bfloat16") => Dtype::BF16,
            Some("float16") => Dtype::F16,
            Some("float64") => Dtype::F64,
            Some(other) => {
                let what = format!("unsupported nested_dtype {}", quote(other));
                return Err(unsupported(info, what));
            }
        };
        #[allow(clippy::cast_possible_truncation)] // torch.tensor(float) is F32
        let offset = offset as f32;
        GroupFactors::Nested {
            codes: part("absmax", ".absmax", blocks, Dtype::U8)?,
            map: part("nested_quant_map", ".nested_quant_map", 256, Dtype::F32)?,
            scales: part(
                "nested_absmax",
                ".nested_absmax",
                blocks.div_ceil(block),
                Dtype::F32,
            )?,
            block,
            offset,
            dtype,
        }
    } else {
        GroupFactors::Stored {
            part: part("absmax", ".absmax", blocks, Dtype::F32)?,
            dtype: Dtype::F32,
        }
    };
    let decoder = Linear {
        elements: count,
        group: blocksize,
        codes: Codes::new(CodePacking::HighNibbles, CodeValue::Unsigned, 0),
        table,
        formula: Formula::Scale,
        scales,
        zeros: None,
    };
    Ok(cx.weight("bitsandbytes", &*info.name, &shape, &parts, decoder))
}

fn int8(cx: &Context<'_>, tensor: usize, scales: usize) -> Result<Weight> {
    let (info, found) = (cx.info(tensor), cx.info(scales));
    let (rows, cols, _) = stack(&info.shape);
    if plain(found) != Some(Dtype::F32) || found.elements() != rows {
        return Err(not_known(
            found,
            format!(
                "{} instead of F32 for each of {rows} rows",
                described(found)
            ),
        ));
    }
    compare_width(cx, info, 8)?;
    let mut parts = vec![("codes", tensor), ("scale", scales)];
    if let Some(format) = stem(info, ".weight").and_then(|stem| cx.sibling(stem, ".weight_format"))
    {
        // 0 is `row` in `LINEAR_8BIT_WEIGHTS_FORMAT_MAPPING`; the others are tiles of a GPU
        if cx.peek_integers(format)? != [0] {
            return Err(unsupported(
                cx.info(format),
                "weight_format is not 0 (row by row); codes in a GPU kernel's order cannot be read",
            ));
        }
        parts.push(("weight_format", format));
    }
    let decoder = Grouped {
        rows,
        cols,
        matrix_rows: rows.max(1),
        codes: Codes::new(CodePacking::Bytes, CodeValue::Signed, cols),
        // bitsandbytes multiplies by the F32 constant 1/127 instead of dividing, which rounds differently
        formula: Formula::Scale127,
        scales: Scales::Stored(Factors::per_group(1, Dtype::F32, cols.max(1))),
        zeros: Zeros::None,
    };
    Ok(cx.weight("bitsandbytes", &*info.name, &info.shape, &parts, decoder))
}

fn described(info: &TensorInfo) -> String {
    format!("{} {:?}", info.encoding, info.shape.as_slice())
}
