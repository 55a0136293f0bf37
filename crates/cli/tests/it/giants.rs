//! The largest published models, and one of twice their size, through every verb at the default limits. Files are headers with
//! holes behind them: with the names, shapes, shards and offsets of the models.

#[path = "../../../template/tests/it/checkpoint_shapes.rs"]
mod checkpoint_shapes;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use self::checkpoint_shapes::Model;
use crate::process::{Run, command, finish, path_str};

struct Giant {
    scratch: tempfile::TempDir,
    tensors: usize,
}

/// Writes the files of a model, with its index and configuration.
fn giant(model: &Model, layers: u64, experts: u64, heads: u64) -> Giant {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    let mut weight_map = Map::new();
    for (name, header, nbytes) in model.files() {
        let mut file = File::create(folder.join(name)).unwrap();
        file.write_all(header).unwrap();
        file.set_len(nbytes).unwrap();
        let entries: Map<String, Value> = serde_json::from_slice(&header[8..]).unwrap();
        let names = entries.into_iter().map(|(name, _)| name);
        let names = names.filter(|name| name != "__metadata__");
        weight_map.extend(names.map(|tensor| (tensor, name.into())));
    }
    assert_eq!(weight_map.len(), model.tensors());
    let index = json!({"metadata": {}, "weight_map": weight_map});
    let config = json!({
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": layers,
        "n_routed_experts": experts, "num_experts_per_tok": 8, "n_shared_experts": 1, "hidden_size": 7168,
        "moe_intermediate_size": 2048, "intermediate_size": 18432, "num_attention_heads": heads,
        "num_key_value_heads": heads, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 131_072, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    });
    for (name, value) in [
        ("model.safetensors.index.json", index),
        ("config.json", config),
    ] {
        std::fs::write(folder.join(name), value.to_string()).unwrap();
    }
    Giant {
        scratch,
        tensors: model.tensors(),
    }
}

impl Giant {
    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A run on the model that must succeed; `{}` is its path.
    fn run(&self, args: &[&str]) -> Run {
        let model = self.path("model");
        let args: Vec<&str> = args
            .iter()
            .map(|word| {
                if *word == "{}" {
                    path_str(&model)
                } else {
                    word
                }
            })
            .collect();
        let run = finish(command(&args));
        assert_eq!(run.code, 0, "{args:?}: {}", run.stderr);
        assert!(!run.stderr.contains("limit"), "{args:?}: {}", run.stderr);
        run
    }

    /// A run whose document is hundreds of megabytes long.
    fn run_unread(&self, args: &[&str]) {
        let mut command = command(args);
        command.arg(self.path("model"));
        let status = command
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{args:?}");
    }

    /// Every verb.
    fn through_every_verb(&self) {
        let file = |name: &str| path_str(&self.path(name)).to_owned();
        let count = |text: &str| text.chars().filter(|c| *c != ',').collect::<String>();
        let tensors = self.tensors.to_string();
        let summary = self.run(&["inspect", "--summary", "{}"]).stdout;
        assert!(count(&summary).contains(&tensors), "{summary}");
        // the quantised weights are a part of the listing
        assert!(summary.contains("fp8"), "{summary}");
        assert!(!summary.contains("not listed"), "{summary}");
        self.run(&["inspect", "--tree", "{}"]);
        self.run_unread(&["inspect", "--json"]);
        let checked = self.run(&["check", "--headers", "{}"]).stdout;
        assert!(count(&checked).contains(&tensors), "{checked}");
        let one = "model.layers.4.mlp.experts.7.*";
        // holes are zeros, which scales must not be
        let allowed = ["check", "--allow", "scale-zero", "--fail-on", "error"];
        self.run(&[&allowed[..], &["--filter", one, "{}"]].concat());
        let same = self.run(&["diff", "--quick", "{}", "{}"]).stdout;
        assert!(same.contains("same"), "{same}");
        self.run(&["diff", "--filter", one, "{}", "{}"]);
        let parallel = ["--tp", "8", "--ep", "8"];
        for args in [
            &["--engine", "llama.cpp"][..],
            &["--engine", "vllm", "--tp", "8", "--ep", "8"],
        ] {
            let fit = self.run(&[&["fit", "{}"], args].concat());
            // active parameters need the plan of all weights
            assert!(fit.stdout.contains("active"), "{}", fit.stdout);
            assert!(!fit.stdout.contains("not counted"), "{}", fit.stdout);
        }
        let page = file("page.html");
        self.run(&["report", "{}", "-o", &page]);
        let page = std::fs::metadata(page).unwrap().len();
        assert!(page < 4_000_000, "{page}");
        self.run_unread(&["plan", "--json"]);
        let out = file("one.safetensors");
        self.run(&["remember", "{}", "-o", &out, "--filter", one]);
        let template = file("t.iot");
        self.run(
            &[
                &["template", "predict", "{}", "-o", &template],
                &parallel[..],
            ]
            .concat(),
        );
        assert!(std::fs::metadata(&template).unwrap().len() < 1_000_000);
        self.run(&["template", "show", &template]);
        self.run(&["template", "diff", &template, &template]);
        self.run(&["template", "coverage", &template, &template]);
        for loader in ["mmap", "pread"] {
            self.run(&["load", "{}", "--loader", loader, "--filter", one]);
        }
    }
}

/// Takes a minute, and three times as much of the same is tried below.
#[test]
#[ignore = "long"]
fn deepseek_v3_goes_through_every_verb() {
    let giant = giant(&checkpoint_shapes::deepseek_671b(), 61, 256, 128);
    assert_eq!(giant.tensors, 91_991);
    giant.through_every_verb();
}

/// Takes a minute, and twice as much of the same is tried below.
#[test]
#[ignore = "long"]
fn kimi_k2_goes_through_every_verb() {
    let giant = giant(&checkpoint_shapes::kimi_k2(), 61, 384, 64);
    assert_eq!(giant.tensors, 139_583);
    giant.through_every_verb();
}

#[test]
fn twice_kimi_k2_goes_through_every_verb() {
    let giant = giant(&checkpoint_shapes::twice_kimi_k2(), 122, 384, 64);
    assert_eq!(giant.tensors, 279_163);
    giant.through_every_verb();
}

/// The names of a model, each with a few values: all bytes are read, and listed tensor by tensor.
fn tiny(model: &Model, folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    let mut random = 1u64;
    let mut values = |start: u32, below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        start + u32::try_from((random >> 33) % below).unwrap()
    };
    let (mut header, mut body) = (String::from("{"), Vec::new());
    for (_, file, _) in model.files() {
        let entries: Map<String, Value> = serde_json::from_slice(&file[8..]).unwrap();
        for name in entries.keys().filter(|name| *name != "__metadata__") {
            let start = body.len();
            let (dtype, shape) = if name.ends_with("scale_inv") {
                body.extend(values(0x3f00_0000, 1 << 20).to_le_bytes());
                ("F32", "[1,1]")
            } else if name.contains("proj") {
                (0..16).for_each(|_| body.push(values(0x20, 32).to_le_bytes()[0]));
                ("F8_E4M3", "[4,4]")
            } else {
                (0..4).for_each(|_| body.extend(&values(0x3f00, 200).to_le_bytes()[..2]));
                ("BF16", "[4]")
            };
            let end = body.len();
            header.push_str(&format!(
                "\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}},"
            ));
        }
    }
    header.pop();
    header.push('}');
    let length = (header.len() as u64).to_le_bytes();
    let file = [&length[..], header.as_bytes(), &body].concat();
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    let config = json!({
        "model_type": "deepseek_v3", "hidden_size": 4, "num_hidden_layers": 122, "num_attention_heads": 1,
        "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// With all that `check` makes of each tensor: statistics, digests, and a comparison with a list of them.
#[test]
fn twice_kimi_k2_is_checked_tensor_by_tensor() {
    let model = checkpoint_shapes::twice_kimi_k2();
    let giant = Giant {
        scratch: tempfile::tempdir().unwrap(),
        tensors: model.tensors(),
    };
    tiny(&model, &giant.path("model"));
    let list = path_str(&giant.path("list.json")).to_owned();
    giant.run(&["check", "--stats", "{}", "--write", &list]);
    let checked = giant.run(&["check", "{}", "--manifest", &list]).stdout;
    let all = checked.replace(',', "");
    assert!(
        all.contains(&format!("{0} of {0} tensors", giant.tensors)),
        "{checked}"
    );
}

/// The memory that tensors allow is theirs: a header of the same length that describes few of them has no more than before.
#[test]
fn a_long_header_of_other_things_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let long = |name: &str, header: String| {
        let path = scratch.path().join(name);
        let length = (header.len() as u64).to_le_bytes();
        std::fs::write(&path, [&length[..], header.as_bytes()].concat()).unwrap();
        path
    };
    let pairs: Vec<String> = (0..2_500_000).map(|n| format!("\"{n}\":\"\"")).collect();
    let metadata = long(
        "metadata.safetensors",
        format!("{{\"__metadata__\":{{{}}}}}", pairs.join(",")),
    );
    let shape = vec!["0"; 25_000_000].join(",");
    let shape =
        format!("{{\"a\":{{\"dtype\":\"F32\",\"shape\":[{shape}],\"data_offsets\":[0,0]}}}}");
    for path in [metadata, long("shape.safetensors", shape)] {
        assert_refused(&path);
    }
}

fn assert_refused(path: &Path) {
    let run = finish(command(&["inspect", "--summary", path_str(path)]));
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(
        run.stderr.contains("exceeds the limit `memory` of 1677"),
        "{}",
        run.stderr
    );
}
