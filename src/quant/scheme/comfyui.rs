//! ComfyUI's quantised layers, whose markers say how they are stored.
//!
//! Written by ComfyUI, comfy-kitchen and converters for them. Recognised by a marker alone: the tensor `X.comfy_quant`, JSON
//! as U8, or an entry in the header's `_quantization_metadata` (`marker.rs`). Other writers have the same names and shapes for other layouts: a wrong order of nibbles or tiles gives plausible values.
//!
//! | `format` | `X.weight` | `X.weight_scale` | other | formula |
//! |---|---|---|---|---|
//! | `float8_e4m3fn`, `float8_e5m2` | FP8 | F32, one | | `q * scale` |
//! | `nvfp4` | two E2M1 in a byte, the **upper** nibble first | E4M3 for 16, in tiles of 128 x 4 (`swizzled_scales.rs`) | `weight_scale_2`, `pre_quant_scale` | `q * (scale * scale_2)` |
//! | `mxfp8` | E4M3 | E8M0 for 32, in the same tiles | | `q * 2^(s - 127)` |
//! | `int8_tensorwise` | I8 | F32, one or one per row | | `q * scale`; with `convrot` rotated back |
//! | `int8_blockwise` | I8 | F32 per `group_size` x `group_size` | | `q * scale` |
//! | `convrot_w4a4` | two codes of two's complement in a byte, the lower nibble first | F32 per row | | `q * scale`, rotated back |
//! | `awq_w4a16` | two codes in a byte, the lower nibble first | `[in / group, out]` | `weight_zeros`, of the same shape | `(q - 8) * scale + zero` |
//!
//! Rotations are undone by `rotated.rs`. Scales of one byte may be stored as U8.
//!
//! A marker's `orig_shape` is the weight's shape: NVFP4 and MXFP8 may be stored with padding, other formats have it as stored.
//!
//! Refused: other formats, unknown options and values of another type, by name; a marker that differs from the header's; scaled
//! codes without a marker in a file that has markers; stacked experts; `asym_w4a8_int8`, whose levels are rounded twice.
//!
//! Sources: ComfyUI `comfy/quant_ops.py` (`QUANT_ALGOS`), `comfy/ops.py` (`_load_quantized_module`); comfy-kitchen 0.2.40
//! `backends/eager`, `tensor`.

mod layouts;
mod marker;
mod rotated;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::plan::Decoder;
use crate::plan::decode::Grouped;
use crate::read::catalog::{TensorInfo, quote};

use super::Weight;
use super::context::{Context, HeaderMarkers, missing, not_known, stem, unsupported};
use super::granularity::filled;
use super::smooth;
use marker::LayerMarker;
pub(crate) use marker::{
    HEADER, MARKED, MARKER, headers_contradict, markers_of_header, unknown_beside_markers,
};
use rotated::Rotated;

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(stem) = stem(info, ".weight") else {
        return Ok(None);
    };
    // most files have none, and are asked once
    if cx.catalog.format == "gguf" || !HeaderMarkers::any(cx)? {
        return Ok(None);
    }
    let Some(marker) = LayerMarker::find(cx, info, stem)? else {
        // ComfyUI reads no weight without a marker as quantised, so that the marker is lost or under another name
        let codes = matches!(
            cx.dtype(tensor),
            Some(Dtype::I8 | Dtype::U8 | Dtype::F8_E4M3 | Dtype::F8_E5M2)
        );
        if codes && cx.sibling(stem, ".weight_scale").is_some() {
            return Err(missing(info, MARKER));
        }
        return Ok(None);
    };
    filled(info, &info.shape)?;
    if marker.integer("num_experts").is_some() {
        return Err(unsupported(info, "ComfyUI's stacked experts"));
    }
    let layer = ComfyLayer {
        cx,
        info,
        tensor,
        stem,
        marker,
    };
    layer.weight().map(Some)
}

/// A layer with a marker.
struct ComfyLayer<'x, 'c> {
    cx: &'x Context<'c>,
    info: &'c TensorInfo,
    tensor: usize,
    stem: &'c str,
    marker: LayerMarker,
}

impl ComfyLayer<'_, '_> {
    fn weight(self) -> Result<Weight> {
        self.agrees()?;
        match &*self.marker.format {
            "float8_e4m3fn" => self.bytes(Dtype::F8_E4M3, "fp8", None),
            "float8_e5m2" => self.bytes(Dtype::F8_E5M2, "fp8", None),
            "nvfp4" => self.nvfp4(),
            "mxfp8" => self.mxfp8(),
            "int8_tensorwise" => self.bytes(Dtype::I8, "int8", None),
            "int8_blockwise" => {
                let side = self.group("group_size", 128)?;
                self.bytes(Dtype::I8, "int8", Some((side, side)))
            }
            "convrot_w4a4" => self.w4a4(),
            "awq_w4a16" => self.awq(),
            other => Err(not_known(
                self.info,
                format!("ComfyUI's format {}", quote(other)),
            )),
        }
    }

    /// Refuses options that another format has: they would be ignored.
    fn agrees(&self) -> Result<()> {
        let format = &*self.marker.format;
        let fixed = match format {
            "nvfp4" => Some(16),
            "mxfp8" => Some(32),
            _ => None,
        };
        let said = self.marker.integer("group_size");
        if let (Some(said), Some(_)) = (said.filter(|said| Some(*said) != fixed), fixed) {
            return Err(not_known(
                self.info,
                format!("group_size {said} of {format}"),
            ));
        }
        if self.marker.flag("convrot") && matches!(format, "nvfp4" | "mxfp8" | "awq_w4a16") {
            return Err(not_known(self.info, format!("convrot of {format}")));
        }
        Ok(())
    }

    fn part(&self, suffix: &str) -> Result<usize> {
        let found = self.cx.sibling(self.stem, suffix);
        found.ok_or_else(|| missing(self.info, &suffix[1..]))
    }

    /// A size of the marker, a power of 2, or its default.
    fn group(&self, option: &str, default: u64) -> Result<u64> {
        let size = self.marker.integer(option).unwrap_or(default);
        match size {
            1..=65536 if size.is_power_of_two() => Ok(size),
            _ => Err(not_known(self.info, format!("{option} {size}"))),
        }
    }

    /// The dtype of the codes must be this one: the marker of another file would decode to other values.
    fn stored(&self, dtypes: &[Dtype]) -> Result<()> {
        match self.cx.dtype(self.tensor) {
            Some(dtype) if dtypes.contains(&dtype) => Ok(()),
            _ => Err(self.other_shape()),
        }
    }

    fn other_shape(&self) -> Error {
        let (info, format) = (self.info, &self.marker.format);
        not_known(
            info,
            format!(
                "{} {:?} is not stored as ComfyUI's {format}",
                info.encoding,
                info.shape.as_slice()
            ),
        )
    }

    fn matrix(&self) -> Result<[u64; 2]> {
        match self.info.shape[..] {
            [rows, cols] => Ok([rows, cols]),
            _ => Err(self.other_shape()),
        }
    }

    /// The shape of the weight without the padding of codes `[rows, cols]` in groups of `group`, which the marker tells.
    fn unpadded(&self, [rows, cols]: [u64; 2], group: u64) -> Result<[u64; 2]> {
        let Some(said) = self.marker.shape() else {
            return Ok([rows, cols]);
        };
        // rows are padded to whole tiles of scales at most, columns to whole groups
        let fits = |high: u64, wide: u64| {
            (1..=rows).contains(&high)
                && (1..=cols).contains(&wide)
                && high.div_ceil(128) == rows.div_ceil(128)
                && wide.div_ceil(group) == cols.div_ceil(group)
        };
        match said[..] {
            [high, wide] if fits(high, wide) => Ok([high, wide]),
            _ => Err(self.other_original(&[rows, cols])),
        }
    }

    fn other_original(&self, shape: &[u64]) -> Error {
        let said = self.marker.shape().unwrap_or_default();
        not_known(
            self.info,
            format!("its marker says orig_shape {said:?}, and the stored shape is {shape:?}"),
        )
    }

    /// The weight of these parts, with the marker that it was recognised by.
    fn made(
        &self,
        scheme: &'static str,
        shape: &[u64],
        mut parts: Vec<(&'static str, usize)>,
        decoder: Box<dyn Decoder>,
    ) -> Result<Weight> {
        if self.marker.shape().is_some_and(|said| said != shape) {
            return Err(self.other_original(shape));
        }
        parts.extend(self.marker.tensor.map(|marker| ("marker", marker)));
        let (cx, name) = (self.cx, &*self.info.name);
        // ComfyUI reads factors of columns for NVFP4 alone
        match &*self.marker.format {
            "nvfp4" => smooth::weight_by(cx, scheme, name, shape, &parts, decoder),
            _ => Ok(cx.weight_by(scheme, name, shape, &parts, decoder.into())),
        }
    }

    /// The decoder, with the rotation undone that the marker names.
    fn unrotated(&self, inner: Grouped, rotated: bool) -> Result<Box<dyn Decoder>> {
        if !rotated {
            return Ok(Box::new(inner));
        }
        let group = self.group("convrot_groupsize", 256)?;
        // the matrix is a power of one of 4 x 4
        if group.trailing_zeros() % 2 == 1 || group < 4 || !inner.cols.is_multiple_of(group) {
            let what = format!("rotations of {group} of {} columns", inner.cols);
            return Err(not_known(self.info, what));
        }
        Ok(Box::new(Rotated { inner, group }))
    }
}
