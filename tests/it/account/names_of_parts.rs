//! Parts of weights under another name than their writer's: none may be left out without a word.

use super::containers::written;
use super::kinds::{MadeOutputs, part};

/// Roles of parts that a weight may lack.
static OPTIONAL: &[&str] = &[
    "zero_point",
    "group_index",
    "pre_quant_scale",
    "global_scale",
    "per_tensor_scale",
    "low_rank_a",
    "low_rank_b",
    "biases",
    "shift",
    "scale_of_scales",
    "scale",
    "scales",
];

/// The other name of a part, if it has one of the kind.
type OtherName = fn(&str) -> Option<String>;

static NAMES: &[(&str, OtherName)] = &[
    ("slash", |name| {
        let (module, last) = name.rsplit_once('.')?;
        Some(format!("{module}/{last}"))
    }),
    ("suffix", |name| Some(format!("{name}.0"))),
    ("prefix", |name| Some(format!("module.{name}"))),
];

#[test]
fn optional_parts_under_other_names_are_refused_or_named() {
    let (mut renamed, mut failures) = (0, Vec::new());
    for (path, intact) in written() {
        let before = MadeOutputs::of(&intact).unwrap();
        if !before.plan.refused.is_empty() {
            continue;
        }
        let folder = path.parent().unwrap();
        let case = folder
            .strip_prefix(crate::support::fixture("quant"))
            .unwrap();
        for name in part(&intact, OPTIONAL) {
            for (kind, other) in NAMES {
                let Some(other) = other(&name) else { continue };
                let mut changed = intact.clone();
                let mut tensors = changed.tensors.iter_mut();
                let tensor = tensors.find(|tensor| tensor.name == name).unwrap();
                tensor.name = other;
                renamed += 1;
                let after = MadeOutputs::of(&changed);
                if let Some(weight) = after.and_then(|after| after.silently_other(&before)) {
                    failures.push(format!("{} {kind} {name}: {weight}", case.display()));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{renamed}:\n{}", failures.join("\n"));
    assert!(renamed >= 400, "only {renamed}");
}
