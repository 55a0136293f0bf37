//! Signs of quantisation that no scheme explains: a correct quantised checkpoint to which a tensor, a setting, a marker, a key, a field or a file of an
//! unknown name is added is refused, or warned of by that name, and never decoded without a word.

mod absent_modules;
mod across_layers;
mod changes;
mod configurations;
mod containers;
mod data;
mod descriptors;
mod exclusions;
mod fused_scales;
mod kinds;
mod kinds_of_settings;
mod layers;
mod many_modules;
mod markers;
mod names_of_parts;
mod odd_parts;
mod odd_statements;
mod opened_files;
mod other_names;
mod pickles;
mod said;
mod stated;
mod stored_checkpoint;
mod unlikely_parts;
mod uploads;

use anamnesis::plan::{PLAIN, Plan};
use anamnesis::{Checkpoint, ErrorKind, OpenOptions, remember};

use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;
use containers::{CONTAINERS, Target};
use said::{mentions, outputs};
use stored_checkpoint::StoredCheckpoint;

/// The first quantised weight of a checkpoint that is decoded whole; `None` if there is none.
fn target(file: &str, stored: &StoredCheckpoint) -> Option<(Plan, Target)> {
    let directory = ScratchDir::new("account-target");
    let checkpoint = Checkpoint::open(stored.write(&directory, file)).unwrap();
    let plan = remember(&checkpoint).plan().unwrap();
    let weight = plan.jobs.iter().find(|job| job.scheme != PLAIN)?;
    let codes = weight.parts[0].tensor;
    let name = weight.output.name.to_string();
    let target = Target {
        stem: name.strip_suffix(".weight").unwrap_or(&name).to_owned(),
        codes: checkpoint.catalog().tensors()[codes].name.to_string(),
    };
    plan.refused.is_empty().then_some((plan, target))
}

#[test]
fn what_is_added_is_refused_or_named() {
    for container in CONTAINERS {
        let (mut checkpoints, mut failures) = (0, Vec::new());
        for (path, intact) in (container.checkpoints)() {
            let Some((plan, target)) = target(container.file, &intact) else {
                continue;
            };
            checkpoints += 1;
            let (path, before) = (path.display(), &plan.unexplained);
            if !before.is_empty() {
                failures.push(format!("{path}: {before:?}"));
            }
            for addition in container.additions.iter().copied().flatten() {
                let mut changed = intact.clone();
                if !(addition.add)(&mut changed, &target) {
                    continue;
                }
                let plan = changed.plan(container.file);
                let named = mentions(&plan, addition.name);
                if !named || (addition.refused && plan.refused.is_empty()) {
                    let refusals: Vec<String> =
                        plan.refused.iter().map(|r| r.error.to_string()).collect();
                    failures.push(format!(
                        "{path} {}: {refusals:?} {:?}",
                        addition.name, plan.unexplained
                    ));
                }
            }
        }
        assert!(
            failures.is_empty(),
            "{}: {} of {checkpoints}:\n{}",
            container.file,
            failures.len(),
            failures.join("\n")
        );
        let at_least = container.at_least;
        assert!(checkpoints >= at_least, "only {checkpoints} of {at_least}");
    }
}

/// Parts without which a weight has other values, and whose absence nothing in the files shows.
///
/// `(text of the failure, reason)`.
static UNKNOWABLE: &[(&str, &str)] = &[
    (
        "pre_quant_scale (",
        "ModelOpt folds it into the norm in front where it can, and its configuration says the same of both",
    ),
    (
        "b.1.q.comfy_quant (int8)",
        "the only marker of a file without a configuration",
    ),
    (
        "b.0.q.comfy_quant (int8)",
        "the only marker of a file without a configuration",
    ),
    (
        "l.0.fc.comfy_quant (int4)",
        "the only marker of a file without a configuration",
    ),
    (
        "b.0.q.scale_weight (fp8)",
        "the scale of the only FP8 weight of a file without a configuration",
    ),
    (
        "a.fc.global_scale (mlx)",
        "MLX writes NVFP4 with one and without, under the same configuration",
    ),
    (
        "ct/g_idx/model.safetensors model.layers.0.mlp.down_proj.weight: model.layers.0.mlp.down_proj.weight_g_idx",
        "the configuration has no actorder",
    ),
];

#[test]
fn what_is_removed_is_missed() {
    for container in CONTAINERS {
        let (mut removals, mut failures) = (0, Vec::new());
        for (path, intact) in (container.checkpoints)() {
            let directory = ScratchDir::new("account-intact");
            let checkpoint = Checkpoint::open(intact.write(&directory, container.file)).unwrap();
            let plan = remember(&checkpoint).plan().unwrap();
            if !plan.refused.is_empty() {
                continue;
            }
            let (_, whole) = outputs(&checkpoint);
            for job in plan.jobs.iter().filter(|job| job.scheme != PLAIN) {
                for part in &job.parts {
                    let name = checkpoint.catalog().tensors()[part.tensor].name.to_string();
                    let mut changed = intact.clone();
                    changed.remove_tensor(&name);
                    removals += 1;
                    let directory = ScratchDir::new("account-removed");
                    let rest = Checkpoint::open(changed.write(&directory, container.file));
                    // nothing is left
                    let Ok(rest) = rest else { continue };
                    let (plan, made) = outputs(&rest);
                    let weight = job.output.name.to_string();
                    let other = made.iter().any(|(name, bytes)| {
                        *name == weight && whole.iter().all(|(n, b)| n != name || b != bytes)
                    });
                    // without its codes, the rest of a weight is no tensor of a model
                    let lost = job.parts.len() > 1 && made.iter().all(|(name, _)| *name != weight);
                    let silent = plan.refused.is_empty() && plan.unexplained.is_empty();
                    if silent && (other || lost) {
                        failures.push(format!(
                            "{} {weight}: {name} ({})",
                            path.display(),
                            job.scheme
                        ));
                    }
                }
            }
        }
        let unknowable = |failure: &String| UNKNOWABLE.iter().any(|(end, _)| failure.contains(end));
        failures.retain(|failure| !unknowable(failure));
        assert!(
            failures.is_empty(),
            "{}: {}:\n{}",
            container.file,
            failures.len(),
            failures.join("\n")
        );
        let at_least = container.at_least;
        assert!(removals >= at_least, "only {removals} parts");
    }
}

#[test]
fn what_explains_itself_changes_nothing() {
    for container in CONTAINERS {
        let mut failures = Vec::new();
        for (path, mut stored) in (container.checkpoints)() {
            let Some((plan, target)) = target(container.file, &stored) else {
                continue;
            };
            let (outputs, tensors) = (plan.jobs.len(), stored.tensors.len());
            for change in container.harmless.iter().copied().flatten() {
                change(&mut stored, &target);
            }
            let plan = stored.plan(container.file);
            let added = stored.tensors.len() - tensors;
            let whole = plan.refused.is_empty() && plan.jobs.len() == outputs + added;
            if !whole || !plan.unexplained.is_empty() {
                failures.push(format!(
                    "{}: {:?} {:?}",
                    path.display(),
                    plan.refused,
                    plan.unexplained
                ));
            }
        }
        assert!(
            failures.is_empty(),
            "{}:\n{}",
            container.file,
            failures.join("\n")
        );
    }
}

#[test]
fn what_is_assumed_to_be_plain_is_ignored_with_a_word() {
    let path = fixture("unexplained/v-offset/model.safetensors");
    let refused = remember(&Checkpoint::open(&path).unwrap()).plan().unwrap();
    let error = &refused.refused[0].error;
    assert!(matches!(error.kind(), ErrorKind::Unexplained(_)), "{error}");
    assert!(error.to_string().contains("weight_shift"), "{error}");
    let checkpoint = OpenOptions::new().assume_plain(true).open(&path).unwrap();
    let plan = remember(&checkpoint).plan().unwrap();
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    assert!(mentions(&plan, "weight_shift"), "{:?}", plan.unexplained);
    assert!(
        plan.jobs
            .iter()
            .any(|job| &*job.output.name == "model.layers.0.mlp.down_proj.weight_shift")
    );
}
