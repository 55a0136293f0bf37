//! Configurations of any values: nothing panics, sums neither wrap nor shrink, and what is not known is said.

use anamnesis::fit::{Basis, CacheType, InferenceEngine, fit_config};
use anamnesis::{ErrorKind, ModelConfig};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::measured_models;

/// The configurations of all known architectures.
fn seeds() -> Vec<Map<String, Value>> {
    let models = measured_models().into_iter();
    let mut seeds: Vec<_> = models
        .flat_map(|model| [Some(model.config), model.short])
        .flatten()
        .collect();
    // architectures without a measured model, with the keys of another
    let sizes = json!({"num_hidden_layers": 12, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "v_head_dim": 8, "sliding_window": 16, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "index_head_dim": 16, "num_layers": 6,
        "decoder_layers": 3, "decoder_attention_heads": 4, "d_model": 64, "attn_layer_indices": [1, 4],
        "mamba_n_heads": 4, "mamba_d_state": 8, "lru_width": 32, "attention_window_size": 16, "full_attn_idxs": [2],
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8});
    for name in [
        "falcon",
        "gemma4_text",
        "mimo_v2_flash",
        "longcat_flash",
        "glm_moe_dsa",
        "bamba",
        "recurrent_gemma",
        "bart",
        "mllama_text_model",
        "olmo3",
        "exaone4",
        "minicpm3",
        "qwen3_5_text",
        "phimoe",
        "falcon_mamba",
    ] {
        let mut seed = sizes.as_object().unwrap().clone();
        seed.insert("model_type".to_owned(), name.into());
        seeds.push(seed);
    }
    seeds
}

/// Any value of JSON, with those that break sums.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![
            Just(0),
            Just(1),
            Just(u64::MAX),
            Just(1 << 32),
            Just(65_536),
            Just(65_537),
            0..100u64,
            any::<u64>()
        ]
        .prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![
            "[MLGE*-]{0,9}",
            "full_attention|sliding_attention|hybrid|moe",
            ".{0,20}"
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 12, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from);
        let map = prop::collection::vec(
            ("[a-z_]{1,8}|head_dim|num_heads|full_attn_layers", inner),
            0..4,
        );
        prop_oneof![
            list,
            map.prop_map(|entries| Value::from(entries.into_iter().collect::<Map<_, _>>()))
        ]
    })
}

fn estimate_all(config: &ModelConfig, context: u64, batch: u64) {
    for engine in InferenceEngine::ALL {
        for (tp, pp) in [(1, 1), (3, 5)] {
            let asked = fit_config(config.clone())
                .engine(engine)
                .context(context)
                .batch(batch)
                .tp(tp)
                .pp(pp);
            match asked.memory(1 << 40).estimate() {
                Ok(found) => {
                    let sum = found.cache.groups.iter().fold(
                        found.cache.padding_nbytes.into(),
                        |sum, group| {
                            sum + u128::from(group.nbytes_each) * group.layers.len() as u128
                        },
                    );
                    if let Some(nbytes) = found.cache.nbytes {
                        assert_eq!(u128::from(nbytes), sum, "{engine}");
                    }
                    assert_eq!(
                        found.cache.nbytes.is_none(),
                        found.cache.basis == Basis::NotEstimated
                    );
                }
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_values_give_an_estimate(
        seed in 0..1000usize,
        changes in prop::collection::vec((0..1000usize, any_value()), 0..6),
        context in prop_oneof![1..10_000u64, Just(u64::MAX)],
        batch in prop_oneof![1..10u64, Just(u64::MAX)],
    ) {
        let seeds = seeds();
        let mut map = seeds[seed % seeds.len()].clone();
        let keys: Vec<String> = map.keys().cloned().collect();
        for (key, value) in changes {
            map.insert(keys[key % keys.len()].clone(), value);
        }
        let config = ModelConfig::from_json(&serde_json::to_vec(&map).unwrap()).unwrap();
        estimate_all(&config, context, batch);
    }

    #[test]
    fn caches_grow_with_context_and_batch(
        seed in 0..1000usize,
        engine in 0..4usize,
        context in 1..20_000u64,
        more in 1..20_000u64,
        batch in 1..20u64,
        tp in 1..9u32,
        kind in prop_oneof![Just("f16"), Just("fp8"), Just("f32")],
        flags in any::<(bool, bool, bool)>(),
    ) {
        let seeds = seeds();
        let map = &seeds[seed % seeds.len()];
        let config = ModelConfig::from_json(&serde_json::to_vec(map).unwrap()).unwrap();
        let kind: CacheType = kind.parse().unwrap();
        let asked = fit_config(config)
            .engine(InferenceEngine::ALL[engine])
            .cache(kind, kind)
            .tp(tp)
            .unified(flags.0)
            .whole_windows(flags.1)
            .hybrid_allocator(flags.2);
        let at = |context, batch| asked.clone().context(context).batch(batch).estimate().unwrap();
        let (small, longer, wider) = (at(context, batch), at(context + more, batch), at(context, batch + 1));
        prop_assert!(small.cache.nbytes.is_some(), "{:?}", small.unknown);
        prop_assert!(small.cache.nbytes <= longer.cache.nbytes);
        prop_assert!(small.cache.nbytes <= wider.cache.nbytes);
        prop_assert!(small.ranks[0].cache_nbytes <= longer.ranks[0].cache_nbytes);
        // a worker never keeps more than the whole; pages of vLLM may be cut worse
        if engine != 3 {
            prop_assert!(small.ranks[0].cache_nbytes <= small.cache.nbytes);
        }
    }
}

#[test]
fn unknown_architectures_are_said_to_be_unknown() {
    let estimate = |value: Value| {
        let config = ModelConfig::from_json(&serde_json::to_vec(&value).unwrap()).unwrap();
        fit_config(config).context(10).estimate().unwrap()
    };
    let heads = json!({"model_type": "no_such", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2});
    let bounded = estimate(heads);
    assert_eq!(
        (bounded.cache.nbytes, bounded.cache.basis),
        (Some(2 * 10 * 16 * 2), Basis::Bound)
    );
    assert!(
        bounded.unknown[0].contains("`no_such` is not known"),
        "{:?}",
        bounded.unknown
    );
    let nothing = estimate(json!({"model_type": "no_such"}));
    assert_eq!(
        (nothing.cache.nbytes, nothing.cache.basis),
        (None, Basis::NotEstimated)
    );
    assert!(
        nothing.unknown[0].contains("not estimated"),
        "{:?}",
        nothing.unknown
    );
    // a kind of layer that no row knows
    let kinds = json!({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2,
        "layer_types": ["full_attention", "compressed"]});
    let kinds = estimate(kinds);
    assert_eq!(kinds.cache.basis, Basis::Bound);
    assert!(
        kinds.unknown[0].contains("`compressed`"),
        "{:?}",
        kinds.unknown
    );
    assert_eq!(estimate(json!({})).cache.basis, Basis::NotEstimated);
    let huge = json!({"model_type": "llama", "num_hidden_layers": u64::MAX, "hidden_size": 8, "num_attention_heads": 2});
    assert_eq!(estimate(huge).cache.basis, Basis::NotEstimated);
}

/// Facts of configurations that no measured model has.
#[test]
fn layers_of_architectures_without_a_measured_model() {
    let kinds = |value: Value| -> Vec<(String, Vec<u32>, u64, u64)> {
        let config = ModelConfig::from_json(&serde_json::to_vec(&value).unwrap()).unwrap();
        let found = fit_config(config).context(10).estimate().unwrap();
        assert_eq!(found.cache.basis, Basis::Exact, "{:?}", found.unknown);
        let groups = found.cache.groups.into_iter();
        groups
            .map(|group| {
                (
                    group.kind.to_owned(),
                    group.layers,
                    group.k_elements,
                    group.v_elements,
                )
            })
            .collect()
    };
    let group = |kind: &str, layers: &[u32], k, v| (kind.to_owned(), layers.to_vec(), k, v);
    let gemma4 = json!({"model_type": "gemma4_text", "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 16, "global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": true, "sliding_window": 4,
        "num_kv_shared_layers": 1, "hidden_size": 64});
    assert_eq!(
        kinds(gemma4),
        [
            group("window", &[0, 1, 2, 3, 4, 6], 64, 64),
            group("full", &[5], 32, 32),
            group("shared", &[7], 0, 0)
        ]
    );
    let mimo = json!({"model_type": "mimo_v2_flash", "num_hidden_layers": 7, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 24, "v_head_dim": 16, "sliding_window": 4, "hidden_size": 64});
    assert_eq!(
        kinds(mimo),
        [
            group("full", &[0, 5], 48, 32),
            group("window", &[1, 2, 3, 4, 6], 96, 64)
        ]
    );
    let longcat = json!({"model_type": "longcat_flash", "num_layers": 2, "kv_lora_rank": 32, "qk_rope_head_dim": 8});
    assert_eq!(kinds(longcat), [group("latent", &[0, 1, 2, 3], 40, 0)]);
    let falcon = json!({"model_type": "falcon", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "num_kv_heads": 2, "multi_query": true});
    assert_eq!(kinds(falcon.clone()), [group("full", &[0, 1], 16, 16)]);
    let mut newer = falcon;
    newer["new_decoder_architecture"] = true.into();
    assert_eq!(kinds(newer.clone()), [group("full", &[0, 1], 64, 64)]);
    let config = ModelConfig::from_json(&serde_json::to_vec(&newer).unwrap()).unwrap();
    let vllm = fit_config(config)
        .engine(InferenceEngine::Vllm)
        .context(16)
        .estimate()
        .unwrap();
    assert_eq!(vllm.cache.groups[0].k_elements, 32);
    let exaone = json!({"model_type": "exaone4", "num_hidden_layers": 5, "hidden_size": 64, "num_attention_heads": 4,
        "sliding_window": 4, "sliding_window_pattern": "LLLG"});
    assert_eq!(
        kinds(exaone),
        [
            group("window", &[0, 1, 2], 64, 64),
            group("full", &[3, 4], 64, 64)
        ]
    );
    let kimi = json!({"model_type": "kimi_linear", "num_hidden_layers": 3, "kv_lora_rank": 32, "qk_rope_head_dim": 8,
        "linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1, 3], "num_heads": 4, "head_dim": 16,
        "short_conv_kernel_size": 4}});
    assert_eq!(
        kinds(kimi),
        [
            group("recurrent", &[0, 2], 0, 0),
            group("latent", &[1], 40, 0)
        ]
    );
    let nemotron = json!({"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E", "num_attention_heads": 4, "head_dim": 8,
        "num_key_value_heads": 2, "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 8, "hidden_size": 64});
    assert_eq!(
        kinds(nemotron),
        [
            group("recurrent", &[0], 0, 0),
            group("none", &[1, 3], 0, 0),
            group("full", &[2], 16, 16)
        ]
    );
    let mllama = json!({"model_type": "mllama", "text_config": {"model_type": "mllama_text_model", "num_hidden_layers": 3,
        "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "cross_attention_layers": [1]}});
    assert_eq!(
        kinds(mllama),
        [group("full", &[0, 2], 32, 32), group("cross", &[1], 32, 32)]
    );
    let griffin = json!({"model_type": "recurrent_gemma", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 1, "lru_width": 32, "attention_window_size": 4});
    assert_eq!(
        kinds(griffin),
        [
            group("recurrent", &[0, 1, 3], 0, 0),
            group("window", &[2], 16, 16)
        ]
    );
}
