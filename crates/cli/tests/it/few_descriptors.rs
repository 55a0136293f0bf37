//! Verbs on a checkpoint of many more files than the process may have open.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::{command, finish, path_str};

const SHARDS: usize = 1000;

/// Shards that are too large to be kept in memory whole.
fn write_checkpoint(directory: &Path) {
    let mut map = serde_json::Map::new();
    for number in 0..SHARDS {
        let name = format!("model-{:05}-of-{SHARDS:05}.safetensors", number + 1);
        let header =
            format!(r#"{{"t{number}":{{"dtype":"F32","shape":[5000],"data_offsets":[0,20000]}}}}"#);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        let value = f32::from(u16::try_from(number).unwrap()) / 1000.0 + 0.5;
        (0..5000).for_each(|at| bytes.extend((value + at as f32 / 1e6).to_le_bytes()));
        fs::write(directory.join(&name), bytes).unwrap();
        map.insert(format!("t{number}"), name.into());
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    let path = directory.join("model.safetensors.index.json");
    fs::write(path, serde_json::to_vec(&index).unwrap()).unwrap();
}

/// The command under a limit of 256 descriptors.
fn limited(args: &[&str]) -> Command {
    let whole = command(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""]);
    shell.arg(whole.get_program()).args(whole.get_args());
    shell.current_dir(whole.get_current_dir().unwrap());
    shell
}

#[test]
fn verbs_work_on_a_thousand_shards_under_a_limit_of_256_descriptors() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    fs::create_dir(&model).unwrap();
    write_checkpoint(&model);
    let (model, out) = (path_str(&model), scratch.path().join("merged.safetensors"));
    let made = scratch.path().join("made");
    let verbs: [&[&str]; 8] = [
        &["inspect", model, "--json"],
        &["inspect", model, "--hash"],
        &["load", model],
        &["load", model, "--loader", "mmap"],
        &["check", model],
        &["convert", model, "-o", path_str(&out)],
        &["diff", model, path_str(&out)],
        &[
            "remember",
            model,
            "-o",
            path_str(&made),
            "--dtype",
            "bf16",
            "--cast",
        ],
    ];
    for args in verbs {
        let run = finish(limited(args));
        assert_eq!(run.code, 0, "{args:?}: {}\n{}", run.stdout, run.stderr);
    }
    let (limited, free) = (
        finish(limited(&["inspect", model, "--hash"])),
        finish(command(&["inspect", model, "--hash"])),
    );
    assert_eq!(limited.stdout, free.stdout);
}
