//! Every verb that writes a file, against every rule for written files: the table of docs/untrusted.md.
//!
//! Each case runs the command as its user does, with the path of the output in a state that a rule is about, and compares the
//! files that are left.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{command, path_str, safetensors, workspace};

/// A verb, and its arguments that read the model and write to a path.
struct Writer {
    verb: &'static str,
    /// Takes the model's directory, an I/O template, and the output.
    args: fn(&str, &str, &str) -> Vec<String>,
    /// `--overwrite` replaces files, which is the case for all but logs.
    replaces: bool,
}

/// The verb whose output is a directory: the rules are about the file of tensors in it.
const DIRECTORY: &str = "remember -o DIR";

impl Writer {
    /// The file that it reads in the place of this one of the model: merging reads a template.
    fn source(&self, name: &'static str) -> &'static str {
        match self.verb {
            "template merge" => "t.iot",
            _ => name,
        }
    }

    /// The name of a file that it writes, which is chosen by the test but in a directory.
    fn file(&self, name: &'static str) -> &'static str {
        match self.verb {
            DIRECTORY => "model.safetensors",
            _ => name,
        }
    }

    /// The names of all files that it leaves, one of which the test has chosen.
    fn files(&self, name: &'static str) -> Vec<&'static str> {
        match self.verb {
            DIRECTORY => vec!["config.json", "model.safetensors"],
            _ => vec![name],
        }
    }

    /// The argument for a file: the directory of it, where the verb chooses the name.
    fn output(&self, file: &Path) -> PathBuf {
        match self.verb {
            DIRECTORY => file.parent().unwrap().join(""),
            _ => file.to_owned(),
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The verbs that are tried.
pub(crate) fn verbs() -> Vec<String> {
    WRITERS
        .iter()
        .map(|writer| writer.verb.to_owned())
        .collect()
}

static WRITERS: &[Writer] = &[
    Writer {
        verb: "remember",
        args: |model, _, out| {
            let file = format!("{model}/model.safetensors");
            words(&["remember", &file, "-o", out])
        },
        replaces: true,
    },
    Writer {
        verb: DIRECTORY,
        args: |model, _, out| words(&["remember", model, "-o", out]),
        replaces: true,
    },
    Writer {
        verb: "convert",
        args: |model, _, out| {
            let file = format!("{model}/model.safetensors");
            words(&["convert", &file, "-o", out])
        },
        replaces: true,
    },
    Writer {
        verb: "convert --record",
        args: |model, _, out| {
            let tensors = format!("{model}/../tensors.safetensors");
            words(&["convert", model, "-o", &tensors, "--record", out])
        },
        replaces: true,
    },
    Writer {
        verb: "remember --record",
        args: |model, _, out| {
            let tensors = format!("{model}/../tensors.safetensors");
            words(&["remember", model, "-o", &tensors, "--record", out])
        },
        replaces: true,
    },
    Writer {
        verb: "load --record",
        args: |model, _, out| words(&["load", model, "--record", out]),
        replaces: true,
    },
    Writer {
        verb: "check --write",
        args: |model, _, out| words(&["check", model, "--write", out]),
        replaces: true,
    },
    Writer {
        verb: "report",
        args: |model, _, out| words(&["report", model, "-o", out]),
        replaces: true,
    },
    Writer {
        verb: "template predict",
        args: |model, _, out| words(&["template", "predict", model, "-o", out]),
        replaces: true,
    },
    Writer {
        verb: "template merge",
        args: |_, template, out| words(&["template", "merge", template, "-o", out]),
        replaces: true,
    },
    Writer {
        verb: "record",
        args: |model, _, out| {
            let read = format!("cat '{model}/model.safetensors'");
            words(&["record", "-o", out, "--dir", model, "--", "sh", "-c", &read])
        },
        replaces: true,
    },
    Writer {
        verb: "ppc run --event-log",
        args: |model, _, out| {
            words(&[
                "ppc",
                "run",
                "--dir",
                model,
                "--event-log",
                out,
                "--",
                "true",
            ])
        },
        replaces: false,
    },
];

/// A model, a template of it, and a directory for outputs.
struct Files {
    scratch: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let this = Self { scratch };
        fs::create_dir(this.model()).unwrap();
        fs::create_dir(this.path("out")).unwrap();
        safetensors(&this.path("model/model.safetensors"), "", &[("w", &[64])]);
        fs::write(this.path("model/config.json"), "{\"model_type\": \"m\"}").unwrap();
        let mut predict = command(&["template", "predict"]);
        predict.arg(this.model()).arg("-o").arg(this.path("t.iot"));
        let done = predict.output().unwrap();
        assert!(done.status.success());
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A file in the directory for outputs.
    fn out(&self, writer: &Writer, name: &'static str) -> PathBuf {
        self.path("out").join(writer.file(name))
    }

    fn model(&self) -> PathBuf {
        self.path("model")
    }

    /// Runs a writer within 20 s; its status and what it printed as an error.
    fn write(&self, writer: &Writer, out: &Path, overwrite: bool) -> (Option<i32>, String) {
        self.write_to(writer, path_str(&writer.output(out)), overwrite)
    }

    /// The same, for the text of its argument.
    fn write_to(&self, writer: &Writer, out: &str, overwrite: bool) -> (Option<i32>, String) {
        let (model, template) = (self.model(), self.path("t.iot"));
        let mut args = (writer.args)(path_str(&model), path_str(&template), out);
        if overwrite {
            args.insert(
                1 + usize::from(["template", "ppc"].contains(&&*args[0])),
                "--overwrite".into(),
            );
        }
        let mut limited = Command::new("timeout");
        limited.args(["-s", "KILL", "20", env!("CARGO_BIN_EXE_anamnesis")]);
        let output = limited.args(args).current_dir(workspace()).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), stderr)
    }

    /// Every path below the scratch directory with its content, but those in `out`.
    fn inputs(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let names = [
            "model/model.safetensors",
            "model/config.json",
            "t.iot",
            "kept/file",
            "kept/model.safetensors",
            "other/model.safetensors",
            "other/config.json",
        ];
        let present = names.iter().map(|name| self.path(name));
        present
            .filter_map(|path| Some((path.clone(), fs::read(&path).ok()?)))
            .collect()
    }

    /// The names in `out`.
    fn outputs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("out")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names
            .filter(|name| !name.ends_with(".tensors.safetensors"))
            .collect();
        names.sort();
        names
    }
}

/// Whether this verb can run here: recordings and logs need events of the kernel.
fn runs(writer: &Writer) -> bool {
    let files = Files::new();
    let (code, stderr) = files.write(writer, &files.out(writer, "new"), false);
    if code != Some(0) && (writer.verb == "record" || writer.verb.starts_with("ppc")) {
        eprintln!("SKIPPED: {}: {stderr}", writer.verb);
        return false;
    }
    assert_eq!(code, Some(0), "{}: {stderr}", writer.verb);
    assert_eq!(files.outputs(), writer.files("new"), "{}", writer.verb);
    true
}

/// A rule: the state before, and the judgement of the state after. The judgement returns the fault.
struct Rule {
    what: &'static str,
    holds: fn(&Files, &Writer) -> Result<(), String>,
}

fn refused(files: &Files, writer: &Writer, out: &Path, overwrite: bool) -> Result<(), String> {
    let before = files.inputs();
    let (code, stderr) = files.write(writer, out, overwrite);
    if !matches!(code, Some(1 | 2)) {
        return Err(format!("status {code:?}: {stderr}"));
    }
    if files.inputs() != before {
        return Err("a file was changed".to_owned());
    }
    match stderr.contains(path_str(&writer.output(out)).trim_end_matches('/')) {
        true => Ok(()),
        false => Err(format!("not named: {stderr}")),
    }
}

/// Refused with and without `--overwrite`, where the verb has it.
fn refused_always(files: &Files, writer: &Writer, out: &Path) -> Result<(), String> {
    refused(files, writer, out, false)?;
    match writer.replaces {
        true => refused(files, writer, out, true),
        false => Ok(()),
    }
}

/// Whether the verb writes a checkpoint to the output, for which it makes directories.
fn makes_directories(writer: &Writer) -> bool {
    matches!(writer.verb, "remember" | "convert" | DIRECTORY)
}

static RULES: &[Rule] = &[
    Rule {
        what: "a file of the model",
        holds: |files, writer| {
            for name in ["model/model.safetensors", "model/config.json"] {
                refused_always(files, writer, &files.path(writer.source(name)))?;
            }
            Ok(())
        },
    },
    Rule {
        what: "a link to one",
        holds: |files, writer| {
            let target = writer.source("model/model.safetensors");
            let link = files.out(writer, "link");
            symlink(files.path(target), &link).unwrap();
            refused_always(files, writer, &link)?;
            assert!(link.is_symlink(), "the link is left");
            Ok(())
        },
    },
    Rule {
        what: "a hard link of one",
        holds: |files, writer| {
            let target = writer.source("model/model.safetensors");
            let link = files.out(writer, "link");
            fs::hard_link(files.path(target), &link).unwrap();
            refused_always(files, writer, &link)?;
            match fs::metadata(&link).unwrap().nlink() {
                2 => Ok(()),
                links => Err(format!("{links} links")),
            }
        },
    },
    Rule {
        what: "an existing file, without `--overwrite`",
        holds: |files, writer| {
            let file = files.path("kept").join(writer.file("file"));
            fs::create_dir(files.path("kept")).unwrap();
            fs::write(&file, "kept").unwrap();
            refused(files, writer, &file, false)
        },
    },
    Rule {
        what: "a pipe",
        holds: |files, writer| {
            let pipe = files.out(writer, "pipe");
            rustix::fs::mknodat(
                rustix::fs::CWD,
                &pipe,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o600),
                0,
            )
            .unwrap();
            refused_always(files, writer, &pipe)
        },
    },
    Rule {
        what: "a link to a device",
        holds: |files, writer| {
            let link = files.out(writer, "null");
            symlink("/dev/null", &link).unwrap();
            refused_always(files, writer, &link)
        },
    },
    Rule {
        what: "a directory that does not exist",
        holds: |files, writer| {
            // the verb that makes it, since it writes checkpoints
            if makes_directories(writer) {
                return Ok(());
            }
            refused(files, writer, &files.path("none/file"), false)
        },
    },
    Rule {
        what: "a file of another model",
        holds: |files, writer| {
            fs::create_dir(files.path("other")).unwrap();
            let model = files.path("other/model.safetensors");
            safetensors(&model, "", &[("other", &[8])]);
            fs::write(files.path("other/config.json"), "{}").unwrap();
            // a checkpoint is replaced by a checkpoint
            if makes_directories(writer) {
                return refused(files, writer, &model, false);
            }
            refused_always(files, writer, &model)?;
            refused_always(files, writer, &files.path("other/config.json"))?;
            // its bytes say what it is, where its name does not
            for name in ["other/keepme", "other/m.gguf.bak"] {
                fs::copy(&model, files.path(name)).unwrap();
                refused_always(files, writer, &files.path(name))?;
            }
            Ok(())
        },
    },
    Rule {
        what: "a URL",
        holds: |files, writer| {
            // checkpoints are written to buckets
            if makes_directories(writer) {
                return Ok(());
            }
            refused(files, writer, Path::new("gs://bucket/file"), false)?;
            match workspace().join("gs:").exists() {
                true => Err("a directory of its name was made".to_owned()),
                false => Ok(()),
            }
        },
    },
    Rule {
        what: "`-`",
        holds: |files, writer| {
            let (code, stderr) = files.write_to(writer, "-", false);
            let is_refused = code == Some(2) && stderr.contains("standard output");
            // the page is written there
            let is_written = code == Some(0) && writer.verb == "report";
            match (is_refused || is_written, workspace().join("-").exists()) {
                (true, false) => Ok(()),
                found => Err(format!("{found:?}, status {code:?}: {stderr}")),
            }
        },
    },
    Rule {
        what: "replaced: permissions, owner and nothing else left",
        holds: |files, writer| {
            let out = files.out(writer, "old");
            fs::write(&out, "old").unwrap();
            fs::set_permissions(&out, fs::Permissions::from_mode(0o640)).unwrap();
            let is_root = rustix::process::geteuid().is_root();
            if is_root {
                std::os::unix::fs::chown(&out, Some(1), Some(1)).unwrap();
            }
            if !writer.replaces {
                return Ok(());
            }
            let (code, stderr) = files.write(writer, &out, true);
            let meta = fs::metadata(&out).unwrap();
            let owner = if is_root { 1 } else { meta.uid() };
            let found = (code, meta.mode() & 0o7777, meta.uid(), meta.len() == 3);
            match found == (Some(0), 0o640, owner, false) && files.outputs() == writer.files("old")
            {
                true => Ok(()),
                false => Err(format!("{found:?} {:?} {stderr}", files.outputs())),
            }
        },
    },
];

#[test]
fn every_verb_keeps_every_rule() {
    let mut wrong = Vec::new();
    let writers: Vec<_> = WRITERS.iter().filter(|writer| runs(writer)).collect();
    let cells = |cell: &dyn Fn(&Writer) -> String| -> String {
        let cells: Vec<String> = writers.iter().map(|writer| cell(writer)).collect();
        cells.join(" | ")
    };
    let mut table = format!("| output | {} |\n", cells(&|w| format!("`{}`", w.verb)));
    table.push_str(&format!("|---|{}\n", "---|".repeat(writers.len())));
    for rule in RULES {
        let mut row = Vec::new();
        for writer in &writers {
            let held = (rule.holds)(&Files::new(), writer);
            row.push(if held.is_ok() { "yes" } else { "NO" });
            wrong.extend(
                held.err()
                    .map(|fault| format!("{}, {}: {fault}", writer.verb, rule.what)),
            );
        }
        table.push_str(&format!("| {} | {} |\n", rule.what, row.join(" | ")));
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if writers.len() < WRITERS.len() {
        return eprintln!("SKIPPED: the table of docs/untrusted.md has all verbs");
    }
    crate::documents::compare_with_untrusted("written files", &table);
}

/// A file system that is full while a verb writes: the old file or none is left.
#[test]
fn a_full_file_system_leaves_no_part() {
    for writer in WRITERS
        .iter()
        .filter(|writer| writer.replaces && runs(writer))
    {
        for old in [false, true] {
            let files = Files::new();
            let (model, template) = (files.model(), files.path("t.iot"));
            let out = writer.output(&files.path("out/file"));
            let name = writer.file("file");
            let mut args = (writer.args)(path_str(&model), path_str(&template), path_str(&out));
            args.insert(1 + usize::from(args[0] == "template"), "--overwrite".into());
            let before = match old {
                true => format!("printf old > {name};"),
                false => String::new(),
            };
            let script = format!(
                "mount -t tmpfs -o size=4k none '{0}' || exit 99; cd '{0}'; {before} head -c 8192 /dev/zero > filler 2>/dev/null
                 \"$@\" >/dev/null; s=$?; ls -A | grep -v filler; cat {name} 2>/dev/null; exit $s",
                path_str(&files.path("out"))
            );
            let mut namespace = Command::new("unshare");
            namespace.args([
                "-m",
                "sh",
                "-c",
                &script,
                "sh",
                env!("CARGO_BIN_EXE_anamnesis"),
            ]);
            let Ok(done) = namespace.args(args).current_dir(workspace()).output() else {
                return eprintln!("SKIPPED: unshare is not installed");
            };
            if [Some(99), None].contains(&done.status.code())
                || !rustix::process::geteuid().is_root()
            {
                return eprintln!("SKIPPED: a full file system needs root");
            }
            let (stdout, stderr) = (
                String::from_utf8_lossy(&done.stdout),
                String::from_utf8_lossy(&done.stderr),
            );
            assert!(
                matches!(done.status.code(), Some(1 | 2)),
                "{}: {stdout}{stderr}",
                writer.verb
            );
            assert!(stderr.contains("free space"), "{}: {stderr}", writer.verb);
            let expected = match old {
                true => format!("{name}\nold"),
                false => String::new(),
            };
            assert_eq!(stdout, expected, "{}", writer.verb);
        }
    }
}
