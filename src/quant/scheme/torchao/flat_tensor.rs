//! A tensor of one of torchao's classes of 4-bit codes, and what its files share.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::decode::{Factors, PartView, TransposedFactors};
use crate::quant::scheme::context::{Context, missing, not_known, plain};
use crate::quant::scheme::granularity::{filled, stack};
use crate::read::catalog::{Shape, TensorInfo};

/// A tensor of codes, and the description of its class.
pub(super) struct TorchaoTensor<'x> {
    pub(super) info: &'x TensorInfo,
    pub(super) tensor: usize,
    /// Prefix of the names of its parts.
    pub(super) flat: &'x str,
    pub(super) description: &'x Json,
    pub(super) class: &'x str,
}

impl TorchaoTensor<'_> {
    pub(super) fn part(&self, cx: &Context<'_>, key: &str) -> Result<usize> {
        cx.sibling(self.flat, &["_", key].concat())
            .ok_or_else(|| missing(self.info, key))
    }

    pub(super) fn data(&self, key: &str) -> Option<&Json> {
        self.description.get("_data")?.get(key)
    }

    /// Columns that share a scale; rows do not share any.
    pub(super) fn group(&self) -> Result<u64> {
        let sides = self
            .data("block_size")
            .and_then(Json::as_array)
            .and_then(|sides| sides.split_last());
        // groups within a row have blocks of one row
        let group = sides.filter(|(_, high)| high.iter().all(|n| n.as_u64() == Some(1)));
        let group = group
            .and_then(|(last, _)| last.as_u64())
            .filter(|group| *group > 0);
        group.ok_or_else(|| {
            not_known(
                self.info,
                "block_size does not describe groups within a row",
            )
        })
    }

    /// Refuses groups of which the last would be a part: torchao asserts that they divide its rows.
    pub(super) fn check_groups(&self, group: u64, cols: u64) -> Result<()> {
        match cols.is_multiple_of(group) {
            true => Ok(()),
            false => Err(not_known(
                self.info,
                format!("groups of {group} do not divide {cols} columns"),
            )),
        }
    }

    pub(super) fn wrong(&self) -> crate::base::error::Error {
        let info = self.info;
        not_known(
            info,
            format!(
                "{} {:?} does not fit {}",
                info.encoding,
                info.shape.as_slice(),
                self.class
            ),
        )
    }

    /// The weight's shape, if each item of the last dimension holds `per_word` codes.
    pub(super) fn sizes(&self, per_word: u64) -> Result<Shape> {
        filled(self.info, &self.info.shape)?;
        let mut shape = Shape::from_slice(&self.info.shape);
        let last = shape.last_mut().ok_or_else(|| self.wrong())?;
        *last = last.checked_mul(per_word).ok_or_else(|| self.wrong())?;
        if shape.len() < 2 || crate::read::catalog::elements(&shape).is_none() {
            return Err(self.wrong());
        }
        Ok(shape)
    }
}

/// Factors `[…, groups, out]` of a weight of this shape, in one of these dtypes, read as `[…, out, groups]`.
pub(super) fn transposed_factors(
    cx: &Context<'_>,
    tensor: usize,
    part: usize,
    shape: &[u64],
    group: u64,
    dtypes: &[Dtype],
) -> Result<(Factors, Arc<dyn PartView>)> {
    let info = cx.info(tensor);
    let (rows, cols, matrix_rows) = stack(shape);
    let (groups, last) = (cols.div_ceil(group), shape.len() - 2);
    let fits = info.shape.len() == shape.len()
        && info.shape[..last] == shape[..last]
        && info.shape[last..] == [groups, matrix_rows];
    let Some(dtype) = plain(info).filter(|dtype| fits && dtypes.contains(dtype)) else {
        // the dtype of the zero points distinguishes the devices: XPU stores integers, NPU floats
        let what = format!(
            "{} {:?} does not scale {shape:?} by groups of {group}",
            info.encoding,
            info.shape.as_slice()
        );
        return Err(not_known(info, what));
    };
    // stored group-major, since the kernels read the factors of neighbouring outputs together; a view turns the order
    let view = TransposedFactors::alone(part, dtype, [rows, matrix_rows], groups, groups);
    Ok((Factors::per_group(part, dtype, group), Arc::new(view)))
}

pub(super) const FLOATS: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::BF16];
