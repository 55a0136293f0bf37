//! `fit`: the caches of `fixtures/fit`, byte for byte as transformers and llama.cpp allocated them, and properties that hold for
//! every configuration.

mod config_values;
mod engines;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anamnesis::fit::{Basis, Estimate, InferenceEngine, fit_config};
use anamnesis::{CancelToken, Checkpoint, Dtype, ErrorKind, Fit, ModelConfig, fit};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::support::corpus::set_directory;
use crate::support::scratch_dir::ScratchDir;
use crate::support::{fixture, skip};

/// A model, and what transformers held of it.
#[derive(Deserialize)]
struct MeasuredModel {
    name: String,
    config: Map<String, Value>,
    short: Option<Map<String, Value>>,
    /// Dtype and shape of each parameter.
    tensors: Option<BTreeMap<String, (String, Vec<u64>)>>,
    parameters: u64,
    vision: Option<u64>,
    cases: Vec<MeasuredCache>,
}

/// The bytes of a cache.
#[derive(Deserialize)]
struct MeasuredCache {
    cache: String,
    batch: u64,
    tokens: u64,
    nbytes: u64,
    max_len: Option<u64>,
    encoder_tokens: Option<u64>,
    nbytes_after_one_more: Option<u64>,
    /// Bytes of a layer, and the numbers of the layers with as many.
    #[serde(default)]
    groups: Vec<(u64, Vec<u32>)>,
}

fn measured_models() -> Vec<MeasuredModel> {
    let text = std::fs::read_to_string(fixture("fit/transformers.jsonl")).unwrap();
    let models = text.lines().map(|line| serde_json::from_str(line).unwrap());
    models.collect()
}

fn config(map: &Map<String, Value>) -> ModelConfig {
    ModelConfig::from_json(&serde_json::to_vec(map).unwrap()).unwrap()
}

/// Bytes by layer, of those that keep any.
fn by_layer(groups: impl IntoIterator<Item = (u64, Vec<u32>)>) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for (nbytes, layers) in groups {
        for layer in layers {
            *sums.entry(layer).or_default() += nbytes;
        }
    }
    sums.retain(|_, nbytes| *nbytes > 0);
    sums
}

/// Compares an estimator of a model with all that was measured of it, and returns the number of comparisons.
fn check(name: &str, of_model: &Fit<'_>, cases: &[MeasuredCache]) -> usize {
    let mut compared = 0;
    for case in cases {
        let mut asked = of_model.clone().batch(case.batch).context(case.tokens);
        if let Some(tokens) = case.encoder_tokens {
            asked = asked.encoder_tokens(tokens);
        }
        let engines = if case.cache == "static" {
            asked = asked.preallocated(true).context(case.max_len.unwrap());
            &[InferenceEngine::Transformers][..]
        } else {
            &[InferenceEngine::Exact, InferenceEngine::Transformers]
        };
        for engine in engines {
            let what = format!(
                "{name} {engine} {} × {} {}",
                case.batch, case.tokens, case.cache
            );
            let asked = asked.clone().engine(*engine);
            let found = asked.estimate().unwrap();
            assert_eq!(
                found.cache.nbytes,
                Some(case.nbytes),
                "{what}: {:?}",
                found.cache.groups
            );
            assert_eq!(
                found.cache.basis,
                Basis::Exact,
                "{what}: {:?}",
                found.unknown
            );
            let groups = found.cache.groups.iter();
            let groups = by_layer(groups.map(|group| (group.nbytes_each, group.layers.clone())));
            assert_eq!(groups, by_layer(case.groups.clone()), "{what}");
            compared += 1;
            if let Some(nbytes) = case.nbytes_after_one_more {
                let one_more = asked.context(case.tokens + 1).estimate().unwrap();
                assert_eq!(one_more.cache.nbytes, Some(nbytes), "{what}, one more");
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn caches_are_those_that_transformers_held() {
    let mut compared = 0;
    for model in measured_models() {
        compared += check(
            &model.name,
            &fit_config(config(&model.config)),
            &model.cases,
        );
        if let Some(short) = &model.short {
            compared += check(&model.name, &fit_config(config(short)), &model.cases);
        }
    }
    assert!(compared > 600, "{compared}");
}

/// A directory with `config.json` and a safetensors file of zeros with these tensors.
fn stored_model(
    directory: &ScratchDir,
    config: &Map<String, Value>,
    tensors: &BTreeMap<String, (String, Vec<u64>)>,
) {
    let (mut header, mut end) = (Map::new(), 0u64);
    for (name, (dtype, shape)) in tensors {
        let (dtype, item) = match &**dtype {
            "bfloat16" => ("BF16", 2),
            "float32" => ("F32", 4),
            other => panic!("{name}: {other}"),
        };
        let start = end;
        end += item * shape.iter().product::<u64>();
        let entry =
            serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
        header.insert(name.clone(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.resize(file.len() + usize::try_from(end).unwrap(), 0);
    std::fs::write(directory.path("model.safetensors"), file).unwrap();
    let config = serde_json::to_vec(config).unwrap();
    std::fs::write(directory.path("config.json"), config).unwrap();
}

#[test]
fn tensors_agree_with_the_configuration() {
    let mut models = 0;
    for model in measured_models() {
        let Some(tensors) = &model.tensors else {
            continue;
        };
        let directory = ScratchDir::new(&format!("fit-{}", model.name));
        stored_model(&directory, &model.config, tensors);
        let checkpoint = Checkpoint::open(directory.dir()).unwrap();
        check(&model.name, &fit(&checkpoint), &model.cases);
        let found = fit(&checkpoint).context(100).estimate().unwrap();
        assert_eq!(
            (found.notes.len(), found.unknown.len()),
            (0, 0),
            "{}: {:?} {:?}",
            model.name,
            found.notes,
            found.unknown
        );
        assert_eq!(
            found.parameters.total,
            Some(model.parameters),
            "{}",
            model.name
        );
        assert_eq!(
            found.parameters.vision,
            Some(model.vision.unwrap_or(0)),
            "{}",
            model.name
        );
        let weights = found.weights.nbytes.unwrap();
        assert_eq!(weights, checkpoint.catalog().nbytes());
        assert_eq!(
            found.total_nbytes,
            Some(weights + found.cache.nbytes.unwrap())
        );
        models += 1;
    }
    assert!(models > 5);
}

#[test]
fn tensors_win_over_the_configuration() {
    let models = measured_models();
    let model = models
        .iter()
        .find(|model| model.name == "llama-head-dim")
        .unwrap();
    let right = fit_config(config(&model.config))
        .context(100)
        .estimate()
        .unwrap();
    for (key, value) in [
        ("num_key_value_heads", 6),
        ("head_dim", 20),
        ("head_dim", 7),
        ("num_key_value_heads", 1),
    ] {
        let mut wrong = model.config.clone();
        wrong.insert(key.to_owned(), value.into());
        let directory = ScratchDir::new("fit-wrong");
        stored_model(&directory, &wrong, model.tensors.as_ref().unwrap());
        let checkpoint = Checkpoint::open(directory.dir()).unwrap();
        let found = fit(&checkpoint).context(100).estimate().unwrap();
        assert_eq!(found.cache.nbytes, right.cache.nbytes, "{key}: {value}");
        assert_eq!(found.cache.groups[0].why, "tensors");
        assert!(
            found.notes[0].contains("the tensors count"),
            "{:?}",
            found.notes
        );
    }
    // an architecture without a row, and without heads: the tensors alone
    let mut unknown = model.config.clone();
    unknown.insert("model_type".to_owned(), "no_such".into());
    unknown.remove("num_attention_heads");
    let directory = ScratchDir::new("fit-unknown");
    stored_model(&directory, &unknown, model.tensors.as_ref().unwrap());
    let found = fit(&Checkpoint::open(directory.dir()).unwrap())
        .context(100)
        .estimate()
        .unwrap();
    assert_eq!(
        (found.cache.nbytes, found.cache.basis),
        (right.cache.nbytes, Basis::Bound)
    );
    assert!(
        found.unknown[0].contains("`no_such` is not known"),
        "{:?}",
        found.unknown
    );
}

#[test]
fn the_whole_corpus_agrees_where_it_is_installed() {
    let root = set_directory("fit");
    if !root.join("manifest.json").is_file() {
        return skip(&format!(
            "no corpus at {} (set ANAMNESIS_CORPUS)",
            root.display()
        ));
    }
    let read = |path: std::path::PathBuf| -> Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let mut models = 0;
    for name in std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
    {
        let folder = root.join(&name);
        let name = name.to_string_lossy().into_owned();
        if !folder.join("tensors.json").is_file() || !folder.join("expected.json").is_file() {
            continue;
        }
        let expected = read(folder.join("expected.json"));
        let map = read(folder.join("config.json"))
            .as_object()
            .unwrap()
            .clone();
        let tensors = serde_json::from_value(read(folder.join("tensors.json"))).unwrap();
        let directory = ScratchDir::new(&format!("fit-corpus-{name}"));
        stored_model(&directory, &map, &tensors);
        let checkpoint = Checkpoint::open(directory.dir()).unwrap();
        let of_model = fit(&checkpoint);
        for case in expected["cases"].as_array().unwrap() {
            let asked = of_model.clone().batch(case["batch"].as_u64().unwrap());
            let tokens = case["max_len"]
                .as_u64()
                .or(case["tokens"].as_u64())
                .unwrap();
            let asked = asked
                .context(tokens)
                .engine(InferenceEngine::Transformers)
                .preallocated(case["cache"] == "static");
            let asked = case["encoder_tokens"]
                .as_u64()
                .into_iter()
                .fold(asked, Fit::encoder_tokens);
            let found = asked.estimate().unwrap();
            assert_eq!(
                found.cache.nbytes,
                case["nbytes"].as_u64(),
                "{name}: {case}"
            );
            assert!(
                found.notes.is_empty() && found.unknown.is_empty(),
                "{name}: {:?} {:?}",
                found.notes,
                found.unknown
            );
        }
        if expected["buffers_stored"] != true {
            let found = of_model.context(1).estimate().unwrap();
            assert_eq!(
                found.parameters.total,
                expected["parameters"].as_u64(),
                "{name}"
            );
        }
        models += 1;
    }
    assert!(models > 30, "{models}");
}

/// Parameters of the experts and of one token, in billions.
#[test]
fn active_parameters_leave_out_idle_experts() {
    let experts: Vec<(String, (String, Vec<u64>))> = (0..4)
        .map(|i| {
            (
                format!("model.layers.0.mlp.experts.{i}.up_proj.weight"),
                ("bfloat16".to_owned(), vec![8, 8]),
            )
        })
        .collect();
    let mut tensors: BTreeMap<_, _> = experts.into_iter().collect();
    let shared = "model.layers.0.mlp.shared_experts.up_proj.weight".to_owned();
    tensors.insert(shared, ("bfloat16".to_owned(), vec![8, 8]));
    tensors.insert(
        "model.layers.0.mlp.gate.weight".to_owned(),
        ("bfloat16".to_owned(), vec![4, 8]),
    );
    let map = serde_json::json!({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 1});
    let directory = ScratchDir::new("fit-experts");
    stored_model(&directory, map.as_object().unwrap(), &tensors);
    let found: Estimate = fit(&Checkpoint::open(directory.dir()).unwrap())
        .estimate()
        .unwrap();
    assert_eq!(found.parameters.experts, Some(4 * 64));
    assert_eq!(found.parameters.total, Some(5 * 64 + 32));
    assert_eq!(found.parameters.active, Some(2 * 64 + 32));
}

/// A model with a draft model: bytes of both, and a token that ends the estimate; the handle may be shared.
#[test]
fn an_estimate_reports_progress_and_can_be_cancelled() {
    let open = || Arc::new(Checkpoint::open(fixture("model/scribe-Q8_0.gguf")).unwrap());
    let (model, draft) = (open(), open());
    let total = 2 * model.catalog().nbytes();
    let reported = Mutex::new(Vec::new());
    fit(&model)
        .draft(&draft)
        .progress(|progress| reported.lock().unwrap().push(progress))
        .estimate()
        .unwrap();
    let reported = reported.into_inner().unwrap();
    let done = reported.iter().map(|progress| progress.done);
    assert!(done.is_sorted() && reported.len() > 1, "{reported:?}");
    assert!(reported.iter().all(|progress| progress.total == total));
    assert_eq!(reported.last().unwrap().done, total);

    let token = CancelToken::new();
    let shared: Fit<'static> = fit(model).cancel(&token);
    shared.estimate().unwrap();
    token.cancel();
    for error in [
        shared.estimate().unwrap_err(),
        shared.layers().unwrap_err(),
        shared.largest_batch(1 << 30).unwrap_err(),
        shared.dtype(Dtype::F32).estimate().unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    }
}
