//! The rules of llama.cpp, against its own log, and of vLLM, against sums made by hand; parallelism; memory.

use anamnesis::fit::{Basis, CacheType, Estimate, InferenceEngine, fit_config};
use anamnesis::{Checkpoint, Fit, ModelConfig, fit};
use serde::Deserialize;

use crate::support::fixture;

/// The log of one run of llama.cpp.
#[derive(Deserialize)]
struct LlamaCppRun {
    file: String,
    /// Length of the file.
    nbytes: usize,
    n_ctx: u64,
    parallel: u64,
    cache_type: String,
    ubatch: u64,
    kv_unified: bool,
    swa_full: bool,
    caches: Vec<LoggedCache>,
    recurrent: Vec<LoggedState>,
    compute_mib: Option<f64>,
}

#[derive(Deserialize)]
struct LoggedCache {
    cells: u64,
    layers: u64,
    streams: u64,
    k_mib: f64,
    v_mib: f64,
}

#[derive(Deserialize)]
struct LoggedState {
    cells: u64,
    layers: u64,
    mib: f64,
}

/// The GGUF whose weights are zeros.
fn gguf(name: &str, nbytes: usize) -> Checkpoint {
    let mut file = std::fs::read(fixture(&format!("fit/{name}.head"))).unwrap();
    assert!(file.len() < nbytes);
    file.resize(nbytes, 0);
    Checkpoint::from_bytes(file).unwrap()
}

/// MiB as llama.cpp prints them, with two digits.
fn printed(nbytes: u64) -> f64 {
    (nbytes as f64 / f64::from(1 << 20) * 100.0).round() / 100.0
}

#[test]
fn caches_are_those_that_llama_cpp_allocated() {
    #[derive(Deserialize)]
    struct Log {
        runs: Vec<LlamaCppRun>,
    }
    let text = std::fs::read(fixture("fit/llama_cpp.json")).unwrap();
    let log: Log = serde_json::from_slice(&text).unwrap();
    assert_eq!(log.runs.len(), 48);
    let mut computed = 0;
    for run in &log.runs {
        let checkpoint = gguf(&run.file, run.nbytes);
        let kind: CacheType = run.cache_type.parse().unwrap();
        let found = fit(&checkpoint)
            .context(run.n_ctx / run.parallel)
            .batch(run.parallel)
            .cache(kind, kind)
            .step_tokens(run.ubatch)
            .unified(run.kv_unified)
            .whole_windows(run.swa_full)
            .estimate()
            .unwrap();
        let what = format!(
            "{} {} {} {}",
            run.file, run.n_ctx, run.parallel, run.cache_type
        );
        assert_eq!(
            (found.engine, found.cache.basis),
            ("llama.cpp", Basis::Exact),
            "{what}"
        );
        assert!(
            found.unknown.is_empty() && found.notes.is_empty(),
            "{what}: {:?} {:?}",
            found.unknown,
            found.notes
        );
        let mut caches: Vec<(u64, u64, u64, f64)> = Vec::new();
        let mut states = Vec::new();
        for group in &found.cache.groups {
            let layers = group.layers.len() as u64;
            match group.kind {
                "recurrent" => {
                    states.push((group.streams, layers, printed(group.nbytes_each * layers)))
                }
                "none" => {}
                _ => caches.push((
                    group.tokens,
                    layers,
                    group.streams,
                    printed(group.nbytes_each * layers),
                )),
            }
        }
        // the log has the cache of layers without a window first
        caches.sort_by_key(|(_, layers, ..)| *layers);
        let mut logged: Vec<_> = run
            .caches
            .iter()
            .map(|c| (c.cells, c.layers, c.streams, c.k_mib + c.v_mib))
            .collect();
        logged.sort_by_key(|(_, layers, ..)| *layers);
        assert_eq!(caches.len(), logged.len(), "{what}");
        // equal numbers of layers leave the order open
        let same = |a: &(u64, u64, u64, f64), b: &(u64, u64, u64, f64)| {
            // the log rounds keys and values apart
            (a.0, a.1, a.2) == (b.0, b.1, b.2) && (a.3 - b.3).abs() < 0.0101
        };
        assert!(
            caches.iter().all(|a| logged.iter().any(|b| same(a, b))),
            "{what}: {caches:?} {logged:?}"
        );
        assert!(
            logged.iter().all(|b| caches.iter().any(|a| same(a, b))),
            "{what}: {caches:?} {logged:?}"
        );
        let logged: Vec<_> = run
            .recurrent
            .iter()
            .map(|c| (c.cells, c.layers, c.mib))
            .collect();
        assert_eq!(states, logged, "{what}");
        let compute = found.compute.nbytes.unwrap();
        if let Some(mib) = run.compute_mib {
            let bound = compute as f64 / f64::from(1 << 20);
            assert!(bound >= mib, "{what}: {bound} < {mib}");
            assert!(bound < 3.0 * mib, "{what}: {bound} is far over {mib}");
            computed += 1;
        }
    }
    assert!(computed > 25, "{computed}");
}

/// A configuration of Llama's kind with 8 layers, 4 heads of keys and values of 16 elements.
fn llama(more: &str) -> Fit<'static> {
    let text = format!(
        r#"{{"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 128, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 16, "dtype": "bfloat16"{more}}}"#
    );
    fit_config(ModelConfig::from_json(text.as_bytes()).unwrap())
}

fn cache(fit: &Fit<'_>) -> u64 {
    fit.estimate().unwrap().cache.nbytes.unwrap()
}

#[test]
fn vllm_reserves_pages() {
    // 100 tokens are 7 pages of 16 tokens
    let plain = llama("")
        .engine(InferenceEngine::Vllm)
        .context(100)
        .batch(3);
    let token = 2 * 4 * 16 * 2;
    assert_eq!(cache(&plain), 3 * 8 * 7 * 16 * token);
    assert_eq!(cache(&plain.clone().block(128)), 3 * 8 * 128 * token);
    // FP8, and with a scale of 4 bytes per head and token for keys and for values
    let of = |kind: &str| kind.parse::<CacheType>().unwrap();
    let kind = |name: &str| cache(&plain.clone().cache(of(name), of(name)));
    assert_eq!(kind("fp8"), 3 * 8 * 7 * 16 * token / 2);
    assert_eq!(
        kind("fp8_per_token_head"),
        3 * 8 * 7 * 16 * (token / 2 + 8 * 4)
    );
    // half a byte, and a scale per 16 elements
    assert_eq!(kind("nvfp4"), 3 * 8 * 7 * 16 * (2 * 4 * (16 / 2 + 1)));
    assert!(
        plain
            .clone()
            .cache(of("q8_0"), of("q8_0"))
            .estimate()
            .is_err()
    );
    assert_eq!(plain.estimate().unwrap().cache.basis, Basis::Formula);
}

#[test]
fn vllm_pads_groups_of_layers_to_one_size() {
    let text = br#"{"model_type": "gemma3_text", "num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 64, "dtype": "bfloat16"}"#;
    let gemma = fit_config(ModelConfig::from_json(text).unwrap())
        .engine(InferenceEngine::Vllm)
        .context(1024);
    let page = 16 * 2 * 2 * 16 * 2;
    // one layer of 64 pages; seven groups of one layer with 63 + 128 tokens in 12 pages and one more
    let asked = gemma.clone().step_tokens(128);
    assert_eq!(cache(&asked), page * (64 + 7 * 13));
    assert_eq!(asked.estimate().unwrap().cache.padding_nbytes, 0);
    // with the steps of a server nothing of the window is saved
    assert_eq!(cache(&gemma), page * (64 + 7 * 65));
    // without the allocator for hybrids all layers are alike
    let without = asked.clone().hybrid_allocator(false);
    assert_eq!(cache(&without), page * 8 * 64);
    let note = &asked.estimate().unwrap().notes[0];
    assert!(note.contains(&format!("{} bytes", page * 8 * 64)), "{note}");
}

#[test]
fn vllm_makes_pages_as_large_as_a_state() {
    let text = br#"{"model_type": "jamba", "num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "attn_layer_period": 4, "attn_layer_offset": 2, "mamba_expand": 2, "mamba_d_state": 16,
        "mamba_d_conv": 4, "dtype": "bfloat16"}"#;
    let jamba = fit_config(ModelConfig::from_json(text).unwrap())
        .engine(InferenceEngine::Vllm)
        .context(200);
    // 3 inputs of 128 channels and 16 states of each, in BF16: 4864 bytes, for which 38 tokens of 128 bytes are rounded to 48
    let page = 48 * 2 * 2 * 16 * 2;
    assert!(page >= 128 * (3 + 16) * 2);
    // groups of two layers: one of attention with 5 pages, three of states with one
    let found = jamba.estimate().unwrap();
    assert_eq!(found.cache.nbytes, Some(page * 2 * (5 + 3)));
    assert_eq!(found.cache.padding_nbytes, 6 * (page - 4864));
}

#[test]
fn workers_divide_heads_layers_and_states() {
    let whole = llama("").context(100);
    let ranks = |fit: &Fit<'_>| -> Vec<u64> {
        let found: Estimate = fit.estimate().unwrap();
        found
            .ranks
            .iter()
            .map(|rank| rank.cache_nbytes.unwrap())
            .collect()
    };
    let all = cache(&whole);
    assert_eq!(ranks(&whole), [all]);
    assert_eq!(ranks(&whole.clone().tp(2)), [all / 2; 2]);
    // one head for each worker, and no less
    assert_eq!(ranks(&whole.clone().tp(16)), [all / 4; 16]);
    assert_eq!(ranks(&whole.clone().pp(2)), [all / 2; 2]);
    // 8 layers on 3 stages
    assert_eq!(
        ranks(&whole.clone().pp(3)),
        [all / 8 * 3, all / 8 * 3, all / 4]
    );
    assert_eq!(ranks(&whole.clone().tp(2).pp(2)), [all / 4; 4]);
    assert_eq!(cache(&whole.clone().tp(2)), all);
    // latent vectors are whole on each worker
    let text = br#"{"model_type": "deepseek_v3", "num_hidden_layers": 2, "kv_lora_rank": 32, "qk_rope_head_dim": 8}"#;
    let latent = fit_config(ModelConfig::from_json(text).unwrap()).context(100);
    assert_eq!(ranks(&latent.clone().tp(4)), [cache(&latent); 4]);
    assert!(whole.clone().tp(0).estimate().is_err());
    assert!(whole.clone().tp(1 << 20).pp(1 << 20).estimate().is_err());
}

#[test]
fn weights_of_workers_are_what_predict_reads() {
    let path = fixture("model/scribe.safetensors");
    let checkpoint = Checkpoint::open(path).unwrap();
    for (tp, pp) in [(1, 1), (2, 1), (1, 2), (2, 2)] {
        let found = fit(&checkpoint).tp(tp).pp(pp).estimate().unwrap();
        let template = anamnesis::predict(&checkpoint)
            .tp(tp)
            .pp(pp)
            .template()
            .unwrap();
        let header = 8 + checkpoint
            .catalog()
            .details()
            .integer("header_nbytes")
            .unwrap();
        for rank in &found.ranks {
            let read = template.group(rank.rank).unwrap().nbytes();
            assert_eq!(
                rank.weights_nbytes,
                Some(read - header),
                "{tp} {pp} {}",
                rank.rank
            );
        }
        assert_eq!(found.weights.nbytes, Some(checkpoint.catalog().nbytes()));
    }
    // dequantised: what `remember` makes
    let checkpoint = Checkpoint::open(fixture("model/scribe-Q8_0.gguf")).unwrap();
    let found = fit(&checkpoint)
        .dtype(anamnesis::Dtype::F32)
        .estimate()
        .unwrap();
    let plan = anamnesis::remember(&checkpoint)
        .dtype(anamnesis::Dtype::F32)
        .plan()
        .unwrap();
    assert_eq!(found.weights.nbytes, Some(plan.nbytes()));
    assert_eq!(
        found.weights.stored_nbytes,
        Some(checkpoint.catalog().nbytes())
    );
    let halves = fit(&checkpoint)
        .dtype(anamnesis::Dtype::F32)
        .tp(2)
        .estimate()
        .unwrap();
    let sum: u64 = halves
        .ranks
        .iter()
        .map(|rank| rank.weights_nbytes.unwrap())
        .sum();
    assert!(
        sum >= plan.nbytes() && sum < plan.nbytes() * 5 / 4,
        "{sum} of {}",
        plan.nbytes()
    );
}

#[test]
fn the_largest_context_and_batch_are_the_last_that_fit() {
    let checkpoint = Checkpoint::open(fixture("model/scribe-Q8_0.gguf")).unwrap();
    for engine in InferenceEngine::ALL {
        let asked = fit(&checkpoint).engine(engine).context(50).batch(2);
        let total = |fit: &Fit<'_>| fit.estimate().unwrap().total_nbytes.unwrap();
        let memory = total(&asked) + 12_345;
        let found = asked
            .clone()
            .memory(memory)
            .estimate()
            .unwrap()
            .memory
            .unwrap();
        assert_eq!((found.fits, found.left_nbytes), (Some(true), Some(12_345)));
        let (context, batch) = (found.largest_context.unwrap(), found.largest_batch.unwrap());
        assert!(context >= 50 && batch >= 2);
        let longest = asked.estimate().unwrap().context_max.unwrap();
        assert!(total(&asked.clone().context(context)) <= memory);
        assert!(
            context == longest || total(&asked.clone().context(context + 1)) > memory,
            "{engine}: {context}"
        );
        assert!(total(&asked.clone().batch(batch)) <= memory);
        assert!(total(&asked.clone().batch(batch + 1)) > memory);
        assert_eq!(asked.largest_context(memory).unwrap(), Some(context));
        assert_eq!(asked.largest_batch(memory).unwrap(), Some(batch));
        // not even the weights
        let none = asked.memory(1000).estimate().unwrap().memory.unwrap();
        assert_eq!(
            (
                none.fits,
                none.left_nbytes,
                none.largest_context,
                none.largest_batch
            ),
            (Some(false), Some(0), None, None)
        );
    }
}

#[test]
fn other_models_and_overhead_are_added() {
    let checkpoint = Checkpoint::open(fixture("model/scribe-Q8_0.gguf")).unwrap();
    let draft = Checkpoint::open(fixture("model/scribe.safetensors")).unwrap();
    let alone = fit(&checkpoint).context(100);
    let own = alone.estimate().unwrap().total_nbytes.unwrap();
    let with = alone
        .clone()
        .draft(&draft)
        .projector(&draft)
        .adapter(&draft)
        .overhead(77)
        .estimate()
        .unwrap();
    let roles: Vec<_> = with.extras.iter().map(|extra| extra.role).collect();
    assert_eq!(roles, ["draft", "projector", "adapter"]);
    let weights = draft.catalog().nbytes();
    let cache = fit(&draft)
        .engine(InferenceEngine::LlamaCpp)
        .context(100)
        .estimate()
        .unwrap()
        .cache
        .nbytes;
    assert_eq!(with.extras[0].cache_nbytes, cache);
    assert_eq!(with.extras[1].cache_nbytes, Some(0));
    let total = with
        .total_nbytes
        .zip(cache)
        .map(|(total, cache)| total - cache);
    assert_eq!(total, Some(own + 3 * weights + 77));
}
