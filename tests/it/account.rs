//! Signs of quantisation that no scheme explains: a correct quantised checkpoint to which a tensor, a setting, a marker, a key, a field or a file of an
//! unknown name is added is refused, or warned of by that name, and never decoded without a word.

mod descriptors;
mod uploads;

use std::path::{Path, PathBuf};

use anamnesis::plan::{PLAIN, Plan};
use anamnesis::{Checkpoint, ErrorKind, OpenOptions, remember};
use serde_json::{Map, Value, json};

use crate::support::scratch_dir::ScratchDir;
use crate::support::{files_below, fixture};

/// A checkpoint of one file, and the JSON files beside it.
#[derive(Clone)]
struct StoredCheckpoint {
    header: Map<String, Value>,
    data: Vec<u8>,
    beside: Vec<(String, Vec<u8>)>,
}

impl StoredCheckpoint {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let len = usize::try_from(len).unwrap();
        let header = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
        let mut beside = Vec::new();
        for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|e| e == "json") {
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                beside.push((name, std::fs::read(&file).unwrap()));
            }
        }
        Self {
            header,
            data: bytes[8 + len..].to_vec(),
            beside,
        }
    }

    fn add_tensor(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) {
        let start = self.data.len();
        self.data.extend_from_slice(bytes);
        let end = self.data.len();
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
        self.header.insert(name.to_owned(), entry);
    }

    /// Removes a tensor with its bytes.
    fn remove_tensor(&mut self, name: &str) {
        self.header.remove(name);
        let mut data = Vec::new();
        for (name, entry) in &mut self.header {
            if name == "__metadata__" {
                continue;
            }
            let offset = |i: usize| usize::try_from(entry["data_offsets"][i].as_u64().unwrap());
            let bytes = &self.data[offset(0).unwrap()..offset(1).unwrap()];
            let start = data.len();
            data.extend_from_slice(bytes);
            entry["data_offsets"] = json!([start, data.len()]);
        }
        self.data = data;
    }

    /// Changes the map that describes quantisation; `false` if there is none.
    fn change_settings(&mut self, change: &dyn Fn(&mut Map<String, Value>)) -> bool {
        for (name, text) in &mut self.beside {
            let mut whole: Value = serde_json::from_slice(text).unwrap();
            let places: &[&str] = match name.as_str() {
                "config.json" => &["quantization_config", "quantization"],
                "hf_quant_config.json" => &["quantization"],
                _ => continue,
            };
            for place in places {
                if let Some(Value::Object(map)) = whole.get_mut(*place)
                    && !map.is_empty()
                {
                    change(map);
                    *text = serde_json::to_vec(&whole).unwrap();
                    return true;
                }
            }
        }
        false
    }

    /// Writes it to an empty directory and plans it.
    fn plan(&self, name: &str) -> Plan {
        let directory = ScratchDir::new("account");
        let path = self.write(&directory, name);
        remember(&Checkpoint::open(path).unwrap()).plan().unwrap()
    }

    fn write(&self, directory: &ScratchDir, name: &str) -> PathBuf {
        let header = serde_json::to_vec(&self.header).unwrap();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend(&self.data);
        for (name, text) in &self.beside {
            std::fs::write(directory.path(name), text).unwrap();
        }
        let path = directory.path(name);
        std::fs::write(&path, file).unwrap();
        path
    }
}

/// Whether a refusal or a warning of the plan has the text.
fn mentions(plan: &Plan, text: &str) -> bool {
    let refused = plan
        .refused
        .iter()
        .any(|r| r.error.to_string().contains(text));
    refused
        || plan
            .unexplained
            .iter()
            .any(|warning| warning.contains(text))
}

/// The safetensors files of `fixtures/quant` that are a checkpoint each, without their reference outputs.
fn fixtures() -> Vec<PathBuf> {
    let all = files_below(&fixture("quant"));
    let is_checkpoint = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".safetensors") && !name.contains("oracle") && !name.contains("-of-")
    };
    all.into_iter().filter(is_checkpoint).collect()
}

#[test]
fn what_is_added_is_refused_or_named() {
    let (mut checkpoints, mut failures) = (0, Vec::new());
    for path in fixtures() {
        let intact = StoredCheckpoint::read(&path);
        let plan = intact.plan("model.safetensors");
        let weight = plan.jobs.iter().find(|job| job.scheme != PLAIN);
        let (Some(weight), true) = (weight, plan.refused.is_empty()) else {
            continue;
        };
        checkpoints += 1;
        let name = weight.output.name.to_string();
        let stem = name.strip_suffix(".weight").unwrap_or(&name).to_owned();
        let codes = {
            let checkpoint = Checkpoint::open(&path).unwrap();
            checkpoint.catalog().tensors()[weight.parts[0].tensor]
                .name
                .to_string()
        };
        assert!(
            plan.unexplained.is_empty(),
            "{}: {:?}",
            path.display(),
            plan.unexplained
        );
        let mut check =
            |what: &str, refused: bool, change: &dyn Fn(&mut StoredCheckpoint) -> bool| {
                let mut changed = intact.clone();
                if !change(&mut changed) {
                    return;
                }
                let plan = changed.plan("model.safetensors");
                let named = mentions(&plan, what);
                if !named || (refused && plan.refused.is_empty()) {
                    let refusals: Vec<String> =
                        plan.refused.iter().map(|r| r.error.to_string()).collect();
                    failures.push(format!(
                        "{} {what}: {refusals:?} {:?}",
                        path.display(),
                        plan.unexplained
                    ));
                }
            };
        let tensor = format!("{stem}.unknown_part");
        check("unknown_part", false, &|c| {
            c.add_tensor(&tensor, "F32", &[1], &1f32.to_le_bytes());
            true
        });
        let marker = format!("{stem}.unknown_marker");
        check("unknown_marker", true, &|c| {
            let text = br#"{"rotation": 64}"#;
            c.add_tensor(&marker, "U8", &[text.len()], text);
            true
        });
        check("unknown_key", false, &|c| {
            c.change_settings(&|map| {
                map.insert("unknown_key".to_owned(), json!(5));
            })
        });
        check("hidden_rotation", true, &|c| {
            c.change_settings(&|map| {
                map.insert("hidden_rotation".to_owned(), json!({"size": 64}));
            })
        });
        check("unknown_method", true, &|c| {
            c.change_settings(&|map| {
                map.insert("quant_method".to_owned(), json!("unknown_method"));
            })
        });
        check("unknown_quantisation", false, &|c| {
            let metadata = c.header.entry("__metadata__").or_insert_with(|| json!({}));
            metadata["unknown_quantisation"] = json!("by rows");
            true
        });
        check("unknown_field", false, &|c| {
            c.header[&codes]["unknown_field"] = json!("q4");
            true
        });
        check("unknown_quantisation.json", false, &|c| {
            c.beside
                .push(("unknown_quantisation.json".to_owned(), b"{}".to_vec()));
            true
        });
    }
    assert!(
        failures.is_empty(),
        "{} of {checkpoints}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(checkpoints > 100, "only {checkpoints} checkpoints");
}

/// The name and the elements of every output that is made, and the plan.
fn outputs(checkpoint: &Checkpoint) -> (Plan, Vec<(String, Vec<u8>)>) {
    let plan = remember(checkpoint).plan().unwrap();
    // refused weights are errors of a run
    let made: Vec<String> = plan
        .jobs
        .iter()
        .map(|job| job.output.name.to_string())
        .collect();
    let wanted = move |name: &str| made.iter().any(|made| made == name);
    let all = remember(checkpoint).filter(wanted).all().unwrap();
    let named = |output: anamnesis::Remembered| (output.spec.name.to_string(), output.bytes);
    (plan, all.into_iter().map(named).collect())
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
        "weight_zero_point_2 (quark)",
        "the configuration says symmetric, and Quark wrote such weights without zero points",
    ),
    (
        "ct/g_idx/model.safetensors model.layers.0.mlp.down_proj.weight: model.layers.0.mlp.down_proj.weight_g_idx",
        "the configuration has no actorder",
    ),
];

#[test]
fn what_is_removed_is_missed() {
    let (mut removals, mut failures) = (0, Vec::new());
    for path in fixtures() {
        let intact = StoredCheckpoint::read(&path);
        let directory = ScratchDir::new("account-intact");
        let checkpoint = Checkpoint::open(intact.write(&directory, "model.safetensors")).unwrap();
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
                let rest = Checkpoint::open(changed.write(&directory, "model.safetensors"));
                // nothing is left
                let Ok(rest) = rest else { continue };
                let (plan, made) = outputs(&rest);
                let weight = job.output.name.to_string();
                let other = made.iter().any(|(name, bytes)| {
                    *name == weight && whole.iter().all(|(n, b)| n != name || b != bytes)
                });
                let silent = plan.refused.is_empty() && plan.unexplained.is_empty();
                if silent && other {
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
        "{}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(removals > 300, "only {removals} parts");
}

#[test]
fn what_explains_itself_changes_nothing() {
    for path in fixtures() {
        let mut stored = StoredCheckpoint::read(&path);
        let plan = stored.plan("model.safetensors");
        let weight = plan.jobs.iter().find(|job| job.scheme != PLAIN);
        let (Some(weight), true) = (weight, plan.refused.is_empty()) else {
            continue;
        };
        let name = weight.output.name.to_string();
        let stem = name.strip_suffix(".weight").unwrap_or(&name);
        let before = plan.jobs.len();
        for (more, dtype, shape, bytes) in [
            (
                format!("{stem}.lora_A.weight"),
                "F32",
                &[1usize, 2][..],
                vec![0u8; 8],
            ),
            ("rotary_emb.inv_freq".to_owned(), "F32", &[2], vec![0; 8]),
            (
                "embeddings.position_ids".to_owned(),
                "I64",
                &[1, 2],
                vec![0; 16],
            ),
            ("bn.num_batches_tracked".to_owned(), "I64", &[], vec![0; 8]),
            ("spiece_model".to_owned(), "U8", &[3], b"{a}".to_vec()),
            ("gate.tid2eid".to_owned(), "I32", &[2, 1], vec![0; 8]),
        ] {
            stored.add_tensor(&more, dtype, shape, &bytes);
        }
        let plan = stored.plan("model.safetensors");
        assert!(
            plan.refused.is_empty(),
            "{}: {:?}",
            path.display(),
            plan.refused
        );
        assert!(
            plan.unexplained.is_empty(),
            "{}: {:?}",
            path.display(),
            plan.unexplained
        );
        assert_eq!(plan.jobs.len(), before + 6, "{}", path.display());
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
