//! A model that a run replaces: it is the old one or the new one after whatever fails, keeps its permissions, and is never the
//! source or the other output of the run.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Run, command, finish, path_str, safetensors};

struct Models {
    scratch: tempfile::TempDir,
}

impl Models {
    /// A model `old` with a configuration, and another one, `new`, with other values.
    fn new() -> Self {
        let this = Self {
            scratch: tempfile::tempdir().unwrap(),
        };
        for (name, rows) in [("old", 64), ("new", 32)] {
            fs::create_dir(this.path(name)).unwrap();
            let file = this.path(name).join("model.safetensors");
            safetensors(&file, "", &[("w", &[rows]), ("v", &[rows])]);
            let config = format!("{{\"model_type\": \"m\", \"hidden_size\": {rows}}}");
            fs::write(this.path(name).join("config.json"), config).unwrap();
        }
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn run(&self, words: &[&str]) -> Run {
        let mut command = command(words);
        command.current_dir(self.scratch.path());
        finish(command)
    }
}

fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = files
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_source_is_not_replaced_through_another_mount_of_it() {
    let models = Models::new();
    let (source, mounted) = (models.path("old"), models.path("mounted"));
    fs::create_dir(&mounted).unwrap();
    let mount = Command::new("mount")
        .arg("--bind")
        .args([&source, &mounted])
        .output();
    if !mount.is_ok_and(|done| done.status.success()) {
        eprintln!("SKIPPED: a directory cannot be mounted a second time here");
        return;
    }
    let before = contents(&source);
    let mut runs = Vec::new();
    for (source, output) in [
        ("old", "mounted"),
        ("old", "mounted/"),
        ("old", "mounted/out.safetensors"),
        ("old", "mounted/below"),
        ("old/model.safetensors", "mounted"),
        ("old/model.safetensors", "mounted/model.safetensors"),
        ("mounted", "old"),
    ] {
        runs.push((
            models.run(&["remember", source, "-o", output, "--overwrite"]),
            source,
            output,
        ));
    }
    let after = contents(&source);
    let unmount = Command::new("umount").arg(&mounted).status().unwrap();
    assert!(unmount.success());
    assert_eq!(before, after);
    for (run, source, output) in runs {
        assert_eq!(run.code, 2, "{source} to {output}");
        assert!(
            run.stderr.contains("into its own source"),
            "{source} to {output}: {}",
            run.stderr
        );
    }
}

#[test]
fn a_template_does_not_replace_the_output_of_its_run() {
    for (output, record) in [
        ("z.safetensors", "z.safetensors"),
        ("z.safetensors", "./z.safetensors"),
        ("z/", "z/model.safetensors"),
        ("z/", "z/config.json"),
        ("z/", "z/reads.iot"),
        ("z/", "z"),
    ] {
        for flags in [&[][..], &["--overwrite"]] {
            let models = Models::new();
            let words = ["remember", "old", "-o", output, "--record", record];
            let run = models.run(&[&words, flags].concat());
            assert_eq!(run.code, 2, "{output} {record}: {}", run.stdout);
            let said = run.stderr.contains("the other output of this run");
            assert!(said, "{record}: {}", run.stderr);
            let z = models.path(output.trim_end_matches('/'));
            assert!(!z.exists(), "{output} {record}");
        }
    }
}

/// Private weights stay private, by an exchange of directories and without one.
#[test]
fn a_new_model_has_the_permissions_of_the_old_one() {
    for has_directory in [false, true] {
        for shards in [&[][..], &["--shard-size", "200B"]] {
            let models = Models::new();
            let old = models.path("old");
            for (path, _) in contents(&old) {
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            if has_directory {
                fs::create_dir(old.join("onnx")).unwrap();
            }
            let words = ["remember", "new", "-o", "old", "--overwrite"];
            let run = models.run(&[&words, shards].concat());
            assert_eq!(run.code, 0, "{}", run.stderr);
            let files = contents(&old);
            assert!(files.len() > 1 + shards.len(), "{files:?}");
            for (path, _) in files {
                let mode = path.metadata().unwrap().mode() & 0o777;
                assert_eq!(mode, 0o600, "{}, {has_directory}", path_str(&path));
            }
        }
    }
}

/// A configuration that stays beside the weights of another model is named.
#[test]
fn a_configuration_of_another_model_is_named() {
    let models = Models::new();
    let single = models.path("single.safetensors");
    fs::copy(models.path("new/model.safetensors"), single).unwrap();
    let said = "config.json was in the directory before";
    let words = [
        "remember",
        "single.safetensors",
        "-o",
        "old/",
        "--overwrite",
    ];
    let run = models.run(&words);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains(said), "{}", run.stdout);
    let run = models.run(&["remember", "new", "-o", "old/", "--overwrite"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(!run.stdout.contains(said), "{}", run.stdout);
}

/// A list of digests that is made again does not list itself, and an empty one is not made.
#[test]
fn a_list_of_digests_does_not_list_itself() {
    for list in ["old/SHA256SUMS", "old/list.json", "list.sha256"] {
        let models = Models::new();
        for overwrite in [&[][..], &["--overwrite"]] {
            let run = models.run(&[&["check", "old", "--write", list][..], overwrite].concat());
            assert_eq!(run.code, 0, "{list}: {}{}", run.stdout, run.stderr);
            let text = fs::read_to_string(models.path(list)).unwrap();
            assert!(text.contains("model.safetensors"), "{text}");
            let name = list.rsplit('/').next().unwrap();
            assert!(!text.contains(name), "{text}");
        }
        let run = models.run(&["check", "old", "--manifest", list]);
        assert_eq!(run.code, 0, "{list}: {}{}", run.stdout, run.stderr);
    }
    let models = Models::new();
    fs::create_dir(models.path("empty")).unwrap();
    let run = models.run(&["check", "empty", "--write", "list.sha256"]);
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
    assert!(!models.path("list.sha256").exists());
}
