//! GPTQ, versions 1 and 2 and planar: words of codes down the columns of `[in, out]`.
//!
//! `w = scale * (q - zero)`. Version 1 stores each zero point less one; version 2 and planar as it is. Codes
//! of 3 bits cross words. `g_idx` names the group of each input; without it each `group_size` are one.
//!
//! A stored zero point of the highest code has three readings in version 1: AutoGPTQ once counted on
//! (`2^bits`), others go round (0), and GPTQModel, taken here, adds one to all codes of a word at a time, so that
//! it goes round and carries into the next, which undoes how GPTQModel writes them. For 3 bits it goes round.
//!
//! Sources: GPTQModel 7.7, `nn_modules/qlinear/__init__.py` (`dequantize_weight`), `utils/model.py`
//! (`convert_gptq_v1_to_v2_format_module`), `utils/planar_packing.py`.

use crate::Dtype;
use crate::decode::{ColumnZeros, Columns, GroupOf, LessOne, ZeroOrder};
use crate::error::Result;
use crate::kernel::{ColumnCodes, Width};

use super::Weight;
use super::context::{Context, malformed, plain, unsupported};
use super::plain::missing;
use super::qweight::{Kind, Packed, configured_bits};

/// How a checkpoint stores codes and zero points.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// Zero points less one.
    One,
    Two,
    /// In planes.
    Planar,
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let Some(packed) = Packed::find(cx, tensor)? else {
        return Ok(None);
    };
    if packed.kind(cx)? != Kind::Down {
        return Ok(None);
    }
    let format = cx
        .config
        .text("checkpoint_format")
        .or_else(|| cx.config.text("format"));
    let version = match format {
        Some("gptq" | "gemm") => Version::One,
        Some("gptq_v2") => Version::Two,
        Some("gptq_p") => Version::Planar,
        Some(other) => {
            return Err(unsupported(
                packed.codes,
                format!("the GPTQ format {other:?}"),
            ));
        }
        None => {
            if !cx.config.is(&["gptq"]) {
                cx.note("no configured format for tensors as GPTQ has them: read as version 1, zero points less one");
            }
            Version::One
        }
    };
    weight(cx, "gptq", &packed, version).map(Some)
}

/// The weight, in this version's reading.
pub(super) fn weight(
    cx: &Context<'_>,
    scheme: &'static str,
    packed: &Packed<'_>,
    version: Version,
) -> Result<Weight> {
    let [groups, out] = packed.scale_shape;
    let (bits, depth) = bits(cx, packed)?;
    // in GPTQ these have no other form; AutoRound's are streams
    let planar = version == Version::Planar || (matches!(bits, 5..=7) && scheme == "gptq");
    let width = if planar {
        Width::Planar(bits)
    } else {
        Width::Stream(bits)
    };
    if groups > depth {
        return Err(malformed(
            cx.info(packed.scales),
            format!("{groups} groups of {depth} inputs"),
        ));
    }
    let mut parts = packed.parts();
    let zeros = match packed.zeros {
        Some(zeros) => {
            let words = cx.info(zeros).shape[1];
            if cx.info(zeros).shape[0] != groups {
                let what = format!(
                    "{:?} zero points for {groups} groups",
                    &cx.info(zeros).shape[..]
                );
                return Err(malformed(cx.info(zeros), what));
            }
            let less = match version {
                Version::One if planar || !matches!(bits, 2 | 4 | 8) => LessOne::Each,
                Version::One => LessOne::Carried,
                Version::Two | Version::Planar => LessOne::No,
            };
            let less = if planar { LessOne::No } else { less };
            if less == LessOne::Carried && cx.config.flag("sym") == Some(false) {
                cx.note(
                    "GPTQ version 1 without symmetry: a stored zero point of the highest code is 0 and carries into \
                     the next, as GPTQModel reads it",
                );
            }
            ColumnZeros::Packed {
                part: 2,
                words,
                order: ZeroOrder::Natural(width),
                less,
            }
        }
        None if cx.config.flag("sym") == Some(false) => {
            return Err(missing(packed.codes, "qzeros"));
        }
        None => {
            cx.note("GPTQ without zero points: symmetric, half of the codes are negative");
            ColumnZeros::All(f32::from(1u8 << (bits - 1)))
        }
    };
    let group_of = match packed.index {
        Some(index) => {
            let part = parts.len() - 1;
            let dtype = plain(cx.info(index)).unwrap_or(Dtype::I32);
            GroupOf::Index {
                part,
                dtype,
                name: cx.info(index).name.clone(),
            }
        }
        None if cx.config.flag("desc_act") == Some(true) && groups > 1 => {
            return Err(missing(packed.codes, "g_idx"));
        }
        None => GroupOf::Every(packed.group_size(cx, depth, groups)?),
    };
    let [rows, _] = packed.words();
    let decoder = Columns {
        rows: out,
        cols: depth,
        codes: ColumnCodes::Down(width),
        stored: (rows, out * 4),
        groups,
        group_of,
        scales: (1, packed.scale_dtype),
        zeros,
    };
    parts.shrink_to_fit();
    Ok(cx.weight(scheme, packed.name(), &[out, depth], &parts, decoder))
}

/// Bits of a code and number of inputs, from the shapes; where those leave a choice, as configured.
fn bits(cx: &Context<'_>, packed: &Packed<'_>) -> Result<(u32, u64)> {
    let [rows, _] = packed.words();
    let [groups, out] = packed.scale_shape;
    let configured = configured_bits(cx);
    let depth = match packed.index.map(|index| cx.info(index)) {
        Some(index) => match (plain(index), &index.shape[..]) {
            (Some(Dtype::I32 | Dtype::I64), &[depth]) => Some(depth),
            _ => {
                return Err(malformed(
                    index,
                    format!(
                        "{} {:?} where groups belong",
                        index.encoding,
                        &index.shape[..]
                    ),
                ));
            }
        },
        None => None,
    };
    let zeros = packed.zeros.map(|zeros| cx.info(zeros).shape[1]);
    // so many codes in so many words: whole units of 32, or words that are needed
    let fits = |codes: u64, words: u64, bits: u64| {
        let needed = codes.checked_mul(bits).map(|n| n.div_ceil(32));
        needed == Some(words) || codes.div_ceil(32).checked_mul(bits) == Some(words)
    };
    let exact = |bits: u64| {
        rows.checked_mul(32)
            .filter(|n| n.is_multiple_of(bits))
            .map(|n| n / bits)
    };
    let possible = |bits: u64| -> Option<u64> {
        let depth = depth.or_else(|| exact(bits))?;
        let fits = fits(depth, rows, bits)
            && zeros.is_none_or(|words| fits(out, words, bits))
            && groups <= depth;
        fits.then_some(depth)
    };
    let mut found: Vec<(u64, u64)> = (2..=8)
        .filter_map(|bits| Some((bits, possible(bits)?)))
        .collect();
    if found.len() > 1
        && let Some(configured) = found
            .iter()
            .copied()
            .find(|(bits, _)| Some(*bits) == configured)
    {
        found = vec![configured];
    }
    if found.len() > 1 {
        // words without room to spare
        found.retain(|&(bits, depth)| {
            exact(bits) == Some(depth)
                && zeros.is_none_or(|words| out.checked_mul(bits) == words.checked_mul(32))
        });
    }
    let [(bits, depth)] = found[..] else {
        let zeros = packed.zeros.map(|zeros| &cx.info(zeros).shape[..]);
        let what = format!(
            "the bits of its codes are not to be told: {:?} words, scales {:?}, zero points {zeros:?}, {depth:?} groups \
             of inputs, {configured:?} bits configured",
            &packed.codes.shape[..],
            packed.scale_shape
        );
        return Err(malformed(packed.codes, what));
    };
    if configured.is_some_and(|configured| configured != bits) {
        cx.note(format!(
            "codes of {bits} bits, by the shapes, where the configuration says {}",
            configured.unwrap_or(0)
        ));
    }
    Ok((u32::try_from(bits).expect("2 to 8"), depth))
}
