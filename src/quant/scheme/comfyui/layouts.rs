//! The layouts of ComfyUI's formats: which parts a weight has, and how they are decoded.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{CodePacking, CodeValue, E2M1_VALUES, Formula};
use crate::plan::decode::{
    Codes, Composite, Factors, GlobalScale, Grouped, PartOffset, PartView, Scales,
    TransposedFactors, Zeros,
};
use crate::quant::scheme::Weight;
use crate::quant::scheme::context::{not_known, plain};
use crate::quant::scheme::granularity::{are_of_blocks, are_of_rows, factors, other_scales, stack};
use crate::quant::scheme::modelopt::SIGNED_NIBBLES;
use crate::quant::scheme::swizzled_scales::SwizzledScales;

use super::ComfyLayer;

/// The values of AWQ's codes less 8.
const CENTRED_NIBBLES: [f32; 16] = [
    -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0,
];

impl ComfyLayer<'_, '_> {
    /// Codes of a byte each, with one scale, or one per row or block.
    pub(super) fn bytes(
        &self,
        dtype: Dtype,
        scheme: &'static str,
        block: Option<(u64, u64)>,
    ) -> Result<Weight> {
        self.stored(&[dtype])?;
        let scale = self.part(".weight_scale")?;
        let shape = &self.info.shape;
        let scales = factors(self.cx, 1, scale, shape, block)?;
        match block {
            None if !are_of_rows(&scales, shape) => {
                return Err(other_scales(self.cx, scale, shape, "a scale for each row"));
            }
            Some(block) if !are_of_blocks(&scales, shape, block) => {
                return Err(other_scales(
                    self.cx,
                    scale,
                    shape,
                    "a scale for each block",
                ));
            }
            _ => {}
        }
        let (rows, cols, matrix_rows) = stack(&self.info.shape);
        let value = CodeValue::of(dtype).expect("FP8 and I8 have values");
        let inner = Grouped {
            rows,
            cols,
            matrix_rows: matrix_rows.max(1),
            codes: Codes::new(CodePacking::Bytes, value, cols),
            formula: Formula::Scale,
            scales: Scales::Stored(scales),
            zeros: Zeros::None,
        };
        let decoder = self.unrotated(inner, self.marker.flag("convrot"))?;
        let parts = vec![("codes", self.tensor), ("scale", scale)];
        self.made(scheme, &self.info.shape, parts, decoder)
    }

    /// Scales of one byte in tiles, for groups along the rows: their part and a view that puts them into rows.
    fn tiled(
        &self,
        rows: u64,
        cols: u64,
        group: u64,
        dtype: Dtype,
    ) -> Result<(usize, Arc<dyn PartView>)> {
        let scale = self.part(".weight_scale")?;
        let info = self.cx.info(scale);
        let groups = cols / group;
        // tiles are padded in both dimensions, or in one dimension
        let is_shaped = match info.shape[..] {
            [_] => true,
            [high, wide] => {
                SwizzledScales::sides(rows, groups, [128, 4]) == [Some(high), Some(wide)]
            }
            _ => false,
        };
        let whole = is_shaped && SwizzledScales::bytes(rows, groups) == Some(info.elements());
        let named = plain(info).is_some_and(|found| found == dtype || found == Dtype::U8);
        if !cols.is_multiple_of(group) || !whole || !named {
            let what = format!(
                "{} {:?} are no tiles of scales for {rows} rows of {cols} in groups of {group}",
                info.encoding,
                info.shape.as_slice()
            );
            return Err(not_known(info, what));
        }
        let view = SwizzledScales {
            place: PartOffset::whole(1),
            rows,
            groups,
        };
        Ok((scale, Arc::new(view)))
    }

    pub(super) fn nvfp4(&self) -> Result<Weight> {
        self.stored(&[Dtype::U8])?;
        let [rows, bytes] = self.matrix()?;
        let cols = bytes.checked_mul(2).ok_or_else(|| self.other_shape())?;
        let (scale, view) = self.tiled(rows, cols, 16, Dtype::F8_E4M3)?;
        let global = self.part(".weight_scale_2")?;
        let found = self.cx.info(global);
        if plain(found) != Some(Dtype::F32) || found.elements() != 1 {
            return Err(not_known(found, "expected a single F32"));
        }
        let parts = vec![
            ("codes", self.tensor),
            ("scale", scale),
            ("global_scale", global),
        ];
        let [rows, cols] = self.unpadded([rows, cols], 16)?;
        let inner = Grouped {
            rows,
            cols,
            matrix_rows: rows,
            codes: Codes::new(
                CodePacking::HighNibbles,
                CodeValue::Table(Box::new(E2M1_VALUES)),
                bytes,
            ),
            formula: Formula::Scale,
            scales: Scales::Times(
                Factors::per_group(1, Dtype::F8_E4M3, 16),
                GlobalScale {
                    part: 2,
                    dtype: Dtype::F32,
                    count: 1,
                },
            ),
            zeros: Zeros::None,
        };
        let decoder = Composite::new(inner, parts.len(), vec![(1, view)]);
        self.made("nvfp4", &[rows, cols], parts, Box::new(decoder))
    }

    pub(super) fn mxfp8(&self) -> Result<Weight> {
        self.stored(&[Dtype::F8_E4M3])?;
        let [rows, bytes] = self.matrix()?;
        let (scale, view) = self.tiled(rows, bytes, 32, Dtype::F8_E8M0)?;
        let [rows, cols] = self.unpadded([rows, bytes], 32)?;
        let inner = Grouped {
            rows,
            cols,
            matrix_rows: rows,
            codes: Codes::new(CodePacking::Bytes, CodeValue::E4m3, bytes),
            formula: Formula::Scale,
            scales: Scales::Stored(Factors::per_group(1, Dtype::F8_E8M0, 32)),
            zeros: Zeros::None,
        };
        let parts = vec![("codes", self.tensor), ("scale", scale)];
        let decoder = Composite::new(inner, parts.len(), vec![(1, view)]);
        self.made("mxfp8", &[rows, cols], parts, Box::new(decoder))
    }

    pub(super) fn w4a4(&self) -> Result<Weight> {
        self.stored(&[Dtype::I8, Dtype::U8])?;
        let [rows, bytes] = self.matrix()?;
        let cols = bytes.checked_mul(2).ok_or_else(|| self.other_shape())?;
        let scale = self.part(".weight_scale")?;
        let scales = factors(self.cx, 1, scale, &[rows, cols], None)?;
        if !are_of_rows(&scales, &[rows, cols]) {
            let shape = &[rows, cols];
            return Err(other_scales(self.cx, scale, shape, "a scale for each row"));
        }
        let inner = Grouped {
            rows,
            cols,
            matrix_rows: rows,
            codes: Codes::new(
                CodePacking::LowNibbles,
                CodeValue::Table(Box::new(SIGNED_NIBBLES)),
                bytes,
            ),
            formula: Formula::Scale,
            scales: Scales::Stored(scales),
            zeros: Zeros::None,
        };
        let decoder = self.unrotated(inner, true)?;
        let parts = vec![("codes", self.tensor), ("scale", scale)];
        self.made("int4", &[rows, cols], parts, decoder)
    }

    pub(super) fn awq(&self) -> Result<Weight> {
        self.stored(&[Dtype::I8, Dtype::U8])?;
        let [rows, bytes] = self.matrix()?;
        let cols = bytes.checked_mul(2).ok_or_else(|| self.other_shape())?;
        let group = self.group("group_size", 64)?;
        let (scale, zero) = (self.part(".weight_scale")?, self.part(".weight_zeros")?);
        let groups = cols / group;
        let mut views: Vec<(usize, Arc<dyn PartView>)> = Vec::new();
        let mut factors = |part: usize, tensor: usize| -> Result<Factors> {
            let info = self.cx.info(tensor);
            let dtype = plain(info).filter(|d| matches!(d, Dtype::F16 | Dtype::BF16 | Dtype::F32));
            let whole = cols.is_multiple_of(group) && info.shape[..] == [groups, rows];
            let (Some(dtype), true) = (dtype, whole) else {
                let what = format!(
                    "{} {:?} instead of factors for {groups} groups of {rows} rows",
                    info.encoding,
                    info.shape.as_slice()
                );
                return Err(not_known(info, what));
            };
            let view = TransposedFactors::alone(part, dtype, [rows, rows], groups, groups);
            views.push((part, Arc::new(view)));
            Ok(Factors::per_group(part, dtype, group))
        };
        let inner = Grouped {
            rows,
            cols,
            matrix_rows: rows,
            codes: Codes::new(
                CodePacking::LowNibbles,
                CodeValue::Table(Box::new(CENTRED_NIBBLES)),
                bytes,
            ),
            formula: Formula::ScaleOffset,
            scales: Scales::Stored(factors(1, scale)?),
            zeros: Zeros::Stored(factors(2, zero)?),
        };
        let parts = vec![
            ("codes", self.tensor),
            ("scale", scale),
            ("zero_point", zero),
        ];
        let decoder = Composite::new(inner, parts.len(), views);
        self.made("awq", &[rows, cols], parts, Box::new(decoder))
    }
}
