//! What shape the groups of quanto make, which its files do not say.
//!
//! A bias tells, for it has an element per row. Else what quanto would do narrows it down: rows of more than 128
//! columns are cut into groups of 128, 96, 64 or 32, the first of these that divides them, and others are left whole.
//! Where that leaves several shapes, `config.json` may have the sizes of the model, and the module's name what it does.
//! Source: optimum-quanto 0.2.7 `nn/qmodule.py`; names and sizes as transformers has them.

use crate::catalog::{TensorInfo, quote};
use crate::error::Result;
use crate::scheme::context::{Context, unsupported};

/// Shapes that a refusal lists.
const SHOWN: usize = 6;

/// The shape of a module's weight that is stored as so many groups of so many elements.
pub(super) fn of(
    cx: &Context<'_>,
    info: &TensorInfo,
    module: &str,
    groups: u64,
    group: u64,
) -> Result<[u64; 2]> {
    if let Some(bias) = cx.beside(module, ".bias") {
        let rows = cx.info(bias).elements();
        if rows > 0 && groups.is_multiple_of(rows) {
            return Ok([rows, groups / rows * group]);
        }
        let what =
            format!("{groups} groups of {group}, and a bias for {rows} rows: they make no shape");
        return Err(unsupported(info, what));
    }
    let all = possible(groups, group);
    let mut found = all.clone();
    let by_groups = found.len() == 1;
    if found.len() > 1 {
        let sizes = sizes(cx);
        found.retain(|shape| shape.iter().all(|side| sizes.contains(side)));
        if found.len() > 1
            && let Some(hidden) = cx.config.size(&["hidden_size", "d_model", "n_embd"])
        {
            let own = module.rsplit('.').next().unwrap_or(module);
            match own {
                "q_proj" | "k_proj" | "v_proj" | "gate_proj" | "up_proj" | "fc1" | "lm_head" => {
                    found.retain(|shape| shape[1] == hidden);
                }
                "o_proj" | "out_proj" | "down_proj" | "fc2" => {
                    found.retain(|shape| shape[0] == hidden)
                }
                _ => {}
            }
        }
    }
    match found[..] {
        [shape] => {
            let how = if by_groups {
                "as quanto chooses its groups"
            } else {
                "by the sizes in config.json"
            };
            cx.note(format!(
                "{} has the shape {shape:?}, {how}: the file does not say",
                quote(module)
            ));
            Ok(shape)
        }
        _ => {
            // what the sizes left, or else what they would have chosen from
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
                "its {groups} groups of {group} are stored, and not its shape, which may be {shapes}; a bias beside it \
                 would tell, or `hidden_size`, `intermediate_size` and the like in config.json"
            );
            Err(unsupported(info, what))
        }
    }
}

/// The shapes that quanto would have cut into such groups.
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
    // one side of any weight is shorter than this
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

/// Sides that the weights of the configured model have.
fn sizes(cx: &Context<'_>) -> Vec<u64> {
    let size = |names: &[&str]| cx.config.size(names);
    let hidden = size(&["hidden_size", "d_model", "n_embd"]);
    let heads = size(&["num_attention_heads", "n_head"]);
    let by_head = || {
        hidden
            .zip(heads)
            .and_then(|(hidden, heads)| hidden.checked_div(heads))
    };
    let head = size(&["head_dim"]).or_else(by_head);
    let all = |heads: Option<u64>| {
        heads
            .zip(head)
            .and_then(|(heads, head)| heads.checked_mul(head))
    };
    let own = [
        hidden,
        size(&["intermediate_size", "ffn_dim", "n_inner"]),
        size(&["moe_intermediate_size"]),
    ];
    let more = [
        size(&["vocab_size"]),
        all(heads),
        all(size(&["num_key_value_heads"])),
    ];
    own.into_iter().chain(more).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::possible;

    #[test]
    fn groups_tell_a_shape_where_quanto_has_no_choice() {
        assert_eq!(possible(16, 32), [[16, 32]]); // rows of 64 are left whole, and longer ones are cut wider
        assert_eq!(possible(7, 40), [[7, 40]]);
        assert_eq!(possible(35, 32), [[1, 1120], [35, 32], [5, 224], [7, 160]]);
        assert_eq!(possible(5, 256), [] as [[u64; 2]; 0]);
        assert_eq!(possible(4, 128), [[1, 512], [4, 128], [2, 256]]);
    }
}
