//! A field of a configuration has one meaning under all its keys: two configurations that differ in a synonym give equal
//! documents. Every field that `models` knows is tried with all its keys, through every verb that reads configurations.

use std::collections::{BTreeMap, BTreeSet};

use anamnesis::fit::{InferenceEngine, fit_config};
use anamnesis::{Checkpoint, ConfigField, Dtype, ModelConfig, Names, fit, predict, remember};
use serde_json::{Map, Value, json};

use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{GgufValue, StoredTensor, gguf_with, safetensors};

type Config = Map<String, Value>;

/// The keys under which configurations of several modalities keep their language model.
const NESTED: [&str; 3] = ["thinker_config", "text_config", "language_config"];

/// The configurations of the models that transformers measured, without those around them.
fn measured() -> Vec<Config> {
    let text = std::fs::read_to_string(fixture("fit/transformers.jsonl")).unwrap();
    let configs = text.lines().map(|line| {
        let mut model: Value = serde_json::from_str(line).unwrap();
        let mut config = model["config"].take();
        for key in NESTED {
            if config[key].is_object() {
                config = config[key].take();
            }
        }
        let Value::Object(config) = config else {
            panic!("{line}")
        };
        config
    });
    configs.collect()
}

/// The value at a key, or at the key in a nested object.
fn get<'c>(config: &'c Config, key: &str) -> Option<&'c Value> {
    match key.split_once('.') {
        Some((outer, inner)) => config.get(outer)?.get(inner),
        None => config.get(key),
    }
}

fn set(config: &mut Config, key: &str, value: Value) {
    match key.split_once('.') {
        Some((outer, inner)) => {
            let outer = config.entry(outer).or_insert_with(|| json!({}));
            outer[inner] = value;
        }
        None => {
            config.insert(key.to_owned(), value);
        }
    }
}

fn remove(config: &mut Config, key: &str) {
    match key.split_once('.') {
        Some((outer, inner)) => {
            if let Some(outer) = config.get_mut(outer).and_then(Value::as_object_mut) {
                outer.remove(inner);
            }
        }
        None => {
            config.remove(key);
        }
    }
}

/// The configuration with a field's value under each of its keys in turn; `None` if the field is not stated.
fn under_each_key(base: &Config, field: &ConfigField) -> Option<Vec<(&'static str, Config)>> {
    let keys = field.config_json();
    let value = keys.iter().find_map(|key| get(base, key)).cloned()?;
    let mut without = base.clone();
    keys.iter().for_each(|key| remove(&mut without, key));
    let with = |key: &&'static str| {
        let mut config = without.clone();
        set(&mut config, key, value.clone());
        (*key, config)
    };
    Some(keys.iter().map(with).collect())
}

/// Another value of the same type.
fn other(value: &Value) -> Value {
    match value {
        Value::Number(n) => (n.as_u64().unwrap_or(0) * 2 + 2).into(),
        Value::Bool(flag) => (!flag).into(),
        Value::Array(list) => list.iter().skip(1).cloned().collect::<Vec<_>>().into(),
        Value::String(text) if text == "float32" => "float16".into(),
        Value::String(_) => "float32".into(),
        _ => 7.into(),
    }
}

/// How often a field was tried, and whether its value decides anything.
#[derive(Debug, Default)]
struct Tried {
    keys: BTreeSet<&'static str>,
    decides: bool,
}

/// Compares the documents of configurations that differ in a synonym, for every field that `base` states.
fn compare<D: PartialEq + std::fmt::Debug>(
    base: &Config,
    tried: &mut BTreeMap<&'static str, Tried>,
    documents: &dyn Fn(&Config) -> D,
) {
    for field in ModelConfig::fields() {
        let Some(variants) = under_each_key(base, field) else {
            continue;
        };
        if variants.len() < 2 {
            continue;
        }
        let row = tried.entry(field.name()).or_default();
        let (first, config) = &variants[0];
        let expected = documents(config);
        let mut changed = config.clone();
        set(&mut changed, first, other(get(config, first).unwrap()));
        row.decides |= documents(&changed) != expected;
        row.keys.insert(first);
        for (key, config) in &variants[1..] {
            assert_eq!(
                documents(config),
                expected,
                "{}: {key} instead of {first} in {:?}",
                field.name(),
                base.get("model_type")
            );
            row.keys.insert(key);
        }
    }
}

/// The fields with several keys in a `config.json`.
fn with_synonyms() -> impl Iterator<Item = &'static ConfigField> {
    let fields = ModelConfig::fields().iter().copied();
    fields.filter(|field| field.config_json().len() > 1)
}

#[test]
fn fit_of_a_configuration_is_the_same_under_every_key() {
    let mut tried = BTreeMap::new();
    // also without the list that would decide the kind of each layer alone
    let unlisted = measured().into_iter().map(|mut base| {
        base.remove("layer_types");
        base
    });
    for base in measured().into_iter().chain(unlisted) {
        compare(&base, &mut tried, &|config| {
            let config = ModelConfig::from_json(&serde_json::to_vec(config).unwrap()).unwrap();
            InferenceEngine::ALL.map(|engine| {
                let fit = fit_config(config.clone()).engine(engine).batch(2);
                // also without a context, for that which the model was made for
                [fit.clone().context(5000), fit].map(|fit| {
                    let estimate = fit.estimate().map_err(|error| error.to_string());
                    estimate.map(|estimate| serde_json::to_value(estimate).unwrap())
                })
            })
        });
    }
    for field in with_synonyms() {
        // compared with the numbers of layers in tensors
        if field.name() == "predicting_layers" {
            continue;
        }
        let row = &tried[field.name()];
        assert_eq!(row.keys.len(), field.config_json().len(), "{field:?}");
        assert!(row.decides, "{field:?} decides nothing: {row:?}");
    }
}

/// A model of experts with its tensors: three layers, and a fourth that predicts.
fn mixture() -> (Config, Vec<StoredTensor>) {
    let config = json!({
        "model_type": "qwen3_moe", "num_hidden_layers": 3, "num_nextn_predict_layers": 1, "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96, "intermediate_size": 128,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "max_position_embeddings": 512,
        "dtype": "bfloat16"
    });
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![96, 64]),
        ("lm_head.weight".to_owned(), vec![96, 64]),
    ];
    for layer in 0..4 {
        let mut add = |name: &str, shape: [u64; 2]| {
            let name = format!("model.layers.{layer}.{name}.weight");
            shapes.push((name, shape.to_vec()));
        };
        add("self_attn.q_proj", [64, 64]);
        add("self_attn.k_proj", [32, 64]);
        add("self_attn.v_proj", [32, 64]);
        add("self_attn.qkv_proj", [128, 64]);
        for expert in 0..4 {
            add(&format!("mlp.experts.{expert}.up_proj"), [32, 64]);
        }
    }
    let tensors = shapes.iter().map(|(name, shape)| {
        let nbytes = usize::try_from(shape.iter().product::<u64>() * 2).unwrap();
        StoredTensor::new(name, "BF16", shape, vec![0; nbytes])
    });
    (config.as_object().unwrap().clone(), tensors.collect())
}

#[test]
fn verbs_on_checkpoints_are_the_same_under_every_key() {
    let (base, tensors) = mixture();
    let scratch = ScratchDir::new("synonyms");
    std::fs::write(
        scratch.path("model.safetensors"),
        safetensors(&tensors, &[]),
    )
    .unwrap();
    let open = |config: &Config| {
        let text = serde_json::to_vec(config).unwrap();
        std::fs::write(scratch.path("config.json"), text).unwrap();
        Checkpoint::open(scratch.path("")).unwrap()
    };
    let mut by_fit = BTreeMap::new();
    compare(&base, &mut by_fit, &|config| {
        let checkpoint = open(config);
        let fit = fit(&checkpoint).engine(InferenceEngine::LlamaCpp);
        [fit.clone(), fit.dtype(Dtype::F32).tp(4).pp(2)]
            .map(|fit| serde_json::to_value(fit.estimate().unwrap()).unwrap())
    });
    for name in ["predicting_layers", "experts", "experts_used", "heads"] {
        assert!(by_fit[name].decides, "{name}: {by_fit:?}");
    }
    let mut by_predict = BTreeMap::new();
    compare(&base, &mut by_predict, &|config| {
        predict(&open(config)).tp(4).pp(2).template().unwrap()
    });
    for name in ["layers", "heads", "kv_heads"] {
        assert!(by_predict[name].decides, "{name}: {by_predict:?}");
    }
    let mut by_remember = BTreeMap::new();
    compare(&base, &mut by_remember, &|config| {
        let checkpoint = open(config);
        let plan = remember(&checkpoint).plan().unwrap();
        let jobs = plan.jobs.iter();
        let outputs: Vec<_> = jobs
            .map(|job| (job.output.name.to_string(), job.output.dtype))
            .collect();
        (outputs, plan.notes.clone())
    });
    assert_eq!(by_remember.len(), by_fit.len());
}

/// The metadata of a llama of one layer. A field's value is under the key of this table that is first.
fn llama(numbers: &[(&str, u32)]) -> Vec<(String, GgufValue)> {
    let mut metadata = vec![(
        "general.architecture".to_owned(),
        GgufValue::Text("llama".to_owned()),
    )];
    for (key, number) in numbers {
        metadata.push(if key.starts_with("tokenizer.") {
            // an array counts by its length
            let tokens = (0..*number).map(|i| format!("t{i}")).collect();
            ((*key).to_owned(), GgufValue::Texts(tokens))
        } else {
            (format!("llama.{key}"), GgufValue::Number(*number))
        });
    }
    let epsilon = "llama.attention.layer_norm_rms_epsilon".to_owned();
    metadata.push((epsilon, GgufValue::Float(1e-5)));
    metadata
}

/// The documents that the metadata of a GGUF decides.
fn documents_of_gguf(metadata: &[(String, GgufValue)]) -> (Value, Vec<String>, Value) {
    let tensor = |name: &str, shape: &[u64]| {
        let nbytes = usize::try_from(shape.iter().product::<u64>() * 4).unwrap();
        StoredTensor::new(name, "0", shape, vec![0; nbytes])
    };
    // no embedding, whose rows would decide about the vocabulary
    let tensors = [
        tensor("blk.0.attn_q.weight", &[64, 64]),
        tensor("blk.0.attn_k.weight", &[32, 64]),
        tensor("blk.0.attn_v.weight", &[32, 64]),
    ];
    let checkpoint = Checkpoint::from_bytes(gguf_with(false, metadata, &tensors)).unwrap();
    let named = remember(&checkpoint).names(Names::HuggingFace);
    let files = named.companions().unwrap().files;
    let file = files
        .iter()
        .find(|file| file.name == "config.json")
        .unwrap();
    let anamnesis::companions::CompanionContent::Bytes(bytes) = &file.content else {
        panic!("config.json is copied");
    };
    let plan = named.plan().unwrap();
    let outputs = plan.jobs.iter().map(|job| job.output.name.to_string());
    let estimate = fit(&checkpoint).context(1000).estimate().unwrap();
    (
        serde_json::from_slice(bytes).unwrap(),
        outputs.collect(),
        serde_json::to_value(estimate).unwrap(),
    )
}

#[test]
fn a_gguf_is_the_same_under_every_key() {
    let base = [
        ("block_count", 1),
        ("context_length", 512),
        ("embedding_length", 64),
        ("feed_forward_length", 128),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("vocab_size", 96),
    ];
    let mut synonyms = 0;
    for field in ModelConfig::fields().iter().filter(|f| f.gguf().len() > 1) {
        let first = field.gguf()[0];
        let at = base.iter().position(|(key, _)| *key == first);
        let at = at.unwrap_or_else(|| panic!("no value for {field:?}"));
        let with = |key, number| {
            let mut numbers = base;
            numbers[at] = (key, number);
            documents_of_gguf(&llama(&numbers))
        };
        let expected = with(first, base[at].1);
        let (config, _, estimate) = with(first, base[at].1 + 1);
        assert!(config != expected.0 && estimate != expected.2, "{field:?}");
        for key in &field.gguf()[1..] {
            assert_eq!(with(key, base[at].1), expected, "{key}");
            synonyms += 1;
        }
    }
    assert!(synonyms > 0);
}
