//! `anamnesis remember` and `anamnesis plan`: the files that are written or left unchanged, refused weights, interrupts.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::process::{finish, path_str, run, safetensors, send_signal, stdout_of};

pub(crate) fn sorted_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

#[test]
fn values_that_are_not_written_are_named_in_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.safetensors");
    let arrays = "fixtures/pth/values/arrays4.pth";
    let run = run(&[
        "remember",
        arrays,
        "-o",
        path_str(&out),
        "--exclude",
        "*.c16",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let counted = "warning: values that are not tensors and cannot be shown: 2 (";
    assert!(run.stderr.starts_with(counted), "{}", run.stderr);
    assert!(run.stdout.contains("23 plain tensors"), "{}", run.stdout);
}

#[test]
fn the_note_on_names_of_llama_cpp_names_the_flag() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.safetensors");
    let note =
        "note: the names of the outputs are llama.cpp's; --names hf makes those of transformers\n";
    let source = "fixtures/gguf/names/llama.gguf";
    let written = stdout_of(&["remember", source, "-o", path_str(&out)]);
    assert!(written.starts_with(note), "{written}");
    let planned = stdout_of(&["plan", source]);
    assert!(planned.ends_with(note), "{planned}");
    let named = stdout_of(&["plan", source, "--names", "hf"]);
    assert!(!named.contains("llama.cpp"), "{named}");
}

#[test]
fn an_existing_file_is_replaced_only_with_overwrite() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.safetensors");
    let remember = [
        "remember",
        "fixtures/gguf/types/q4_k.gguf",
        "-o",
        path_str(&out),
    ];
    assert_eq!(
        stdout_of(&remember),
        format!(
            "note: the names of the outputs are llama.cpp's\n{}: 2 weights as BF16, 6.00 KiB\n",
            out.display()
        )
    );
    let first = fs::read(&out).unwrap();
    let again = run(&remember);
    assert_eq!(again.code, 1);
    assert!(
        again.stderr.contains("exists") && again.stderr.contains("--overwrite"),
        "{}",
        again.stderr
    );
    assert_eq!(fs::read(&out).unwrap(), first);
    let replaced = run(&[
        &remember[..],
        &["--overwrite", "--dtype", "f32", "--threads", "1"],
    ]
    .concat());
    assert_eq!(replaced.code, 0, "{}", replaced.stderr);
    assert_eq!(fs::read(&out).unwrap().len(), (first.len() - 6144) + 12288);
    assert_eq!(
        sorted_names(dir.path()),
        ["out.safetensors"],
        "no temporary file is left"
    );
}

#[test]
fn shard_size_writes_shards_and_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let args = [
        "remember",
        "fixtures/model/scribe-Q8_0.gguf",
        "-o",
        path_str(&out),
        "--shard-size",
        "60KiB",
        "--json",
    ];
    let document: Value = serde_json::from_str(&stdout_of(&args)).unwrap();
    let count = document["files"].as_array().unwrap().len();
    assert!(
        count > 2 && document["weights"] == 15 && document["plain"] == 5,
        "{document}"
    );
    assert!(sorted_names(&out).contains(&"model.safetensors.index.json".to_owned()));
    let inspected: Value =
        serde_json::from_str(&stdout_of(&["inspect", "--json", path_str(&out)])).unwrap();
    assert_eq!(
        inspected["checkpoints"][0]["tensors"]
            .as_array()
            .unwrap()
            .len(),
        20
    );
    assert_eq!(
        inspected["checkpoints"][0]["files"]
            .as_array()
            .unwrap()
            .len(),
        count
    );
}

#[test]
fn a_refused_weight_is_named_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("in.safetensors");
    let header = r#"{"a.weight":{"dtype":"I8","shape":[2,2],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([0; 8]);
    fs::write(&source, bytes).unwrap();
    let out = dir.path().join("out.safetensors");
    let refused = run(&["remember", path_str(&source), "-o", path_str(&out)]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("`a.weight`"), "{}", refused.stderr);
    assert_eq!(sorted_names(dir.path()), ["in.safetensors"]);
    let plan = run(&["plan", path_str(&source)]);
    assert!(
        plan.code == 1 && plan.stdout.contains("refused:"),
        "{}",
        plan.stdout
    );
    let excluded = run(&[
        "remember",
        path_str(&source),
        "-o",
        path_str(&out),
        "--exclude",
        "a.*",
    ]);
    assert_eq!((excluded.code, excluded.stderr.as_str()), (0, ""));
    assert_eq!(
        run(&[
            "remember",
            path_str(&source),
            "-o",
            path_str(&out),
            "--overwrite",
            "-f",
            "nothing"
        ])
        .code,
        2
    );
}

#[test]
fn shard_size_accepts_units_and_refuses_zero() {
    for (size, code) in [
        ("5GB", 0),
        ("1.5 MiB", 0),
        ("100B", 0),
        ("5000000", 0),
        ("100", 0),
        ("0", 2),
        ("big", 2),
        ("5XB", 2),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let args = [
            "remember",
            "fixtures/gguf/types/q4_k.gguf",
            "-o",
            path_str(&out),
            "--shard-size",
            size,
        ];
        assert_eq!(run(&args).code, code, "{size}");
    }
}

#[test]
fn plan_lists_the_byte_ranges_of_every_job() {
    let document: Value = serde_json::from_str(&stdout_of(&[
        "plan",
        "--json",
        "fixtures/gguf/types/q4_k.gguf",
    ]))
    .unwrap();
    let jobs = document["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    for job in jobs {
        let range = &job["parts"][0]["range"];
        assert_eq!(
            job["reads"],
            serde_json::json!([range]),
            "a single tile reads its single part in full"
        );
    }
}

/// A file of half a gigabyte of zeros: copying it takes long enough to be interrupted.
#[cfg(unix)]
pub(crate) fn half_a_gigabyte(directory: &Path) -> std::path::PathBuf {
    let nbytes = 1u64 << 29;
    let header =
        format!(r#"{{"a":{{"dtype":"F8_E4M3","shape":[{nbytes}],"data_offsets":[0,{nbytes}]}}}}"#);
    of_zeros(directory, &header, nbytes)
}

/// A file with this header, whose `nbytes` bytes of tensors are zeros without a place on the disk.
#[cfg(unix)]
pub(crate) fn of_zeros(directory: &Path, header: &str, nbytes: u64) -> std::path::PathBuf {
    let source = directory.join("in.safetensors");
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    fs::write(&source, &bytes).unwrap();
    let file = fs::File::options().write(true).open(&source).unwrap();
    file.set_len(bytes.len() as u64 + nbytes).unwrap();
    source
}

/// Waits until a process has created its output, which has a temporary name in the directory, or none at all.
#[cfg(unix)]
pub(crate) fn wait_for_output(process: &std::process::Child, directory: &Path) {
    use std::time::{Duration, Instant};

    use crate::process::assert_runs;

    let has_unnamed_file = || {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", process.id()))
            .into_iter()
            .flatten();
        descriptors.flatten().any(|descriptor| {
            fs::read_link(descriptor.path()).is_ok_and(|path| {
                path.starts_with(directory) && path.to_string_lossy().ends_with(" (deleted)")
            })
        })
    };
    let begun = Instant::now();
    while sorted_names(directory).len() < 2 && !has_unnamed_file() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no output was created"
        );
        assert_runs(process, "it created its output");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(unix)]
#[test]
fn a_killed_run_leaves_nothing_for_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let source = half_a_gigabyte(dir.path());
    let out = dir.path().join("out.safetensors");
    let args = [
        "remember",
        path_str(&source),
        "-o",
        path_str(&out),
        "--threads",
        "1",
    ];
    let mut child = crate::process::command(&args);
    child
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut child = child.spawn().unwrap();
    wait_for_output(&child, dir.path());
    child.kill().unwrap();
    assert!(
        child.wait().unwrap().code().is_none(),
        "the run ended before it was killed"
    );
    // on a file system without unnamed files a part is left here, which the next run removes
    let small = [
        "remember",
        "fixtures/gguf/types/q4_k.gguf",
        "-o",
        path_str(&out),
    ];
    assert_eq!(run(&small).code, 0);
    assert_eq!(
        sorted_names(dir.path()),
        ["in.safetensors", "out.safetensors"]
    );
}

#[cfg(unix)]
#[test]
fn more_shards_than_descriptors_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let source = dir.path().join("in.safetensors");
    let tensors: Vec<String> = (0..1020)
        .map(|n| {
            format!(
                r#""t{n}":{{"dtype":"U8","shape":[1],"data_offsets":[{n},{}]}}"#,
                n + 1
            )
        })
        .collect();
    let header = format!("{{{}}}", tensors.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([7; 1020]);
    fs::write(&source, bytes).unwrap();
    for limit in [1024, 64] {
        let mut shell = std::process::Command::new("sh");
        let line = format!(
            "ulimit -n {limit}; exec '{}' remember '{}' -o '{}' --shard-size 1B",
            env!("CARGO_BIN_EXE_anamnesis"),
            path_str(&source),
            path_str(&out)
        );
        shell.args(["-c", &line]);
        let refused = finish(shell);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("ulimit -n"), "{}", refused.stderr);
        assert_eq!(sorted_names(dir.path()), ["in.safetensors"]);
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_no_output_file() {
    let dir = tempfile::tempdir().unwrap();
    let source = half_a_gigabyte(dir.path());
    let out = dir.path().join("out.safetensors");
    let mut child = crate::process::command(&[
        "remember",
        path_str(&source),
        "-o",
        path_str(&out),
        "--threads",
        "1",
    ]);
    child
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped());
    let child = child.spawn().unwrap();
    wait_for_output(&child, dir.path());
    send_signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(sorted_names(dir.path()), ["in.safetensors"]);
}

#[cfg(unix)]
#[test]
fn the_output_file_has_the_mode_of_the_umask() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.safetensors");
    let mut shell = std::process::Command::new("sh");
    let line = format!(
        "umask 027; '{}' remember fixtures/gguf/types/q4_k.gguf -o '{}'",
        env!("CARGO_BIN_EXE_anamnesis"),
        path_str(&out)
    );
    shell
        .args(["-c", &line])
        .current_dir(crate::process::workspace());
    assert_eq!(finish(shell).code, 0);
    assert_eq!(
        fs::metadata(&out).unwrap().permissions().mode() & 0o777,
        0o640
    );
}

#[test]
fn a_pipeline_is_written_component_by_component() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["in/unet", "in/vae", "in/scheduler", "in/empty"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    let tensors: &[(&str, &[usize])] = &[("w", &[2, 3])];
    safetensors(
        &path("in/unet/diffusion_pytorch_model.safetensors"),
        "",
        tensors,
    );
    safetensors(
        &path("in/vae/diffusion_pytorch_model.safetensors"),
        "",
        tensors,
    );
    fs::write(
        path("in/unet/config.json"),
        "{\"_class_name\": \"X\", \"quantization_config\": {}}",
    )
    .unwrap();
    fs::write(path("in/scheduler/scheduler_config.json"), "{}").unwrap();
    fs::write(path("in/model_index.json"), "{\"_class_name\": \"P\"}").unwrap();
    let (source, out) = (path("in"), path("out"));
    let remember = ["remember", path_str(&source), "-o", path_str(&out)];
    let printed = stdout_of(&remember);
    assert_eq!(
        printed,
        format!(
            "{}: 2 plain tensors, 2 files, 48 B, with 3 companion files: scheduler/scheduler_config.json, \
             unet/config.json, model_index.json\n",
            out.display()
        )
    );
    assert_eq!(
        sorted_names(&out),
        ["model_index.json", "scheduler", "unet", "vae"]
    );
    assert_eq!(
        sorted_names(&path("out/unet")),
        ["config.json", "diffusion_pytorch_model.safetensors"]
    );
    let config = fs::read_to_string(path("out/unet/config.json")).unwrap();
    assert_eq!(config, "{\"_class_name\": \"X\"}");
    // the same again is refused, and replaced on request
    assert_eq!(run(&remember).code, 1);
    assert_eq!(run(&[&remember[..], &["--overwrite"]].concat()).code, 0);
    for inside in ["in", "in/unet", "in/out"] {
        let inside = path(inside);
        let refused = run(&[
            "remember",
            path_str(&source),
            "-o",
            path_str(&inside),
            "--overwrite",
        ]);
        assert!(
            refused.code == 2 && refused.stderr.contains("own source"),
            "{}",
            refused.stderr
        );
    }
    assert_eq!(
        sorted_names(&source),
        ["empty", "model_index.json", "scheduler", "unet", "vae"]
    );
}

#[test]
fn a_pipeline_lacks_a_component_or_has_files_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("in/unet")).unwrap();
    let tensors: &[(&str, &[usize])] = &[("w", &[2, 3])];
    for file in ["unet/diffusion_pytorch_model", "all", "lora"] {
        safetensors(&path(&format!("in/{file}.safetensors")), "", tensors);
    }
    let index = |vae: &str| {
        let text = format!(
            "{{\"_class_name\": \"P\", \"unet\": [\"diffusers\", \"U\"], \"vae\": {vae}, \
             \"scheduler\": [\"diffusers\", \"S\"]}}"
        );
        fs::write(path("in/model_index.json"), text).unwrap();
    };
    let (source, out) = (path("in"), path("out"));
    let remember = ["remember", path_str(&source), "-o", path_str(&out)];
    index("[\"diffusers\", \"V\"]");
    let refused = run(&remember);
    assert!(
        refused.code == 1 && refused.stderr.contains("not there: vae\n") && !out.exists(),
        "{}",
        refused.stderr
    );
    index("[null, null]");
    let printed = stdout_of(&remember);
    for note in [
        "names components that are not there: scheduler\n",
        "not read: all.safetensors, lora.safetensors",
    ] {
        assert!(printed.contains(note), "{printed}");
    }
    for verb in ["plan", "inspect"] {
        let refused = run(&[verb, path_str(&source)]);
        assert!(
            refused.code == 1 && refused.stderr.contains("pipeline of diffusers"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn names_lose_their_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (
        dir.path().join("in.safetensors"),
        dir.path().join("out.safetensors"),
    );
    let tensors: &[(&str, &[usize])] = &[("net.a.w", &[1]), ("net.b", &[1]), ("network", &[1])];
    safetensors(&source, "", tensors);
    let remember = ["remember", path_str(&source), "-o", path_str(&out)];
    stdout_of(
        &[
            &remember[..],
            &["--strip-prefix", "net", "--rename", "a.=x."],
        ]
        .concat(),
    );
    let document: Value =
        serde_json::from_str(&stdout_of(&["inspect", "--json", path_str(&out)])).unwrap();
    let tensors = document["checkpoints"][0]["tensors"].as_array().unwrap();
    let names: Vec<_> = tensors
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["x.w", "b", "network"]);
    let same = run(&[
        &remember[..],
        &["--overwrite", "--rename", "net.a.w=network"],
    ]
    .concat());
    assert!(
        same.code == 1 && same.stderr.contains("`network`"),
        "{}",
        same.stderr
    );
    let refused = run(&[
        "remember",
        path_str(&source),
        "-o",
        path_str(&dir.path().join("x.gguf")),
    ]);
    assert!(
        refused.code == 2 && refused.stderr.contains(".gguf"),
        "{}",
        refused.stderr
    );
}
