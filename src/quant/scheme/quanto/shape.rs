//! The shape of quanto's grouped weights, which its files do not store.
//!
//! A bias has an element per row and so determines the shape. Otherwise quanto's choice of groups narrows it down: rows of more
//! than 128 columns are divided into groups of 128, 96, 64 or 32, the first of these that divides them; shorter rows are one
//! group. If several shapes remain, the model's sizes in `config.json` and the module's name decide.
//!
//! Source: optimum-quanto 0.2.7 `nn/qmodule.py`; names and sizes as in transformers.

use crate::base::error::Result;
use crate::models::names::{self, ModuleRole};
use crate::quant::scheme::context::{Context, unsupported};
use crate::read::catalog::{TensorInfo, quote};

/// Maximum shapes that an error lists.
const SHOWN: usize = 6;

/// The shape of a module's weight that is stored as `groups` groups of `group` elements.
pub(super) fn of(
    cx: &Context<'_>,
    info: &TensorInfo,
    module: &str,
    groups: u64,
    group: u64,
) -> Result<[u64; 2]> {
    if let Some(bias) = cx.sibling(module, ".bias") {
        let rows = cx.info(bias).elements();
        // groups never cross rows, so that each row has the same number of them
        if rows > 0 && groups.is_multiple_of(rows) {
            return Ok([rows, groups / rows * group]);
        }
        let what =
            format!("{groups} groups of {group} elements do not fit the {rows} rows of the bias");
        return Err(unsupported(info, what));
    }
    let all = possible(groups, group);
    let mut found = all.clone();
    let by_groups = found.len() == 1;
    if found.len() > 1 {
        let sizes = sizes(cx);
        // the smaller the model's list of sizes, the fewer of the many divisors remain
        found.retain(|shape| shape.iter().all(|side| sizes.contains(side)));
        if found.len() > 1
            && let Some(hidden) = cx.config.model().hidden_size()
        {
            // by the name of the module: projections into the heads or the MLP read the hidden size, those out of
            // them write it
            match names::module_role(module) {
                Some(
                    ModuleRole::Query
                    | ModuleRole::Key
                    | ModuleRole::Value
                    | ModuleRole::Gate
                    | ModuleRole::Up,
                ) => found.retain(|shape| shape[1] == hidden),
                Some(ModuleRole::AttentionOutput | ModuleRole::Down) => {
                    found.retain(|shape| shape[0] == hidden)
                }
                _ if names::is_output_layer(&[module, ".weight"].concat()) => {
                    found.retain(|shape| shape[1] == hidden)
                }
                _ => {}
            }
        }
    }
    match found[..] {
        [shape] => {
            let how = if by_groups {
                "by quanto's choice of groups"
            } else {
                "by the sizes in config.json"
            };
            cx.note(format!(
                "{}: shape {shape:?} is derived {how}; the file does not store it",
                quote(module)
            ));
            Ok(shape)
        }
        _ => {
            // the candidates after the model's sizes were applied, or before if none is left
            let left = if found.is_empty() { &all } else { &found };
            let mut shapes: Vec<String> = left
                .iter()
                .take(SHOWN)
                .map(|shape| format!("{shape:?}"))
                .collect();
            shapes.extend((left.len() > SHOWN).then(|| format!("{} others", left.len() - SHOWN)));
            let shapes = if shapes.is_empty() {
                "none that quanto makes".to_owned()
            } else {
                shapes.join(" or ")
            };
            let what = format!(
                "the shape of {groups} groups of {group} elements is not stored and may be {shapes}; it is determined by \
                 a bias, or by `hidden_size`, `intermediate_size` and similar sizes in config.json"
            );
            Err(unsupported(info, what))
        }
    }
}

/// The shapes that quanto divides into such groups.
fn possible(groups: u64, group: u64) -> Vec<[u64; 2]> {
    let fits = |rows: u64| {
        let cols = (groups / rows).checked_mul(group)?;
        let cut = if cols > 128 {
            [128, 96, 64, 32]
                .into_iter()
                .find(|size| cols.is_multiple_of(*size))
        } else {
            None
        };
        (cut.unwrap_or(cols) == group).then_some([rows, cols])
    };
    let mut shapes = Vec::new();
    let mut divisor = 1;
    // bounds the loop on a file's number of groups: one side of any weight is shorter than 2^20
    while divisor <= groups / divisor && divisor < 1 << 20 {
        if groups.is_multiple_of(divisor) {
            shapes.extend(fits(divisor));
            shapes.extend(
                Some(groups / divisor)
                    .filter(|other| *other != divisor)
                    .and_then(fits),
            );
        }
        divisor += 1;
    }
    shapes
}

/// Lengths that the sides of the configured model's weights may have.
fn sizes(cx: &Context<'_>) -> Vec<u64> {
    let model = cx.config.model();
    let all = |heads: Option<u64>| heads?.checked_mul(model.head_dim()?);
    let own = [
        model.hidden_size(),
        model.feed_forward(),
        model.expert_feed_forward(),
    ];
    let more = [
        model.vocabulary(),
        all(model.heads()),
        all(model.kv_heads()),
    ];
    own.into_iter().chain(more).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::possible;

    #[test]
    fn possible_shapes_are_those_that_quanto_divides_into_these_groups() {
        assert_eq!(possible(16, 32), [[16, 32]]); // quanto does not divide rows of 64, and divides longer rows into larger groups
        assert_eq!(possible(7, 40), [[7, 40]]);
        assert_eq!(possible(35, 32), [[1, 1120], [35, 32], [5, 224], [7, 160]]);
        assert_eq!(possible(5, 256), [] as [[u64; 2]; 0]);
        assert_eq!(possible(4, 128), [[1, 512], [4, 128], [2, 256]]);
    }
}
