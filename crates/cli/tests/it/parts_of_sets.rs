//! Files of one set that are given one by one, as a shell expands a pattern: they are one source.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{path_str, run, safetensors, workspace};

fn converted(sources: &[&Path], out: &Path) -> crate::process::Run {
    let mut arguments = vec!["convert", "-o", path_str(out), "--overwrite"];
    arguments.extend(sources.iter().map(|source| path_str(source)));
    run(&arguments)
}

/// All files of a split GGUF, some of them, and a directory with its shards make what the whole makes.
#[test]
fn files_of_a_set_are_one_source() {
    let scratch = tempfile::tempdir().unwrap();
    let split = workspace().join("fixtures/gguf/split");
    let part = |n: u32| split.join(format!("m-0000{n}-of-00003.gguf"));
    let sharded = workspace().join("fixtures/safetensors/sharded");
    let shard = |n: u32| sharded.join(format!("model-0000{n}-of-00002.safetensors"));
    let alone = scratch.path().join("alone");
    fs::create_dir(&alone).unwrap();
    for n in [1, 2] {
        let name = shard(n);
        fs::copy(&name, alone.join(name.file_name().unwrap())).unwrap();
    }
    let copied = |n: u32| alone.join(shard(n).file_name().unwrap());
    let index = sharded.join("model.safetensors.index.json");
    for (whole, sources) in [
        (&part(1), vec![part(1), part(2), part(3)]),
        (&part(1), vec![part(3), part(2)]),
        (&sharded, vec![shard(1), sharded.clone()]),
        (&sharded, vec![sharded.clone(), shard(2)]),
        (&sharded, vec![shard(1), shard(2), index]),
        (&sharded, vec![shard(1), shard(2)]),
        (&sharded, vec![copied(2), copied(1)]),
    ] {
        let ending = if *whole == sharded {
            "safetensors"
        } else {
            "gguf"
        };
        let [expected, made] =
            ["expected", "made"].map(|name| scratch.path().join(name).with_extension(ending));
        let first = converted(&[whole], &expected);
        assert_eq!((first.code, &*first.stderr), (0, ""));
        let paths: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
        let run = converted(&paths, &made);
        // all is there, so that nothing is said of files that are not
        assert_eq!((run.code, &*run.stderr), (0, ""), "{sources:?}");
        let same = crate::process::run(&["diff", path_str(&expected), path_str(&made)]);
        assert_eq!(same.code, 0, "{sources:?}: {}", same.stdout);
    }
}

/// Some shards of a set are copied as they are, and one warning says which.
#[test]
fn some_shards_of_a_set_are_one_warning() {
    let scratch = tempfile::tempdir().unwrap();
    let shards: Vec<PathBuf> = (1..=12)
        .map(|n| {
            scratch
                .path()
                .join(format!("m-{n:05}-of-00013.safetensors"))
        })
        .collect();
    for (n, shard) in shards.iter().enumerate() {
        safetensors(shard, "", &[(&format!("t.{n}"), &[2])]);
    }
    let paths: Vec<&Path> = shards.iter().map(PathBuf::as_path).collect();
    let out = scratch.path().join("out.safetensors");
    let run = converted(&paths, &out);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stderr.matches("warning:").count(), 1, "{}", run.stderr);
    let said = "12 files of 13 of a checkpoint (1, 2, 3, 4, 5, 6, 7, 8 …)";
    assert!(run.stderr.contains(said), "{}", run.stderr);
    let one = converted(&paths[..1], &out);
    assert!(
        one.stderr.contains("file 1 of 13 of a checkpoint"),
        "{}",
        one.stderr
    );
}
