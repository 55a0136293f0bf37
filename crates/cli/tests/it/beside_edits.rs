//! Verbs beside edits that change the names of a model's tensors again and again, where they are: each run has all old names or all
//! new ones, and none fails.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anamnesis::{Checkpoint, EditWay, edit};

use crate::process::{command, finish, path_str, safetensors};

/// Tensors of the model: their header is read in many pieces.
const TENSORS: usize = 4000;
/// The names of the tensors begin with one of them.
const PREFIXES: [&str; 2] = ["model", "other"];

/// The model that is edited.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    File,
    Gguf,
    /// Shards with an index.
    Indexed,
    /// Shards without one.
    Numbered,
}

const KINDS: [Kind; 4] = [Kind::File, Kind::Gguf, Kind::Indexed, Kind::Numbered];

/// A model whose tensors have the first prefix.
fn model(kind: Kind, directory: &Path) -> PathBuf {
    let source = directory.join("source.safetensors");
    let mut header = serde_json::Map::new();
    for tensor in 0..TENSORS {
        let entry = serde_json::json!({"dtype": "F32", "shape": [2], "data_offsets": [8 * tensor, 8 * tensor + 8]});
        header.insert(format!("{}.{tensor}.weight", PREFIXES[0]), entry);
    }
    let header = serde_json::to_string(&header).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    for element in 0..2 * TENSORS {
        bytes.extend((element as f32 + 1.5).to_le_bytes());
    }
    fs::write(&source, bytes).unwrap();
    let source = path_str(&source).to_owned();
    let path = match kind {
        Kind::File => directory.join("m.safetensors"),
        Kind::Gguf => directory.join("m.gguf"),
        Kind::Indexed | Kind::Numbered => directory.join("m/"),
    };
    let mut words = vec!["convert", &source, "-o", path_str(&path)];
    if matches!(kind, Kind::Indexed | Kind::Numbered) {
        words.extend(["--shard-size", "8KB"]);
    }
    let made = finish(command(&words));
    assert_eq!(made.code, 0, "{}", made.stderr);
    if kind == Kind::Numbered {
        fs::remove_file(path.join("model.safetensors.index.json")).unwrap();
    }
    path
}

/// The prefixes of a model's names.
fn prefixes(path: &Path) -> BTreeSet<String> {
    let checkpoint = Checkpoint::open(path).unwrap();
    assert_eq!(checkpoint.tensors().len(), TENSORS);
    let names = checkpoint.tensors().map(|tensor| {
        let name = &tensor.info().name;
        name.split_once('.').unwrap().0.to_owned()
    });
    names.collect()
}

/// A directory of three shards without an index, of which the last one and the configuration have a name that an edit changes.
fn late_model(directory: &Path) -> PathBuf {
    let path = directory.join("m");
    fs::create_dir(&path).unwrap();
    for (shard, tensor) in ["model.0.weight", "model.1.weight", "early.z.weight"]
        .iter()
        .enumerate()
    {
        let file = path.join(format!("model-{:05}-of-00003.safetensors", shard + 1));
        safetensors(&file, "{\"format\":\"pt\"}", &[(tensor, &[2])]);
    }
    let config = r#"{"model_type": "llama", "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["early.z"]}}"#;
    fs::write(path.join("config.json"), config).unwrap();
    path
}

/// Changes the name there and back.
fn rename_late(path: &Path, turn: u64) {
    let names = ["early", "late"];
    let turn = (turn % 2) as usize;
    edit(path)
        .rename(names[turn], names[1 - turn])
        .commit()
        .unwrap();
}

#[test]
fn a_configuration_of_a_later_edit_is_of_no_open_checkpoint() {
    let scratch = tempfile::tempdir().unwrap();
    let path = late_model(scratch.path());
    for turn in 0..4 {
        let opened = Checkpoint::open(&path).unwrap();
        rename_late(&path, turn);
        let planned = anamnesis::remember(&opened).plan();
        let error = planned.map(|plan| format!("{plan:?}")).unwrap_err();
        assert!(error.is_replaced(), "{error}");
        let error = anamnesis::ModelConfig::of(&opened).unwrap_err();
        assert!(error.is_replaced(), "{error}");
        let error = anamnesis::predict(&opened)
            .template()
            .map(|_| ())
            .unwrap_err();
        assert!(error.is_replaced(), "{error}");
        let again = Checkpoint::open(&path).unwrap();
        anamnesis::remember(&again).plan().unwrap();
    }
}

#[test]
fn a_verb_beside_edits_of_a_later_shard_has_its_configuration() {
    const ROUNDS: usize = 12;
    let scratch = tempfile::tempdir().unwrap();
    let path = late_model(scratch.path());
    let copy = scratch.path().join("copy");
    let (model, out) = (path_str(&path), path_str(&copy));
    let change = |turn| rename_late(&path, turn);
    let edits = beside_edits(change, PAUSE, EDITS_BESIDE_ONE, |counts| {
        for _ in 0..ROUNDS {
            for words in [
                &["inspect", "--json", model][..],
                &["plan", "--json", model],
                &["convert", model, "-o", &format!("{out}/"), "--overwrite"],
            ] {
                let run = finish(command(words));
                assert_eq!(run.code, 0, "{words:?}: {}{}", run.stdout, run.stderr);
                counts.runs.fetch_add(1, Ordering::Relaxed);
            }
            let copied = Checkpoint::open(&copy).unwrap();
            let config = fs::read_to_string(copy.join("config.json")).unwrap();
            for name in ["early", "late"] {
                let has_tensor = copied
                    .tensors()
                    .any(|tensor| tensor.info().name.starts_with(name));
                assert_eq!(config.contains(name), has_tensor, "{name}: {config}");
            }
        }
    });
    println!("{ROUNDS} rounds beside {edits} edits");
}

struct EndAtDrop<'e>(&'e AtomicBool);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Edits of one model, and runs of a reader beside them, both counted.
#[derive(Default)]
struct Counts {
    edits: AtomicU64,
    runs: AtomicU64,
}

/// Between two edits: an edit by the command takes as long.
const PAUSE: Duration = Duration::from_millis(20);

/// Edits beside one run of a verb, however long it waits for a processor: no user edits a model again and again for seconds.
const EDITS_BESIDE_ONE: u64 = 8;

/// Renames the tensors of a model there and back.
fn rename_all(path: &Path, turn: u64) {
    let turn = (turn % 2) as usize;
    let report = edit(path).rename(PREFIXES[turn], PREFIXES[1 - turn]);
    let report = report.commit().unwrap();
    let tensors =
        |file: &&anamnesis::EditedFile| file.path.extension().is_none_or(|ending| ending != "json");
    let ways = report.files.iter().filter(tensors).map(|file| file.way);
    // where they are: a copy would be another file
    assert!(ways.into_iter().all(|way| way == EditWay::Room));
}

/// Edits by `change` while `read` runs, at most `most` times for each run that it counts; how often.
fn beside_edits(
    change: impl Fn(u64) + Sync,
    pause: Duration,
    most: u64,
    read: impl FnOnce(&Counts),
) -> u64 {
    let (end, counts) = (AtomicBool::new(false), Counts::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut edits, mut runs) = (0, 0);
            while !end.load(Ordering::Relaxed) {
                let ended = counts.runs.load(Ordering::Relaxed);
                if edits == most && ended == runs {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                if ended != runs {
                    (edits, runs) = (0, ended);
                }
                edits += 1;
                change(counts.edits.fetch_add(1, Ordering::Relaxed));
                std::thread::sleep(pause);
            }
        });
        let _end = EndAtDrop(&end);
        read(&counts);
    });
    counts.edits.into_inner()
}

#[test]
fn a_verb_beside_edits_has_all_old_names_or_all_new_ones() {
    const ROUNDS: usize = 6;
    for kind in KINDS {
        let scratch = tempfile::tempdir().unwrap();
        let path = model(kind, scratch.path());
        let file = |name: &str| path_str(&scratch.path().join(name)).to_owned();
        let (model, copy) = (path_str(&path), file("copy.safetensors"));
        let (page, template, parent) = (file("p.html"), file("t.iot"), file("."));
        let verbs: [&[&str]; 12] = [
            &["inspect", "--json", model],
            &["ls", "--json", &parent],
            &["plan", "--json", model],
            &["check", "--json", model],
            &["check", "--json", "--headers", model],
            &["diff", "--json", "--quick", model, model],
            &["load", "--json", model],
            &["report", model, "-o", &page, "--overwrite"],
            &["template", "predict", model, "-o", &template, "--overwrite"],
            &["warm", "--json", model],
            &["remember", model, "-o", &copy, "--overwrite"],
            &["convert", model, "-o", &copy, "--overwrite"],
        ];
        let mut runs = 0;
        let change = |turn| rename_all(&path, turn);
        let edits = beside_edits(change, PAUSE, EDITS_BESIDE_ONE, |counts| {
            for words in std::iter::repeat_n(&verbs, ROUNDS).flatten() {
                let run = finish(command(words));
                let text = format!("{kind:?} {words:?}: {}{}", run.stdout, run.stderr);
                // a diff is of two openings, and between them names may change
                let allowed: &[i32] = if words[0] == "diff" { &[0, 1] } else { &[0] };
                assert!(allowed.contains(&run.code), "{text}");
                if words.contains(&&*copy) {
                    let found = prefixes(Path::new(&copy));
                    assert_eq!(found.len(), 1, "{kind:?}: names of two moments: {found:?}");
                }
                counts.runs.fetch_add(1, Ordering::Relaxed);
                runs += 1;
            }
        });
        println!("{kind:?}: {runs} runs beside {edits} edits, 0 failed");
        assert!(edits > 20, "{edits}");
        assert_eq!(prefixes(&path).len(), 1, "{kind:?}");
    }
}

/// The library's own opening, a thousand times: a program that opens in a loop has no time between processes.
#[test]
fn an_opening_beside_edits_has_names_of_one_moment() {
    for kind in KINDS {
        let scratch = tempfile::tempdir().unwrap();
        let path = model(kind, scratch.path());
        let change = |turn| rename_all(&path, turn);
        let edits = beside_edits(change, Duration::ZERO, u64::MAX, |counts| {
            for round in 0.. {
                if round >= 150 && counts.edits.load(Ordering::Relaxed) >= 50 {
                    break;
                }
                let open = || Checkpoint::open(&path);
                let opened = anamnesis::again_if_replaced(anamnesis::Error::is_replaced, open);
                let opened = opened.unwrap_or_else(|error| panic!("{kind:?} {round}: {error}"));
                let names = opened.tensors().map(|tensor| tensor.info().name.clone());
                let found: BTreeSet<String> = names
                    .map(|name| name.split_once('.').unwrap().0.to_owned())
                    .collect();
                assert_eq!(found.len(), 1, "{kind:?} {round}: names of two moments");
            }
        });
        println!("{kind:?}: openings beside {edits} edits");
    }
}
