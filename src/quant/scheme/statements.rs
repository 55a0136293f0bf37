//! The statements of a configuration about the stored numbers of a weight, compared with those that its decoder reads.
//!
//! Weights are recognised by dtypes, names and shapes. A file whose configuration says something else than these was converted
//! by a program that left one of the two behind: FP8 whose bytes are stored as I8, scales of blocks that are transposed or cut.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::{CodeNumbers, NumberKind};

use super::context::Context;
use super::granularity::{self, stack};
use super::module_names::module_of_weight;
use super::stated::{Alternatives, ScaleNumbers, StatedGranularity, StatedKind, StatedNumbers};
use super::{
    Weight, autoround, bitnet, compressed_tensors, fp8, mlx, modelopt, quanto, quark, qweight,
};

/// The statements of a method's configurations about a weight, by its name.
type Statement = fn(&Context<'_>, &str) -> Alternatives;

/// `quant_method`s, with the empty one for configurations that name none, and what their configurations state.
static STATEMENTS: &[(&[&str], Statement)] = &[
    (
        &["compressed-tensors", "modelopt"],
        compressed_tensors::stated,
    ),
    (
        &["modelopt", "modelopt_fp4", "modelopt_mixed"],
        modelopt::stated,
    ),
    (
        &["fp8", "fbgemm_fp8", "mxfp8", "finegrained_fp8", ""],
        fp8::stated,
    ),
    (&["quanto", ""], quanto::stated),
    (&["quark"], quark::stated),
    (&["awq", "gptq", "gptqmodel", ""], qweight::stated),
    (&["bitnet"], bitnet::stated),
    (&["auto-round"], autoround::stated),
    (&["metal", ""], mlx::stated),
];

/// The reason why the scales of a weight are none that its codes have in any scheme. Integers are scaled by floats of 16 bits and
/// more, and FP8 by exponents in groups of 32 or in blocks alone, unless a configuration says otherwise.
pub(crate) fn odd_scales(cx: &Context<'_>, weight: &Weight) -> Option<String> {
    let numbers = weight.decoder.numbers()?;
    let dtype = scales(cx, weight)?;
    let is_exponent = matches!(dtype, Dtype::F8_E8M0 | Dtype::U8);
    let is_byte = is_exponent || matches!(dtype, Dtype::F8_E4M3 | Dtype::F8_E5M2 | Dtype::I8);
    // scales that are quantised have scales of their own; torchao's classes are compared where they are read
    let is_nested = matches!(weight.scheme, "hqq" | "torchao");
    let is_nested = is_nested
        || weight
            .parts
            .iter()
            .any(|part| part.role == "scale_of_scales");
    if !is_byte || is_nested {
        return None;
    }
    let is_odd = match numbers.kind {
        NumberKind::Integer => true,
        NumberKind::Float(_) if numbers.bits == 8 && cx.config.is_empty() => {
            let is_of_blocks = match numbers.block {
                Some((1, cols)) => cols == 32,
                Some((rows, cols)) => rows < u64::MAX && cols < u64::MAX && rows > 1,
                None => false,
            };
            !is_exponent || !is_of_blocks
        }
        _ => false,
    };
    // the dtype says that they are exponents
    if is_odd && numbers.kind != NumberKind::Integer && dtype == Dtype::F8_E8M0 {
        cx.note(format!(
            "exponents as scales of {numbers}, which no configuration describes"
        ));
        return None;
    }
    is_odd.then(|| format!("its scales are {dtype}, which no scheme has for {numbers}"))
}

/// Whether the configuration states other numbers of a weight than its decoder reads.
pub(super) fn are_contradicted(cx: &Context<'_>, weight: &Weight) -> Result<bool> {
    Ok(difference(cx, weight)?.is_some())
}

/// The contradiction between what the configuration states of a weight and what its decoder reads, for a message.
pub(crate) fn contradiction(cx: &Context<'_>, weight: &Weight) -> Result<Option<String>> {
    let found = difference(cx, weight)?;
    let found = found.or_else(|| modelopt::lacks_part(cx, weight));
    // no configuration states how weights are stored that it does not quantise; a marker decides in spite of it. Asked
    // last: thousands of patterns may be compared with the name
    let module = module_of_weight(&weight.name);
    Ok(found.filter(|_| !cx.skipped(&weight.name) && !cx.has_marker(weight, module)))
}

/// Notes what is assumed of a weight where a writer of its configuration stores something else as a rule.
pub(crate) fn note_assumptions(cx: &Context<'_>, weight: &Weight) {
    let Some(numbers) = weight.decoder.numbers() else {
        return;
    };
    let is_other = matches!(numbers.kind, NumberKind::Float(name) if name.starts_with("E5M2"));
    if !is_other || cx.config.is_empty() || weight.is_unscaled() {
        return;
    }
    let method = cx.config.method().unwrap_or_default();
    let rows = STATEMENTS.iter();
    let mut rows = rows.filter(|(methods, _)| methods.contains(&method));
    let states_it = rows.any(|(_, stated)| {
        let stated = stated(cx, &weight.name);
        let is = |stated: &StatedNumbers| stated.kind == Some(StatedKind::Format("E5M2"));
        stated.iter().flatten().any(is)
    });
    let module = module_of_weight(&weight.name);
    if !states_it && !cx.has_marker(weight, module) {
        cx.note(format!(
            "FP8 read as E5M2, as its dtype says: {} states no format, and its writers have E4M3",
            cx.config.place()
        ));
    }
}

fn difference(cx: &Context<'_>, weight: &Weight) -> Result<Option<String>> {
    let Some(numbers) = weight.decoder.numbers() else {
        return Ok(None);
    };
    if cx.config.is_empty() {
        return Ok(None);
    }
    let is_unscaled = weight.parts.len() == 1 && numbers.block.is_none();
    if is_unscaled && matches!(numbers.kind, NumberKind::Float(_)) {
        return Ok(None);
    }
    let method = cx.config.method().unwrap_or_default();
    for (methods, stated) in STATEMENTS {
        if !methods.contains(&method) {
            continue;
        }
        let alternatives = stated(cx, &weight.name);
        cx.budget.steps(1 + alternatives.len() as u64 / 4, WHAT)?;
        let found = FoundNumbers {
            numbers,
            shape: &weight.shape,
            scales: scales(cx, weight),
            zeros: zeros(cx, weight),
            is_quark: weight.scheme == "quark",
        };
        let holds = |all: &Vec<StatedNumbers>| all.iter().all(|stated| found.agree_with(stated));
        if alternatives.is_empty() || alternatives.iter().any(holds) {
            if let [only] = &alternatives[..] {
                found.note_finer(cx, only);
                found.note_width(cx, only);
            }
            continue;
        }
        let said = alternatives[0]
            .iter()
            .find(|stated| !found.agree_with(stated));
        let more = if alternatives.len() > 1 {
            ", or the numbers of its other groups"
        } else {
            ""
        };
        let said = said.copied().unwrap_or_default();
        let place = cx.config.place();
        let scales = match found.scales.filter(|_| said.scales.is_some()) {
            Some(dtype) => format!(", scaled by {dtype}"),
            None => String::new(),
        };
        let zeros = match found.zeros.filter(|_| said.zero_dtype.is_some()) {
            Some((dtype, true)) => format!(", with zero points packed in {dtype}"),
            Some((dtype, false)) => format!(", with zero points in {dtype}"),
            None => String::new(),
        };
        return Ok(Some(format!(
            "{place} states {said}{more}, and the tensors are {numbers}{scales}{zeros}"
        )));
    }
    Ok(None)
}

const WHAT: &str = "the statements of the configuration";

/// The dtype of the scales of a weight.
fn scales(cx: &Context<'_>, weight: &Weight) -> Option<Dtype> {
    let mut parts = weight.parts.iter();
    let scale = parts.find(|part| matches!(part.role, "scale" | "scales"))?;
    cx.dtype(scale.tensor)
}

/// The dtype of the zero points of a weight, and whether words of it hold several.
fn zeros(cx: &Context<'_>, weight: &Weight) -> Option<(Dtype, bool)> {
    let mut parts = weight.parts.iter();
    let zero = parts.find(|part| part.role == "zero_point")?;
    let dtype = cx.dtype(zero.tensor)?;
    Some((
        dtype,
        weight.scheme == compressed_tensors::NAME && dtype == Dtype::I32,
    ))
}

/// The numbers that are stored.
struct FoundNumbers<'w> {
    numbers: CodeNumbers,
    shape: &'w [u64],
    scales: Option<Dtype>,
    zeros: Option<(Dtype, bool)>,
    /// Quark's integers are stored by the shapes of their scales, and its importer reads no group size.
    is_quark: bool,
}

impl FoundNumbers<'_> {
    /// Whether they are those that are stated.
    fn agree_with(&self, stated: &StatedNumbers) -> bool {
        let numbers = &self.numbers;
        let kind = match (stated.kind, numbers.kind) {
            (None, _) | (_, NumberKind::Other) => true,
            (Some(StatedKind::Integer), found) => found == NumberKind::Integer,
            (Some(StatedKind::Float), found) => matches!(found, NumberKind::Float(_)),
            (Some(StatedKind::Format(name)), NumberKind::Float(found)) => found.starts_with(name),
            (Some(StatedKind::Format(_)), NumberKind::Integer) => false,
        };
        // codes of fewer bits may be stored in a byte each
        let is_roomy = |bits: u32| {
            let may_be = numbers.kind == NumberKind::Integer && stated.is_packed != Some(true);
            may_be && !numbers.is_packed && bits < numbers.bits
        };
        let width = stated
            .bits
            .is_none_or(|bits| bits == numbers.bits || is_roomy(bits));
        let scales = match (stated.scales, self.scales) {
            (Some(stated), Some(found)) => stated.are_stored_in(found),
            _ => true,
        };
        kind && width && scales && self.shifted_as(stated) && self.spread_as(stated)
    }

    /// Whether the zero points are stored as stated. The writer packs zero points in I8 alone; the width of others decides nothing,
    /// nor does Quark's sign.
    fn shifted_as(&self, stated: &StatedNumbers) -> bool {
        let (Some(stated), Some((found, is_packed))) = (stated.zero_dtype, self.zeros) else {
            return true;
        };
        let has_sign = |dtype| match dtype {
            Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => true,
            other => self.is_quark && other == Dtype::U8,
        };
        match is_packed {
            true => stated == Dtype::I8,
            false => stated == found || (has_sign(stated) && has_sign(found)),
        }
    }

    /// Notes groups that are finer than stated.
    fn note_finer(&self, cx: &Context<'_>, all: &[StatedNumbers]) {
        let Some((_, wide)) = self.numbers.block.filter(|_| self.is_quark) else {
            return;
        };
        for stated in all {
            if let Some(StatedGranularity::Group(size)) = stated.granularity
                && wide < size
                && self.shape.last().is_some_and(|cols| *cols > wide)
            {
                cx.note(format!(
                    "groups of {wide} columns, by the shapes; the configuration says {size}"
                ));
            }
        }
    }

    /// Names scales that are floats of another width than stated.
    fn note_width(&self, cx: &Context<'_>, all: &[StatedNumbers]) {
        let stated = all.iter().find_map(|stated| stated.scale_dtype);
        let is_float = |dtype: Dtype| ScaleNumbers::Floats.are_stored_in(dtype);
        if let (Some(stated), Some(found)) = (stated, self.scales)
            && is_float(stated)
            && stated != found
        {
            cx.assume(format!(
                "scales in {found}, as they are stored; {} states {stated}",
                cx.config.place()
            ));
        }
    }

    /// Whether the scales are spread over the weight as stated.
    fn spread_as(&self, stated: &StatedNumbers) -> bool {
        let (Some(stated), Some((high, wide))) = (stated.granularity, self.numbers.block) else {
            return true;
        };
        // the blocks of vectors and convolutions follow no common rule
        if !(2..=3).contains(&self.shape.len()) {
            return true;
        }
        let (_, cols, rows) = stack(self.shape);
        let grid = |high: u64, wide: u64| granularity::grid(self.shape, high, wide);
        let found = grid(high, wide);
        match stated {
            // projections that were fused keep a scale for each of two or three
            StatedGranularity::Tensor => self.shape.len() > 2 || (found.0 <= 3 && found.1 == 1),
            // stacks have one per row, or one per column of each matrix
            StatedGranularity::Channel => {
                found == (rows, 1) || (self.shape.len() > 2 && found == (1, cols))
            }
            StatedGranularity::Block(high, wide) => found == grid(high, wide),
            StatedGranularity::Group(size) => {
                let expected = grid(1, size);
                let finer = || {
                    let is_integer = self.numbers.kind == NumberKind::Integer;
                    let more = found.0 == rows && found.1 > expected.1 && expected.1 > 1;
                    self.is_quark && is_integer && more
                };
                // stacks may be packed along their rows
                let along_rows = self.shape.len() > 2 && found == (rows.div_ceil(size), cols);
                found == expected || along_rows || finer()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(kind: NumberKind, bits: u32, block: Option<(u64, u64)>) -> CodeNumbers {
        CodeNumbers {
            kind,
            bits,
            is_packed: bits < 8,
            block,
        }
    }

    #[test]
    fn kinds_and_widths_agree() {
        let float = numbers(NumberKind::Float("E4M3FNUZ"), 8, None);
        let bytes = numbers(NumberKind::Integer, 8, None);
        let packed = numbers(NumberKind::Integer, 4, None);
        let agrees = |stated: StatedNumbers, numbers: &CodeNumbers| {
            let found = FoundNumbers {
                zeros: None,
                numbers: *numbers,
                shape: &[64, 64],
                scales: Some(Dtype::F8_E8M0),
                is_quark: false,
            };
            found.agree_with(&stated)
        };
        use super::super::stated::ScaleNumbers::{Exponents, Floats};
        assert!(agrees(
            StatedNumbers::floats(None).scaled_by(Exponents),
            &float
        ));
        assert!(!agrees(
            StatedNumbers::floats(None).scaled_by(Floats),
            &float
        ));
        assert!(agrees(StatedNumbers::floats(Some(8)), &float));
        assert!(agrees(StatedNumbers::float8("E4M3"), &float));
        assert!(!agrees(StatedNumbers::float8("E5M2"), &float));
        assert!(!agrees(StatedNumbers::floats(None), &bytes));
        assert!(!agrees(StatedNumbers::integers(None), &float));
        // INT4 in a byte each
        assert!(agrees(StatedNumbers::integers(Some(4)), &bytes));
        assert!(!agrees(StatedNumbers::integers(Some(4)).packed(), &bytes));
        assert!(!agrees(StatedNumbers::integers(Some(8)), &packed));
    }

    #[test]
    fn grids_of_scales_agree() {
        use StatedGranularity::{Block, Channel, Group};
        let found = |block, stated, shape: &[u64]| {
            let numbers = numbers(NumberKind::Float("E4M3"), 8, Some(block));
            let stated = StatedNumbers::floats(Some(8)).with_scales(Some(stated));
            let found = FoundNumbers {
                zeros: None,
                numbers,
                shape,
                scales: None,
                is_quark: false,
            };
            found.agree_with(&stated)
        };
        const ALL: u64 = u64::MAX;
        assert!(found((128, 128), Block(128, 128), &[256, 128]));
        assert!(found((128, 128), Block(128, 128), &[200, 130]));
        // a weight of one block
        assert!(found((ALL, ALL), Block(128, 128), &[64, 100]));
        assert!(!found((ALL, ALL), Block(128, 128), &[256, 128]));
        assert!(!found((256, 64), Block(128, 128), &[256, 128]));
        assert!(found((128, 128), Block(128, 128), &[3, 256, 128]));
        assert!(found((1, 96), Channel, &[24, 96]));
        assert!(found((ALL, ALL), Channel, &[1, 96]));
        assert!(!found((24, 4), Channel, &[24, 96]));
        assert!(found((1, 32), Group(32), &[24, 96]));
        assert!(!found((1, 16), Group(32), &[24, 96]));
    }
}
