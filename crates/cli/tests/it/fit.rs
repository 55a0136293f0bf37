//! `fit`: its text, its document, and its status.

use serde_json::{Value, json};

use crate::process::{Run, command, finish, path_str, run, safetensors, stdout_of};
use crate::schema;

const GGUF: &str = "fixtures/model/scribe-Q8_0.gguf";
const CONFIG: &str = "fixtures/fit/gpt-oss.json";

fn document(text: &str) -> Value {
    schema::document(text, "fit.schema.json")
}

#[test]
fn documents_are_valid() {
    for args in [
        &[GGUF][..],
        &[CONFIG],
        &[
            GGUF,
            "--memory",
            "1GiB",
            "--draft",
            GGUF,
            "--mmproj",
            GGUF,
            "--adapter",
            GGUF,
        ],
        &[
            GGUF,
            "--tp",
            "2",
            "--pp",
            "2",
            "--engine",
            "vllm",
            "--overhead",
            "1MiB",
        ],
        &[
            CONFIG,
            "--engine",
            "transformers",
            "--static",
            "--kv",
            "fp8,bf16",
            "--context",
            "8K",
        ],
        // no model at all: tensors without layers
        &[
            "fixtures/gguf/plain_v3.gguf",
            "fixtures/npy/bf16.npy",
            "fixtures/pth/values/opaque.pth",
        ],
    ] {
        let found = run(&[&["fit", "--json", "--opaque"][..], args].concat());
        let document = document(&found.stdout);
        let models = document["models"].as_array().unwrap();
        assert!(
            !models.is_empty() && found.code == 0,
            "{args:?}: {}",
            found.stderr
        );
        for model in models {
            let groups = model["cache"]["groups"].as_array().unwrap();
            let sum = groups.iter().fold(
                model["cache"]["padding_nbytes"].as_u64().unwrap(),
                |sum, group| {
                    sum + group["nbytes_each"].as_u64().unwrap()
                        * group["layers"].as_array().unwrap().len() as u64
                },
            );
            match model["cache"]["nbytes"].as_u64() {
                Some(nbytes) => assert_eq!(nbytes, sum),
                None => assert_eq!(model["cache"]["basis"], "not_estimated"),
            }
        }
    }
}

#[test]
fn the_status_says_whether_it_fits() {
    let code = |args: &[&str]| run(&[&["fit"], args].concat()).code;
    assert_eq!(code(&[GGUF]), 0);
    assert_eq!(code(&[GGUF, "--memory", "1GiB"]), 0);
    assert_eq!(code(&[GGUF, "--memory", "1KiB"]), 1);
    assert_eq!(code(&["missing.gguf"]), 2);
    assert_eq!(code(&[GGUF, "missing.gguf"]), 2);
    assert_eq!(code(&[GGUF, "--draft", "missing.gguf"]), 2);
    assert_eq!(code(&[GGUF, "--context", "0"]), 2);
    assert_eq!(code(&[GGUF, "--context", "12Q"]), 2);
    assert_eq!(code(&[GGUF, "--kv", "q9"]), 2);
    assert_eq!(code(&[GGUF, "--kv", "nvfp4"]), 2);
    assert_eq!(code(&[GGUF, "--engine", "other"]), 2);
    assert_eq!(code(&[GGUF, "--tp", "0"]), 2);
    // no total: not known to fit
    assert_eq!(code(&[CONFIG, "--memory", "1TiB"]), 1);
    let failed = run(&["fit", "--json", GGUF, "missing.gguf"]);
    let document = document(&failed.stdout);
    assert_eq!(document["models"].as_array().unwrap().len(), 1);
    assert_eq!(document["errors"][0]["kind"], "io");
}

#[test]
fn terms_are_shown_with_what_they_are() {
    let text = stdout_of(&[
        "fit",
        GGUF,
        "--context",
        "1K",
        "--memory",
        "1GiB",
        "--overhead",
        "3MiB",
    ]);
    for part in [
        "as stored (Q8_0, F32); exact",
        "1 × 1,024 tokens, F16, by the rule of llama.cpp; exact",
        "at most",
        "3.00 MiB  as given",
        "of 1.00 GiB: fits",
        "largest",
        "attention.head_count_kv",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let alone = stdout_of(&["fit", CONFIG, "--context", "32K", "--batch", "4"]);
    for part in [
        "not estimated (--overhead adds it)",
        "0,2,4,…,22 (12)",
        "window 128",
        "4 × 127",
        "4 × 32,768",
        "there are none",
    ] {
        assert!(alone.contains(part), "{part}: {alone}");
    }
    // contexts where none is given
    assert!(stdout_of(&["fit", CONFIG]).contains("131,072"));
}

#[test]
fn several_models_are_one_table() {
    let text = stdout_of(&[
        "fit",
        "fixtures/model/scribe*.*",
        "--memory",
        "2MiB",
        "--context",
        "256",
        "--engine",
        "exact",
    ]);
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("fixtures/"))
        .collect();
    assert_eq!(rows.len(), 2, "{text}");
    let best: Vec<&&str> = rows
        .iter()
        .filter(|row| row.ends_with("fits, largest"))
        .collect();
    assert_eq!(best.len(), 1, "{text}");
    assert!(
        best[0].contains("scribe.safetensors") && best[0].contains("BF16"),
        "{text}"
    );
}

#[test]
fn a_directory_without_weights_and_hostile_configurations() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.json");
    let write = |value: &Value| std::fs::write(&config, value.to_string()).unwrap();
    write(
        &json!({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}),
    );
    let text = stdout_of(&["fit", path_str(directory.path()), "--context", "100"]);
    assert!(
        text.contains("there are none") && text.contains("50.00 KiB"),
        "{text}"
    );
    write(
        &json!({"model_type": "\u{1b}[31mx", "num_hidden_layers": 60_000, "hidden_size": u64::MAX, "num_attention_heads": 1}),
    );
    let text = stdout_of(&["fit", path_str(directory.path())]);
    assert!(
        text.contains("unknown:") && !text.contains('\u{1b}'),
        "{text}"
    );
    std::fs::write(&config, "[1]").unwrap();
    let Run { code, stderr, .. } = run(&["fit", path_str(directory.path())]);
    assert_eq!(code, 2);
    assert!(stderr.contains("not a JSON object"), "{stderr}");
    // a damaged file is not hidden by a configuration
    write(&json!({"model_type": "llama"}));
    std::fs::write(directory.path().join("model.safetensors"), b"damaged").unwrap();
    assert_eq!(run(&["fit", path_str(directory.path())]).code, 2);
    // tensors alone
    let model = directory.path().join("model.safetensors");
    safetensors(
        &model,
        "",
        &[("model.layers.0.self_attn.k_proj.weight", &[32, 64])],
    );
    std::fs::remove_file(&config).unwrap();
    let text = stdout_of(&["fit", path_str(directory.path()), "--context", "16"]);
    assert!(
        text.contains("tensors") && text.contains("at most"),
        "{text}"
    );
}

#[test]
fn a_synonym_of_a_key_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let fit_with = |key: &str, used: u64| {
        let mut config = json!({"model_type": "longcat_flash", "num_layers": 4, "hidden_size": 512, "num_attention_heads": 8,
            "kv_lora_rank": 64, "qk_rope_head_dim": 16, "vocab_size": 1024, "intermediate_size": 1024, "n_routed_experts": 64,
            "moe_intermediate_size": 512});
        config[key] = used.into();
        std::fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
        let path = path_str(directory.path());
        let args = [
            "fit",
            path,
            "--engine",
            "llama.cpp",
            "--context",
            "4K",
            "--json",
        ];
        document(&stdout_of(&args))
    };
    let named = fit_with("num_experts_per_tok", 8);
    assert_eq!(fit_with("moe_topk", 8), named);
    // and it decides the bound of the buffers
    let compute = |document: &Value| document["models"][0]["compute"]["nbytes"].as_u64().unwrap();
    assert!(compute(&fit_with("moe_topk", 16)) > compute(&named));
}

#[test]
fn lines_are_no_wider_than_the_terminal() {
    for args in [
        &["fit", GGUF, "--memory", "1GiB", "--tp", "2"][..],
        &[
            "fit", CONFIG, "--engine", "vllm", "--batch", "32", "--ubatch", "512",
        ],
        &["fit", "--help"],
        &["fit", "-h"],
        &["fit", GGUF, CONFIG, "--memory", "1GiB"],
    ] {
        let mut command = command(args);
        command.env("COLUMNS", "80");
        let run = finish(command);
        for line in run.stdout.lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
        }
    }
}
