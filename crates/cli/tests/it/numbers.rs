//! Numbers as arguments: a size without a unit, and numbers that no model and no machine has. They are refused before memory is
//! taken, with the status of invalid arguments.

use crate::process::{Run, json_of, path_str, run, safetensors, stdout_of};

const GGUF: &str = "fixtures/model/scribe-Q8_0.gguf";
const CONFIG: &str = "fixtures/fit/gpt-oss.json";

/// Verbs with options that are numbers.
pub(crate) const VERBS: &[&[&str]] = &[
    &["inspect"],
    &["remember"],
    &["load"],
    &["plan"],
    &["fit"],
    &["diff"],
    &["check"],
    &["report"],
    &["template", "predict"],
    &["template", "show"],
    &["template", "merge"],
    #[cfg(target_os = "linux")]
    &["warm"],
    #[cfg(target_os = "linux")]
    &["record"],
    #[cfg(target_os = "linux")]
    &["ppc", "run"],
];

/// The options of a verb that are counts, as its help lists them.
fn counts(verb: &[&str]) -> Vec<String> {
    let help = stdout_of(&[verb, &["--help"]].concat());
    let options = help.lines().filter_map(|line| {
        let (option, value) = line.trim().rsplit_once(" <")?;
        (value == "N>").then(|| option.rsplit(' ').next().unwrap_or(option).to_owned())
    });
    options.collect()
}

#[test]
fn absurd_counts_are_refused_before_anything_is_read() {
    let mut found = 0;
    for verb in VERBS {
        for option in counts(verb) {
            found += 1;
            for number in ["4294967295", "18446744073709551615", "-1", "1e9"] {
                let given = format!("{option}={number}");
                let Run { code, stderr, .. } = run(&[verb, &[&given, "missing"][..]].concat());
                assert_eq!(code, 2, "{verb:?} {given}: {stderr}");
                assert!(
                    stderr.contains(number) && stderr.contains(&option),
                    "{verb:?} {given}: {stderr}"
                );
            }
        }
    }
    // the help is read as it is meant: fit has eight, predict seven, warm seven and one of its own
    assert!(found >= 25, "{found}");
    // as many as are allowed, of a model that has fewer layers
    for args in [["--pp", "65536"], ["--tp", "65536"]] {
        for model in [GGUF, CONFIG] {
            let Run { code, stderr, .. } = run(&[&["fit", model][..], &args].concat());
            assert_eq!(code, 0, "{args:?} {model}: {stderr}");
        }
    }
    let Run { code, stderr, .. } = run(&["fit", GGUF, "--pp", "65536", "--tp", "65536"]);
    assert!(
        code == 2 && stderr.contains("more than 65536 workers"),
        "{stderr}"
    );
}

#[test]
fn a_size_has_a_unit() {
    for (args, means) in [
        (
            &["fit", GGUF, "--memory", "24"][..],
            "24 bytes; write 24GiB",
        ),
        (
            &["fit", GGUF, "--overhead", "1.5"],
            "1.5 bytes; write 1.5GiB",
        ),
        (
            &["report", GGUF, "-o", "-", "--memory", "80"],
            "80 bytes; write 80GiB",
        ),
        (
            &["fit", GGUF, "--memory", "25769803776"],
            "25769803776 bytes; write 25769803776B",
        ),
        #[cfg(target_os = "linux")]
        (
            &["warm", GGUF, "--bandwidth", "500"],
            "500 bytes; write 500MB",
        ),
    ] {
        let Run { code, stderr, .. } = run(args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains(means), "{args:?}: {stderr}");
    }
    let with_unit = json_of(&["fit", GGUF, "--json", "--memory", "25769803776B"]);
    let nbytes = &with_unit["models"][0]["memory"]["nbytes"];
    assert_eq!(nbytes.as_u64(), Some(24 << 30));
}

#[test]
fn a_verdict_without_a_term_says_so() {
    let verdict = |engine: &str| stdout_of(&["fit", GGUF, "--memory", "1GiB", "--engine", engine]);
    for engine in ["exact", "vllm", "transformers"] {
        let text = verdict(engine);
        assert!(
            text.contains("of 1.00 GiB: without compute: fits,"),
            "{text}"
        );
    }
    let estimated = verdict("llama.cpp");
    assert!(estimated.contains("of 1.00 GiB: fits,"), "{estimated}");
    let small = run(&["fit", GGUF, "--memory", "1KiB", "--engine", "exact"]);
    let refused = "without compute: does not fit,";
    assert!(
        small.code == 1 && small.stdout.contains(refused),
        "{}",
        small.stdout
    );
}

#[test]
fn each_candidate_has_its_own_context_and_engine() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model.safetensors");
    let name = "model.layers.0.self_attn.k_proj.weight";
    safetensors(&model, "", &[(name, &[32, 64])]);
    let config = serde_json::json!({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64,
        "num_attention_heads": 2, "max_position_embeddings": 512});
    std::fs::write(scratch.path().join("config.json"), config.to_string()).unwrap();
    let text = stdout_of(&["fit", GGUF, path_str(&model), "--memory", "1GiB"]);
    // below the row of the model
    let note = |name: &str| {
        let mut lines = text.lines().skip_while(|line| !line.contains(name));
        lines.nth(1).unwrap().trim().to_owned()
    };
    let contexts = json_of(&["fit", "--json", GGUF, path_str(&model), "--memory", "1GiB"]);
    let context = |i: usize| contexts["models"][i]["context"].as_u64().unwrap();
    assert_eq!(context(1), 512);
    assert_ne!(context(0), context(1), "the models are alike");
    let own = note("model.safetensors");
    assert_eq!(
        own, "context 512, by the rule of exact; without compute",
        "{text}"
    );
    let context = context(0);
    assert_eq!(
        note("scribe"),
        format!("context {context}, by the rule of llama.cpp"),
        "{text}"
    );
}
