//! Changes of fixtures, and the comparison of what a plan then says.

use serde_json::{Map, Value, json};

use anamnesis::Checkpoint;

use super::StoredCheckpoint;
use super::said::{Said, outputs, statements};
use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

/// A change of a fixture.
pub(super) type Change = Box<dyn Fn(&mut StoredCheckpoint)>;

pub(super) fn all(changes: Vec<Change>) -> Change {
    Box::new(move |stored| changes.iter().for_each(|change| change(stored)))
}

/// Sets the value at a path of the configuration; a number of the path is a position of a list.
pub(super) fn set(path: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        let changed = stored.change_settings(&|map| {
            let mut steps = path.split('/').peekable();
            let mut at = map;
            while let Some(step) = steps.next() {
                if steps.peek().is_none() {
                    at.insert(step.to_owned(), value.clone());
                    return;
                }
                at = at
                    .entry(step)
                    .or_insert_with(|| json!({}))
                    .as_object_mut()
                    .unwrap();
            }
        });
        assert!(changed, "no configuration");
    })
}

/// Removes the tensors whose names end so.
pub(super) fn remove(end: &'static str) -> Change {
    Box::new(move |stored| {
        let before = stored.tensors.len();
        stored.tensors.retain(|tensor| !tensor.name.ends_with(end));
        assert!(stored.tensors.len() < before, "no {end}");
    })
}

/// Changes the JSON text of the tensors whose names have this text.
pub(super) fn describe(part: &'static str, key: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        let mut tensors = stored.tensors.iter_mut();
        let tensor = tensors.find(|tensor| tensor.name.contains(part)).unwrap();
        let mut map: Map<String, Value> = serde_json::from_slice(&tensor.bytes).unwrap();
        map.insert(key.to_owned(), value.clone());
        tensor.bytes = serde_json::to_vec(&map).unwrap();
        tensor.shape = vec![tensor.bytes.len() as u64];
    })
}

pub(super) fn mark(key: &'static str, value: Value) -> Change {
    describe(".comfy_quant", key, value)
}

/// Sets a text of the metadata.
pub(super) fn metadata(key: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        let text = json!(value.to_string());
        stored.metadata.insert(key.to_owned(), text);
    })
}

/// Changes the attributes of torchao's tensors.
pub(super) fn attribute(path: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        for text in stored.metadata.values_mut() {
            let Ok(mut description) = serde_json::from_str::<Value>(text.as_str().unwrap()) else {
                continue;
            };
            if description.get("_data").is_some_and(Value::is_object) {
                *description.pointer_mut(path).unwrap() = value.clone();
                *text = json!(description.to_string());
            }
        }
    })
}

pub(super) fn rename(from: &'static str, to: &'static str) -> Change {
    Box::new(move |stored| {
        let mut tensors = stored.tensors.iter_mut();
        let tensor = tensors.find(|tensor| tensor.name.ends_with(from)).unwrap();
        tensor.name = tensor.name.replace(from, to);
    })
}

pub(super) fn check(cases: Vec<(&str, Change, Said)>) {
    let mut failures = Vec::new();
    for (i, (path, change, said)) in cases.into_iter().enumerate() {
        let intact = StoredCheckpoint::read(&fixture(&format!("quant/{path}/model.safetensors")));
        let mut changed = intact.clone();
        change(&mut changed);
        let made = |stored: &StoredCheckpoint| {
            let directory = ScratchDir::new("descriptors");
            let path = stored.write(&directory, "model.safetensors");
            outputs(&Checkpoint::open(path).unwrap())
        };
        let ((_, before), (plan, after)) = (made(&intact), made(&changed));
        let same = before.iter().all(|output| after.contains(output));
        let fine = said.holds(&plan) && (same || !matches!(said, Said::Nothing));
        if !fine {
            failures.push(format!("{i} {path}, {said:?}: {}", statements(&plan)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
