//! The tensors that GPTQ, AWQ and AutoRound share: `qweight` of packed 32-bit words, `scales`, `qzeros` and `g_idx`.

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::read::catalog::TensorInfo;

use super::context::{Context, missing, not_known, plain, stem};
use super::module_names::module_of_weight;
use super::name_regex::{FirstMatch, NamePatterns, PatternKind};
use super::stated::{Alternatives, StatedGranularity, StatedNumbers};

/// A `qweight` of 32-bit words and its siblings. Shapes were verified to have two dimensions and no 0.
pub(super) struct Qweight<'c> {
    pub(super) stem: &'c str,
    pub(super) codes: &'c TensorInfo,
    pub(super) tensor: usize,
    pub(super) scales: usize,
    pub(super) scale_dtype: Dtype,
    pub(super) scale_shape: [u64; 2],
    pub(super) zeros: Option<usize>,
    pub(super) index: Option<usize>,
    /// The configured bits of a code.
    pub(super) bits: Option<u64>,
    /// The configured size of a group.
    pub(super) group: Option<i64>,
}

/// The layout of a `qweight`, recognised by its shape and the shape of its scales.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QweightLayout {
    /// `[in * bits / 32, out]`, scales `[groups, out]`: GPTQ.
    Gptq,
    /// `[in, out * bits / 32]`, scales `[groups, out]`: AWQ's `gemm`.
    AwqGemm,
    /// `[out, in / 8]`, scales `[out, padded groups]`: AWQ's `gemv`.
    AwqGemv,
}

impl<'c> Qweight<'c> {
    /// The tensors of the weight whose codes this is; `None` if it is not named so or has another dtype.
    pub(super) fn find(cx: &Context<'c>, tensor: usize) -> Result<Option<Self>> {
        let codes = cx.info(tensor);
        let Some(stem) = stem(codes, ".qweight") else {
            return Ok(None);
        };
        if !matches!(plain(codes), Some(Dtype::I32 | Dtype::U32)) || codes.shape.len() != 2 {
            return Ok(None);
        }
        // QuIP# and FP-Quant store codes under this name too (`unsupported.rs`)
        if cx
            // claimed here, their codes would be refused for missing scales instead of by name
            .first_sibling(stem, &[".SU", ".forward_hadamard_matrix"])
            .is_some()
        {
            return Ok(None);
        }
        let Some(scales) = cx.sibling(stem, ".scales") else {
            let ours =
                cx.first_sibling(stem, &[".qzeros", ".g_idx"]).is_some() || cx.config.is(METHODS);
            return if ours {
                Err(missing(codes, "scales"))
            } else {
                Ok(None)
            };
        };
        let found = cx.info(scales);
        let (Some(scale_dtype @ (Dtype::F16 | Dtype::BF16 | Dtype::F32)), &[rows, cols]) =
            (plain(found), &found.shape[..])
        else {
            let what = format!(
                "{} {:?} instead of scales of two dimensions",
                found.encoding,
                &found.shape[..]
            );
            return Err(not_known(found, what));
        };
        if codes.elements() == 0 || found.elements() == 0 {
            return Err(not_known(codes, "codes or scales are empty"));
        }
        // some converters write empty tensors where a part is not needed
        let full = |suffix| {
            cx.sibling(stem, suffix)
                .filter(|&t| cx.info(t).elements() > 0)
        };
        let (zeros, index) = (full(".qzeros"), full(".g_idx"));
        if let Some(zeros) = zeros.map(|zeros| cx.info(zeros))
            && (!matches!(plain(zeros), Some(Dtype::I32 | Dtype::U32)) || zeros.shape.len() != 2)
        {
            let what = format!(
                "{} {:?} instead of packed zero points (I32 of two dimensions)",
                zeros.encoding,
                &zeros.shape[..]
            );
            return Err(not_known(zeros, what));
        }
        let scale_shape = [rows, cols];
        let of_all = |keys: &[&str]| keys.iter().find_map(|key| cx.config.integer(key));
        let (mut bits, mut group) = (of_all(BITS), of_all(SIZES));
        if let ModuleSettings::Known(Some((_, own))) = dynamic(cx, stem) {
            let of_module = |keys: &[&str]| keys.iter().find_map(|key| own.get(key)?.as_i64());
            (bits, group) = (of_module(BITS).or(bits), of_module(SIZES).or(group));
        }
        Ok(Some(Self {
            stem,
            codes,
            tensor,
            scales,
            scale_dtype,
            scale_shape,
            zeros,
            index,
            bits: bits.and_then(|bits| u64::try_from(bits).ok()),
            group,
        }))
    }

    /// Stored rows, and words of a stored row.
    pub(super) fn words(&self) -> [u64; 2] {
        [self.codes.shape[0], self.codes.shape[1]]
    }

    /// The layout; an error if the shapes fit none.
    pub(super) fn layout(&self, cx: &Context<'_>) -> Result<QweightLayout> {
        let ([rows, words], [scale_rows, scale_cols]) = (self.words(), self.scale_shape);
        let zeros = self.zeros.map(|zeros| &cx.info(zeros).shape[..]);
        // rare shapes fit GPTQ and `gemv`: for those the configured method decides
        let by_rows = rows == scale_rows
            && self.index.is_none()
            && scale_cols.is_multiple_of(8)
            && zeros == Some(&[rows, scale_cols / 8]);
        // GPTQ has a word per output in a row, AWQ's `gemm` eight outputs in a word: the words in a row distinguish
        // them
        if words == scale_cols && !(by_rows && cx.config.is(&["awq"])) {
            return Ok(QweightLayout::Gptq);
        }
        if by_rows {
            return Ok(QweightLayout::AwqGemv);
        }
        if words < scale_cols
            && (2..=8).any(|bits| scale_cols.checked_mul(bits) == words.checked_mul(32))
        {
            return Ok(QweightLayout::AwqGemm);
        }
        let what = format!(
            "shape {:?} fits no layout with scales of shape {:?}",
            &self.codes.shape[..],
            self.scale_shape
        );
        Err(not_known(self.codes, what))
    }

    /// The parts in the order in which decoders refer to them: codes, scales, zero points, group index.
    pub(super) fn parts(&self) -> Vec<(&'static str, usize)> {
        let mut parts = vec![("codes", self.tensor), ("scale", self.scales)];
        parts.extend(self.zeros.map(|zeros| ("zero_point", zeros)));
        parts.extend(self.index.map(|index| ("group_index", index)));
        parts
    }

    /// The name of the weight.
    pub(super) fn name(&self) -> String {
        format!("{}.weight", self.stem)
    }

    /// Like [`group_size`](Self::group_size), for writers whose groups divide the inputs: a configured size that makes that number of
    /// groups only with a shorter last one is none of theirs.
    pub(super) fn whole_group_size(
        &self,
        cx: &Context<'_>,
        depth: u64,
        groups: u64,
    ) -> Result<u64> {
        let size = self.group_size(cx, depth, groups)?;
        if size < depth && !depth.is_multiple_of(size) {
            let what = format!("groups of {size} do not divide {depth} inputs");
            return Err(not_known(cx.info(self.scales), what));
        }
        Ok(size)
    }

    /// Consecutive elements of `depth` that share one of `groups` scales: the configured size if it fits the shapes, also with a
    /// shorter last group, else the quotient.
    pub(super) fn group_size(&self, cx: &Context<'_>, depth: u64, groups: u64) -> Result<u64> {
        let configured = self.group;
        let fits = |size: &u64| *size > 0 && depth.div_ceil(*size) == groups;
        if let Some(size) = configured
            .and_then(|size| u64::try_from(size).ok())
            .filter(fits)
        {
            return Ok(size);
        }
        if groups == 0 || !depth.is_multiple_of(groups) {
            let what = format!("{groups} groups do not divide {depth} inputs");
            return Err(not_known(cx.info(self.scales), what));
        }
        if let Some(size) = configured.filter(|size| *size > 0) {
            cx.note(format!(
                "groups of {} inputs, by the shapes; the configuration says {size}",
                depth / groups
            ));
        }
        Ok(depth / groups)
    }
}

/// `quant_method` of the schemes that store these tensors.
static METHODS: &[&str] = &["gptq", "awq", "auto-round"];

/// The names of the bits of a code.
static BITS: &[&str] = &["bits", "w_bit"];

/// The names of the size of a group.
static SIZES: &[&str] = &["group_size", "q_group_size"];

/// The numbers that a configuration states of a weight, by its name: the width, and the columns that share a scale. GPTQModel has
/// settings of single modules, by regular expressions, in `dynamic`.
pub(super) fn stated(cx: &Context<'_>, name: &str) -> Alternatives {
    // configurations of MLX have a width without a method too
    let telling = ["desc_act", "zero_point", "w_bit", "q_group_size"];
    if cx.config.method().is_none() && !telling.iter().any(|key| cx.config.get(key).is_some()) {
        return Alternatives::new();
    }
    let module = module_of_weight(name);
    let ModuleSettings::Known(own) = dynamic(cx, module) else {
        return Alternatives::new();
    };
    let of_module = |keys: &[&str]| {
        let (_, own) = own?;
        keys.iter().find_map(|key| own.get(key)?.as_i64())
    };
    let of_all = |keys: &[&str]| keys.iter().find_map(|key| cx.config.integer(key));
    // GPTQ of another width than the configured one is read by its shapes, with a note
    let bits = of_module(BITS).or_else(|| {
        let is_awq = !cx.config.is(&["gptq", "gptqmodel"]);
        of_all(BITS).filter(|_| is_awq)
    });
    let bits = bits.and_then(|bits| u32::try_from(bits).ok());
    let size = of_module(SIZES).or_else(|| of_all(SIZES));
    let scales = size.and_then(StatedGranularity::of_size);
    let numbers = StatedNumbers::integers(bits).packed();
    vec![vec![numbers.with_scales(scales)]]
}

/// The settings of a module in `dynamic`.
pub(super) fn settings_of_module<'c>(cx: &Context<'c>, module: &str) -> Option<&'c Json> {
    match dynamic(cx, module) {
        ModuleSettings::Known(own) => own.map(|(_, own)| own),
        ModuleSettings::LeftOut(_) | ModuleSettings::Unknown => None,
    }
}

/// The pattern of `dynamic` that leaves a module out.
pub(super) fn left_out<'c>(cx: &Context<'c>, module: &str) -> Option<&'c str> {
    match dynamic(cx, module) {
        ModuleSettings::LeftOut(pattern) => Some(pattern),
        _ => None,
    }
}

/// The pattern of `dynamic` that is for a module.
pub(super) fn pattern_of_module<'c>(cx: &Context<'c>, module: &str) -> Option<&'c str> {
    match dynamic(cx, module) {
        ModuleSettings::Known(own) => own.map(|(pattern, _)| pattern),
        ModuleSettings::LeftOut(pattern) => Some(pattern),
        ModuleSettings::Unknown => None,
    }
}

/// The settings of a module in `dynamic`.
enum ModuleSettings<'c> {
    /// With the pattern.
    Known(Option<(&'c str, &'c Json)>),
    /// By a pattern that leaves it out.
    LeftOut(&'c str),
    Unknown,
}

/// The patterns of `dynamic` that have settings of modules.
pub(super) fn patterns_of_modules<'c>(cx: &Context<'c>) -> impl Iterator<Item = &'c str> {
    let rows = cx.config.get("dynamic").and_then(Json::as_object);
    let rows = rows.into_iter().flat_map(|rows| rows.keys());
    let own = rows.filter(|pattern| !pattern.starts_with("-:"));
    own.map(|pattern| text_of_pattern(pattern))
}

/// A pattern without the sign in front that says whether it leaves modules out.
fn text_of_pattern(pattern: &str) -> &str {
    let text = pattern.trim_start_matches(['-', '+']);
    text.trim_start_matches(':')
}

/// The settings of a module: of the first pattern that matches its name.
fn dynamic<'c>(cx: &Context<'c>, module: &str) -> ModuleSettings<'c> {
    let Some(rows) = cx.config.get("dynamic").and_then(Json::as_object) else {
        return ModuleSettings::Known(None);
    };
    let patterns = cx.caches.dynamic.get_or_init(|| {
        let rows = rows.iter().map(|(pattern, settings)| {
            let row = (pattern.as_str(), settings);
            (text_of_pattern(pattern), PatternKind::Begins, row)
        });
        cx.sound(NamePatterns::new(rows, cx.budget))
            .unwrap_or_default()
    });
    match cx.sound(patterns.first(module, cx.budget)) {
        Some(FirstMatch::Nothing) => ModuleSettings::Known(None),
        Some(FirstMatch::Known((pattern, _))) if pattern.starts_with("-:") => {
            ModuleSettings::LeftOut(pattern)
        }
        Some(FirstMatch::Known(row)) => ModuleSettings::Known(Some(row)),
        Some(FirstMatch::Unknown) | None => ModuleSettings::Unknown,
    }
}
