//! Readings that fit only by chance are refused, and those that another program would not make are said.

use std::fs;
use std::path::Path;

use crate::process::{path_str, run, stored_tensors};

fn model(directory: &Path, config: &serde_json::Value, tensors: &[(&str, &str, &[u64], &[u8])]) {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir(directory).unwrap();
    stored_tensors(&directory.join("model.safetensors"), tensors);
    let config = serde_json::json!({"model_type": "llama", "quantization_config": config});
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
}

/// Two groups of 64 have 128 inputs. GPTQ's second group of 96 is shorter; AWQ and compressed-tensors write no such weight.
#[test]
fn groups_divide_the_rows_where_their_writers_say_so() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("m");
    let zeros = [0u8; 4096];
    let one_f16: Vec<u8> = [0, 0x3c].repeat(2 * 64);
    let check = |named: &str, group: u64, expected: Option<&str>| {
        let plan = run(&["plan", path_str(&directory)]);
        let text = plan.stdout + &plan.stderr;
        match expected {
            None => assert_eq!(plan.code, 0, "{named} {group}: {text}"),
            Some(what) => {
                assert_eq!(plan.code, 1, "{named} {group}: {text}");
                assert!(text.contains(what) && text.contains("q_proj"), "{text}");
            }
        }
    };
    for (group, expected) in [
        (64, Some("groups of 64 do not divide 96 inputs")),
        (48, None),
    ] {
        let config = serde_json::json!({"quant_method": "awq", "bits": 4, "group_size": group,
            "version": "gemm", "zero_point": true});
        model(
            &directory,
            &config,
            &[
                ("l.q_proj.qweight", "I32", &[96, 8], &zeros[..96 * 32]),
                ("l.q_proj.qzeros", "I32", &[2, 8], &zeros[..64]),
                ("l.q_proj.scales", "F16", &[2, 64], &one_f16),
            ],
        );
        check("awq", group, expected);
        let config = serde_json::json!({"quant_method": "gptq", "bits": 4, "group_size": group,
            "desc_act": false, "sym": true});
        model(
            &directory,
            &config,
            &[
                ("l.q_proj.qweight", "I32", &[12, 64], &zeros[..12 * 256]),
                ("l.q_proj.qzeros", "I32", &[2, 8], &zeros[..64]),
                ("l.q_proj.scales", "F16", &[2, 64], &one_f16),
            ],
        );
        check("gptq", group, None);
        let config = serde_json::json!({"quant_method": "compressed-tensors",
            "format": "pack-quantized", "ignore": [],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4,
                "type": "int", "strategy": "group", "group_size": group, "symmetric": true}}}});
        let shape: Vec<u8> = [8u64, 96].iter().flat_map(|n| n.to_le_bytes()).collect();
        model(
            &directory,
            &config,
            &[
                ("l.q_proj.weight_packed", "I32", &[8, 12], &zeros[..8 * 48]),
                ("l.q_proj.weight_shape", "I64", &[2], &shape),
                (
                    "l.q_proj.weight_scale",
                    "BF16",
                    &[8, 2],
                    &[0x80, 0x3f].repeat(16),
                ),
            ],
        );
        let expected = expected.map(|_| "do not divide 96 columns into whole groups");
        check("compressed-tensors", group, expected);
    }
}

/// A GGUF of one weight in blocks and its factor.
fn gguf(module: &str) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(2u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(text("general.architecture"));
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(text("llama"));
    let weight = format!("{module}.weight");
    for (name, dims, kind, at) in [
        (weight, &[32u64, 2][..], 8u32, 0u64),
        (format!("{module}.scale"), &[1], 0, 96),
    ] {
        bytes.extend(text(&name));
        bytes.extend(u32::try_from(dims.len()).unwrap().to_le_bytes());
        dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(at.to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    // two blocks of Q8_0: a scale of 1 and codes of 1
    for _ in 0..2 {
        bytes.extend([0, 0x3c]);
        bytes.extend([1; 32]);
    }
    bytes.resize(bytes.len() + 96 - 68, 0);
    bytes.extend(2f32.to_le_bytes());
    bytes
}

/// llama.cpp multiplies by the factor of a weight in a matrix product, and looks the rows of an embedding up.
#[test]
fn the_factor_of_an_embedding_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.gguf");
    for (module, is_said) in [("token_embd", true), ("blk.0.attn_q", false)] {
        fs::write(&path, gguf(module)).unwrap();
        let plan = run(&["plan", path_str(&path)]);
        assert_eq!(plan.code, 0, "{}", plan.stderr);
        let text = plan.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let note = format!("the factor `{module}.scale` of an embedding is multiplied in");
        assert_eq!(text.contains(&note), is_said, "{text}");
    }
}
