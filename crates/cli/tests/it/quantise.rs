//! `convert --type`: what users name, what is written, what is refused.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::process::{json_of, path_str, run, workspace};

/// A GGUF of plain floats: the fixture's weights in F16.
fn plain_model(scratch: &TempDir) -> String {
    let path = scratch.path().join("plain.gguf");
    let source = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    let made = run(&[
        "convert",
        path_str(&source),
        "-o",
        path_str(&path),
        "--type",
        "f16",
        "--allow-requantize",
    ]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    path_str(&path).to_owned()
}

fn types(path: &str) -> Vec<(String, String)> {
    let header = json_of(&["inspect", "--json", path]);
    let tensors = header["checkpoints"][0]["tensors"]
        .as_array()
        .unwrap()
        .clone();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    tensors
        .iter()
        .map(|tensor| (text(&tensor["name"]), text(&tensor["dtype"])))
        .collect()
}

#[test]
fn a_gguf_is_quantised_to_a_mixture() {
    let scratch = tempfile::tempdir().unwrap();
    let plain = plain_model(&scratch);
    let out = scratch.path().join("small.gguf");
    let made = run(&["convert", &plain, "-o", path_str(&out), "--type", "q4_0"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.contains(" as Q4_0"), "{}", made.stdout);
    let kinds = types(path_str(&out));
    let kind = |name: &str| kinds.iter().find(|(own, _)| own == name).unwrap().1.clone();
    assert_eq!(kind("blk.0.attn_q.weight"), "Q4_0");
    // vectors keep their type, and the layers come in order
    assert_eq!(kind("output_norm.weight"), "F32");
    let first = kinds
        .iter()
        .position(|(name, _)| name.starts_with("blk."))
        .unwrap();
    assert!(
        kinds[first..]
            .iter()
            .all(|(name, _)| name.starts_with("blk."))
    );
    let header = json_of(&["inspect", "--json", path_str(&out)]);
    assert_eq!(header["checkpoints"][0]["metadata"]["general.file_type"], 2);
    // the same again, and on one thread
    let second = scratch.path().join("again.gguf");
    let again = run(&[
        "convert",
        &plain,
        "-o",
        path_str(&second),
        "--type",
        "Q4_0",
        "--threads",
        "1",
    ]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_eq!(fs::read(&out).unwrap(), fs::read(&second).unwrap());
    let ours = run(&["check", path_str(&out)]);
    assert_eq!(ours.code, 0, "{}", ours.stdout);
}

#[test]
fn options_decide_types_and_keys() {
    let scratch = tempfile::tempdir().unwrap();
    let plain = plain_model(&scratch);
    let out = scratch.path().join("o.gguf");
    let made = run(&[
        "convert",
        &plain,
        "-o",
        path_str(&out),
        "--type",
        "q8_0",
        "--tensor-type",
        "attn_(q|k)=q5_1",
        "--tensor-type",
        "nothing=q4_0",
        "--override-kv",
        "general.name=str:renamed",
        "--override-kv",
        "x.count=int:-7",
        "--token-embedding-type",
        "bf16",
    ]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(
        made.stdout.contains("`nothing` decides for no tensor"),
        "{}",
        made.stderr
    );
    let kinds = types(path_str(&out));
    let kind = |name: &str| kinds.iter().find(|(own, _)| own == name).unwrap().1.clone();
    assert_eq!(kind("blk.0.attn_k.weight"), "Q5_1");
    assert_eq!(kind("blk.0.attn_v.weight"), "Q8_0");
    assert_eq!(kind("token_embd.weight"), "BF16");
    let header = json_of(&["inspect", "--json", path_str(&out)]);
    let keys = &header["checkpoints"][0]["metadata"];
    assert_eq!(
        (&keys["general.name"], &keys["x.count"]),
        (&"renamed".into(), &7.into())
    );
    let copy = scratch.path().join("copy.gguf");
    let made = run(&[
        "convert",
        path_str(&out),
        "-o",
        path_str(&copy),
        "--type",
        "copy",
    ]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert_eq!(types(path_str(&copy)), kinds);
}

#[test]
fn what_would_lose_is_refused_and_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let plain = plain_model(&scratch);
    let packed = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    let sharded = workspace().join("fixtures/safetensors/sharded");
    let out = scratch.path().join("no.gguf");
    let cases: &[(&str, &[&str], &str, i32)] = &[
        (
            path_str(&packed),
            &["--type", "q4_0"],
            "--allow-requantize",
            1,
        ),
        (&plain, &["--type", "q1_0", "--pure"], "--tensor-type", 1),
        (&plain, &["--type", "q9_k"], "expected one of", 2),
        (
            &plain,
            &["--type", "q4_0", "--tensor-type", "attn=q9"],
            "no type of tensors",
            2,
        ),
        (
            &plain,
            &["--type", "q4_0", "--prune-layers", "99"],
            "no tensor is of layer 99",
            2,
        ),
        (
            &plain,
            &["--type", "q4_0", "--dtype", "bf16"],
            "cannot be used with",
            2,
        ),
        (&plain, &["--pure"], "--type", 2),
        (
            path_str(&sharded),
            &["--type", "q4_0"],
            "no config.json beside the weights",
            1,
        ),
    ];
    for (source, more, said, code) in cases {
        let run = run(&[&["convert", source, "-o", path_str(&out)], *more].concat());
        assert_eq!(run.code, *code, "{more:?}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{more:?}: {}", run.stderr);
        assert!(!out.exists());
    }
    // an infinity among the values of a weight
    let damaged = scratch.path().join("inf.gguf");
    let mut bytes = fs::read(Path::new(&plain)).unwrap();
    let header = json_of(&["inspect", "--json", &plain]);
    let tensors = header["checkpoints"][0]["tensors"].as_array().unwrap();
    let weight = tensors
        .iter()
        .find(|tensor| tensor["name"] == "blk.0.attn_q.weight")
        .unwrap();
    let at = usize::try_from(weight["offset"].as_u64().unwrap()).unwrap();
    bytes[at..at + 2].copy_from_slice(&0x7c00_u16.to_le_bytes());
    fs::write(&damaged, bytes).unwrap();
    for kind in ["q4_0", "copy"] {
        let run = run(&[
            "convert",
            path_str(&damaged),
            "-o",
            path_str(&out),
            "--type",
            kind,
        ]);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(
            run.stderr.contains("blk.0.attn_q.weight") && run.stderr.contains("infinite"),
            "{}",
            run.stderr
        );
        assert!(!out.exists());
    }
}

#[test]
fn importance_is_read_in_both_forms() {
    let scratch = tempfile::tempdir().unwrap();
    let plain = plain_model(&scratch);
    let header = json_of(&["inspect", "--json", &plain]);
    let tensors = header["checkpoints"][0]["tensors"].as_array().unwrap();
    // the older form: a count, then names, calls and numbers
    let mut list = Vec::new();
    let mut count = 0_i32;
    for tensor in tensors {
        let (name, shape) = (
            tensor["name"].as_str().unwrap(),
            tensor["shape"].as_array().unwrap(),
        );
        if shape.len() != 2 || !name.starts_with("blk.") {
            continue;
        }
        let width = shape[1].as_u64().unwrap();
        list.extend(i32::try_from(name.len()).unwrap().to_le_bytes());
        list.extend(name.as_bytes());
        list.extend(2_i32.to_le_bytes());
        list.extend(i32::try_from(width).unwrap().to_le_bytes());
        (0..width).for_each(|i| list.extend((1.0 + (i % 7) as f32).to_le_bytes()));
        count += 1;
    }
    let mut bytes = count.to_le_bytes().to_vec();
    bytes.extend(&list);
    bytes.extend(5_i32.to_le_bytes());
    bytes.extend(4_i32.to_le_bytes());
    bytes.extend(b"data");
    let path = scratch.path().join("model.imatrix");
    fs::write(&path, &bytes).unwrap();
    let out = scratch.path().join("i.gguf");
    let made = run(&[
        "convert",
        &plain,
        "-o",
        path_str(&out),
        "--type",
        "q4_0",
        "--imatrix",
        path_str(&path),
    ]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let keys = json_of(&["inspect", "--json", path_str(&out)]);
    let keys = &keys["checkpoints"][0]["metadata"];
    assert_eq!(keys["quantize.imatrix.file"], path_str(&path));
    assert_eq!(keys["quantize.imatrix.dataset"], "data");
    assert_eq!(
        (
            &keys["quantize.imatrix.entries_count"],
            &keys["quantize.imatrix.chunks_count"]
        ),
        (&count.into(), &5.into())
    );
    // cut at any byte it is refused, or has lost what stands behind the entries
    for len in (0..bytes.len()).step_by(13) {
        fs::write(&path, &bytes[..len]).unwrap();
        let cut = run(&[
            "convert",
            &plain,
            "-o",
            path_str(&out),
            "--type",
            "q4_0",
            "--imatrix",
            path_str(&path),
            "--overwrite",
        ]);
        let is_whole = len == bytes.len() - 12;
        assert!(
            matches!(cut.code, 1 | 2) != is_whole,
            "{len}: {}",
            cut.stderr
        );
    }
}

/// A checkpoint of transformers, made of the fixture.
fn checkpoint(scratch: &TempDir) -> String {
    let folder = scratch.path().join("scribe-it");
    let source = workspace().join("fixtures/gguf/names/qwen2.gguf");
    let made = run(&[
        "remember",
        path_str(&source),
        "-o",
        &format!("{}/", path_str(&folder)),
        "--dtype",
        "f16",
    ]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    path_str(&folder).to_owned()
}

#[test]
fn a_checkpoint_becomes_a_gguf_in_one_step_as_in_two() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = checkpoint(&scratch);
    let make = |source: &str, name: &str, options: &[&str]| {
        let out = scratch.path().join(name);
        let mut args = vec!["convert", source, "-o", path_str(&out)];
        args.extend(options);
        let made = run(&args);
        assert_eq!(made.code, 0, "{options:?}: {}", made.stderr);
        path_str(&out).to_owned()
    };
    let pre: &[&str] = &["--tokenizer-pre", "qwen2"];
    let with = |options: &[&'static str]| [options, pre].concat();
    for (via, kind) in [("f16", "q4_k_m"), ("f32", "q8_0"), ("auto", "q4_0")] {
        let plain = make(&folder, &format!("{via}.gguf"), &with(&["--type", via]));
        let options = ["--type", kind, "--pure"];
        let two = make(&plain, &format!("{via}-{kind}-two.gguf"), &options);
        let one = [&options[..], &["--via", via]].concat();
        let one = make(&folder, &format!("{via}-{kind}-one.gguf"), &with(&one));
        let (one, two) = (fs::read(one).unwrap(), fs::read(two).unwrap());
        assert!(one == two, "{kind} via {via}");
    }
    let header = json_of(&[
        "inspect",
        "--json",
        path_str(&scratch.path().join("f16.gguf")),
    ]);
    let metadata = &header["checkpoints"][0]["metadata"];
    // from the folder's name
    assert_eq!(metadata["general.name"], "Scribe It");
    assert_eq!(metadata["general.file_type"], 1);
    assert_eq!(metadata["tokenizer.ggml.pre"], "qwen2");
}

#[test]
fn a_checkpoint_that_is_not_understood_is_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = checkpoint(&scratch);
    let out = scratch.path().join("out.gguf");
    let refused = |options: &[&str], code: i32| {
        let mut args = vec!["convert", &*folder, "-o", path_str(&out), "--type", "q8_0"];
        args.extend(options);
        let made = run(&args);
        assert_eq!(made.code, code, "{}", made.stderr);
        assert!(!out.exists());
        made.stderr
    };
    let named = ["--tokenizer-pre", "qwen2"];
    let split = refused(&[&named[..], &["--keep-split"]].concat(), 2);
    assert!(split.contains("the files of a GGUF are kept"), "{split}");
    let config = Path::new(&folder).join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let class = parsed["architectures"][0].as_str().unwrap();
    fs::write(&config, text.replace(class, "UnheardOfForCausalLM")).unwrap();
    let unknown = refused(&named, 1);
    assert!(unknown.contains("UnheardOfForCausalLM"), "{unknown}");
    fs::remove_file(&config).unwrap();
    let without = refused(&named, 1);
    assert!(without.contains("config.json"), "{without}");
}

#[test]
fn the_files_of_a_split_are_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let plain = plain_model(&scratch);
    let parts = scratch.path().join("parts");
    let made = run(&[
        "convert",
        &plain,
        "-o",
        path_str(&parts),
        "--shard-size",
        "100KB",
    ]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let mut files: Vec<_> = fs::read_dir(&parts)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > 1);
    let out = scratch.path().join("small.gguf");
    let args = [
        "convert",
        path_str(&files[0]),
        "-o",
        path_str(&out),
        "--type",
        "q8_0",
        "--keep-split",
    ];
    let made = run(&args);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let count = files.len();
    let own = |number| {
        scratch
            .path()
            .join(format!("small-{number:05}-of-{count:05}.gguf"))
    };
    for number in 1..=count {
        assert!(own(number).exists(), "{number} of {count}");
    }
    assert_eq!(types(path_str(&own(1))).len(), types(&plain).len());
    assert!(!out.exists());
    // a second time it is refused, and nothing changes
    let before = fs::read(own(1)).unwrap();
    let again = run(&args);
    assert_eq!(again.code, 1, "{}", again.stdout);
    assert_eq!(fs::read(own(1)).unwrap(), before);
}
