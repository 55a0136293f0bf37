//! What GPTQ, AWQ and AutoRound share: a `qweight` of packed words with its scales, zero points and group index.

use crate::Dtype;
use crate::catalog::TensorInfo;
use crate::error::Result;

use super::context::{Context, malformed, plain, stem};
use super::plain::missing;

/// A `qweight` of 32-bit words and what stands beside it; shapes are of two dimensions and not empty.
pub(super) struct Packed<'c> {
    pub(super) stem: &'c str,
    pub(super) codes: &'c TensorInfo,
    pub(super) tensor: usize,
    pub(super) scales: usize,
    pub(super) scale_dtype: Dtype,
    pub(super) scale_shape: [u64; 2],
    pub(super) zeros: Option<usize>,
    pub(super) index: Option<usize>,
}

/// How a `qweight` and its scales lie to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `[in * bits / 32, out]`, scales `[groups, out]`: GPTQ.
    Down,
    /// `[in, out * bits / 32]`, scales `[groups, out]`: AWQ for matrix products.
    Across,
    /// `[out, in / 8]`, scales `[out, groups and padding]`: AWQ for products with a vector.
    Rows,
}

impl<'c> Packed<'c> {
    /// The weight whose codes this tensor is, if it is called as those schemes call it.
    pub(super) fn find(cx: &Context<'c>, tensor: usize) -> Result<Option<Self>> {
        let codes = cx.info(tensor);
        let Some(stem) = stem(codes, ".qweight") else {
            return Ok(None);
        };
        if !matches!(plain(codes), Some(Dtype::I32 | Dtype::U32)) || codes.shape.len() != 2 {
            return Ok(None);
        }
        // schemes of other names, which keep their codes so too
        if cx
            .first_beside(stem, &[".SU", ".forward_hadamard_matrix"])
            .is_some()
        {
            return Ok(None);
        }
        let Some(scales) = cx.beside(stem, ".scales") else {
            let ours =
                cx.first_beside(stem, &[".qzeros", ".g_idx"]).is_some() || cx.config.is(METHODS);
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
                "{} {:?} where scales of two dimensions belong",
                found.encoding,
                &found.shape[..]
            );
            return Err(malformed(found, what));
        };
        if codes.elements() == 0 || found.elements() == 0 {
            return Err(malformed(codes, "it or its scales are empty"));
        }
        // converters leave empty tensors where they need none
        let full = |suffix| {
            cx.beside(stem, suffix)
                .filter(|&t| cx.info(t).elements() > 0)
        };
        let (zeros, index) = (full(".qzeros"), full(".g_idx"));
        if let Some(zeros) = zeros.map(|zeros| cx.info(zeros))
            && (!matches!(plain(zeros), Some(Dtype::I32 | Dtype::U32)) || zeros.shape.len() != 2)
        {
            let what = format!(
                "{} {:?} where packed zero points belong",
                zeros.encoding,
                &zeros.shape[..]
            );
            return Err(malformed(zeros, what));
        }
        let scale_shape = [rows, cols];
        Ok(Some(Self {
            stem,
            codes,
            tensor,
            scales,
            scale_dtype,
            scale_shape,
            zeros,
            index,
        }))
    }

    /// Rows and words of a row.
    pub(super) fn words(&self) -> [u64; 2] {
        [self.codes.shape[0], self.codes.shape[1]]
    }

    /// What the shapes say; an error if nothing.
    pub(super) fn kind(&self, cx: &Context<'_>) -> Result<Kind> {
        let ([rows, words], [scale_rows, scale_cols]) = (self.words(), self.scale_shape);
        let zeros = self.zeros.map(|zeros| &cx.info(zeros).shape[..]);
        // one in many thousand shapes fits both: what is a row for each output then decides
        let by_rows = rows == scale_rows
            && self.index.is_none()
            && scale_cols.is_multiple_of(8)
            && zeros == Some(&[rows, scale_cols / 8]);
        if words == scale_cols && !(by_rows && cx.config.is(&["awq"])) {
            return Ok(Kind::Down);
        }
        if by_rows {
            return Ok(Kind::Rows);
        }
        if words < scale_cols
            && (2..=8).any(|bits| scale_cols.checked_mul(bits) == words.checked_mul(32))
        {
            return Ok(Kind::Across);
        }
        let what = format!(
            "{:?} does not go with scales of {:?}",
            &self.codes.shape[..],
            self.scale_shape
        );
        Err(malformed(self.codes, what))
    }

    /// The parts, in the order of their numbers in decoders: codes, scales, zero points, index.
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

    /// How many consecutive elements of `depth` share one of `groups` scales: as configured where that goes
    /// with the shapes, and else as these have it.
    pub(super) fn group_size(&self, cx: &Context<'_>, depth: u64, groups: u64) -> Result<u64> {
        let configured = ["group_size", "q_group_size"]
            .iter()
            .find_map(|key| cx.config.integer(key));
        let fits = |size: &u64| *size > 0 && depth.div_ceil(*size) == groups;
        if let Some(size) = configured
            .and_then(|size| u64::try_from(size).ok())
            .filter(fits)
        {
            return Ok(size);
        }
        if groups == 0 || !depth.is_multiple_of(groups) {
            let what = format!("{groups} groups do not divide {depth} inputs");
            return Err(malformed(cx.info(self.scales), what));
        }
        if let Some(size) = configured.filter(|size| *size > 0) {
            cx.note(format!(
                "groups of {} inputs where the configuration says {size}: by their shapes",
                depth / groups
            ));
        }
        Ok(depth / groups)
    }
}

/// Configured names of the methods that store weights so.
static METHODS: &[&str] = &["gptq", "awq", "auto-round", "intel/auto-round"];

/// The configured number of bits.
pub(super) fn configured_bits(cx: &Context<'_>) -> Option<u64> {
    ["bits", "w_bit"]
        .iter()
        .find_map(|key| cx.config.integer(key))
        .and_then(|bits| u64::try_from(bits).ok())
}
