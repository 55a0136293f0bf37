//! ggml's block types, in GGUF files.
//!
//! Written by llama.cpp and its converters. Recognised by the tensor's type alone; `w` is the block type's own formula, times
//! a factor `X.scale` (F32, one, or one per expert) if there is one: converters write it for NVFP4 (ModelOpt's
//! `weight_scale_2`) and BitNet.
//!
//! Refused: elements that do not fill whole blocks; factors of other counts.
//!
//! Source: llama.cpp, `ggml-quants.c`; `build_lora_mm` of `llama-graph.cpp` multiplies by `X.scale`.

mod blocks;

use std::sync::Arc;

use anamnesis_kernel::BlockFormat;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::models::names::is_in_front;
use crate::plan::Decoder;
use crate::read::catalog::{Encoding, Endian, quote};

use super::Weight;
use super::context::{Context, not_known, plain, stem};
use blocks::GgmlBlocks;

/// The decoder of little-endian blocks, without a factor.
pub(crate) fn decoder(format: &'static BlockFormat, count: u64) -> Arc<dyn Decoder> {
    Arc::new(GgmlBlocks {
        format,
        count,
        big: false,
        factors: 0,
    })
}

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Encoding::Block(format) = info.encoding else {
        return Ok(None);
    };
    let elements = info.elements();
    let whole = || {
        not_known(
            info,
            format!(
                "{elements} elements do not fill blocks of {}",
                format.block_len
            ),
        )
    };
    if !elements.is_multiple_of(format.block_len.into()) {
        return Err(whole());
    }
    let mut decoder = GgmlBlocks {
        format,
        count: elements / u64::from(format.block_len),
        big: info.endian == Endian::Big,
        factors: 0,
    };
    let mut parts = vec![("blocks", tensor)];
    let weight =
        stem(info, ".weight").and_then(|stem| cx.first_sibling(stem, &[".scale", ".weight.scale"]));
    if let Some((scale, suffix)) = weight {
        if suffix != ".scale" {
            cx.note(format!(
                "factors `X{suffix}` are multiplied in, as `X.scale` is, which llama.cpp alone reads"
            ));
        }
        let layer = stem(info, ".weight").unwrap_or_default();
        if is_in_front(layer.rsplit_once('.').map_or(layer, |(_, last)| last)) {
            cx.note(format!(
                "{}: the factor {} of an embedding is multiplied in, which llama.cpp does in matrix products alone",
                quote(&info.name),
                quote(&cx.info(scale).name)
            ));
        }
        // one factor per expert: stacked experts are one tensor in GGUF
        let (found, experts) = (
            cx.info(scale),
            if info.shape.len() > 2 {
                info.shape[0]
            } else {
                1
            },
        );
        let n = found.elements();
        if plain(found) != Some(Dtype::F32)
            || (n != 1 && n != experts)
            || n == 0
            || !decoder.count.is_multiple_of(n)
        {
            let what = format!(
                "{} {:?} does not scale {:?}",
                found.encoding,
                found.shape.as_slice(),
                info.shape.as_slice()
            );
            return Err(not_known(found, what));
        }
        decoder.factors = n;
        parts.push(("scale", scale));
    }
    // whether the kernels decode this type; types without a kernel can be listed, not dequantised
    crate::base::kernel::builds(format)
        .map_err(|e| crate::base::error::Error::from(e).context(&quote(&info.name)))?;
    Ok(Some(cx.weight(
        "ggml",
        &*info.name,
        &info.shape,
        &parts,
        decoder,
    )))
}
