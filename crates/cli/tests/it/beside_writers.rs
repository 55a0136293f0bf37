//! Verbs beside runs that replace a directory again and again: one that reads it ends with the old model or the new one, whole, and
//! one that writes a single file into it writes that file, and leaves nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anamnesis::Checkpoint;
use serde_json::Value;

use crate::process::{command, finish, path_str};

/// Models that are written in turn.
const MODELS: u64 = 4;
const LAYERS: usize = 12;

/// Models of the numbers 1 to 4, and a directory of one of them that is replaced.
struct Scene {
    scratch: tempfile::TempDir,
    out: PathBuf,
}

/// How the directory is replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// It is exchanged for another one; shards and a single file take turns.
    Exchanged,
    /// A folder in it allows no exchange.
    WithFolder,
    /// The same, and each model is one file.
    Single,
}

impl Scene {
    fn new(kind: Kind, elements: usize) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        for number in 1..=MODELS {
            model(&scratch.path().join(number.to_string()), number, elements);
        }
        let out = scratch.path().join("parent/out/");
        fs::create_dir_all(out.parent().unwrap()).unwrap();
        if kind != Kind::Exchanged {
            fs::create_dir_all(out.join("onnx")).unwrap();
        }
        let this = Self { scratch, out };
        let first = finish(this.remember(kind, 1));
        assert_eq!(first.code, 0, "{}", first.stderr);
        this
    }

    fn path(&self, name: &str) -> String {
        path_str(&self.scratch.path().join(name)).to_owned()
    }

    fn remember(&self, kind: Kind, number: u64) -> std::process::Command {
        let is_single = kind == Kind::Single || number == 3;
        let shard_size = if is_single { "1GB" } else { "16KB" };
        let source = self.path(&number.to_string());
        let out = path_str(&self.out);
        let words = ["remember", "--overwrite", "--shard-size", shard_size];
        let mut command = command(&words);
        command.args([&source, "-o", out]);
        command
    }

    /// Replaces the directory while `read` runs; how often.
    fn beside_writers(&self, kind: Kind, read: impl FnOnce()) -> u64 {
        let (end, count) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    let number = 1 + count.fetch_add(1, Ordering::Relaxed) % MODELS;
                    let mut writer = self.remember(kind, number);
                    let written = writer.stdout(Stdio::null()).output().unwrap();
                    let text = String::from_utf8_lossy(&written.stderr);
                    assert_eq!(written.status.code(), Some(0), "the writer: {text}");
                }
            });
            // the writer ends with a reader that panics
            let _end = EndAtDrop(&end);
            read();
        });
        count.into_inner()
    }
}

struct EndAtDrop<'e>(&'e AtomicBool);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A model whose configuration, tokenizer and tensors have this number in them.
fn model(directory: &Path, number: u64, elements: usize) {
    fs::create_dir(directory).unwrap();
    let mut header = serde_json::Map::new();
    for layer in 0..LAYERS {
        let (start, end) = (4 * layer * elements, 4 * (layer + 1) * elements);
        let entry = serde_json::json!({"dtype": "F32", "shape": [elements / 2, 2], "data_offsets": [start, end]});
        header.insert(format!("model.layers.{layer}.mlp.down_proj.weight"), entry);
    }
    let header = serde_json::to_string(&header).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    for element in 0..LAYERS * elements {
        // no constant and no repetition, and below the next number
        let value = number as f32 + 0.9 * element as f32 / (LAYERS * elements) as f32;
        bytes.extend(value.to_le_bytes());
    }
    fs::write(directory.join("model.safetensors"), bytes).unwrap();
    let config = serde_json::json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2, "num_hidden_layers": LAYERS,
        "num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": elements / 2, "vocab_size": 8,
        "max_position_embeddings": 1000 * number,
    });
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
    fs::write(
        directory.join("tokenizer.json"),
        number.to_string().repeat(1 << 16),
    )
    .unwrap();
}

/// The number of the model in a directory: of its tensors, its configuration and its tokenizer alike.
fn number_of(directory: &Path) -> u64 {
    let checkpoint = Checkpoint::open(directory).unwrap();
    assert_eq!(checkpoint.tensors().len(), LAYERS);
    let mut numbers = Vec::new();
    for tensor in checkpoint.tensors() {
        for bytes in tensor.bytes().unwrap().as_chunks::<4>().0 {
            let value = f32::from_le_bytes(*bytes).floor();
            let number = (1..=MODELS).find(|number| value == *number as f32);
            numbers.push(number.expect("a value of a model"));
        }
    }
    let config = fs::read(directory.join("config.json")).expect("a configuration");
    let config: Value = serde_json::from_slice(&config).unwrap();
    numbers.push(config["max_position_embeddings"].as_u64().unwrap() / 1000);
    let tokenizer = fs::read_to_string(directory.join("tokenizer.json")).expect("a tokenizer");
    numbers.push(tokenizer[..1].parse().unwrap());
    assert!(
        numbers.iter().all(|number| *number == numbers[0]),
        "files of two models"
    );
    numbers[0]
}

/// Verbs that read the model in `out`, below `parent`.
fn readers<'a>(
    out: &'a str,
    parent: &'a str,
    other: &'a str,
    page: &'a str,
    template: &'a str,
) -> Vec<Vec<&'a str>> {
    vec![
        vec!["inspect", "--json", out],
        vec!["inspect", "--json", "--recursive", parent],
        vec!["ls", "--json", parent],
        vec!["plan", "--json", out],
        vec!["fit", "--json", out],
        vec!["fit", "--json", "--recursive", parent],
        vec!["fit", "--json", other, "--draft", out],
        vec!["check", "--json", out],
        vec!["check", "--json", "--recursive", parent],
        vec!["diff", "--json", "--quick", "--no-config", out, other],
        vec!["load", "--json", out],
        vec!["report", out, "-o", page, "--overwrite"],
        vec!["template", "predict", out, "-o", template, "--overwrite"],
        vec!["warm", "--json", parent],
    ]
}

/// Verbs that copy a model.
static COPIES: [&[&str]; 2] = [&["convert"], &["remember", "--dtype", "f32"]];

/// The verbs that are tried.
pub(crate) fn verbs() -> Vec<String> {
    let readers = readers("", "", "", "", "");
    let readers = readers.iter().map(|words| words.join(" "));
    readers
        .chain(COPIES.iter().map(|words| words.join(" ")))
        .collect()
}

/// Each verb that reads a directory, beside a writer: no run ends with an error.
#[test]
fn a_verb_beside_a_writer_finds_a_model() {
    const ROUNDS: usize = 12;
    for kind in [Kind::WithFolder, Kind::Single, Kind::Exchanged] {
        let scene = Scene::new(kind, 2000);
        let (out, parent, other) = (
            path_str(&scene.out),
            scene.path("parent"),
            scene.path("1/model.safetensors"),
        );
        let (page, template) = (scene.path("p.html"), scene.path("t.iot"));
        let verbs = readers(out, &parent, &other, &page, &template);
        let mut runs = 0;
        let writes = scene.beside_writers(kind, || {
            for verb in std::iter::repeat_n(&verbs, ROUNDS).flatten() {
                let run = finish(command(verb));
                let text = format!("{kind:?} {verb:?}: {}{}", run.stdout, run.stderr);
                assert_eq!(run.code, 0, "{text}");
                if verb[0] == "ls" {
                    // a line for each model: the old or the new one, and no leftover of either
                    let rows: Vec<Value> = run
                        .stdout
                        .lines()
                        .map(|line| serde_json::from_str(line).unwrap())
                        .collect();
                    assert!(rows.len() == 1 && rows[0]["error"].is_null(), "{text}");
                    assert_eq!(rows[0]["architecture"], "llama", "{text}");
                }
                if verb[0] == "inspect" {
                    let document: Value = serde_json::from_str(&run.stdout).unwrap();
                    let context = document["checkpoints"][0]["context"].as_u64();
                    assert!(context.is_some(), "without its configuration: {text}");
                }
                runs += 1;
            }
        });
        println!("{kind:?}: {runs} runs beside {writes} writes, 0 failed");
        assert!(writes > 4, "{writes}");
    }
}

/// A copy of a model that is replaced is of one model, with all of its files.
#[test]
fn a_copy_beside_a_writer_is_of_one_model() {
    const ROUNDS: usize = 60;
    for kind in [Kind::WithFolder, Kind::Single, Kind::Exchanged] {
        let scene = Scene::new(kind, 2000);
        let out = path_str(&scene.out);
        let copy = scene.scratch.path().join("copy");
        let mut found = std::collections::BTreeMap::<u64, usize>::new();
        let writes = scene.beside_writers(kind, || {
            for round in 0..ROUNDS {
                for verb in COPIES {
                    let _ = fs::remove_dir_all(&copy);
                    let target = format!("{}/", path_str(&copy));
                    let run = finish(command(&[verb, &[out, "-o", &target]].concat()));
                    assert_eq!(run.code, 0, "{kind:?} {verb:?} {round}: {}", run.stderr);
                    *found.entry(number_of(&copy)).or_default() += 1;
                }
            }
        });
        println!(
            "{kind:?}: {} copies beside {writes} writes, of the models {found:?}",
            2 * ROUNDS
        );
        assert!(writes > 4, "{writes}");
    }
}

/// A single file that is written into a directory which another run exchanges: it is there, and nothing else is.
#[test]
fn a_file_is_written_into_a_directory_that_is_replaced() {
    const ROUNDS: usize = 40;
    for kind in [Kind::Exchanged, Kind::WithFolder] {
        let scene = Scene::new(kind, 8);
        let source = scene.path("1/model.safetensors");
        let verbs: [(&[&str], &str); 6] = [
            (&["template", "predict", &source, "-o"], "t.iot"),
            (&["template", "predict", &source, "-o"], "t.json"),
            (&["load", &source, "--record"], "r.iot"),
            (&["report", &source, "-o"], "p.html"),
            (&["check", &source, "--write"], "SUMS"),
            (&["convert", &source, "--to", "gguf", "-o"], "extra.gguf"),
        ];
        let writes = scene.beside_writers(kind, || {
            for round in 0..ROUNDS {
                for (verb, name) in &verbs {
                    // a new file and one that is replaced, in turn
                    let path = scene.out.join(format!("{}-{name}", round / 2));
                    let mut words = verb.to_vec();
                    words.push(path_str(&path));
                    if round % 2 == 1 {
                        words.push("--overwrite");
                    }
                    let run = finish(command(&words));
                    assert_eq!(run.code, 0, "{kind:?} {verb:?}: {}", run.stderr);
                    // in the moment of the exchange, its run has it still to move
                    let is_there = (0..500).any(|_| {
                        let is_there = fs::read(&path).is_ok_and(|bytes| !bytes.is_empty());
                        if !is_there {
                            std::thread::sleep(std::time::Duration::from_millis(2));
                        }
                        is_there
                    });
                    assert!(is_there, "{kind:?} {verb:?}: round {round}");
                }
            }
        });
        let hidden = |directory: &Path| -> Vec<String> {
            let entries = fs::read_dir(directory).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.starts_with('.')).collect()
        };
        let left = [hidden(&scene.out), hidden(scene.out.parent().unwrap())].concat();
        assert_eq!(left, [""; 0], "{kind:?}");
        println!(
            "{kind:?}: {} files beside {writes} writes",
            ROUNDS * verbs.len()
        );
        assert!(writes > 4, "{writes}");
    }
}
