//! One worker's share: it is of whole heads, and a part of something, or it is refused by name.

use std::fs;
use std::path::Path;

use crate::process::{Run, path_str, run, safetensors, stored_tensors};

fn share(model: &Path, workers: u32, more: &[&str]) -> Run {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("share.safetensors");
    let workers = workers.to_string();
    let arguments = ["convert", path_str(model), "-o", path_str(&out)];
    let run = run(&[&arguments[..], &["--tp", &workers, "--rank", "1"], more].concat());
    assert_eq!(run.code == 0, out.exists(), "{}", run.stderr);
    run
}

#[test]
fn a_share_is_of_whole_heads_or_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    fs::create_dir(&model).unwrap();
    safetensors(
        &model.join("model.safetensors"),
        "",
        &[
            ("model.layers.0.self_attn.q_proj.weight", &[96, 24]),
            ("model.layers.0.self_attn.k_proj.weight", &[24, 24]),
            ("model.layers.0.self_attn.o_proj.weight", &[24, 96]),
            ("model.norm.weight", &[24]),
        ],
    );
    let config = |kv_heads: u32| {
        let config = serde_json::json!({"model_type": "llama", "num_attention_heads": 12,
            "num_key_value_heads": kv_heads, "hidden_size": 96});
        fs::write(model.join("config.json"), config.to_string()).unwrap();
    };
    for (kv_heads, workers, refused) in [
        (3, 3, None),
        (3, 6, None),
        (3, 12, None),
        (
            12,
            5,
            Some("the 12 heads of the model cannot be shared by 5 workers"),
        ),
        (3, 8, Some("the 12 heads")),
        // 12 heads are 3 for each of 4 workers, whose keys are in two heads
        (
            3,
            4,
            Some("the 3 heads of keys and values of the model cannot be shared by 4 workers"),
        ),
        (6, 4, Some("the 6 heads of keys and values")),
    ] {
        config(kv_heads);
        for dtype in ["stored", "bf16"] {
            let run = share(&model, workers, &["--dtype", dtype]);
            match refused {
                None => assert_eq!(run.code, 0, "{kv_heads} {workers}: {}", run.stderr),
                Some(what) => {
                    assert_eq!(run.code, 2, "{kv_heads} {workers} {dtype}: {}", run.stdout);
                    assert!(run.stderr.contains(what), "{}", run.stderr);
                    assert!(run.stderr.contains("_proj.weight"), "{}", run.stderr);
                }
            }
        }
    }
    // without a configuration it is not known
    fs::remove_file(model.join("config.json")).unwrap();
    let run = share(&model, 2, &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout
            .contains("number of heads of the model is not known"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_share_of_everything_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model.safetensors");
    safetensors(
        &model,
        "",
        &[("first.weight", &[8, 8]), ("second.weight", &[8, 8])],
    );
    for dtype in ["stored", "bf16"] {
        let run = share(&model, 2, &["--dtype", dtype]);
        assert_eq!(run.code, 2, "{}", run.stdout);
        let said = "no tensor is divided among 2 workers, such as `first.weight`";
        assert!(run.stderr.contains(said), "{}", run.stderr);
    }
}

/// A share that would begin inside of a block is refused, also where the last block is shorter than the others.
#[test]
fn a_share_begins_with_a_block() {
    let scratch = tempfile::tempdir().unwrap();
    for (rows, cols, module, workers, refused) in [
        (192u64, 128u64, "up_proj", 2, true),
        (128, 192, "down_proj", 2, true),
        (128, 448, "down_proj", 2, true),
        (128, 448, "down_proj", 4, true),
        (256, 128, "up_proj", 2, false),
        (128, 512, "down_proj", 2, false),
        (512, 448, "up_proj", 4, false),
    ] {
        let model = scratch.path().join(format!("{rows}x{cols}x{workers}"));
        fs::create_dir(&model).unwrap();
        let (down, across) = (rows.div_ceil(128), cols.div_ceil(128));
        let codes = vec![0x38; usize::try_from(rows * cols).unwrap()];
        let scales: Vec<u8> = (1..=down * across)
            .flat_map(|n| (n as f32).to_le_bytes())
            .collect();
        let weight = format!("model.layers.0.mlp.{module}.weight");
        let scale = format!("{weight}_scale_inv");
        stored_tensors(
            &model.join("model.safetensors"),
            &[
                (&weight, "F8_E4M3", &[rows, cols], &codes),
                (&scale, "F32", &[down, across], &scales),
            ],
        );
        let config = serde_json::json!({"model_type": "llama", "quantization_config":
            {"quant_method": "fp8", "weight_block_size": [128, 128]}});
        fs::write(model.join("config.json"), config.to_string()).unwrap();
        let run = share(&model, workers, &[]);
        match refused {
            true => {
                assert_eq!(run.code, 1, "{rows} {cols}: {}", run.stdout);
                let said = "begins or ends inside of a block of 128";
                assert!(run.stderr.contains(said), "{}", run.stderr);
                assert!(run.stderr.contains(&weight), "{}", run.stderr);
            }
            false => assert_eq!(run.code, 0, "{rows} {cols}: {}", run.stderr),
        }
    }
}

/// The groups of GPTQ, whose last one may be shorter.
#[test]
fn a_share_begins_with_a_group() {
    let scratch = tempfile::tempdir().unwrap();
    for (inputs, refused) in [
        (192u64, true),
        (224, true),
        (448, true),
        (256, false),
        (512, false),
    ] {
        let model = scratch.path().join(inputs.to_string());
        fs::create_dir(&model).unwrap();
        let (outputs, groups) = (64u64, inputs.div_ceil(128));
        let module = "model.layers.0.mlp.down_proj";
        let name = |part: &str| format!("{module}.{part}");
        let (codes, zeros, scales) = (name("qweight"), name("qzeros"), name("scales"));
        let bytes = |n: u64| vec![0; usize::try_from(n).unwrap()];
        stored_tensors(
            &model.join("model.safetensors"),
            &[
                (
                    &codes,
                    "I32",
                    &[inputs / 8, outputs],
                    &bytes(inputs / 8 * outputs * 4),
                ),
                (
                    &zeros,
                    "I32",
                    &[groups, outputs / 8],
                    &bytes(groups * outputs / 8 * 4),
                ),
                (
                    &scales,
                    "F16",
                    &[groups, outputs],
                    &bytes(groups * outputs * 2),
                ),
            ],
        );
        let config = serde_json::json!({"model_type": "llama", "quantization_config":
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false, "sym": true}});
        fs::write(model.join("config.json"), config.to_string()).unwrap();
        let run = share(&model, 2, &[]);
        match refused {
            true => {
                assert_eq!(run.code, 1, "{inputs}: {}", run.stdout);
                let said = "begins or ends inside of a block of 128";
                assert!(run.stderr.contains(said), "{}", run.stderr);
            }
            false => assert_eq!(run.code, 0, "{inputs}: {}", run.stderr),
        }
    }
}
