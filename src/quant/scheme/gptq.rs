//! GPTQ, versions 1 and 2 and planar: 32-bit words of codes down the columns of `[in, out]`.
//!
//! Written by AutoGPTQ, GPTQModel and AutoRound (`autoround.rs`). Recognised by the tensors and shapes of `qweight.rs`.
//!
//! `qweight` is I32 `[in * bits / 32, out]`, 2 to 8 bits; `scales` F16, BF16 or F32 `[groups, out]`; `qzeros` I32
//! `[groups, out * bits / 32]`; `g_idx` I32 `[in]` names the group of each input (act-order), else groups are `group_size`
//! consecutive inputs. `w = scale * (q - zero)`. Codes of 3 bits cross word boundaries. Version 1 stores each zero point less
//! one; version 2 and planar store its value.
//!
//! Three readings exist of a version 1 zero point whose code is the highest: early AutoGPTQ counted on (`2^bits`), others wrap
//! to 0, and GPTQModel adds one to all codes of a word at once, so that it wraps to 0 and carries into the next code. The last
//! is taken, because it inverts how GPTQModel writes; for 3 bits the code wraps.
//!
//! An index of zeros with several groups is read as consecutive groups, with a note: vLLM drops the index where `desc_act` is
//! false.
//!
//! Refused: unknown values of `checkpoint_format`; shapes that leave the number of bits open; missing zero points or group
//! index if the configuration requires them.
//!
//! Sources: GPTQModel 7.7, `nn_modules/qlinear/__init__.py` (`dequantize_weight`), `utils/model.py`
//! (`convert_gptq_v1_to_v2_format_module`), `utils/planar_packing.py`.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodeWidth, ColumnCodes};
use crate::plan::decode::{ColumnZeros, Columns, GroupOf, ZeroPointBias, ZeroPointOrder};
use crate::quant::settings::KnownValues::{Any, Count, Flag, GroupSize, Texts, Unrotated};
use crate::quant::settings::SchemeSettings;
use crate::read::catalog::quote;

use super::Weight;
use super::context::{Context, missing, not_known, plain};
use super::qweight::{Qweight, QweightLayout};

/// How codes and zero points are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GptqVersion {
    /// Zero points are stored less one.
    One,
    /// Zero points are stored as they are.
    Two,
    /// As version 2, with the bits of codes in separate planes of words.
    Planar,
}

/// `quant_method` of GPTQ; older files have none.
static METHODS: &[&str] = &["gptq", "gptqmodel", ""];

/// The settings of configurations of GPTQ that are known. GPTQModel's `rotation` is not on the list.
pub(super) static SETTINGS: SchemeSettings = SchemeSettings {
    methods: METHODS,
    keys: &[
        ("bits", Count),
        ("group_size", GroupSize),
        ("desc_act", Flag),
        ("sym", Flag),
        // GPTQModel's name for `quant_method`, beside it
        ("method", Texts(&["gptq"])),
        ("format", Texts(&["gptq", "gptq_v2", "gptq_p", "gemm"])),
        (
            "checkpoint_format",
            Texts(&["gptq", "gptq_v2", "gptq_p", "gemm"]),
        ),
        ("pack_dtype", Texts(&["int32"])),
        ("pack_impl", Any),
        // the settings of single modules that GPTQModel reads
        ("dynamic.*.bits", Any),
        ("dynamic.*.group_size", Any),
        ("dynamic.*.desc_act", Flag),
        ("dynamic.*.sym", Flag),
        ("dynamic.*.act_group_aware", Any),
        ("dynamic.*.damp_percent", Any),
        ("dynamic.*.mse", Any),
        ("dynamic.*.static_groups", Any),
        // the run that quantised, and the kernels that run it
        ("act_group_aware", Any),
        ("backend", Any),
        ("block_name_to_quantize", Any),
        ("cache_block_outputs", Any),
        ("cache_examples_on_gpu", Any),
        ("damp_auto_increment", Any),
        ("damp_percent", Any),
        ("disable_exllama", Any),
        ("exllama_config", Any),
        ("fail_safe", Any),
        ("failsafe", Any),
        ("hyb_act", Any),
        ("lm_head_name", Any),
        ("max_input_length", Any),
        ("meta", Unrotated),
        ("mock_quantization", Any),
        ("model_file_base_name", Any),
        ("model_name_or_path", Any),
        ("model_seqlen", Any),
        ("module_name_preceding_first_block", Any),
        ("mse", Any),
        ("offload_to_disk", Any),
        ("offload_to_disk_path", Any),
        ("pad_token_id", Any),
        ("quantizer", Any),
        ("static_groups", Any),
        ("true_sequential", Any),
        ("uri", Any),
        ("use_cuda_fp16", Any),
        ("use_exllama", Any),
        ("w_bit", Count),
        ("wbits", Count),
        ("compute_device_filter", Any),
        ("parallel_packing", Any),
        ("vram_strategy", Any),
    ],
};

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let Some(packed) = Qweight::find(cx, tensor)? else {
        return Ok(None);
    };
    if packed.layout(cx)? != QweightLayout::Gptq {
        return Ok(None);
    }
    let [format, older] = ["checkpoint_format", "format"].map(|key| cx.config.text(key));
    if let (Some(format), Some(older)) = (format, older)
        && !format.eq_ignore_ascii_case(older)
    {
        let what = format!(
            "the `checkpoint_format` {} beside the `format` {}",
            quote(format),
            quote(older)
        );
        return Err(not_known(packed.codes, what));
    }
    let format = format.or(older);
    let version = match format {
        Some("gptq" | "gemm") => GptqVersion::One,
        Some("gptq_v2") => GptqVersion::Two,
        Some("gptq_p") => GptqVersion::Planar,
        Some(other) => {
            let what = match cx.config.method().filter(|_| !cx.config.is(METHODS)) {
                Some(method) => format!(
                    "tensors of GPTQ, which are not the format {} of {}",
                    quote(other),
                    quote(method)
                ),
                None => format!("GPTQ's checkpoint format {}", quote(other)),
            };
            return Err(not_known(packed.codes, what));
        }
        None => {
            // files of AutoGPTQ from before `checkpoint_format` existed are version 1
            if !cx.config.is(&["gptq"]) {
                cx.note("GPTQ tensors without a configured format: read as version 1, zero points stored less one");
            }
            GptqVersion::One
        }
    };
    weight(cx, "gptq", &packed, version).map(Some)
}

/// The weight, read as this version.
pub(super) fn weight(
    cx: &Context<'_>,
    scheme: &'static str,
    packed: &Qweight<'_>,
    version: GptqVersion,
) -> Result<Weight> {
    let [groups, out] = packed.scale_shape;
    let (bits, depth) = bits(cx, packed)?;
    // GPTQModel writes these widths in planes only, AutoRound as streams
    let planar = version == GptqVersion::Planar || (matches!(bits, 5..=7) && scheme == "gptq");
    let width = if planar {
        CodeWidth::Planar(bits)
    } else {
        CodeWidth::Stream(bits)
    };
    // a group has at least one input; more groups would make a group size of 0
    if groups > depth {
        return Err(not_known(
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
                return Err(not_known(cx.info(zeros), what));
            }
            let bias = match version {
                // codes of 2, 4 and 8 bits fill words, so GPTQModel adds 1 to each as one word and lets a carry run
                // on (`convert_gptq_v1_to_v2_format_module`); other widths are added to code by code
                GptqVersion::One if planar || !matches!(bits, 2 | 4 | 8) => ZeroPointBias::PerCode,
                GptqVersion::One => ZeroPointBias::PerWord,
                GptqVersion::Two | GptqVersion::Planar => ZeroPointBias::None,
            };
            let bias = if planar { ZeroPointBias::None } else { bias };
            if bias == ZeroPointBias::PerWord && cx.config.flag("sym") == Some(false) {
                cx.note(
                    "GPTQ version 1, not symmetric: a stored zero point of the highest code is 0 and carries into the \
                     next, as in GPTQModel",
                );
            }
            if matches!(bits, 2 | 4 | 8) && cx.config.flag("sym") == Some(true) {
                note_asymmetry(cx, zeros, bits, bias != ZeroPointBias::None)?;
            }
            ColumnZeros::Packed {
                part: 2,
                words,
                order: ZeroPointOrder::Natural(width),
                bias,
            }
        }
        None if cx.config.flag("sym") == Some(false) => {
            return Err(missing(packed.codes, "qzeros"));
        }
        None => {
            cx.note(
                "GPTQ without zero points: symmetric codes are assumed, zero point 2^(bits - 1)",
            );
            // GPTQ's own choice for symmetric codes: the middle of the range
            ColumnZeros::All(f32::from(1u8 << (bits - 1)))
        }
    };
    let group_of = match packed.index {
        Some(index) if groups > 1 && is_zero(cx, index)? => {
            cx.note(
                "GPTQ with a group index of zeros: groups of consecutive inputs are assumed; kernels that use the index take \
                 group 0 for all of them",
            );
            GroupOf::Every(packed.group_size(cx, depth, groups)?)
        }
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

/// Notes zero points other than the middle of the range, though the configuration calls the codes symmetric: another version of the
/// format may have stored them. The first of a checkpoint are looked at.
fn note_asymmetry(cx: &Context<'_>, zeros: usize, bits: u32, less_one: bool) -> Result<()> {
    const MAX_BYTES: u64 = 64 << 10;
    let info = cx.info(zeros);
    if cx.caches.compared_zeros.replace(true) || info.nbytes() > MAX_BYTES {
        return Ok(());
    }
    let middle = (1u32 << (bits - 1)) - u32::from(less_one);
    // each code of a word is the same
    let word = (0..32 / bits).fold(0, |word, code| word | (middle << (code * bits)));
    let stored = cx.peek_integers(zeros)?;
    if stored
        .iter()
        .any(|&found| found != i64::from(word.cast_signed()))
    {
        cx.note(format!(
            "`sym`: true of {}, and the zero points of {} are not all {middle}, the middle of the range as this version of GPTQ \
             stores it: they are used as they are",
            cx.config.place(),
            quote(&info.name)
        ));
    }
    Ok(())
}

/// Whether a group index is all zeros, which converters without act-order write. The first of a checkpoint decides whether
/// further ones are read.
fn is_zero(cx: &Context<'_>, index: usize) -> Result<bool> {
    const MAX_BYTES: u64 = 64 << 10;
    let known = &cx.caches.has_zero_index;
    if cx.config.flag("desc_act") == Some(true)
        || known.get() == Some(false)
        || cx.info(index).nbytes() > MAX_BYTES
    {
        return Ok(false);
    }
    let groups = cx.peek_integers(index)?;
    let zero = groups.iter().all(|group| *group == 0);
    if cx.config.flag("desc_act") == Some(false) && !groups.is_sorted() {
        cx.note(
            "GPTQ's group index is in another order than the inputs, though desc_act is false, for which vLLM ignores it: it is used",
        );
    }
    if known.get().is_none() {
        known.set(Some(zero));
    }
    Ok(zero)
}

/// Bits of a code and number of inputs: from the shapes; if several fit, as configured.
fn bits(cx: &Context<'_>, packed: &Qweight<'_>) -> Result<(u32, u64)> {
    let [rows, _] = packed.words();
    let [groups, out] = packed.scale_shape;
    let configured = packed.bits;
    let depth = match packed.index.map(|index| cx.info(index)) {
        Some(index) => match (plain(index), &index.shape[..]) {
            (Some(Dtype::I32 | Dtype::I64), &[depth]) => Some(depth),
            _ => {
                return Err(not_known(
                    index,
                    format!(
                        "{} {:?} instead of a group for each input",
                        index.encoding,
                        &index.shape[..]
                    ),
                ));
            }
        },
        None => None,
    };
    let zeros = packed.zeros.map(|zeros| cx.info(zeros).shape[1]);
    // `codes` codes fit `words` words: either whole units of 32 codes, or the fewest words
    let fits = |codes: u64, words: u64, bits: u64| {
        // the last unit of 32 codes may be padded to whole words or not, depending on the packer
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
    // every width is tried, because the configuration may be absent or belong to another file
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
        // prefer the width whose codes fill the words completely
        found.retain(|&(bits, depth)| {
            exact(bits) == Some(depth)
                && zeros.is_none_or(|words| out.checked_mul(bits) == words.checked_mul(32))
        });
    }
    let [(bits, depth)] = found[..] else {
        let zeros = packed.zeros.map(|zeros| &cx.info(zeros).shape[..]);
        let what = format!(
            "number of bits is ambiguous: words {:?}, scales {:?}, zero points {zeros:?}, group index {depth:?}, \
             configured bits {configured:?}",
            &packed.codes.shape[..],
            packed.scale_shape
        );
        return Err(not_known(packed.codes, what));
    };
    if configured.is_some_and(|configured| configured != bits) {
        cx.note(format!(
            "codes of {bits} bits, by the shapes; the configuration says {}",
            configured.unwrap_or(0)
        ));
    }
    Ok((u32::try_from(bits).expect("2 to 8"), depth))
}
